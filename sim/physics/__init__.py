"""Plants behind one interface, their powertrain and contacts, and learned errors of models and observations."""
