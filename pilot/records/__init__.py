"""Records of a flight, and its live display."""
