"""`identify-vehicle`: system identification from flight logs."""
