"""Bytes in, typed messages out, and back."""
