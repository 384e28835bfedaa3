"""The battery: voltage under power, after Bauersfeld and Scaramuzza (RA-L 2022, Swift's reference 46), and eq. (5).

State of the battery as an array: energy drawn in kJ/Ah, slow sag and ohmic drop of one cell in V.
"""

from dataclasses import astuple
from typing import NamedTuple

import numpy as np

from sim.physics.jit import inlined
from vehicle.powertrain import Battery
from vehicle.rotation import Array

ENERGY, SLOW, FAST = range(3)
CUT_OFF_V = 3.0  # of one cell: what protects a pack ends its fall here


class BatteryParameters(NamedTuple):
    """`vehicle.powertrain.Battery`, in its order."""

    cells: int
    capacity_ah: float
    start_v: float
    nominal_v: float
    full_v: float
    energy_linear: float
    energy_square: float
    energy_cube: float
    power_v: float
    slow_s: float
    fast_s: float
    resistance_ohm: float


@inlined
def open_circuit(energy, par):
    """Open-circuit voltage of one cell, V: a cubic in the energy drawn, kJ/Ah."""
    return par.full_v + energy * (par.energy_linear + energy * (par.energy_square + energy * par.energy_cube))


@inlined
def voltage(x, par):
    """Voltage of the pack, V."""
    return par.cells * max(open_circuit(x[ENERGY], par) - x[SLOW] - x[FAST], CUT_OFF_V)


@inlined
def sags(par, dt):
    """How far the slow and the fast drop of a cell come within dt, 0..1."""
    return 1 - np.exp(-dt / par.slow_s), 1 - np.exp(-dt / par.fast_s)


@inlined
def discharged(x, power, par, sag, dt):
    """The state (3) after `power` (W, the whole pack) was drawn for dt, exactly for a constant power. `sag`: of `sags`."""
    share = power / (par.cells * par.capacity_ah)  # W/Ah
    current = power / voltage(x, par)  # A through every cell
    return (
        x[ENERGY] + share * dt * 1e-3,
        x[SLOW] + sag[0] * (par.power_v * share - x[SLOW]),
        x[FAST] + sag[1] * (par.resistance_ohm * current - x[FAST]),
    )


def parameters(battery: Battery) -> BatteryParameters:
    return BatteryParameters(*astuple(battery))


def at_rest(par: BatteryParameters) -> Array:
    """State (3,) before the run: as much energy drawn as start_v tells."""
    from scipy.optimize import brentq  # a third of a second that a vehicle without a battery does not wait for

    drawn = brentq(lambda energy: par.cells * open_circuit(energy, par) - par.start_v, 0.0, 5.0)
    return np.array([drawn, 0.0, 0.0])
