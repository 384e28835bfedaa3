"""State estimation of the vehicle from the IMU and from observed gates, with the error-state filter by default.

IMU sample -> eskf/imu_samples.py -> eskf/propagator.py, strapdown.py -> State
Detection, State at exposure -> localisation.py -> perception/association.py -> GateSighting
GateSighting -> eskf/reprojection.py (predicted corners, Jacobian) -> eskf/filter_state.py (update) -> State
"""
