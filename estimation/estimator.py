"""What an estimator is: measurements in, each with its own time and perhaps late; the state of the vehicle out.

Two keep this promise: `DriftEstimator` (Swift's: odometry minus its drift) and `ErrorStateEstimator` (one filter for all).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from estimation.health import LOST_M, Health
from link.messages import Attitude, Imu
from perception.association import GateSighting
from vehicle.rotation import Array

TOLD_SIGMA_P, TOLD_SIGMA_V = 0.02, 0.05  # m, m/s: of a position that a simulator tells; its stamp is good to 1 ms
PAD_SIGMA_P, PAD_SIGMA_V = 0.1, 0.005  # m, m/s: how well the pad's place, a map's origin, and the rest on it are known
GYRO_LIMIT = 60.0  # rad/s; twice what the vehicle can do: anything above is an impact or an error
ACCEL_LIMIT = 300.0  # m/s^2
REPEATS_S = 0.03  # samples of equal values for longer than this are no repeats: the readings stand
LONGEST_STEP_S = 0.1  # a longer gap is flown through with the last sample, and counted


@dataclass(frozen=True, slots=True)
class State:
    """The estimate at t; world NED, body FRD."""

    t: float
    p_wb: Array
    q_wb: Array
    v_w: Array
    omega_b: Array
    cov: Array  # (9, 9) of position m, velocity m/s and attitude (rad, body axes)
    drift: float  # m, size of the odometry's error as estimated
    cov_to_gate: Array | None = None  # (3, 3) m^2, of the position to the gate seen last, where the map is in doubt

    @property
    def cov_p(self) -> Array:
        """(3, 3) m^2."""
        return self.cov[:3, :3]

    @property
    def sigma_attitude_rad(self) -> float:
        """About the worst axis."""
        return float(np.sqrt(np.linalg.eigvalsh(self.cov[6:, 6:])[-1]))

    @property
    def lost(self) -> bool:
        """Whether the position is too doubtful to fly through a gate by it."""
        cov = self.cov_p if self.cov_to_gate is None else self.cov_to_gate
        return not (np.isfinite(cov).all() and float(np.linalg.eigvalsh(cov)[-1]) < LOST_M**2)


# Given the estimate at the exposure: the gates recognised, and how many detections are unexplained.
Recognise = Callable[[State], tuple[list[GateSighting], int]]


class Estimator(Protocol):
    """Nothing raises, whatever is fed; `health` counts what was refused."""

    health: Health

    @property
    def t(self) -> float:
        """s, of the newest IMU sample."""

    def imu(self, sample: Imu) -> bool:
        """Takes a sample; returns whether it was used."""

    def attitude(self, sample: Attitude) -> bool:
        """Takes an attitude; returns whether it was used."""

    def position(self, t: float, p_wb: Array, v_w: Array) -> bool:
        """Takes position (3,) m and velocity (3,) m/s that a simulator tells for a time t; returns whether they were used.

        Pictures that are older than the newest position go unused.
        """

    def coast(self, samples: Sequence[Imu]) -> None:
        """Fly through a gap of the telemetry on samples, free of bias, that a model predicts; with the doubt that is due."""

    def doubt_clock(self, sigma: float) -> None:
        """Take the times of pictures to be off in common by a standard deviation of at least sigma (s)."""

    def restart_rest(self) -> None:
        """Forgets what the rest on the pad has shown so far."""

    def release(self) -> None:
        """The rest on the pad ends."""

    def state(self) -> State:
        """The estimate at the newest IMU sample."""

    def gate_offset(self, gate: int, at_w: Array) -> Array:
        """(3,) m, world: by how much a gate of the track stands elsewhere than at_w (3,) on the map, as far as is known."""

    def picture(self, t: float, recognise: Recognise) -> int:
        """Uses a picture exposed at t; returns the number of gates used."""


def sane(sample: Imu) -> bool:
    """Whether a sample is a possible reading. Comparisons with NaN are false."""
    return (
        sample.t < np.inf
        and all(abs(value) < ACCEL_LIMIT for value in sample.accel)
        and all(abs(value) < GYRO_LIMIT for value in sample.gyro)
    )
