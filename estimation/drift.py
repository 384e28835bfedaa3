"""Swift's estimator: inertial odometry minus the drift measured by gates (Kaufmann et al. 2023, Methods, eq. 12-14).

Strap-down odometry: attitude from gyro and ATTITUDE, velocity and position by integration of specific force.

    q' = q * (0, (omega - b_g) / 2),   v' = R_wb (f - b_a) + g,   p' = v

Biases are the mean readings at rest on the pad, whose pose the track gives. A short history covers the past, since images
arrive late.

Position fix of the vehicle from a gate's pose: IPPE, with a covariance from perturbed corners, as in Swift (Methods).

    p_wb = p_wg - R_wb (p_bc + R_bc p_cg),   R = R_wc cov(p_cg) R_wc'

The attitude is the odometry's, far more accurate than that of a small square: the rotation from IPPE is not used.

The drift filter of Swift (Kaufmann et al., Nature 2023, Methods, eq. 12-14), and as released (Zenodo 7955278).

State x = (p_d, v_d): position and velocity errors of the odometry. Estimate = odometry - drift. A gate sighting measures
p_d = p_odometry - p_fix at the time of exposure, with H = [I 0]. Every image is a prediction, with or without gates; images
whose gates are used are updates as well.

Swift's estimator: inertial odometry minus the drift measured by gates. Attitude comes from gyro and telemetry alone.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.estimation.estimator import DOUBT_P, DOUBT_V, ExposureState, Health, State
from gate_racer.link.messages import Attitude, Imu
from gate_racer.model.imu import LONGEST_STEP_S, REPEATS_S, plausible
from gate_racer.model.measurements import POSITION_SIGMA_M
from gate_racer.model.reprojection import GateSighting
from gate_racer.perception.pose import gate_pose
from gate_racer.tracks.track import Start
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.dynamics import G_W
from gate_racer.vehicle.rotation import Array, between, conjugate, exp, log, matrix, normalised, product
from gate_racer.vehicle.statistics import chi2_limit, mahalanobis2

ATTITUDE_GAIN = 0.2  # share of the difference corrected per ATTITUDE sample, whose stamp is good to 1 ms only (chosen)
HISTORY_S = 0.5  # s, length of the history


@dataclass(frozen=True, slots=True)
class Pose:
    """Odometry at one time; world NED, body FRD."""

    t: float  # s
    p_w: Array  # (3,) m
    v_w: Array  # (3,) m/s
    q_wb: Array  # (4,) wxyz, body to world
    omega_b: Array  # (3,) rad/s


class InertialOdometry:
    """Strap-down integration of every `Imu` and `Attitude`; `pose` is the newest one, `at` covers the last half second."""

    def __init__(self, p_w: Array, q_wb: Array):
        """Start at rest at a known pose, until `release`."""
        self.pose = Pose(0.0, np.array(p_w), np.zeros(3), np.array(q_wb), np.zeros(3))
        self.rest_samples = 0
        self.rejected = self.gaps = 0
        self._at_rest = True
        self._accel_sum, self._gyro_sum, self._accel_bias, self._gyro_bias = (np.zeros(3) for _ in range(4))
        self._force_w = np.zeros(3)
        self._last: Imu | None = None
        self._same_from = 0.0  # s, stamp of the first sample with the newest sample's values
        self._anchor: tuple[Pose, Array] | None = None  # pose and force before a run of repeated samples
        self._history: deque[Pose] = deque()

    def release(self) -> None:
        """End the rest: set the biases to the mean errors at rest."""
        self._at_rest = False
        if self.rest_samples:
            q = self.pose.q_wb
            self._gyro_bias = self._gyro_sum / self.rest_samples
            self._accel_bias = self._accel_sum / self.rest_samples + matrix(q).T @ G_W

    def restart_rest(self) -> None:
        """Discard the readings at rest collected so far."""
        self.rest_samples = 0
        self._accel_sum, self._gyro_sum = np.zeros(3), np.zeros(3)

    def imu(self, sample: Imu) -> bool:
        """Integrate to the sample's time; return whether it was used: not if it is old or implausible."""
        accel, gyro = np.array(sample.accel), np.array(sample.gyro)
        if not plausible(sample) or sample.t <= self.pose.t:
            self.rejected += 1
            return False
        dt = sample.t - self.pose.t
        repeated = self._last is not None and (self._last.accel, self._last.gyro) == (sample.accel, sample.gyro)
        if not repeated:
            self._same_from = sample.t
        if self._at_rest:
            self.rest_samples += 1
            self._accel_sum += accel
            self._gyro_sum += gyro
            self.pose = Pose(sample.t, self.pose.p_w, np.zeros(3), self.pose.q_wb, np.zeros(3))
        else:
            dt = self._bridge_repeats(sample.t, repeated, dt)
            self._integrate(sample.t, dt, accel - self._accel_bias, gyro - self._gyro_bias)
        self._last = sample
        self._history.append(self.pose)
        while self._history[0].t < sample.t - HISTORY_S:
            self._history.popleft()
        return True

    def coast(self, sample: Imu) -> None:
        """Integrate to a model-predicted, bias-free sample."""
        self._anchor = None
        if not self._at_rest and plausible(sample) and sample.t > self.pose.t:
            self._integrate(sample.t, sample.t - self.pose.t, np.array(sample.accel), np.array(sample.gyro))
            self._history.append(self.pose)

    def _bridge_repeats(self, t: float, repeated: bool, dt: float) -> float:
        """Return the step to integrate, s. A sample that repeats the last values under a new stamp is not a measurement.

        Such steps use the old values provisionally; the next fresh sample integrates again from where they began. Equal values
        for longer than `REPEATS_S` are true readings: a vehicle at rest, without noise.
        """
        if not repeated and self._anchor is not None:
            (self.pose, self._force_w), self._anchor = self._anchor, None
            return t - self.pose.t
        if repeated and t - self._same_from > REPEATS_S:
            self._anchor = None
        elif repeated and self._anchor is None:
            self._anchor = self.pose, self._force_w
        return dt

    def _integrate(self, t: float, dt: float, accel: Array, omega: Array) -> None:
        self.gaps += dt > LONGEST_STEP_S
        last = self.pose
        q = normalised(product(last.q_wb, exp(0.5 * (last.omega_b + omega) * dt)))
        force_w = matrix(q) @ accel
        before = self._force_w if self._force_w.any() else force_w
        a_w = 0.5 * (before + force_w) + G_W
        self._force_w = force_w
        self.pose = Pose(t, last.p_w + dt * last.v_w + 0.5 * dt * dt * a_w, last.v_w + dt * a_w, q, omega)

    def attitude(self, sample: Attitude) -> bool:
        """Correct the attitude towards the telemetry's; return whether it was used."""
        q = np.array(sample.q_wb)
        past = self.at(sample.t)
        if not np.isfinite(q).all() or past is None or abs(q @ q - 1) > 1e-2:
            self.rejected += 1
            return False
        gain = 1.0 if self._at_rest else ATTITUDE_GAIN
        turn = exp(gain * log(product(conjugate(past.q_wb), q)))
        now = self.pose
        self.pose = Pose(now.t, now.p_w, now.v_w, normalised(product(now.q_wb, turn)), now.omega_b)
        return True

    def at(self, t: float) -> Pose | None:
        """Return the odometry at t (s), interpolated or extrapolated by at most 50 ms; None outside the history."""
        history = self._history
        if not history or not history[0].t - 1e-9 <= t <= history[-1].t + 0.05:
            return None
        if len(history) == 1 or t >= history[-1].t:
            a = b = history[-1]
            dt = t - a.t
            return Pose(t, a.p_w + dt * a.v_w, a.v_w, normalised(product(a.q_wb, exp(dt * a.omega_b))), a.omega_b)
        k = next(k for k in range(len(history) - 1, 0, -1) if history[k - 1].t <= t)
        a, b = history[k - 1], history[k]
        s = (t - a.t) / (b.t - a.t)

        def mix(x: Array, y: Array) -> Array:
            return (1 - s) * x + s * y

        return Pose(t, mix(a.p_w, b.p_w), mix(a.v_w, b.v_w), between(a.q_wb, b.q_wb, s), mix(a.omega_b, b.omega_b))


class PoseFix:
    """Position fixes by gates with four visible corners; others give none, as in the released code."""

    def __init__(self, camera: Camera, rng: np.random.Generator):
        """Draw the perturbations of corners from `rng`."""
        self._camera, self._rng = camera, rng
        self._pinhole = replace(camera, k1=0.0, k2=0.0)

    def __call__(self, sighting: GateSighting, q_wb: Array) -> tuple[Array, Array] | None:
        """Return the position (3,) m of a vehicle with attitude q_wb (4,), and its covariance (3, 3) m^2; None without a pose."""
        if not sighting.visible.all():
            return None
        corners_w, corners_px = sighting.corners_w, self._camera.pinhole(sighting.corners_px)
        side_m = float(np.linalg.norm(corners_w - np.roll(corners_w, 1, axis=0), axis=1).mean())
        variance_px2 = float(np.trace(sighting.cov_px, axis1=1, axis2=2).mean()) / 2  # of one coordinate
        if not 0 < variance_px2 < np.inf:
            return None
        pose = gate_pose(corners_px, math.sqrt(variance_px2), side_m, self._pinhole, self._rng)
        if pose is None:
            return None
        arm_w, R_wc = self._camera.pose(np.zeros(3), q_wb)
        return corners_w.mean(axis=0) - arm_w - R_wc @ pose.p_cg, R_wc @ pose.cov_p @ R_wc.T


H = np.hstack([np.eye(3), np.zeros((3, 3))])  # measurement matrix of one gate


@dataclass(frozen=True)
class DriftNoise:
    """Process noise of the drift, and its standard deviations at the start."""

    position_step: float = 0.0  # m^2 added per prediction, regardless of its length
    velocity_step: float = 0.0  # (m/s)^2 added per prediction
    acceleration_psd: float = 0.0  # m^2/s^3, white drift acceleration
    acceleration_step: float = 0.0  # (m/s^2)^2, drift acceleration, constant over a prediction
    first_p: float = 0.03  # m, standard deviation at the start: position of the pad
    first_v: float = 0.02  # m/s, likewise
    longest: float = np.inf  # s, limit on the length of a prediction; the rest of a longer gap adds nothing

    def covariance(self, dt: float) -> Array:
        """Return Q (6, 6) over dt (s)."""
        q, r = self.acceleration_psd, self.acceleration_step
        p = self.position_step + q * dt**3 / 3 + r * dt**4 / 4
        pv = q * dt**2 / 2 + r * dt**3 / 2
        v = self.velocity_step + q * dt + r * dt**2
        return np.kron(np.array([[p, pv], [pv, v]]), np.eye(3))

    @property
    def between(self) -> "DriftNoise":
        """Noise between images: without the terms added once per prediction."""
        return replace(self, position_step=0.0, velocity_step=0.0)


# The paper's constants, per camera frame (30 Hz): for visual-inertial odometry, whose position jumps.
SWIFT_NOISE = DriftNoise(0.05, 0.1, first_p=0.0, first_v=0.0)
# The released pseudocode: P0 = I, Q = 50 [dt^4/4, dt^3/2; dt^3/2, dt^2], predictions of at most half a second.
RELEASED_NOISE = DriftNoise(acceleration_step=50.0, first_p=1.0, first_v=1.0, longest=0.5)
# Strap-down integration drifts smoothly: an attitude error of 0.3 deg at 50 m/s^2 of thrust gives 0.2 m/s^2, here for 1 s.
STRAPDOWN_NOISE = DriftNoise(acceleration_psd=0.04)


class DriftFilter:
    """Kalman filter of the drift, at the time of the last exposure."""

    def __init__(self, noise: DriftNoise):
        """Start with zero drift."""
        self._noise, self._between = noise, noise.between
        self.x = np.zeros(6)
        self.P = np.diag([noise.first_p**2] * 3 + [noise.first_v**2] * 3)
        self.t: float | None = None

    def at(self, t: float) -> tuple[Array, Array]:
        """Return the state (6,) and covariance (6, 6) predicted to t (s), after the last exposure, without moving the filter."""
        dt = 0.0 if self.t is None else max(t - self.t, 0.0)
        return self._grown(dt, self._between)

    def _grown(self, dt: float, noise: DriftNoise) -> tuple[Array, Array]:
        """Return state and covariance predicted by eq. (12) over dt (s)."""
        F = np.eye(6)
        F[:3, 3:] = dt * np.eye(3)
        return F @ self.x, F @ self.P @ F.T + noise.covariance(dt)

    def begin(self, t: float) -> None:
        """Start the growth of drift at t (s)."""
        self.t = t

    def predict(self, t: float) -> None:
        """Predict to the exposure of an image at t (s); do nothing if that is not later than the last one."""
        if self.t is not None and t > self.t:
            self.x, self.P = self._grown(min(t - self.t, self._noise.longest), self._noise)
        self.t = t if self.t is None else max(t, self.t)

    def update(self, t: float, drifts: Array, covariances: Array) -> None:
        """Update with all gates of an image, stacked, after the prediction to t if it was not made yet.

        Args:
            t: exposure, s; not before the last one.
            drifts: (n, 3) measured p_d, m.
            covariances: (n, 3, 3), m^2.

        Raises:
            numpy.linalg.LinAlgError: the innovation covariance is singular; the filter keeps its prediction.
        """
        self.predict(t)
        n = len(drifts)
        H_all = np.tile(H, (n, 1))
        R = np.zeros((3 * n, 3 * n))
        for k in range(n):
            R[3 * k : 3 * k + 3, 3 * k : 3 * k + 3] = covariances[k]
        K = np.linalg.solve(H_all @ self.P @ H_all.T + R, H_all @ self.P).T
        keep = np.eye(6) - K @ H_all
        self.x = self.x + K @ (drifts.ravel() - H_all @ self.x)
        self.P = keep @ self.P @ keep.T + K @ R @ K.T
        self.P = 0.5 * (self.P + self.P.T)

    def doubt(self, sigma_p: float, sigma_v: float) -> None:
        """Inflate the covariance by standard deviations of position (m) and velocity (m/s)."""
        self.P = self.P + np.diag([sigma_p**2] * 3 + [sigma_v**2] * 3)


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
