"""Inertial odometry, and linear filters for its drift, with and without a map."""
