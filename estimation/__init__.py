"""State estimation of the vehicle from the IMU and from observed gates."""
