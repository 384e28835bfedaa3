"""The course of a plan, resolved: legs, free space, and the way around solids."""
