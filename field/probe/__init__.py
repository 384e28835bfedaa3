"""`probe-link`: what a simulator says at rest and shows on a short flight, against a wire profile."""
