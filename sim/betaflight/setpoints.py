"""Set-points of the rate loop from channels: rate curve or angle mode, then Betaflight's set-point filter.

The filter (PT3) is three equal first-order stages, y' = (x - y) / tau each, solved exactly for an input held between two calls.
"""

import math

import numpy as np

from gate_racer.link.messages import AttitudeTarget
from gate_racer.link.msp.profile import BetaflightProfile, pole_s
from gate_racer.link.msp.sticks import asked_angles, asked_rates
from gate_racer.sim.betaflight.receiver import Receiver
from gate_racer.vehicle.rotation import Array, from_euler, to_euler

STAGES = 3
LEVEL = (1.0, 0.0, 0.0, 0.0)
VALUES = 6  # body rates (3), throttle, roll and pitch angle


class Setpoints:
    """Set-point filter of all channels; call `advance` with non-decreasing times, s."""

    def __init__(self, profile: BetaflightProfile):
        self._profile, self._tau_s = profile, pole_s(profile.smoothing_hz)
        self.reset()

    def reset(self) -> None:
        """Reset the filter to zero input."""
        self._stages, self._t = np.zeros((STAGES, VALUES)), 0.0

    def advance(self, receiver: Receiver, q_wb: Array, t: float) -> AttitudeTarget:
        """Return the set-point at t, s, with the heading of the attitude q_wb (4,) in angle mode."""
        rates, angles = asked_rates(self._profile, receiver.channels), asked_angles(self._profile, receiver.channels)
        self._filter(np.array([*rates.turn, rates.throttle, *angles.turn[:2]]), t - self._t)
        self._t = t
        x, y, z, throttle, roll, pitch = self._stages[-1].tolist()
        if not receiver.active(self._profile.aux.angle):
            return AttitudeTarget(LEVEL, (x, y, z), throttle)
        a, b, c, d = from_euler(roll, pitch, to_euler(q_wb)[2]).tolist()
        return AttitudeTarget((a, b, c, d), (0.0, 0.0, z), throttle, by_rates=False)

    def _filter(self, asked: Array, dt: float) -> None:
        """Advance the cascade by dt (s) at constant input: exact response of three equal poles, polynomial x exp(-dt / tau)."""
        s = max(dt, 0.0) / self._tau_s
        decay = math.exp(-s)
        off = self._stages - asked  # of each stage from where all will come to rest
        first, second, third = off
        self._stages = asked + decay * np.array(
            [first, second + s * first, third + s * second + s * s / 2 * first],
        )
