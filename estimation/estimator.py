"""Interfaces of the estimators: timed measurements in, possibly late; the state of the vehicle out.

The normalised innovation squared, NIS = r' S^-1 r / M, of the gates used has mean 1 in a consistent filter. While the nearest
gate in images does not fit, the covariance is inflated, and with it the association gate, until it does: so a diverged filter
recovers.

An image is used in two phases: `predict` returns the state at the exposure, by which detections are associated with gates, and
`correct` applies the gates found. `DriftEstimator` (Swift's: odometry minus its drift) and `ErrorStateEstimator` (one filter
for all states) implement both; `LandmarkEstimator` needs no map and builds one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gate_racer.link.messages import Attitude, Imu, Odometry
from gate_racer.model.reprojection import GateSighting
from gate_racer.model.states import State as State
from gate_racer.perception.detection import Detection
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array

NIS_GATES = 30  # gates, time constant of the mean NIS
# Consecutive images whose nearest gate does not fit before inflation, and those once the priors are contradicted (chosen).
# With two from the start a rendered flight of VQ1 as believed takes 6.41 s, with four 6.35 s.
INFLATE_AFTER, INFLATE_AFTER_CONTRADICTED = 4, 2
INFLATION = 0.3  # m and m/s, standard deviation added to each axis of position and velocity per such image (chosen)


@dataclass
class Health:
    """Counts since the start."""

    samples_refused: int = 0  # IMU, attitude, position and odometry samples: not finite, implausible, old or repeated
    gaps: int = 0  # intervals without IMU samples that were bridged
    images_late: int = 0  # images older than the filter's state, or from the future
    gates_used: int = 0
    gates_refused: int = 0  # rejected by the filter, after the association
    singular: int = 0  # updates with a singular innovation covariance
    inflations: int = 0  # images after which the covariance was inflated
    misfits: int = 0  # consecutive images with gates, none of which fits
    nis: float = 1.0  # -, running mean of the gates used
    contradicted_t: float | None = None  # s, since when the measurements contradict the assumed uncertainties
    widths: dict[str, float] = field(default_factory=dict)  # theirs over those assumed, by factor
    odometry_used: int = 0  # samples of an outside odometry
    odometry_resets: int = 0  # its resets in flight, told or seen
    odometry_lost: int = 0  # times that its samples failed to come
    fallbacks: int = 0  # calls of a user's filter that failed, or gave no usable state
    fallback_reason: str = ""  # of the last of them

    def fallback(self, why: str) -> None:
        self.fallbacks, self.fallback_reason = self.fallbacks + 1, why

    def used(self, nis: list[float]) -> None:
        self.gates_used += len(nis)
        for value in nis:
            self.nis += (value - self.nis) / NIS_GATES

    def should_inflate(self, fits: bool, unexplained: int) -> bool:
        """Count an image whose nearest gate `fits`, or which has `unexplained` ones; return whether to inflate the covariance."""
        misfit = not fits and unexplained > 0
        self.misfits = 0 if fits else self.misfits + misfit
        after = INFLATE_AFTER if self.contradicted_t is None else INFLATE_AFTER_CONTRADICTED
        should_inflate = misfit and self.misfits >= after
        self.inflations += should_inflate
        return should_inflate


AHEAD_S = 0.03  # s, greatest lead of an exposure over the newest IMU sample, bridged by constant rates (chosen)


@dataclass(frozen=True, slots=True)
class ExposureState:
    """The predicted state for the association of an image."""

    stamp: float  # s, of the image
    state: State  # at the exposure, in the map frame: relative to the gate used last, at its place on the map
    camera: Camera | None = None  # as calibrated in flight; None to use the vehicle's


class Estimator(Protocol):
    """Inertial part common to all estimators. Nothing raises, whatever the input; `health` counts rejected measurements."""

    health: Health

    @property
    def t(self) -> float:
        """Time of the newest IMU sample, s."""

    def imu(self, sample: Imu) -> bool:
        """Process an IMU sample; return whether it was used."""

    def attitude(self, sample: Attitude) -> bool:
        """Process a measured attitude; return whether it was used."""

    def position(self, t: float, p_wb: Array, v_w: Array) -> bool:
        """Process a position (3,) m and velocity (3,) m/s, world NED, given for time t (s); return whether it is used."""

    def odometry(self, sample: Odometry) -> bool:
        """Process a sample of an outside odometry; return whether it is used: by default none is."""
        return False

    def coast(self, samples: Sequence[Imu]) -> None:
        """Bridge a telemetry gap by model-predicted, bias-free samples, with correspondingly greater process noise."""

    def inflate_image_delay(self, sigma: float) -> None:
        """Raise the standard deviation of the common offset of image times to at least sigma (s), if it is estimated."""
        return None

    def restart_rest(self) -> None:
        """Discard the readings at rest on the pad collected so far."""

    def release(self) -> None:
        """End the rest on the pad: the vehicle may move from now on."""

    def state(self) -> State:
        """Return the estimate at the newest IMU sample."""


class MapEstimator(Estimator, Protocol):
    """Estimator that localises the vehicle by the gates of a map, and owns the estimated offsets of gates from the map.

    By default the map is taken as exact, and the camera is not calibrated in flight.
    """

    def predict(self, stamp: float) -> ExposureState | None:
        """Return the state at the exposure of an image; None, and counted in `health`, if it is too old or in the future."""

    def predict_at_rest(self, stamp: float) -> ExposureState:
        """Return the state for an image taken on the pad before its release."""

    def correct(self, exposure: ExposureState, sightings: Sequence[GateSighting], unexplained: int) -> int:
        """Apply the gates recognised in an image just predicted; `unexplained` counts detections associated with no gate.

        Returns the number of gates used.
        """

    def calibration(self) -> Camera | None:
        """Return the camera as calibrated in flight, with its standard deviations; None without calibration."""
        return None

    def refocus(self, scale: float) -> None:
        """Multiply the camera's focal length by `scale`, as measured at rest far from its nominal value."""
        return None

    def gate_offset(self, gate: int, at_w: Array) -> Array:
        """Return the estimated displacement (3,) m, world NED, of a gate from at_w (3,) m, its place on the map."""
        return np.zeros(3)

    def gate_covariance(self, gate: int, at_w: Array) -> Array | None:
        """Return the covariance (3, 3) m^2 of the position relative to a gate, seen or not; None without one."""
        return None

    def relocate(self, gate: int, cov: Array) -> None:
        """Reset the offset of a gate that was moved on the map, where its place has covariance (3, 3) m^2."""
        return None


@dataclass(frozen=True, slots=True)
class Landmark:
    """Estimate of an upright gate."""

    number: int  # in the order of discovery
    p_w: Array  # (3,) m, centre
    cov: Array  # (3, 3) m^2, of p_w
    yaw: float  # rad, heading of the direction through it, away from where it was first seen
    seen: int  # number of images in which it was observed
    views: int  # number of distinct viewpoints among them
    last_t: float  # s, exposure of the newest one

    @property
    def ahead(self) -> Array:
        """Unit vector (3,) through the gate, world NED."""
        return np.array([np.cos(self.yaw), np.sin(self.yaw), 0.0])


class Mapper(Estimator, Protocol):
    """Estimator that localises the vehicle among gates without a map, and maps them."""

    @property
    def landmarks(self) -> list[Landmark]:
        """Confirmed landmarks, in the order of discovery."""

    def see(self, t: float, detections: Sequence[Detection]) -> dict[int, int]:
        """Use an image exposed at t (s); return the landmark's number for each used detection, by its index."""

    def at(self, t: float) -> State | None:
        """Return the estimate at a time t (s) within the last half second; None outside."""
