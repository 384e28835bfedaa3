"""Flight by a wanted velocity: what explorer and exciter steer with instead of a plan.

    a = k e + k_i sum e dt + a*,   e = v* - v,   f = a - g + drag(v),   |f| along -z of the body,   omega = k_q log(q^-1 q*)

The sum learns what the vehicle's file has wrong. q* is the attitude whose z axis lies along -f and whose nose points where
it should look.
"""

import math
from dataclasses import dataclass

import numpy as np

from mpc.control import Control, Source
from mpc.geometric import limited
from vehicle.dynamics import GRAVITY, RATES_X, drag
from vehicle.rotation import Array, aligned, conjugate, log, product
from vehicle.vehicle import Vehicle

P, V, Q = (RATES_X[name].at for name in "pvq")
VELOCITY_GAIN = 2.0  # 1/s
TRIM_GAIN, TRIM_LIMIT = 1.0, 4.0  # 1/s^2, m/s^2
ACCEL_LIMIT = 4.0  # m/s^2, on top of what is fed forward
ATTITUDE_GAIN = 8.0  # 1/s
LEAST_THRUST = 1.0  # m/s^2: below it the force has no direction to speak of
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


class VelocityController:
    """Turns a velocity that is wanted into body rates and thrust."""

    def __init__(self, vehicle: Vehicle, turn_limit: float):
        """`turn_limit`: most body rate, rad/s, about all axes together."""
        self._vehicle, self._air, self._turn_limit = vehicle, vehicle.rates_parameters, turn_limit
        self._trim = np.zeros(3)  # m/s^2

    def input(
        self, x: Array, aim: Aim, dt: float, accel_limit: float = ACCEL_LIMIT, learn: bool = True
    ) -> tuple[Array, Array]:
        """Input (4,) and wanted attitude (4,) for the state x (14,).

        Args:
            x: state.
            aim: what is wanted.
            dt: s, before the next.
            accel_limit: as `ACCEL_LIMIT`.
            learn: whether the sum goes on; not while the input is flown in part only, or the aim jumps.
        """
        q, v = x[Q], x[V]
        error = aim.v_w - v
        if learn:  # level and upwards apart, so that a thrust that is not as told shows while speed is gained
            level = math.hypot(error[0], error[1])
            within = VELOCITY_GAIN * np.array([level, level, abs(error[2])]) < accel_limit
            self._trim = limited(self._trim + TRIM_GAIN * dt * error * within, TRIM_LIMIT)
        air = np.array(drag(q, v, self._air.drag_linear, self._air.drag_quadratic))
        force = limited(VELOCITY_GAIN * error, accel_limit) + self._trim + aim.accel_w - air - GRAVITY * DOWN
        thrust = max(float(np.linalg.norm(force)), LEAST_THRUST)
        nose = np.array([math.cos(aim.heading), math.sin(aim.heading), 0.0])
        q_wanted = aligned(-force / thrust, nose)
        omega = limited(ATTITUDE_GAIN * log(product(conjugate(q), q_wanted)), self._turn_limit)
        return np.array([*omega, min(thrust, self._vehicle.thrust_max)]), q_wanted


def control(x: Array, u: Array, q_wb: Array, aim: Aim) -> Control:
    """An input as a command that no solver was asked for; its reference (14,) is the aim at the place x[P]."""
    reference = np.concatenate([x[P], q_wb, aim.v_w, u])
    return Control(u, q_wb, Source.SOLVED, "", 0, 0.0, 0.0, 0.0, reference)
