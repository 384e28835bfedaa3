"""Records of a flight, and its display meanwhile."""
