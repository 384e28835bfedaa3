"""Tools for the field: what a team measures on an unknown simulator before it races."""
