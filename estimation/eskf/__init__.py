"""The error-state filter: IMU, gates, attitude and position in one state."""
