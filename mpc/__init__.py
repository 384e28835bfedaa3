"""Model predictive control along a plan.

State -> model.py (prediction over the delay) -> state at which a command issued now takes effect
Plan -> reference.py -> references along the horizon
both -> problem.py (costs, constraints, limits from terms.py) -> solvers/ -> first input, or that of geometric.py
input -> model.py (range shared by the rotors) -> limits of the problem -> Control
flight -> adaptation.py -> model parameters, delay and lags
"""
