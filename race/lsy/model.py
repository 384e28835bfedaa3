"""The drone as its controller sees it, identified from flights in crazyflow (`cf21b.yaml`), and its discrete step.

The on-board loop turns towards the commanded roll and pitch at a rate k sin(error), through the lag of the rotors:

    d rate/dt = torque,  T d torque/dt = K sin(command - angle) - D rate - torque,  tau df/dt = command - f

State: position, velocity (m, m/s, world z up), roll and pitch, their rates, their accelerations, thrust per nominal mass
(m/s^2), and the duration of the interval that begins here (s), which is free: each leg of the course shares one.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.common.config import load
from gate_racer.vehicle.dynamics import rk4
from gate_racer.vehicle.rotation import Array

NX, NU = 14, 4
P, V, ANGLES, RATES, TORQUES, F, DT = slice(0, 3), slice(3, 6), slice(6, 8), slice(8, 10), slice(10, 12), 12, 13
FC, DT_NEXT = 2, 3  # of the inputs: roll, pitch, thrust per nominal mass, duration of the next interval
GRAVITY = 9.81


@dataclass(frozen=True)
class Drone:
    """Numbers of `cf21b.yaml`."""

    source: str
    mass_kg: float
    thrust_n: tuple[float, float]  # least and largest, in all
    attitude_gain_1_s2: float  # K
    attitude_damping_1_s: float  # D
    torque_lag_s: float  # T
    thrust_lag_s: float  # tau
    thrust_gain: float
    drag_1_s: float
    yaw_rate_1_s: float  # at which yaw returns to its command


@cache
def drone() -> Drone:
    """Return the identified Crazyflie 2.1 Brushless."""
    return load(Path(__file__).with_name("cf21b.yaml"), Drone)


def slope(x: Any, u: Any, yaw: Any, gain: Any, d: Drone) -> Any:
    """Return dx/dt of the first 13 states, symbolic; `gain` scales the thrust, yaw in rad."""
    roll, pitch = x[6], x[7]
    sr, cr, sp, cp, sy, cy = ca.sin(roll), ca.cos(roll), ca.sin(pitch), ca.cos(pitch), ca.sin(yaw), ca.cos(yaw)
    up = ca.vertcat(cy * sp * cr + sy * sr, sy * sp * cr - cy * sr, cp * cr)
    dv = gain * x[F] * up - d.drag_1_s * x[V] - ca.vertcat(0.0, 0.0, GRAVITY)
    turn = d.attitude_gain_1_s2 * ca.sin(u[:2] - x[ANGLES]) - d.attitude_damping_1_s * x[RATES] - x[TORQUES]
    return ca.vertcat(x[V], dv, x[RATES], x[TORQUES], turn / d.torque_lag_s, (u[FC] - x[F]) / d.thrust_lag_s)


def step(x: Any, u: Any, yaw: Any, gain: Any, dt: Any, d: Drone, parts: int = 4) -> Any:
    """Return the first 13 states after dt, symbolic, by Runge-Kutta."""

    def f(y: Any, u: Any, d: Drone) -> Any:
        return ca.vertsplit(slope(ca.vertcat(*y), u, yaw, gain, d))

    y = ca.vertsplit(x[:DT])
    for _ in range(parts):
        y = rk4(f, y, u, d, dt / parts)
    return ca.vertcat(*y)


@cache
def stepper() -> Any:
    """Return the numeric step: (x (14,), u (4,), yaw, gain, dt) -> first 13 states."""
    x, u, yaw, gain, dt = ca.SX.sym("x", NX), ca.SX.sym("u", NU), ca.SX.sym("yaw"), ca.SX.sym("k"), ca.SX.sym("dt")
    return ca.Function("step", [x, u, yaw, gain, dt], [step(x, u, yaw, gain, dt, drone())])


def predicted(x: Array, u: Array, yaw: float, gain: float, dt: float) -> Array:
    """Return the state (14,) after dt, s, with the duration as it was."""
    return np.append(np.asarray(stepper()(x, u, yaw, gain, dt)).ravel(), x[DT])
