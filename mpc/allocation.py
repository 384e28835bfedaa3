"""What the rotors can follow of a command, where thrust and turning share their range: yaw gives way first, then the thrust.

Turning asks for the share

    r = sum_i |u_i - w_i| / (tau_i slew_i)    of what there is at half thrust,    and 2 - 2 c / c_max of it is left beside c

(`vehicle.dynamics.authority`). A command that asks for more is not followed in any axis, and a vehicle at the limit of its thrust
would never turn back. Roll and pitch steer the thrust, yaw does not: the order of Faessler, Falanga and Scaramuzza (Thrust
mixing, saturation, and body-rate control, RA-L 2017).
"""

import numpy as np

from vehicle.dynamics import authority
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

YAW, THRUST = 2, 3
HALF = 1.0  # of what there is at half thrust: less thrust leaves no more


class Allocation:
    """Of one vehicle."""

    def __init__(self, vehicle: Vehicle):
        self._thrust_max = vehicle.thrust_max
        self._reach = np.array(vehicle.rate_lag_s) * np.array(vehicle.slew_max)  # rad/s, that take all; infinite: none

    def within(self, u: Array, w: Array) -> Array:
        """The command (4,) in the place of u (4,), at body rates w (3,)."""
        off = u[:THRUST] - w
        asked = np.abs(off) / self._reach
        tilting, left = float(asked[:YAW].sum()), min(authority(u[THRUST], self._thrust_max), HALF)
        if tilting + asked[YAW] <= left:
            return u
        u = u.copy()
        u[YAW] = w[YAW] + off[YAW] * max(left - tilting, 0.0) / asked[YAW] if asked[YAW] > 0 else u[YAW]
        if tilting > left:
            u[THRUST] = min(u[THRUST], self._thrust_max * (1 - min(tilting, HALF) / 2))
        return u
