"""Saturation of commands where thrust and body torque share the rotors' range: yaw is reduced first, then the thrust.

A change of body rates takes the fraction

    r = sum_i |u_i - w_i| / (tau_i slew_i)    of the torque at half thrust,    of which 2 - 2 c / c_max is left at thrust c

(`vehicle.dynamics.authority`). A command beyond that is followed in no axis, and a vehicle at its thrust limit could not
turn. Roll and pitch direct the thrust, yaw does not; hence the priorities of Faessler, Falanga and Scaramuzza (Thrust
mixing, saturation, and body-rate control, RA-L 2017).
"""

import numpy as np

from vehicle.dynamics import authority
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

YAW, THRUST = 2, 3
HALF = 1.0  # -, largest fraction available: below half thrust it does not grow


class Allocation:
    """Command saturation for one vehicle; the limits of each input follow in `Controller`."""

    def __init__(self, vehicle: Vehicle):
        self._thrust_max = vehicle.thrust_max
        self._reach = np.array(vehicle.rate_lag_s) * np.array(vehicle.slew_max)  # rad/s, rate error that takes it all

    def within(self, u: Array, w: Array) -> Array:
        """Return the command (4,) nearest to u (4,) by these priorities, at body rates w (3,), rad/s."""
        off = u[:THRUST] - w
        needed = np.abs(off) / self._reach
        tilting, left = float(needed[:YAW].sum()), min(authority(u[THRUST], self._thrust_max), HALF)
        if tilting + needed[YAW] <= left:
            return u
        u = u.copy()
        u[YAW] = w[YAW] + off[YAW] * max(left - tilting, 0.0) / needed[YAW] if needed[YAW] > 0 else u[YAW]
        if tilting > left:
            u[THRUST] = min(u[THRUST], self._thrust_max * (1 - min(tilting, HALF) / 2))
        return u
