"""What an estimator is: measurements in, each with its own time and perhaps late; the state of the vehicle out.

An image is used in two phases: `predict` tells where the vehicle was at the exposure, by which its detections are matched with
gates, and `correct` uses the gates that were found. `DriftEstimator` (Swift's: odometry minus its drift) and
`ErrorStateEstimator` (one filter for all) do so; `LandmarkEstimator` knows no map and makes one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from estimation.health import LOST_M, Health
from link.messages import Attitude, Imu
from perception.association import GateSighting
from perception.detection import Detection
from vehicle.camera import Camera
from vehicle.rotation import Array
from vehicle.statistics import greatest_sigma

# Of a position and a velocity that a simulator sends; their stamp is good to 1 ms.
POSITION_SIGMA_M, VELOCITY_SIGMA_M_S = 0.02, 0.05


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
        return greatest_sigma(self.cov[6:, 6:])

    @property
    def lost(self) -> bool:
        """Whether the position is too doubtful to fly through a gate by it."""
        return not greatest_sigma(self.cov_p if self.cov_to_gate is None else self.cov_to_gate) < LOST_M


@dataclass(frozen=True, slots=True)
class ExposureState:
    """The predicted state for the association of an image."""

    stamp: float  # s, of the image
    state: State  # at the exposure, in the map frame: about the gate used last, as the map has it
    camera: Camera | None = None  # as calibrated in flight; None: the vehicle's
    p_wb: Array | None = None  # (3,) m, where `Estimator.state` has it then; None: there too


class Estimator(Protocol):
    """The inertial part of all estimators. Nothing raises, whatever is fed; `health` counts what was refused."""

    health: Health

    @property
    def t(self) -> float:
        """s, of the newest IMU sample."""

    def imu(self, sample: Imu) -> bool:
        """Take a sample; returns whether it was used."""

    def attitude(self, sample: Attitude) -> bool:
        """Take a measured attitude; returns whether it was used."""

    def position(self, t: float, p_wb: Array, v_w: Array) -> bool:
        """Take position (3,) m and velocity (3,) m/s that a simulator sends for a time t; returns whether they were used.

        Images that are older than the newest position go unused.
        """

    def coast(self, samples: Sequence[Imu]) -> None:
        """Fly through a gap of the telemetry on samples, free of bias, that a model predicts; with the doubt that is due."""

    def doubt_clock(self, sigma: float) -> None:
        """Take the times of images to be off in common by a standard deviation of at least sigma (s)."""

    def restart_rest(self) -> None:
        """Forget what the rest on the pad has shown so far."""

    def release(self) -> None:
        """End the rest on the pad."""

    def state(self) -> State:
        """The estimate at the newest IMU sample."""


class MapEstimator(Estimator, Protocol):
    """Localises the vehicle by the gates of a map, and owns where they stand off it."""

    def predict(self, stamp: float) -> ExposureState | None:
        """The state at the exposure of an image; None, and counted, where that is too old or in the future."""

    def correct(self, exposure: ExposureState, sightings: Sequence[GateSighting], unexplained: int) -> int:
        """Use the gates recognised in an image just predicted, and how many detections nothing explains.

        Returns the number of gates used.
        """

    def calibration(self) -> Camera | None:
        """The camera as the flight has shown it, and how well; None from who does not ask."""

    def refocus(self, scale: float) -> None:
        """The focal length is that many times the camera's, as was seen at rest: far from what is believed of it."""

    def gate_offset(self, gate: int, at_w: Array) -> Array:
        """(3,) m, world: by how much a gate of the track stands elsewhere than at_w (3,) on the map, as far as is known."""

    def gate_doubt(self, gate: int, at_w: Array) -> Array | None:
        """(3, 3) m^2, covariance of the position to this gate, seen or not; None from who does not know."""

    def relocate(self, gate: int, cov: Array) -> None:
        """A gate of the map was put elsewhere, where it stands to within a covariance (3, 3) m^2: forget its offset."""


@dataclass(frozen=True, slots=True)
class Landmark:
    """A gate as known so far; it stands upright."""

    number: int  # in the order of discovery
    p_w: Array  # (3,) m
    cov: Array  # (3, 3) m^2
    yaw: float  # rad, of the direction through it away from where it was first seen
    seen: int  # in so many images
    views: int  # from so many places apart, which agree
    last_t: float  # s

    @property
    def ahead(self) -> Array:
        """(3,) the unit vector through it."""
        return np.array([np.cos(self.yaw), np.sin(self.yaw), 0.0])


class Mapper(Estimator, Protocol):
    """Localises the vehicle among gates that no map tells of, and maps them."""

    @property
    def landmarks(self) -> list[Landmark]:
        """The confirmed ones, in the order of discovery."""

    def see(self, t: float, detections: Sequence[Detection]) -> dict[int, int]:
        """Use an image exposed at t (s): the landmark's number of every detection (by its index) that was used."""

    def at(self, t: float) -> State | None:
        """The estimate at a time of the last half second, s."""
