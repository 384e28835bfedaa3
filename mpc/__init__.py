"""Model predictive control along a plan."""
