"""Replanning in flight: the criterion, a planner beside the loop, and the hand-over to the new plan."""
