"""Saturation of commands where thrust and body torque share the rotors' range: yaw is reduced first, then the thrust.

A change of body rates takes the fraction

    r = sum_i |u_i - w_i| / (tau_i slew_i)    of the torque at half thrust,    of which 2 - 2 c / c_max is left at thrust c

(`vehicle.dynamics.authority`). A command beyond that is followed in no axis, and a vehicle at its thrust limit could not
turn. Roll and pitch direct the thrust, yaw does not; hence the priorities of Faessler, Falanga and Scaramuzza (Thrust
mixing, saturation, and body-rate control, RA-L 2017). Where thrust yields, all of the rate loop's torque is available at any
thrust, and takes its share of the rotors' own range: a roll at the loop's limit takes a tenth of `archer`'s thrust.
"""

import numpy as np

from gate_racer.vehicle.dynamics import authority
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

YAW, THRUST = 2, 3
WHOLE = 1.0  # -, largest fraction of the torque: below half thrust it does not grow


class Allocation:
    """Command saturation for one vehicle; the limits of each input follow in `Controller`."""

    def __init__(self, vehicle: Vehicle):
        self._thrust_max = vehicle.thrust_max
        self._yields = vehicle.mixer is not None and vehicle.mixer.thrust_yields
        lag_s = np.array(vehicle.rate_lag_s)
        self._reach = lag_s * np.array(vehicle.slew_max)  # rad/s, rate error that takes all of the torque
        rotors = vehicle.rotors.slew_max_rad_s2 if self._yields and vehicle.rotors else vehicle.slew_max
        self._rotors_reach = lag_s * np.array(rotors)  # rad/s, rate error that takes half of the rotors' range

    def within(self, u: Array, w: Array) -> Array:
        """Return the command (4,) nearest to u (4,) by these priorities, at body rates w (3,), rad/s."""
        off = u[:THRUST] - w
        needed = np.abs(off) / self._reach
        tilting = float(needed[:YAW].sum())
        left = WHOLE if self._yields else min(authority(u[THRUST], self._thrust_max), WHOLE)
        u = u.copy()
        if tilting + needed[YAW] > left:
            off[YAW] *= max(left - tilting, 0.0) / needed[YAW] if needed[YAW] > 0 else 1.0
            u[YAW] = w[YAW] + off[YAW]
        if self._yields or tilting > left:
            taken = float((np.abs(off) / self._rotors_reach).sum()) / max(tilting, WHOLE)
            u[THRUST] = min(u[THRUST], self._thrust_max * (1 - taken / 2))
        return u
