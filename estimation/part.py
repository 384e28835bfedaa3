"""Filters that a user brings, beside the built-in one, which associates their images and flies where they give no state."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gate_racer.common.config import shown
from gate_racer.common.parts import Part, array_of
from gate_racer.estimation.eskf import ErrorStateEstimator
from gate_racer.estimation.estimator import ExposureState, State
from gate_racer.link.messages import Attitude, Imu
from gate_racer.model.reprojection import GateSighting
from gate_racer.vehicle.rotation import Array

NEEDED = ("state",)
OLDEST_S = 0.5  # s, largest difference of a state's time to that of the newest IMU sample (chosen)
UNIT = 0.01  # -, largest error of a quaternion's norm (chosen)


class StateEstimator(Protocol):
    """State estimator, a part that a user may bring. Made as `Mine(start, vehicle)`; docs/parts.md has an example.

    It begins at rest on the pad, where it gets a second or more of IMU samples. `attitude` and `position` are optional: they are
    called where the simulator sends these.

    Examples:
        >>> from gate_racer import StateEstimator
        >>> hasattr(StateEstimator, "fix")
        True
    """

    def imu(self, t: float, accel_b: Array, gyro_b: Array) -> None:
        """Use specific force (3,) m/s^2 and body rates (3,) rad/s at t (s), body FRD."""
        ...

    def fix(self, t: float, gate: int, p_wb: Array, cov: Array) -> None:
        """Use the position (3,) m, world NED, with covariance (3, 3) m^2, that a gate seen at t (s) gives, some 50 ms ago."""
        ...

    def attitude(self, t: float, q_wb: Array) -> None:
        """Use a measured attitude (4,), wxyz, body to world."""
        ...

    def position(self, t: float, p_wb: Array, v_w: Array) -> None:
        """Use a told position (3,) m and velocity (3,) m/s, world NED."""
        ...

    def state(self) -> State:
        """Return the state at the newest IMU sample."""
        ...


class PartEstimator(ErrorStateEstimator):
    """`MapEstimator` of a user's filter."""

    def __init__(self, part: Part, *given: Any):
        """Create it; `given`: as of the built-in filter."""
        super().__init__(*given)
        self._part = part

    def imu(self, sample: Imu) -> bool:
        used = super().imu(sample)
        if used:
            self._tell("imu", sample.t, np.array(sample.accel), np.array(sample.gyro))
        return used

    def attitude(self, sample: Attitude) -> bool:
        used = super().attitude(sample)
        if used and self._part.has("attitude"):
            self._tell("attitude", sample.t, np.array(sample.q_wb))
        return used

    def position(self, t: float, p_wb: Array, v_w: Array) -> bool:
        used = super().position(t, p_wb, v_w)
        if used and self._part.has("position"):
            self._tell("position", t, p_wb, v_w)
        return used

    def correct(self, exposure: ExposureState, sightings: Sequence[GateSighting], unexplained: int) -> int:
        for seen in sightings:
            self._tell("fix", seen.t, seen.gate, seen.p_wb, seen.cov)
        return super().correct(exposure, sightings, unexplained)

    def state(self) -> State:
        own = super().state()
        found, why = self._part.call("state")
        state = _checked(found, own.t)
        if state is None:
            why = why or self._part.fault(f"state returned {shown(found)}, not a finite State at about {own.t:.2f} s")
            self.health.fallback(why)
        return state or own

    def gate_offset(self, gate: int, at_w: Array) -> Array:
        return np.zeros(3)

    def gate_covariance(self, gate: int, at_w: Array) -> Array:
        return np.zeros((3, 3))

    def _tell(self, method: str, *given: Any) -> None:
        _, why = self._part.call(method, *given)
        if why:
            self.health.fallback(why)


def _checked(found: object, t: float) -> State | None:
    """Return what is a `State` that can be flown, at about t (s); else None."""
    if not isinstance(found, State) or array_of(found.t) is None or abs(found.t - t) > OLDEST_S:
        return None
    p, v, omega = (array_of(a, 3) for a in (found.p_wb, found.v_w, found.omega_b))
    q, cov = array_of(found.q_wb, 4), array_of(found.cov, 9, 9)
    if p is None or v is None or omega is None or q is None or cov is None or abs(float(np.linalg.norm(q)) - 1) > UNIT:
        return None
    return State(found.t, p, q / np.linalg.norm(q), v, omega, cov)
