"""Swift's estimator: inertial odometry minus the drift measured by gates. Attitude comes from gyro and telemetry alone."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gate_racer.estimation.drift.drift_filter import DriftFilter, DriftNoise
from gate_racer.estimation.drift.odometry import InertialOdometry, Pose
from gate_racer.estimation.drift.pose_fix import PoseFix
from gate_racer.estimation.estimator import POSITION_SIGMA_M, ExposureState, State
from gate_racer.estimation.health import DOUBT_P, DOUBT_V, Health
from gate_racer.link.messages import Attitude, Imu
from gate_racer.perception.association import GateSighting
from gate_racer.tracks.track import Start
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.statistics import chi2_limit, mahalanobis2

ATTITUDE_SIGMA_RAD = 0.01  # standard deviation of the odometry's attitude about each axis (chosen)
LIMIT = chi2_limit(3, 1e-3)  # -, squared Mahalanobis distance beyond which a fix is rejected


class DriftEstimator:
    """Swift's drift estimator; implements `estimation.estimator.MapEstimator`."""

    def __init__(self, start: Start, noise: DriftNoise, fix: PoseFix | None = None):
        """Start at rest on the pad. `fix` computes the position fix of a sighting; None to use that of the association."""
        self._fix = fix
        self.health = Health()
        self.odometry = InertialOdometry(start.p_wb, start.q_wb)
        self.drift = DriftFilter(noise)

    @property
    def t(self) -> float:
        return self.odometry.pose.t

    def imu(self, sample: Imu) -> bool:
        used = self.odometry.imu(sample)
        self.health.samples_refused += not used
        self.health.gaps = self.odometry.gaps
        return used

    def coast(self, samples: Sequence[Imu]) -> None:
        for sample in samples:
            self.odometry.coast(sample)

    def attitude(self, sample: Attitude) -> bool:
        used = self.odometry.attitude(sample)
        self.health.samples_refused += not used
        return used

    def position(self, t: float, p_wb: Array, v_w: Array) -> bool:
        pose = self.odometry.at(t)
        if pose is None or self.drift.t is None or not (t >= self.drift.t and np.isfinite(p_wb).all()):
            self.health.samples_refused += 1
            return False
        self.drift.update(t, (pose.p_w - p_wb)[None], POSITION_SIGMA_M**2 * np.eye(3)[None])
        return True

    def inflate_image_delay(self, sigma: float) -> None:
        pass  # the image delay is not estimated

    def restart_rest(self) -> None:
        self.odometry.restart_rest()

    def release(self) -> None:
        self.odometry.release()
        self.drift.begin(self.t)

    def state(self) -> State:
        return self._state(self.odometry.pose)

    def calibration(self) -> Camera | None:
        return None  # the camera is not calibrated in flight

    def refocus(self, scale: float) -> None:
        pass  # the camera belongs to the associator

    def gate_offset(self, gate: int, at_w: Array) -> Array:
        return np.zeros(3)  # the map is taken as exact

    def gate_covariance(self, gate: int, at_w: Array) -> Array | None:
        return None

    def relocate(self, gate: int, cov: Array) -> None:
        pass  # gate offsets are not estimated

    def _state(self, pose: Pose) -> State:
        x, P = self.drift.at(pose.t)
        cov = np.diag(np.full(9, ATTITUDE_SIGMA_RAD**2))
        cov[:6, :6] = P
        size = float(np.linalg.norm(x[:3]))
        return State(pose.t, pose.p_w - x[:3], pose.q_wb, pose.v_w - x[3:], pose.omega_b, cov, size)

    def predict(self, stamp: float) -> ExposureState | None:
        pose = self.odometry.at(stamp)
        if pose is None or self.drift.t is None or stamp < self.drift.t:
            self.health.images_late += 1
            return None
        self.drift.predict(stamp)
        return ExposureState(stamp, self._state(pose))

    def predict_at_rest(self, stamp: float) -> ExposureState:
        return ExposureState(stamp, replace(self.state(), t=stamp))

    def correct(self, exposure: ExposureState, sightings: Sequence[GateSighting], unexplained: int) -> int:
        t, pose = exposure.stamp, self.odometry.at(exposure.stamp)
        if pose is None:
            return 0
        x, P = self.drift.at(t)
        drifts, covariances, nis = [], [], []
        for sighting in sightings:
            try:
                found = (sighting.p_wb, sighting.cov) if self._fix is None else self._fix(sighting, pose.q_wb)
                if found is None:
                    continue
                p_wb, cov = found
                d2 = mahalanobis2(pose.p_w - p_wb - x[:3], P[:3, :3] + cov)
            except np.linalg.LinAlgError:
                self.health.singular += 1
                continue
            if d2 < LIMIT:
                drifts.append(pose.p_w - p_wb)
                covariances.append(cov)
                nis.append(d2 / 3)
        self.health.gates_refused += len(sightings) - len(nis)
        used = self._update(t, np.array(drifts), np.array(covariances), nis)
        if self.health.should_inflate(t, used, unexplained + len(sightings)):
            self.drift.doubt(DOUBT_P, DOUBT_V)
        return used

    def _update(self, t: float, drifts: np.ndarray, covariances: np.ndarray, nis: list[float]) -> int:
        if not nis:
            return 0
        try:
            self.drift.update(t, drifts, covariances)
        except np.linalg.LinAlgError:
            self.health.singular += 1
            return 0
        self.health.used(t, nis)
        return len(nis)
