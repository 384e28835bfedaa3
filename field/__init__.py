"""Tools for the field: measurements on an unknown simulator or aircraft before a race."""
