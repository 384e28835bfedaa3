"""Telemetry schedule: every message at its own rate, a divider of the profile's stamping clock.

A message carries the state at its time stamp, interpolated between physics ticks where the two clocks differ. IMU samples
may repeat the previous values under a new stamp, as in the real simulator.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from gate_racer.link.messages import (
    GroundStatus,
    Heartbeat,
    Imu,
    LocalPosition,
    Motors,
    Odometry,
    Sensed,
    TimesyncRequest,
)
from gate_racer.link.profile import Profile, RateDivider
from gate_racer.sim.physics.plant import Q, Truth, V, W
from gate_racer.sim.sensors import Sensors
from gate_racer.tracks.track import Start
from gate_racer.vehicle.rotation import matrix, normalised
from gate_racer.vehicle.vehicle import Vehicle

GROUND_HZ = 1.0  # Hz, rate of the ground station's status (chosen)
Reported = Sensed | Heartbeat | GroundStatus | TimesyncRequest
IDLE = 0.05  # motor output, 0..1, of armed motors at rest, as observed


class Reporter:
    """Schedules the messages of one vehicle; call `report` at every tick, in order."""

    def __init__(
        self, profile: Profile, vehicle: Vehicle, start: Start, sensors: Sensors, pose: bool, drift_ppm: float = 0.0
    ):
        """Set up the rates of a vehicle's messages.

        Args:
            start: the vehicle's start, reported as its reference position.
            pose: whether the true pose is sent as well, at the profile's rates.
            drift_ppm: drift of the clock that stamps IMU and attitude.
        """
        self._profile, self._vehicle, self._start, self._sensors = profile, vehicle, start, sensors
        self._steps, self._ticks = (Fraction(profile.stamp_hz) / Fraction(profile.physics_hz)).as_integer_ratio()

        def beat(hz: float, enabled: bool = True) -> RateDivider:
            return RateDivider(hz if enabled else 0.0, profile.stamp_hz)

        self._heartbeat, self._image = beat(profile.heartbeat_hz), beat(profile.video_hz)
        self._ground, self._timesync = beat(GROUND_HZ, profile.ground_station), beat(profile.timesync_hz)
        self._imu, self._attitude = beat(profile.imu_hz), beat(profile.attitude_hz)
        self._motors = beat(profile.motors_hz)
        self._position, self._odometry = beat(profile.local_position_hz, pose), beat(profile.odometry_hz, pose)
        self._fresh = RateDivider(min(profile.imu_fresh_hz, profile.imu_hz), profile.imu_hz)
        self._samples = self._images = 0
        self._pace = 1 + 1e-6 * drift_ppm
        self._sample: Imu | None = None
        self._before: Truth | None = None

    def stamps(self, tick: int) -> range:
        """Return the steps of the stamping clock within a tick."""
        return range((tick - 1) * self._steps // self._ticks + 1, tick * self._steps // self._ticks + 1)

    def report(
        self, tick: int, truth: Truth, armed: bool, landed: bool, resets: int
    ) -> tuple[list[Reported], list[tuple[int, Truth]]]:
        """Return the messages of a tick and its exposures: image number and true state at the stamp."""
        messages: list[Reported] = []
        exposures = []
        self._sensors.follow(truth)
        for n in self.stamps(tick):
            t = n / self._profile.stamp_hz
            then = self._at(t, truth)
            if self._heartbeat(n):
                messages.append(Heartbeat(t, armed))
            if self._ground(n):
                messages.append(GroundStatus(t, landed, self._start.position_m))
            if self._timesync(n):
                messages.append(TimesyncRequest(round(t * 1e9)))
            if self._attitude(n):
                messages.append(replace(self._sensors.attitude(then), t=t * self._pace))
            if self._imu(n):
                messages.append(self._imu_sample(then))
            if self._motors(n):
                output = max(IDLE, self._vehicle.throttle.throttle(float(then.x[13]))) if armed else 0.0
                messages.append(Motors(t, (output,) * 4))
            if self._position(n):
                messages.append(LocalPosition(t, _vector(then.p_wb), _vector(then.x[V])))
            if self._odometry(n):
                messages.append(_odometry(then, resets))
            if self._image(n):
                self._images += 1
                exposures.append((self._images, then))
        self._before = truth
        return messages, exposures

    def _imu_sample(self, truth: Truth) -> Imu:
        self._samples += 1
        if self._sample is None or self._fresh(self._samples):
            self._sample = self._sensors.imu(truth)
        return replace(self._sample, t=truth.t * self._pace)

    def _at(self, t: float, truth: Truth) -> Truth:
        """Return the true state at time t, s, interpolated between the last tick and this one."""
        before = self._before
        if before is None or t >= truth.t - 1e-9:
            return replace(truth, t=t)
        s = (t - before.t) / (truth.t - before.t)
        x = before.x + s * (truth.x - before.x)
        x[Q] = normalised(x[Q])
        return replace(truth, t=t, x=x, accel_b=before.accel_b + s * (truth.accel_b - before.accel_b))

    def forget(self) -> None:
        """Discard the last state after the vehicle was moved, so that no sample is interpolated across the jump."""
        self._before = None


def _odometry(truth: Truth, resets: int) -> Odometry:
    v_b = matrix(truth.q_wb).T @ truth.x[V]
    q = truth.q_wb.tolist()
    return Odometry(truth.t, _vector(truth.p_wb), (q[0], q[1], q[2], q[3]), _vector(v_b), _vector(truth.x[W]), resets)


def _vector(a: np.ndarray) -> tuple[float, float, float]:
    x, y, z = a.tolist()
    return x, y, z
