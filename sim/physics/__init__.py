"""Plants behind one interface, their contacts, and learned errors of models and observations."""
