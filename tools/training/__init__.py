"""Labelled frames of random courses, from which a detector is taught. See README.md."""
