"""Battery model: voltage under load, after Bauersfeld and Scaramuzza (RA-L 2022, Swift's reference 46), and eq. (5).

State (3,): energy drawn in kJ/Ah, slow sag and ohmic drop of one cell in V. `par`: a `Battery`, or its record.
"""

import numpy as np

from gate_racer.sim.physics.jit import inlined
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Battery

ENERGY, SLOW, FAST = range(3)
CUT_OFF_V = 3.0  # V, lower limit of one cell's voltage: the cut-off of a pack's protection


@inlined
def open_circuit(energy, par):
    """Return the open-circuit voltage of one cell, V: a cubic in the energy drawn, kJ/Ah."""
    return par.full_v + energy * (par.energy_linear + energy * (par.energy_square + energy * par.energy_cube))


@inlined
def voltage(x, par):
    """Return the voltage of the pack under load, V."""
    return par.cells * max(open_circuit(x[ENERGY], par) - x[SLOW] - x[FAST], CUT_OFF_V)


@inlined
def sags(par, dt):
    """Return the first-order step gains 1 - exp(-dt / tau) of the slow and the fast voltage drop."""
    return 1 - np.exp(-dt / par.slow_s), 1 - np.exp(-dt / par.fast_s)


@inlined
def discharged(x, power, par, sag, dt):
    """Return the state (3) after `power` (W, whole pack) was drawn for dt; exact at constant power. `sag`: from `sags`."""
    share = power / (par.cells * par.capacity_ah)  # W/Ah
    current = power / voltage(x, par)  # A through every cell
    return (
        x[ENERGY] + share * dt * 1e-3,
        x[SLOW] + sag[0] * (par.power_v * share - x[SLOW]),
        x[FAST] + sag[1] * (par.resistance_ohm * current - x[FAST]),
    )


def at_rest(par: Battery) -> Array:
    """Return the state (3,) before the run, with the energy drawn at which the open-circuit voltage is `start_v`."""
    from scipy.optimize import brentq  # imported late: takes 0.3 s, and only a vehicle with a battery needs it

    drawn = brentq(lambda energy: par.cells * open_circuit(energy, par) - par.start_v, 0.0, 5.0)
    return np.array([drawn, 0.0, 0.0])
