"""`identify-vehicle`: the vehicle behind a log."""
