"""The courses and their geometry."""
