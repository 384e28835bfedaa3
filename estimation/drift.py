"""Swift's estimator: inertial odometry minus the drift measured by gates (Kaufmann et al., Nature 2023, Methods, eq. 12-14).

State x = (p_d, v_d): position and velocity errors of the odometry. Estimate = odometry - drift. A gate sighting measures
p_d = p_odometry - p_fix at the time of exposure, with H = [I 0]. Every image is a prediction, with or without gates; images
whose gates are used are updates as well.

Position fix of the vehicle from a gate's pose, by IPPE with a covariance from perturbed corners:

    p_wb = p_wg - R_wb (p_bc + R_bc p_cg),   R = R_wc cov(p_cg) R_wc'

The attitude is the odometry's, far more accurate than that of a small square: the rotation from IPPE is not used.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.estimation.estimator import INFLATION, ExposureState, MapEstimator, State
from gate_racer.estimation.odometry import InertialOdometry, Pose, estimated
from gate_racer.model.kalman import POSITION_SIGMA_M, joseph
from gate_racer.model.reprojection import GateSighting
from gate_racer.perception.pose import gate_pose
from gate_racer.tracks.track import Start
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.statistics import chi2_limit, mahalanobis2


@dataclass(frozen=True)
class PoseFix:
    """Position fixes by gates with four visible corners; others give none, as in the released code (Zenodo 7955278)."""

    camera: Camera
    rng: np.random.Generator  # of the perturbations of corners

    def __call__(self, sighting: GateSighting, q_wb: Array) -> tuple[Array, Array] | None:
        """Return the position (3,) m of a vehicle with attitude q_wb (4,), and its covariance (3, 3) m^2; None without a pose."""
        if not sighting.visible.all():
            return None
        corners_w = sighting.corners_w
        side_m = float(np.linalg.norm(corners_w - np.roll(corners_w, 1, axis=0), axis=1).mean())
        variance_px2 = float(np.trace(sighting.cov_px, axis1=1, axis2=2).mean()) / 2  # of one coordinate
        if not 0 < variance_px2 < np.inf:
            return None
        pose = gate_pose(sighting.corners_px, math.sqrt(variance_px2), side_m, self.camera, self.rng)
        if pose is None:
            return None
        arm_w, R_wc = self.camera.pose(np.zeros(3), q_wb)
        return corners_w.mean(axis=0) - arm_w - R_wc @ pose.p_cg, R_wc @ pose.cov_p @ R_wc.T


H = np.hstack([np.eye(3), np.zeros((3, 3))])  # measurement matrix of one gate


@dataclass(frozen=True)
class DriftNoise:
    """Process noise of the drift, and its standard deviations at the start."""

    position_step: float = 0.0  # m^2 added per prediction, regardless of its length
    velocity_step: float = 0.0  # (m/s)^2 added per prediction
    acceleration_psd: float = 0.0  # m^2/s^3, white drift acceleration
    first_p: float = 0.03  # m, standard deviation at the start: position of the pad
    first_v: float = 0.02  # m/s, likewise

    def covariance(self, dt: float) -> Array:
        """Return Q (6, 6) over dt (s)."""
        q = self.acceleration_psd
        p, pv, v = self.position_step + q * dt**3 / 3, q * dt**2 / 2, self.velocity_step + q * dt
        return np.kron(np.array([[p, pv], [pv, v]]), np.eye(3))


# The paper's constants, per camera frame (30 Hz): for visual-inertial odometry, whose position jumps.
SWIFT_NOISE = DriftNoise(0.05, 0.1, first_p=0.0, first_v=0.0)
# Strap-down integration drifts smoothly: an attitude error of 0.3 deg at 50 m/s^2 of thrust gives 0.2 m/s^2, here for 1 s.
STRAPDOWN_NOISE = DriftNoise(acceleration_psd=0.04)


class DriftFilter:
    """Kalman filter of the drift, at the time of the last exposure."""

    def __init__(self, noise: DriftNoise):
        self._noise = noise
        self._between = replace(noise, position_step=0.0, velocity_step=0.0)  # an image is a prediction
        self.x = np.zeros(6)
        self.P = np.diag([noise.first_p**2] * 3 + [noise.first_v**2] * 3)
        self.t: float | None = None  # s, of the last exposure, or of the release, from which on drift grows

    def at(self, t: float) -> tuple[Array, Array]:
        """Return the state (6,) and covariance (6, 6) predicted to t (s), after the last exposure, without moving the filter."""
        dt = 0.0 if self.t is None else max(t - self.t, 0.0)
        return self._grown(dt, self._between)

    def _grown(self, dt: float, noise: DriftNoise) -> tuple[Array, Array]:
        """Return state and covariance predicted by eq. (12) over dt (s)."""
        F = np.eye(6)
        F[:3, 3:] = dt * np.eye(3)
        return F @ self.x, F @ self.P @ F.T + noise.covariance(dt)

    def predict(self, t: float) -> None:
        """Predict to the exposure of an image at t (s); do nothing if that is not later than the last one."""
        if self.t is not None and t > self.t:
            self.x, self.P = self._grown(t - self.t, self._noise)
        self.t = t if self.t is None else max(t, self.t)

    def update(self, t: float, drifts: Array, covariances: Array) -> None:
        """Update with the drifts (n, 3) m that an image exposed at t (s) shows, and their covariances (n, 3, 3) m^2.

        Predicts to t first, which is not before the last exposure. Raises LinAlgError where the innovation covariance is
        singular; the filter keeps its prediction.
        """
        self.predict(t)
        H_all = np.tile(H, (len(drifts), 1))
        R = np.zeros((len(drifts), 3, len(drifts), 3))
        for k, cov in enumerate(covariances):
            R[k, :, k] = cov
        K, P = joseph(self.P, H_all, R.reshape(len(H_all), len(H_all)))
        self.x = self.x + K @ (drifts.ravel() - H_all @ self.x)
        self.P = 0.5 * (P + P.T)

    def inflate(self, sigma: float) -> None:
        """Inflate the covariance by a standard deviation of position (m) and velocity (m/s)."""
        self.P = self.P + sigma**2 * np.eye(6)


LIMIT = chi2_limit(3, 1e-3)  # -, squared Mahalanobis distance beyond which a fix is rejected


class DriftEstimator(InertialOdometry, MapEstimator):
    sigma_attitude_rad = 0.01  # standard deviation of the odometry's attitude about each axis (chosen)

    def __init__(self, start: Start, noise: DriftNoise, fix: PoseFix | None = None):
        """Start at rest on the pad. `fix` computes the position fix of a sighting; None to use that of the association."""
        super().__init__(start.p_wb, start.q_wb)
        self._fix, self.drift = fix, DriftFilter(noise)

    def position(self, t: float, p_wb: Array, v_w: Array) -> bool:
        pose = self.pose_at(t)
        if pose is None or self.drift.t is None or not (t >= self.drift.t and np.isfinite(p_wb).all()):
            self.health.samples_refused += 1
            return False
        self.drift.update(t, (pose.p_w - p_wb)[None], POSITION_SIGMA_M**2 * np.eye(3)[None])
        return True

    def release(self) -> None:
        super().release()
        self.drift.t = self.t

    def state(self) -> State:
        return self._state(self.pose)

    def _state(self, pose: Pose) -> State:
        return estimated(pose, *self.drift.at(pose.t), self.sigma_attitude_rad)

    def predict(self, stamp: float) -> ExposureState | None:
        pose = self.pose_at(stamp)
        if pose is None or self.drift.t is None or stamp < self.drift.t:
            self.health.images_late += 1
            return None
        self.drift.predict(stamp)
        return ExposureState(stamp, self._state(pose))

    def predict_at_rest(self, stamp: float) -> ExposureState:
        return ExposureState(stamp, replace(self.state(), t=stamp))

    def correct(self, exposure: ExposureState, sightings: Sequence[GateSighting], unexplained: int) -> int:
        t, pose = exposure.stamp, self.pose_at(exposure.stamp)
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
        if nis:
            try:
                self.drift.update(t, np.array(drifts), np.array(covariances))
                self.health.used(nis)
            except np.linalg.LinAlgError:
                self.health.singular += 1
                nis = []
        if self.health.should_inflate(bool(nis), unexplained + len(sightings)):
            self.drift.inflate(INFLATION)
        return len(nis)
