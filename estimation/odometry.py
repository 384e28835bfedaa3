"""Inertial odometry of the drift estimators: strap-down integration, and a short history, since images arrive late.

    q' = q * (0, (omega - b_g) / 2),   v' = R_wb (f - b_a) + g,   p' = v

Attitude from gyro and ATTITUDE. Biases are the mean readings at rest on the pad.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gate_racer.estimation.estimator import Health, State
from gate_racer.estimation.imu_samples import levelled
from gate_racer.link.messages import Attitude, Imu
from gate_racer.model.imu import LONGEST_STEP_S, REPEATS_S, plausible
from gate_racer.vehicle.dynamics import G_W
from gate_racer.vehicle.rotation import Array, between, conjugate, exp, log, matrix, normalised, product

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
    """The inertial part of an estimator of its drift; `pose` is the newest one, `pose_at` covers the last half second."""

    def __init__(self, p_w: Array, q_wb: Array):
        """Start at rest at a known pose, until `release`."""
        self.health = Health()
        self.pose = Pose(0.0, np.array(p_w), np.zeros(3), np.array(q_wb), np.zeros(3))
        self.rest_samples = 0
        self._at_rest = True
        self._accel_sum, self._gyro_sum, self._accel_bias, self._gyro_bias = (np.zeros(3) for _ in range(4))
        self._force_w = np.zeros(3)
        self._last: Imu | None = None
        self._same_from = 0.0  # s, stamp of the first sample with the newest sample's values
        self._anchor: tuple[Pose, Array] | None = None  # pose and force before a run of repeated samples
        self._history: deque[Pose] = deque()

    @property
    def t(self) -> float:
        return self.pose.t

    def release(self) -> None:
        """End the rest: set the biases to the mean errors at rest."""
        self._at_rest = False
        if self.rest_samples:
            q = self.pose.q_wb
            self._gyro_bias = self._gyro_sum / self.rest_samples
            self._accel_bias = self._accel_sum / self.rest_samples + matrix(q).T @ G_W

    def level(self) -> None:
        """Take roll and pitch at rest from gravity, as the accelerometer shows it, and zero yaw."""
        self.pose = replace(self.pose, q_wb=levelled(self._accel_sum / self.rest_samples))
        self._history = deque([self.pose])

    def restart_rest(self) -> None:
        self.rest_samples = 0
        self._accel_sum, self._gyro_sum = np.zeros(3), np.zeros(3)

    def imu(self, sample: Imu) -> bool:
        """Integrate to the sample's time; return whether it was used: not if it is old or implausible."""
        accel, gyro = np.array(sample.accel), np.array(sample.gyro)
        if not plausible(sample) or sample.t <= self.pose.t:
            self.health.samples_refused += 1
            return False
        dt = sample.t - self.pose.t
        repeated = self._last is not None and (self._last.accel, self._last.gyro) == (sample.accel, sample.gyro)
        if not repeated:
            self._same_from = sample.t
        # A first sample on a clock of its own has nothing to integrate from.
        if self._at_rest or (self._last is None and dt > LONGEST_STEP_S):
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

    def coast(self, samples: Sequence[Imu]) -> None:
        for sample in samples:
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
        self.health.gaps += dt > LONGEST_STEP_S
        last = self.pose
        q = normalised(product(last.q_wb, exp(0.5 * (last.omega_b + omega) * dt)))
        force_w = matrix(q) @ accel
        before = self._force_w if self._force_w.any() else force_w
        a_w = 0.5 * (before + force_w) + G_W
        self._force_w = force_w
        self.pose = Pose(t, last.p_w + dt * last.v_w + 0.5 * dt * dt * a_w, last.v_w + dt * a_w, q, omega)

    def attitude(self, sample: Attitude) -> bool:
        q = np.array(sample.q_wb)
        past = self.pose_at(sample.t)
        if not np.isfinite(q).all() or past is None or abs(q @ q - 1) > 1e-2:
            self.health.samples_refused += 1
            return False
        gain = 1.0 if self._at_rest else ATTITUDE_GAIN
        turn = exp(gain * log(product(conjugate(past.q_wb), q)))
        now = self.pose
        self.pose = Pose(now.t, now.p_w, now.v_w, normalised(product(now.q_wb, turn)), now.omega_b)
        return True

    def rejoin(self, before: Pose, now: Pose) -> None:
        """Continue from `now` instead of `before`, the odometry's pose at that time, also in what is integrated since."""
        shift, gain = now.p_w - before.p_w, now.v_w - before.v_w
        turn = product(now.q_wb, conjugate(before.q_wb))

        def moved(pose: Pose) -> Pose:
            p_w, q_wb = pose.p_w + shift + (pose.t - now.t) * gain, normalised(product(turn, pose.q_wb))
            return Pose(pose.t, p_w, pose.v_w + gain, q_wb, pose.omega_b)

        # The newest pose moves in any case: a sample ahead of the IMU was extrapolated from it.
        begin = min(now.t, self.pose.t)
        self._history = deque(moved(pose) if pose.t >= begin else pose for pose in self._history)
        self.pose = moved(self.pose)
        if self._anchor is not None:
            self._anchor = moved(self._anchor[0]), self._anchor[1]

    def pose_at(self, t: float) -> Pose | None:
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


def estimated(pose: Pose, d: Array, cov: Array, sigma_attitude_rad: float) -> State:
    """Return the state at a pose of the odometry, less its drift d (6,) with covariance (6, 6): m and m/s, world NED."""
    whole = np.diag(np.full(9, sigma_attitude_rad**2))
    whole[:6, :6] = cov
    size = float(np.linalg.norm(d[:3]))
    return State(pose.t, pose.p_w - d[:3], pose.q_wb, pose.v_w - d[3:6], pose.omega_b, whole, size)
