"""`race-bench`: many flights over settings, seeds and tracks, from one laptop to a cluster."""
