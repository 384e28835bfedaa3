"""The on-board attitude loop and its rotors, step by step, and its inverse: which command turns the body as planned.

As in the Crazyflie's firmware (Mellinger and Kumar, Minimum snap trajectory generation, ICRA 2011, eq. 10, in pulse widths):

    torque = clip(k_R (R' R_d - R_d' R)^v - k_w w - k_s dw/dt),  rotor = clip(thrust / 4 + mixed torque),  tau df/dt = rotor - f

Its limits bind in every quick turn, so that no linear model predicts it.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.race.lsy.level import rules
from gate_racer.race.lsy.model import drone
from gate_racer.race.lsy.rotations import rotation
from gate_racer.vehicle.rotation import Array

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


def at_rest() -> Spin:
    """Return the spin of a body whose rotors stand still."""
    return Spin(np.zeros(4), np.zeros(3), np.zeros(3))


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
