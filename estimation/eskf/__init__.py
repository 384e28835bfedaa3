"""Error-state Kalman filter of the vehicle, its sensors and the gates' offsets."""
