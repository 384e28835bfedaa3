"""Displacement of a crossing from the plan by the controller's corridor, which is narrow as long as the gate is not recognised.

The controller aims at the point of the corridor nearest to the plan, and the vehicle follows as the closed loop does, from the
time at which the gate comes into the controller's horizon:

    m'' = w^2 (aim - m) - 2 zeta w m'
"""

import numpy as np

from gate_racer.planner.doubt.tracking import Response
from gate_racer.vehicle.rotation import Array

HORIZON_S = 0.8  # s, of the controller


def displacement(planned_m: Array, t: Array, free_m: Array, loop: Response) -> Array:
    """Return the displacement (2,), m, of a planned crossing (2,), m, right and down of the opening's centre.

    Args:
        t: (K,) s, samples from the beginning of the horizon to the crossing.
        free_m: (K,) m, half width of the corridor then.
    """
    w, place, speed = loop.bandwidth, np.zeros(2), np.zeros(2)
    aims = np.clip(planned_m, -free_m[:, None], free_m[:, None]) - planned_m
    for dt, aim in zip(np.diff(t), aims, strict=False):
        speed = speed + dt * (w**2 * (aim - place) - 2 * loop.damping * w * speed)
        place = place + dt * speed
    return place
