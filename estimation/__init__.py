"""State estimation of the vehicle from the IMU and from observed gates, with the error-state filter by default.

IMU sample -> imu_samples.py -> eskf.py (model/strapdown.py, model/kalman.py) -> State
Detection, State at exposure -> localisation.py -> perception/association.py -> GateSighting
GateSighting -> model/reprojection.py (predicted corners, Jacobian) -> eskf.py (update) -> State
own odometry of a system, GateSighting -> odometry.py: drift.py (the drift) or landmarks.py (displaced gates too) -> State
odometry of an outside VIO -> vio.py, in its place under drift.py
"""
