"""Predicted covariance of the estimate along a plan, the dispersion of the flight about it, and planning for a risk."""
