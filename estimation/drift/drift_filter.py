"""The drift filter of Swift (Kaufmann et al., Nature 2023, Methods, eq. 12-14), and as released (Zenodo 7955278).

State x = (p_d, v_d): position and velocity errors of the odometry. Estimate = odometry - drift. A gate sighting measures
p_d = p_odometry - p_fix at the time of exposure, with H = [I 0]. Every image is a prediction, with or without gates; images
whose gates are used are updates as well.
"""

from dataclasses import dataclass, replace

import numpy as np

from gate_racer.vehicle.rotation import Array

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
