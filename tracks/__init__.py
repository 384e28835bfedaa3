"""Courses and their geometry."""
