"""Simulated camera: a rendered world, or gate corners with noise without rendering."""
