"""Consistency checks of telemetry with the wire profile and the track, in the second of rest before a race.

Only the impossible prevents a start: noise, a tilted pad or a missing sensor is no contradiction. Signs of the gyro and of
commands, and on a level pad those of ATTITUDE, show in motion only.
"""

import math

import numpy as np

from gate_racer.link.messages import Attitude, Imu, Odometry, RaceStatus, Telemetry, TrackMap
from gate_racer.link.profile import Profile
from gate_racer.pilot.flight import DetectedImage
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, to_euler

FEWEST = 50  # least samples in a mean
GRAVITY_RANGE = 0.2  # relative, tolerance of gravity's length: ten times the scale errors of IMUs (chosen)
REMARKABLE_RAD = 0.09  # rad (5 deg), remarkable angle between gravity and the track file
TILTED_RAD, SAME_RAD = 0.12, 0.05  # rad; a mirrored angle is at least the first, and opposite within the second
ASTRAY_RAD = 0.35  # rad (20 deg), angle between ATTITUDE and gravity beyond all biases and errors of alignment (chosen)
JUMP_S = 1.0  # s between two stamps that shows that the clock was set
STRETCH = 20.0  # largest factor between the IMU rate by its stamps and by the profile, and between the clocks of images and IMU
IMAGES, IMAGES_S = 10, 0.5  # least images, and s between the first and the newest: single ones may be late (chosen)
STATUS_S = 5.0  # s at rest without a race status, which real builds send four times a second from the start
LEG_M, LEG = 3.0, 0.15  # m and relative: largest difference between legs of track and map


class Preflight:
    """Checks on all telemetry before the start."""

    def __init__(self, profile: Profile, track: Track | None):
        """Create the checks; without a track (exploration) those of the profile only."""
        self._profile, self._track = profile, track
        self.forget()

    def forget(self) -> None:
        """Reset: another simulator is connected."""
        self._attitudes: dict[str, Array] = {}  # roll, pitch and yaw, rad, by message with an attitude
        self._race: RaceStatus | None = None
        self._map: TrackMap | None = None
        self.restart()

    def restart(self) -> None:
        """Restart the rest: the vehicle was moved, or the clock was set."""
        self._force, self._samples, self._stamps = np.zeros(3), 0, (0.0, 0.0)
        self._images: list[tuple[float, float]] = []  # s, stamp of each image, and that of the IMU by then

    def receive(self, message: Telemetry | DetectedImage) -> None:
        """Process one message."""
        if isinstance(message, Imu):
            self._receive_imu(message)
        elif isinstance(message, Attitude | Odometry):
            self._attitudes[type(message).__name__.upper()] = np.array(to_euler(message.q_wb))
        elif isinstance(message, DetectedImage):
            if self._samples:
                self._images.append((message.t, self._stamps[1]))
        elif isinstance(message, RaceStatus):
            self._race = message
        elif isinstance(message, TrackMap):
            self._map = message

    def _receive_imu(self, sample: Imu) -> None:
        if not np.isfinite(sample.accel).all():
            return
        if self._samples and not 0 <= sample.t - self._stamps[1] < JUMP_S:
            self.restart()
        first = self._stamps[0] if self._samples else sample.t
        self._force, self._samples, self._stamps = self._force + sample.accel, self._samples + 1, (first, sample.t)

    def contradiction(self) -> str:
        """Return one line on why not to start; empty if nothing contradicts."""
        checks = self._clock, self._image_clock, self._gravity, self._attitude, self._countdown, self._other_track
        return next(filter(None, (check() for check in checks)), "")

    def remark(self) -> str:
        """Return one line on what differs from the track file without preventing the start; empty if nothing does."""
        if self._samples < FEWEST or self._track is None:
            return ""
        by_gravity, by_track = self._roll_pitch(), np.array(to_euler(self._track.start.q_wb)[:2])
        if np.abs(by_gravity - by_track).max() < REMARKABLE_RAD:
            return ""
        (roll, pitch), (track_roll, track_pitch) = np.degrees(by_gravity), np.degrees(by_track)
        return (
            f"at rest, gravity shows roll {roll:+.1f} and pitch {pitch:+.1f} deg, {self._track.name} says"
            f" {track_roll:+.1f} and {track_pitch:+.1f}: gravity is used"
        )

    def _roll_pitch(self) -> Array:
        """Return roll and pitch from gravity, (2,) rad."""
        x, y, z = self._force / self._samples
        return np.array([math.atan2(-y, -z), math.atan2(x, math.hypot(y, z))])

    def _clock(self) -> str:
        first, last = self._stamps
        hz = (self._samples - 1) / (last - first) if last > first and self._samples > FEWEST else self._profile.imu_hz
        if 1 / STRETCH < hz / self._profile.imu_hz < STRETCH:
            return ""
        return f"HIGHRES_IMU's stamps give {hz:.3g} Hz, {self._name} {self._profile.imu_hz:g} Hz: not in microseconds?"

    def _image_clock(self) -> str:
        if len(self._images) < IMAGES:
            return ""
        by_imu = self._images[-1][1] - self._images[0][1]
        steps = np.diff([stamp for stamp, _ in self._images])
        by_images = float(np.median(steps)) * len(steps)  # unmoved by a clock that is corrected meanwhile
        if by_imu < IMAGES_S or 1 / STRETCH < by_images / by_imu < STRETCH:
            return ""
        return (
            f"the stamps of images advance by {by_images:.3g} s in {by_imu:.2f} s of HIGHRES_IMU's: not in nanoseconds?"
        )

    def _gravity(self) -> str:
        if self._samples < FEWEST:
            return ""
        force = self._force / self._samples
        size = float(np.linalg.norm(force))
        if abs(size / GRAVITY - 1) > GRAVITY_RANGE:
            return f"the accelerometer reads {size:.3g} at rest, not {GRAVITY:.3g} m/s^2: wrong units?"
        if force[2] > GRAVITY / 2:
            return f"the accelerometer reads {force[2]:+.1f} m/s^2 along z at rest: its sign is not that of body FRD"
        return ""

    def _attitude(self) -> str:
        if self._samples < FEWEST:
            return ""
        known = dict(zip(("roll", "pitch"), self._roll_pitch(), strict=True))
        if self._track is not None:
            known["yaw"] = math.radians(self._track.start.yaw_deg)
        for kind, reported in self._attitudes.items():
            for (name, expected), angle in zip(known.items(), reported, strict=False):
                mirrored = abs(_wrapped(2 * expected)) > 2 * TILTED_RAD and abs(_wrapped(angle + expected)) < SAME_RAD
                astray = name != "yaw" and abs(_wrapped(angle - expected)) > ASTRAY_RAD
                if mirrored or astray:
                    source = "the track file" if name == "yaw" else "gravity"
                    degrees = f"{math.degrees(angle):+.1f} deg, by {source} {math.degrees(expected):+.1f}"
                    what = "sign" if mirrored else "unit or sign"
                    return f"{kind}'s {name} is {degrees}: its {what} is not that of {self._name}"
        return ""

    def _countdown(self) -> str:
        expected = self._profile.race is not None
        if not expected and self._race is not None and not self._race.go:
            return f"the simulator counts down a race, but {self._name} defines none: this would be a false start"
        if expected and self._race is None and self._stamps[1] - self._stamps[0] > STATUS_S:
            return f"no race status in {STATUS_S:g} s at rest, but {self._name} defines a race, whose GO it announces"
        return ""

    def _other_track(self) -> str:
        """Compare legs from gate to gate, since a map's origin may shift. A map without positions is ignored."""
        if self._track is None:
            return ""
        gates = [gate for gate in self._track.gates if not gate.is_ball]
        if self._map is None or len(gates) < 2 or not np.any([gate.p_w for gate in self._map.gates]):
            return ""
        if len(self._map.gates) != len(gates):
            return f"the simulator's map has {len(self._map.gates)} gates, {self._track.name} has {len(gates)}"
        theirs, ours = (np.diff(p, axis=0) for p in ([g.p_w for g in self._map.gates], [g.centre_m for g in gates]))
        apart, long = np.linalg.norm(theirs - ours, axis=1), np.linalg.norm(ours, axis=1)
        leg = int((apart / (LEG_M + LEG * long)).argmax())
        if apart[leg] < LEG_M + LEG * long[leg]:
            return ""
        return f"gate {leg + 1} of the simulator's map is {apart[leg]:.1f} m off {self._track.name}'s, relative to gate {leg}"

    @property
    def _name(self) -> str:
        return f"profile {self._profile.name}"


def _wrapped(angle: float) -> float:
    """Return an angle (rad) within half a turn of zero."""
    return math.remainder(angle, math.tau)
