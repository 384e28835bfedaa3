"""The vehicle: parameters, equations of motion and camera.

*.yaml -> vehicle.py -> Vehicle, the only place of limits; its camera and mount -> camera.py
state, input -> dynamics.py (models `rates` and `rotors`, one text for NumPy and CasADi) -> derivative
rotation.py (quaternions wxyz, `R_wb`), statistics.py (chi-square gates), uncertainty.py (`Doubt`: one day with a vehicle)
"""
