"""`plan-track`: the time-optimal trajectory through the gates, and the proof that it can be flown."""
