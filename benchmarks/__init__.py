"""Scripts that compare."""
