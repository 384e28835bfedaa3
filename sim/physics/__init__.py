"""What moves: two plants behind one interface, their powertrain, contacts, and the errors of models and observations."""
