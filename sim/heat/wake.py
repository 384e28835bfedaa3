"""Rotor wake: a jet that leaves the rotor disc and trails behind a moving vehicle.

Induced velocity at the disc by momentum theory in forward flight (Glauert 1926), in hover v_i = sqrt(T / (2 rho A)):

    T = 2 rho A v_i |V + v_i d|      d along the jet, V the velocity of the air towards the disc

Far below, the jet has contracted to half the disc area and moves at 2 v_i. From there it spreads as a round turbulent jet of
constant momentum:

    w(z, r) = 2 v_i (s_0 / s) exp(-r^2 / (2 s^2)),   s = s_0 + 0.08 z,   s_0 = sqrt(A / (2 pi))

with z along the jet's axis, which trails behind a moving vehicle, and r across it: half of the axial velocity at
r = 1.18 s = 0.094 z in the far field (Pope, "Turbulent Flows", 5.1). The wake is quasi-steady (no propagation delay), and
the flow between and around the rotors is not modelled.
"""

import math
from dataclasses import dataclass

import numpy as np

from gate_racer.sim.physics.plant import Q, V
from gate_racer.vehicle.rotation import Array, matrix
from gate_racer.vehicle.vehicle import Vehicle

AIR_KG_M3 = 1.225  # air density at sea level, 15 deg C (ISA)
SPREAD = 0.08  # growth of the Gaussian's standard deviation per distance, from Pope's half-width
ROTORS = 4
REACH_M = 10.0  # m along the axis, where a tenth of the velocity is left; zero beyond
STEPS = 20  # fixed-point iterations, for an error of 0.1 %


@dataclass(frozen=True, slots=True)
class Rotors:
    """Rotors of a vehicle as the source of its wake."""

    mass_kg: float
    area_m2: float  # area of all discs together


def rotors_of(vehicle: Vehicle, radius_m: float) -> Rotors | None:
    """Return the rotors of a vehicle with this rotor radius; None where its mass is unknown or the radius is 0."""
    if vehicle.rotors is None or radius_m == 0:
        return None
    return Rotors(vehicle.rotors.mass_kg, ROTORS * math.pi * radius_m**2)


def induced(thrust_n: float, area_m2: float, v_b: Array) -> float:
    """Return the induced velocity, m/s along body z, of a vehicle that moves at v_b (3,) m/s, FRD, through still air."""
    hover = math.sqrt(max(thrust_n, 0.0) / (2 * AIR_KG_M3 * area_m2))
    across, climb = math.hypot(v_b[0], v_b[1]), -float(v_b[2])
    v = hover
    for _ in range(STEPS):
        through = math.hypot(across, max(climb + v, 0.0))
        v = (
            0.5 * (v + hover**2 / max(through, 0.5 * hover)) if hover else 0.0
        )  # relaxation by one half: the plain iteration oscillates about the root
    return v


def downwash(x: Array, rotors: Rotors, p_w: Array) -> Array:
    """Return the air velocity (3,) m/s, world, at p_w (3,) m in the wake of a vehicle in state x (14,) as RATES_X."""
    away = p_w - x[:3]
    if away @ away > REACH_M**2:
        return np.zeros(3)
    R_wb = matrix(x[Q])
    down, v_w = R_wb[:, 2], x[V]
    v_i = induced(rotors.mass_kg * float(x[-1]), rotors.area_m2, R_wb.T @ v_w)
    left = 2 * v_i * down - v_w  # velocity of the jet relative to the vehicle, m/s
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
