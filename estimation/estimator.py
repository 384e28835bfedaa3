"""The state of the vehicle: odometry minus its drift."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from estimation.drift import STRAPDOWN_NOISE, DriftFilter, DriftNoise
from estimation.odometry import Odometry
from link.messages import Attitude, Imu
from tracks.track import Start
from vehicle.rotation import Array

PAD_SIGMA_P, PAD_SIGMA_V = 0.03, 0.02  # m, m/s: how well the pad's place and the rest on it are known


@dataclass(frozen=True, slots=True)
class State:
    """The estimate at t; world NED, body FRD."""

    t: float
    p_wb: Array
    q_wb: Array
    v_w: Array
    omega_b: Array
    cov_p: Array  # (3, 3) m^2
    drift: float  # m, size of the odometry's error as estimated


@dataclass(frozen=True, slots=True)
class Fix:
    """A position of the vehicle as one gate in a picture gives it."""

    p_wb: Array  # (3,) m
    cov: Array  # (3, 3) m^2


class Estimator:
    """Odometry and drift filter joined. Measurements carry their own times and may be late."""

    def __init__(self, start: Start, noise: DriftNoise = STRAPDOWN_NOISE):
        self.odometry = Odometry(start.p_wb, start.q_wb)
        self.drift = DriftFilter(noise, PAD_SIGMA_P, PAD_SIGMA_V)
        self.late = 0  # pictures too old to use

    def imu(self, sample: Imu) -> bool:
        return self.odometry.imu(sample)

    def attitude(self, sample: Attitude) -> bool:
        return self.odometry.attitude(sample)

    def release(self) -> None:
        """The rest on the pad ends."""
        self.odometry.release()
        self.drift.begin(self.odometry.pose.t)

    def state(self, t: float | None = None) -> State | None:
        """The estimate at a time of the last half second, or of the newest IMU sample; None outside the history."""
        pose = self.odometry.pose if t is None else self.odometry.at(t)
        if pose is None:
            return None
        x, P = self.drift.predicted(pose.t)
        size = float(np.linalg.norm(x[:3]))
        return State(pose.t, pose.p_w - x[:3], pose.q_wb, pose.v_w - x[3:], pose.omega_b, P[:3, :3], size)

    def picture(self, t: float, locate: Callable[[State], list[Fix]]) -> int:
        """Uses a picture exposed at t.

        Args:
            locate: given the estimate at t, returns the fixes of the recognised gates.

        Returns:
            The number of fixes used.
        """
        prior = self.state(t)
        if prior is None or (self.drift.t is not None and t < self.drift.t):
            self.late += 1
            return 0
        fixes = locate(prior)
        if fixes:
            pose = self.odometry.at(t)
            assert pose is not None
            drifts = np.array([pose.p_w - fix.p_wb for fix in fixes])
            self.drift.update(t, drifts, np.array([fix.cov for fix in fixes]))
        return len(fixes)
