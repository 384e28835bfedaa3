"""The wake of a rotor craft: a jet that leaves the rotors' disc and is left behind by whoever flies on.

Induced velocity at the disc by momentum theory in forward flight (Glauert 1926), in hover v_i = sqrt(T / (2 rho A)):

    T = 2 rho A v_i |V + v_i d|      d along the jet, V the velocity of the air towards the disc

Far below, the jet has contracted to half the disc and moves at 2 v_i. From there it widens as a round turbulent jet does, and
its momentum stays what it was:

    w(z, r) = 2 v_i (s_0 / s) exp(-r^2 / (2 s^2)),   s = s_0 + 0.08 z,   s_0 = sqrt(A / (2 pi))

with z along the jet's axis, which trails behind a vehicle that moves, and r across it: half of the velocity on the axis at
r = 1.18 s = 0.094 z far away (Pope, "Turbulent Flows", 5.1). A wake takes no time to get where it is, and what flows between
and around the rotors is not modelled.
"""

import math
from dataclasses import dataclass

import numpy as np

from sim.physics.plant import Q, V
from vehicle.rotation import Array, matrix
from vehicle.vehicle import Vehicle

AIR_KG_M3 = 1.225
SPREAD = 0.08  # of the Gaussian's standard deviation over the distance
ROTORS = 4
REACH_M = 10.0  # along the axis; what is left of the jet there is a tenth
STEPS = 20  # of the fixed point; a tenth of a per cent


@dataclass(frozen=True, slots=True)
class Rotors:
    """What makes the wake."""

    mass_kg: float
    area_m2: float  # of all discs


def rotors_of(vehicle: Vehicle, radius_m: float) -> Rotors | None:
    """Of a vehicle whose rotors have this radius. None where its mass is not known, or the radius is 0."""
    if vehicle.rotors is None or radius_m == 0:
        return None
    return Rotors(vehicle.rotors.mass_kg, ROTORS * math.pi * radius_m**2)


def induced(thrust_n: float, area_m2: float, v_b: Array) -> float:
    """Velocity m/s of the air through the discs, along z of the body, of a vehicle that moves at v_b (3,) through still air."""
    hover = math.sqrt(max(thrust_n, 0.0) / (2 * AIR_KG_M3 * area_m2))
    across, climb = math.hypot(v_b[0], v_b[1]), -float(v_b[2])
    v = hover
    for _ in range(STEPS):
        through = math.hypot(across, max(climb + v, 0.0))
        v = (
            0.5 * (v + hover**2 / max(through, 0.5 * hover)) if hover else 0.0
        )  # halved steps: it would swing about the root
    return v


def downwash(x: Array, rotors: Rotors, p_w: Array) -> Array:
    """Velocity (3,) m/s of the air at p_w (3,) behind a vehicle in state x (14,) as RATES_X; world."""
    away = p_w - x[:3]
    if away @ away > REACH_M**2:
        return np.zeros(3)
    R_wb = matrix(x[Q])
    down, v_w = R_wb[:, 2], x[V]
    v_i = induced(rotors.mass_kg * float(x[-1]), rotors.area_m2, R_wb.T @ v_w)
    left = 2 * v_i * down - v_w  # velocity of the jet's air away from the vehicle
    speed = float(np.linalg.norm(left))
    if v_i == 0 or speed == 0:
        return np.zeros(3)
    z = float(away @ left) / speed
    if z <= 0:
        return np.zeros(3)
    narrow = math.sqrt(rotors.area_m2 / (2 * math.pi))
    wide = narrow + SPREAD * z
    across = max(float(away @ away) - z * z, 0.0)
    return np.asarray(2 * v_i * narrow / wide * math.exp(-across / (2 * wide**2)) * down)
