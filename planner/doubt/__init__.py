"""Predicted covariance of the deviation from a plan, and margins for a given collision risk."""
