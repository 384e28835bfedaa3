"""Observations of a probe flight on one clock: samples, attitudes and camera rotations, and conditions that end the flight."""

import math
from typing import Any

import numpy as np

from gate_racer.field.probe.motion import IntegratedMotion, Notes, RestMean, Series, imu_values
from gate_racer.field.probe.optical_flow import half_size, turn_between
from gate_racer.field.probe.raw_link import is_armed
from gate_racer.link.messages import VideoFrame
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array

SPIN_RAD_S, SPIN_S = 7.0, 0.4  # body rate and duration that end the flight
OVERTURNED = 0.2  # -, cosine of the tilt below which the flight ends (chosen)
VIDEO_LATENCY_S = 0.0135  # s, nominal latency of images, until it is measured
SILENCE_S = 0.5  # s without telemetry that ends the flight
WINDOW_S, FELL_BEHIND_S = 1.0, 0.004  # window of the clock offset, and its increase that shows a slow simulator


class FlightObserver:
    """Observer of a probe flight: pass messages to `receive` and images to `see`; `over` is set when the flight must end."""

    def __init__(self, rest: RestMean, camera: Camera, signs: tuple[float, float, float]):
        """Create it; `signs` of the gyro are assumed until measured."""
        self.notes, self.series = Notes(signs=signs), Series()
        self.motion = IntegratedMotion(rest, signs)
        self.over = False
        self.offset_s = rest.offset_s
        self._rest, self._camera = rest, camera
        self._image: tuple[float, np.ndarray] | None = None
        self._t = self._received_t = self._window_end = -math.inf
        self._fastest = math.inf  # least arrival minus stamp in the current window
        self._video_offset = 0.0  # s, offset of the image stamps, like `offset_s`
        self._news = self._was_armed = False
        self._spinning_since: float | None = None

    def receive(self, arrival: float, message: Any) -> None:
        """Process a pymavlink message. Invalid ones are ignored."""
        kind = message.get_type()
        if kind == "HIGHRES_IMU":
            self._receive_imu(arrival, message)
        elif kind == "ATTITUDE":
            row = np.array(
                [message.roll, message.pitch, message.yaw, message.rollspeed, message.pitchspeed, message.yawspeed]
            )
            if np.isfinite(row).all():
                self.series.attitude.append((self._local(arrival, message.time_boot_ms * 1e-3), row[:3], row[3:]))
        elif kind == "ODOMETRY":
            q, w = np.array(message.q), np.array([message.rollspeed, message.pitchspeed, message.yawspeed])
            if np.isfinite(q).all() and np.isfinite(w).all() and q @ q > 0.5:
                self.series.odometry.append((self._local(arrival, message.time_usec * 1e-6), q, w))
        elif kind == "HEARTBEAT" and self.notes.lifted and self._was_armed and not is_armed(message):
            self.stop("the simulator disarmed the vehicle")
        elif kind == "HEARTBEAT":
            self._was_armed = is_armed(message)

    def _local(self, arrival: float, stamp: float) -> float:
        """Return a stamp on the local clock; the arrival, if its clock is not the IMU's."""
        t = stamp + self.offset_s
        return t if abs(arrival - t) < SILENCE_S else arrival

    def _receive_imu(self, arrival: float, message: Any) -> None:
        values, stamp = np.array(imu_values(message)), message.time_usec * 1e-6
        self._received_t = arrival
        self._follow_clock(arrival, arrival - stamp)
        t = stamp + self.offset_s
        if t <= self._t or not np.isfinite(values).all():
            return
        self._t, self._news = t, True
        row = (t, values[:3], values[3:])
        self.series.imu.append(row)
        if self.notes.lifted:
            self.motion.imu(*row)
            self._watch(t, values[3:])

    def _follow_clock(self, arrival: float, late: float) -> None:
        """Update the clock offset: it increases if the simulator is too slow, and jumps if its clock was set."""
        self._fastest = min(self._fastest, late)
        if arrival > self._window_end:
            if math.isfinite(self._window_end) and self._fastest > self.offset_s + FELL_BEHIND_S:
                self.offset_s = self._fastest
            self._fastest, self._window_end = math.inf, arrival + WINDOW_S
        if abs(late - self.offset_s) > SILENCE_S:
            self.offset_s = late
        self.offset_s = min(self.offset_s, late)

    def _watch(self, t: float, gyro: Array) -> None:
        """End the flight if it spins or overturns."""
        if float(np.abs(gyro).max()) < SPIN_RAD_S:
            self._spinning_since = None
        elif self._spinning_since is None:
            self._spinning_since = t
        elif t - self._spinning_since > SPIN_S:
            self.stop("the vehicle spins")
        if self.motion.down < OVERTURNED:
            self.stop("the vehicle turned over")

    def see(self, arrival: float, frame: VideoFrame) -> None:
        """Process an image: estimate the camera's rotation since the previous one."""
        late = arrival - frame.t - self._video_offset
        if late < 0 or late > SILENCE_S:  # the fastest so far, or the clock was set
            self._video_offset += late
        grey, t = half_size(frame.jpeg, self._camera), frame.t + self._video_offset - VIDEO_LATENCY_S
        before, self._image = self._image, None if grey is None else (t, grey)
        if before is not None and grey is not None and t - before[0] < 0.1:
            turn = turn_between(before[1], grey, self._camera)
            if turn is not None:
                self.turned(before[0], t, turn)

    def turned(self, begin: float, end: float, turn: Array) -> None:
        """Record a camera rotation vector (3,), body FRD, between two local times."""
        self.series.turns.append((begin, end, turn))

    def stop(self, why: str) -> None:
        """End the flight at once."""
        if not self.over:
            self.over, self.notes.end = True, why
