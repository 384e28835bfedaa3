"""Sideways oscillation in front of a gate, which gives a map its metric scale.

An opening's size and the focal length are known to a percent. A level vehicle that banks by phi accelerates by g tan(phi), which
involves no scale factor of a sensor, and a gate nearby shows how far that takes it: sideways to a centimetre, along the line of
sight ten times worse.
"""

import math

import numpy as np

from gate_racer.estimation.estimator import Landmark
from gate_racer.pilot.guidance.approach import CROSSING, offset, pull
from gate_racer.pilot.guidance.velocity_controller import Aim
from gate_racer.vehicle.rotation import Array

AT_M = 10.0  # m before the gate, where all of it stays in the image of a banked camera tilted up by 20 deg
FROM_M = 13.0  # m before the gate, from where the vehicle brakes for it
AMPLITUDE_M, PERIOD_S, PERIODS = 2.0, 3.6, 5  # a bank of 32 deg, by the peak acceleration of 6.1 m/s^2 (chosen)
ACCEL = 7.0  # m/s^2, greatest acceleration of the aim


class Weave:
    """The manoeuvre in front of one gate."""

    def __init__(self, p_wb: Array, gate: Landmark, t: float):
        """Begin at t (s) at p_wb (3,) m; the middle is on the gate's axis."""
        before_m = min(-offset(p_wb, gate)[0], AT_M)
        self._begun, self._p_w, self._heading = t, gate.p_w - before_m * gate.ahead, gate.yaw
        self._right = np.array([-math.sin(gate.yaw), math.cos(gate.yaw), 0.0])

    def done(self, t: float) -> bool:
        """Return whether it is over at t (s)."""
        return t - self._begun >= PERIODS * PERIOD_S

    def aim(self, p_wb: Array, t: float) -> Aim:
        """Return the aim at t (s) of a vehicle at p_wb (3,) m."""
        rate = 2 * math.pi / PERIOD_S
        phase = rate * (t - self._begun)
        p_w = self._p_w + AMPLITUDE_M * math.sin(phase) * self._right
        return Aim.towards(
            pull(p_w - p_wb, CROSSING) + AMPLITUDE_M * rate * math.cos(phase) * self._right, self._heading
        )
