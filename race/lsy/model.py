"""The drone as the time-optimal problem sees it: inputs are what its rotors are asked for, within their limits.

    q' = q * (0, rates) / 2,  rates' = largest * torque,  tau d torque/dt = asked - torque,  tau df/dt = thrust asked - f

about x and y of the body, which does not turn about z; the on-board loop that stands between commands and rotors is inverted
below. State: position, velocity (m, m/s, world z up), attitude (w, x, y, z), rates, torques as shares of the largest,
thrust per nominal mass (m/s^2), and the duration of the interval that begins here (s), which is free: each leg shares one.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.common.config import load
from gate_racer.race.lsy.level import rotation, rules
from gate_racer.vehicle.dynamics import rk4
from gate_racer.vehicle.rotation import Array, conjugate, product, rate, rotate

NX, NU = 16, 4
P, V, Q, RATES, TORQUES, F, DT = slice(0, 3), slice(3, 6), slice(6, 10), slice(10, 12), slice(12, 14), 14, 15
FC, DT_NEXT = 2, 3  # of the inputs: torques about x and y, thrust per nominal mass, duration of the next interval
GRAVITY = 9.81


@dataclass(frozen=True)
class Drone:
    """Numbers of `cf21b.yaml`."""

    source: str
    mass_kg: float
    inertia_kg_m2: tuple[float, float, float]
    arm_m: float
    yaw_arm_m: float
    rotor_n: float
    pwm: tuple[float, float]
    rotor_lag_s: float
    angle_gains: tuple[float, float, float]
    rate_gains: tuple[float, float, float]
    slope_gains: tuple[float, float, float]
    torque_pwm: float
    thrust_gain: float
    drag_1_s: float

    @property
    def thrust_n(self) -> tuple[float, float]:
        """Least and largest thrust, N, in all."""
        return 4 * self.rotor_n * self.pwm[0] / self.pwm[1], 4 * self.rotor_n

    @property
    def torque_1_s2(self) -> Array:
        """Largest accelerations (2,) of roll and pitch that the loop asks for."""
        return 2 * self.rotor_n * self.torque_pwm / self.pwm[1] * self.arm_m / np.array(self.inertia_kg_m2[:2])

    @property
    def turn_1_s(self) -> float:
        """Rate, rad/s, that the loop keeps up under the largest error."""
        return 2 * self.angle_gains[0] / self.rate_gains[0]


@cache
def drone() -> Drone:
    """Return the identified Crazyflie 2.1 Brushless."""
    return load(Path(__file__).with_name("cf21b.yaml"), Drone)


def slope(x: Any, u: Any, gain: Any, d: Drone) -> Any:
    """Return dx/dt of all states but the last, symbolic; `gain` scales the thrust."""
    q, (p, r) = ca.vertsplit(x[Q]), ca.vertsplit(x[RATES])
    dv = gain * x[F] * ca.vertcat(*rotate(q, (0.0, 0.0, 1.0))) - d.drag_1_s * x[V] - ca.vertcat(0.0, 0.0, GRAVITY)
    lag = d.rotor_lag_s
    turn = ca.vertcat(ca.DM(d.torque_1_s2) * x[TORQUES], (u[:2] - x[TORQUES]) / lag)
    return ca.vertcat(x[V], dv, *rate(q, (p, r, 0.0)), turn, (u[FC] - x[F]) / lag)


def step(x: Any, u: Any, gain: Any, dt: Any, d: Drone, parts: int = 4) -> Any:
    """Return all states but the last after dt, symbolic, by Runge-Kutta."""

    def f(y: Any, u: Any, d: Drone) -> Any:
        return ca.vertsplit(slope(ca.vertcat(*y), u, gain, d))

    y = ca.vertsplit(x[:DT])
    for _ in range(parts):
        y = rk4(f, y, u, d, dt / parts)
    return ca.vertcat(*y)


# A deviation (3) of an attitude is twice the vector part of the quaternion that turns it, in the body's frame: what a program
# that moves all attitudes at once has for a state, since steps on quaternions leave the unit sphere.


def deviated(q: Any, by: Any) -> Any:
    """Return the quaternion q (4) moved by a deviation (3), symbolic."""
    return ca.vertcat(*product(q, ca.vertcat(ca.sqrt(1 - ca.sumsqr(by) / 4), by / 2)))


def deviation(q: Any, moved: Any) -> Any:
    """Return the deviation (3) of a moved quaternion from q (4), symbolic; both on one half of the sphere."""
    return 2 * ca.vertcat(*product(conjugate(q), moved)[1:])


# The on-board attitude loop and its rotors, step by step, and its inverse: which command turns the body as planned. As in the
# Crazyflie's firmware (Mellinger and Kumar, Minimum snap trajectory generation, ICRA 2011, eq. 10, in pulse widths):
#
#     torque = clip(k_R (R' R_d - R_d' R)^v - k_w w - k_s dw/dt),  rotor = clip(thrust / 4 + mixed torque),  tau df/dt = rotor - f
#
# Its limits bind in every quick turn, so that no linear model predicts it.

MIX = np.array([[-1.0, -1.0, 1.0, 1.0], [-1.0, 1.0, 1.0, -1.0], [-1.0, 1.0, -1.0, 1.0]])  # of torques about x, y, z
STEEPEST = 1.1  # rad, largest angle commanded away from the present attitude
COARSE, FINE = np.linspace(-STEEPEST, STEEPEST, 45), np.linspace(-STEEPEST, STEEPEST, 2001)


@dataclass(frozen=True)
class Spin:
    """What turns a body: of one, or of n alike."""

    rotors: Array  # (4,) or (n, 4) N
    rates: Array  # (3,) or (n, 3) rad/s, body
    slope: Array  # (3,) or (n, 3) rad/s^2, of the rates

    @property
    def thrust(self) -> float:
        """Thrust of one per nominal mass, m/s^2."""
        return float(self.rotors.sum()) / drone().mass_kg


def turned(spin: Spin, error: Array, thrust: float, duration: float) -> Spin:
    """Return the spins (n) after a duration, s, under a thrust, N, and attitudes `error` (n, 3, 3) off, in the body's frame."""
    d, h = drone(), 1.0 / rules().physics_hz
    newton = d.rotor_n / d.pwm[1]
    angle, rate, slope_gain = (newton * np.array(g) for g in (d.angle_gains, d.rate_gains, d.slope_gains))
    limit, low = newton * d.torque_pwm, newton * d.pwm[0]
    share, arms = np.array([0.5, 0.5, 1.0]), np.array([d.arm_m, d.arm_m, d.yaw_arm_m]) / d.inertia_kg_m2
    catch_up = 1.0 - np.exp(-h / d.rotor_lag_s)
    rotors, rates, slope = (
        np.broadcast_to(a, (len(error), a.shape[-1])) for a in (spin.rotors, spin.rates, spin.slope)
    )
    error, zero = error.copy(), np.zeros(len(error))
    for _ in range(round(duration / h)):
        off = error - error.swapaxes(1, 2)
        sine = np.column_stack([off[:, 2, 1], off[:, 0, 2], off[:, 1, 0]])
        torque = np.clip(angle * sine - rate * rates - slope_gain * slope, -limit, limit) * share
        rotors = rotors + catch_up * (np.clip(thrust / 4 + torque @ MIX, low, d.rotor_n) - rotors)
        slope = rotors @ MIX.T * arms
        rates = rates + h * slope
        x, y, z = rates.T
        error -= h * np.array([[zero, -z, y], [z, zero, -x], [-y, x, zero]]).transpose(2, 0, 1) @ error
    return Spin(rotors, rates, slope)


def tilted(tilts: Array) -> Array:
    """Return rotations (n, 3, 3) by the shortest turns of the thrust, about x and y of the body, (n, 2) rad."""
    return rotation().from_rotvec(np.column_stack([tilts, np.zeros(len(tilts))])).as_matrix()


def tilt_for(spin: Spin, wanted: Array, thrust: float, duration: float) -> Array:
    """Return the tilt (2,) rad, to be commanded from here, under which roll and pitch rates become `wanted` (2,) rad/s.

    The smallest that comes nearest, one axis after the other, from the tilt that keeps up these rates.
    """
    d = drone()
    tilt = np.arcsin(np.clip(np.array(d.rate_gains[:2]) * wanted / 2 / d.angle_gains[:2], -0.9, 0.9))
    for axis in (0, 1):
        tried = np.repeat(tilt[None], len(COARSE), axis=0)
        tried[:, axis] = COARSE
        reached = turned(spin, tilted(tried), thrust, duration).rates[:, axis]
        missed = np.abs(np.interp(FINE, COARSE, reached) - wanted[axis])
        tilt[axis] = FINE[np.argmin(missed + 0.01 * np.abs(FINE))]
    return tilt
