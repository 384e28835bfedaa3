"""Where the vehicle is, from the IMU and from gates seen."""
