"""Model predictive control along a plan.

State -> predictor.py -> state at which a command issued now takes effect
Plan -> reference.py, progress.py -> references along the horizon
both -> problem/ (model, cost, constraints, limits) -> solvers/ -> first input, or that of a fall-back (controller.py)
input -> allocation.py (range shared by the rotors) -> limits of the problem -> Control
flight -> adaptation.py, response.py -> model parameters, delay and lags
"""
