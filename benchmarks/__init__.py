"""Benchmarks: scripts that compare settings, methods and peers."""
