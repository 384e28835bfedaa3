"""Slow flight by a wanted velocity: what the explorer steers with instead of a plan.

    a = k e + k_i sum e dt + a*,   e = v* - v,   f = a - g + drag(v),   |f| along -z of the body,   omega = k_q log(q^-1 q*)

The sum learns what the vehicle's file has wrong. q* is the attitude whose z axis lies along -f and whose nose points where
it should look.
"""

import math
from dataclasses import dataclass

import numpy as np

from mpc.controller import Control, Source
from mpc.geometric import limited
from vehicle.dynamics import GRAVITY, RATES_X
from vehicle.rotation import Array, aligned, conjugate, log, product
from vehicle.vehicle import Vehicle

P, V, Q = (RATES_X[name].at for name in "pvq")
VELOCITY_GAIN = 2.0  # 1/s
TRIM_GAIN, TRIM_LIMIT = 1.0, 4.0  # 1/s^2, m/s^2
ACCEL_LIMIT = 4.0  # m/s^2, on top of what is fed forward
ATTITUDE_GAIN = 8.0  # 1/s
TURN_LIMIT = 2.0  # rad/s, about the body's axes together
DOWN = np.array([0.0, 0.0, 1.0])


@dataclass(frozen=True, slots=True)
class Aim:
    """What is wanted now, in world NED."""

    v_w: Array  # (3,) m/s
    heading: float  # rad, of the nose
    accel_w: Array  # (3,) m/s^2, fed forward

    @classmethod
    def towards(cls, v_w: Array, heading: float) -> "Aim":
        return cls(v_w, heading, np.zeros(3))


class Servo:
    """Takes an aim, gives commands."""

    def __init__(self, vehicle: Vehicle):
        self.aim = Aim.towards(np.zeros(3), 0.0)
        self._vehicle = vehicle
        self._trim = np.zeros(3)  # m/s^2

    def step(self, t: float, x: Array, dt: float) -> Control:
        """The command for the state x (14,)."""
        q, v = x[Q], x[V]
        error = self.aim.v_w - v
        accel = limited(VELOCITY_GAIN * error, ACCEL_LIMIT)
        if np.linalg.norm(VELOCITY_GAIN * error) < ACCEL_LIMIT:
            self._trim = limited(self._trim + TRIM_GAIN * dt * error, TRIM_LIMIT)
        drag = self._vehicle.drag_quadratic_1_m * float(np.linalg.norm(v)) * v
        force = accel + self._trim + self.aim.accel_w + drag - GRAVITY * DOWN
        thrust = max(float(np.linalg.norm(force)), 1e-3)
        nose = np.array([math.cos(self.aim.heading), math.sin(self.aim.heading), 0.0])
        q_wanted = aligned(-force / thrust, nose)
        omega = limited(ATTITUDE_GAIN * log(product(conjugate(q), q_wanted)), TURN_LIMIT)
        u = np.array([*omega, min(thrust, self._vehicle.thrust_max)])
        reference = np.concatenate([x[P], q_wanted, self.aim.v_w, u])
        return Control(u, q_wanted, Source.SOLVED, "", 0, 0.0, 0.0, 0.0, reference)
