"""Odometry by the IMU alone, and linear filters for its drift: with a map, and without."""
