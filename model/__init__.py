"""The error model that filter, risk prediction and mapping share.

states.py (layout, prior, process noise) -> strapdown.py (one IMU step, its Jacobians) -> kalman.py (propagation, update)
rims.py, quadrilateral.py (shape of a gate) -> reprojection.py (predicted corners and their Jacobian) -> residual
kalman.py (rest, attitude, position), gate_offsets.py (displacement of each gate from the map)
"""
