"""Corridor: the middle of an opening within which the controller keeps the vehicle's centre, by how well its gate is known.

It is narrowed by two standard deviations of the gate's position, so gates that are seen late are crossed nearer to the middle
than planned. The prediction of crossings (`planner.doubt`) follows the same rule.
"""

import numpy as np

from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.statistics import greatest_sigma

CLEAR_M = 0.1  # m, clearance of the vehicle's body from the edge of an opening, in addition to
SURE = 2.0  # standard deviations of the gate's position
ROOM_M = 0.1  # m, least half width left to the vehicle's centre, for openings hardly wider than the vehicle


def room(gate: Gate, contact_radius_m: float) -> float:
    """Return the half width, m, of the corridor of a gate whose position is known."""
    return max(gate.half - contact_radius_m - CLEAR_M, ROOM_M)


def narrowed(room_m: Array, sigma_m: Array) -> Array:
    """Return half widths (...), m, for standard deviations of the gates' positions across their openings, (...) m."""
    return np.maximum(room_m - SURE * sigma_m, np.minimum(room_m, ROOM_M))


def sigma_across(gate: Gate, cov: Array | None) -> float:
    """Return the greatest standard deviation (m) across a gate's opening for a covariance (3, 3) m^2; 0 if unknown."""
    across = gate.R_wg[:, 1:]
    return 0.0 if cov is None else greatest_sigma(across.T @ cov @ across)
