"""`probe-link`: conventions of a simulator at rest and on a short flight, compared with a wire profile."""
