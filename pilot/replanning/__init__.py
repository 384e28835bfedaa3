"""Planning again in flight: when it is worth it, a planner beside the loop, and the hand-over to its plan."""
