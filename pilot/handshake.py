"""The handshake with a simulator, from its first message to an armed vehicle at GO, and the watch over its arming.

wait_link -> calibrate -> wait_go -> arm -> launch; if the start of a race disarms, launch leads back to arm. With PX4,
arming is preceded by a stream of set-points and the mode OFFBOARD (`OffboardEntry`; PX4 user guide, "Offboard
Mode"), and leaving that mode ends the flight.

`Preflight` checks that telemetry is consistent with the wire profile and the track, in the second of rest before a race. Only the
impossible prevents a start: noise, a tilted pad or a missing sensor is no contradiction.
"""

import math
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from gate_racer.link import messages
from gate_racer.link.profile import OffboardRules, Profile
from gate_racer.pilot.flight import DetectedImage, End, EndReason, Phase
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, to_euler

FEWEST = 50  # least samples in a mean
GRAVITY_RANGE = 0.2  # relative, tolerance of gravity's length: ten times the scale errors of IMUs (chosen)
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
        self._newest: dict[type, Any] = {}  # message of each type
        self.restart()

    def restart(self) -> None:
        """Restart the rest: the vehicle was moved, or the clock was set."""
        self._force, self._samples, self._stamps = np.zeros(3), 0, (0.0, 0.0)
        self._images: list[tuple[float, float]] = []  # s, stamp of each image, and that of the IMU by then

    def receive(self, message: messages.Telemetry | DetectedImage) -> None:
        if isinstance(message, messages.Imu) and np.isfinite(message.accel).all():
            if self._samples and not 0 <= message.t - self._stamps[1] < JUMP_S:
                self.restart()
            self._stamps = self._stamps[0] if self._samples else message.t, message.t
            self._force, self._samples = self._force + message.accel, self._samples + 1
        elif isinstance(message, DetectedImage) and self._samples:
            self._images.append((message.t, self._stamps[1]))
        self._newest[type(message)] = message

    def contradiction(self) -> str:
        """Return one line on why not to start; empty if nothing contradicts."""
        return next(chain(self._of_clocks(), self._of_rest(), self._of_race()), "")

    def _of_clocks(self) -> Iterator[str]:
        first, last = self._stamps
        hz = (self._samples - 1) / (last - first) if last > first and self._samples > FEWEST else self._profile.imu_hz
        if not 1 / STRETCH < hz / self._profile.imu_hz < STRETCH:
            told = f"{self._name} {self._profile.imu_hz:g} Hz: not in microseconds?"
            yield f"HIGHRES_IMU's stamps give {hz:.3g} Hz, {told}"
        if len(self._images) >= IMAGES:
            by_imu = self._images[-1][1] - self._images[0][1]
            steps = np.diff([stamp for stamp, _ in self._images])
            by_images = float(np.median(steps)) * len(steps)  # unmoved by a clock that is corrected meanwhile
            if by_imu >= IMAGES_S and not 1 / STRETCH < by_images / by_imu < STRETCH:
                apart = f"{by_images:.3g} s in {by_imu:.2f} s of HIGHRES_IMU's"
                yield f"the stamps of images advance by {apart}: not in nanoseconds?"

    def _of_rest(self) -> Iterator[str]:
        """Compare the specific force at rest with gravity, and the attitudes told with both."""
        if self._samples < FEWEST:
            return
        x, y, z = force = self._force / self._samples
        size = float(np.linalg.norm(force))
        if abs(size / GRAVITY - 1) > GRAVITY_RANGE:
            yield f"the accelerometer reads {size:.3g} at rest, not {GRAVITY:.3g} m/s^2: wrong units?"
        if z > GRAVITY / 2:
            yield f"the accelerometer reads {z:+.1f} m/s^2 along z at rest: its sign is not that of body FRD"
        known = {"roll": math.atan2(-y, -z), "pitch": math.atan2(x, math.hypot(y, z))}
        if self._track is not None:
            known["yaw"] = math.radians(self._track.start.yaw_deg)
        for kind in [kind for kind in (messages.Attitude, messages.Odometry) if kind in self._newest]:
            for (name, expected), angle in zip(known.items(), to_euler(self._newest[kind].q_wb), strict=False):
                mirrored = abs(_wrapped(2 * expected)) > 2 * TILTED_RAD and abs(_wrapped(angle + expected)) < SAME_RAD
                if mirrored or (name != "yaw" and abs(_wrapped(angle - expected)) > ASTRAY_RAD):
                    source = "the track file" if name == "yaw" else "gravity"
                    degrees = f"{math.degrees(angle):+.1f} deg, by {source} {math.degrees(expected):+.1f}"
                    what = f"{kind.__name__.upper()}'s {name}"
                    yield f"{what} is {degrees}: its unit or sign is not that of {self._name}"

    def _of_race(self) -> Iterator[str]:
        """Compare the race told with the profile's, and the map's legs with the track's, since a map's origin may shift."""
        expected, race = self._profile.race is not None, self._newest.get(messages.RaceStatus)
        if not expected and race is not None and not race.go:
            yield f"the simulator counts down a race, but {self._name} defines none: this would be a false start"
        if expected and race is None and self._stamps[1] - self._stamps[0] > STATUS_S:
            yield f"no race status in {STATUS_S:g} s at rest, but {self._name} defines a race, whose GO it announces"
        told: messages.TrackMap | None = self._newest.get(messages.TrackMap)
        gates = [gate for gate in self._track.gates if not gate.is_ball] if self._track is not None else []
        if self._track is None or told is None or len(gates) < 2 or not np.any([gate.p_w for gate in told.gates]):
            return  # a map without positions is ignored
        if len(told.gates) != len(gates):
            yield f"the simulator's map has {len(told.gates)} gates, {self._track.name} has {len(gates)}"
            return
        theirs, ours = (np.diff(p, axis=0) for p in ([g.p_w for g in told.gates], [g.centre_m for g in gates]))
        apart, long = np.linalg.norm(theirs - ours, axis=1), np.linalg.norm(ours, axis=1)
        leg = int((apart / (LEG_M + LEG * long)).argmax())
        if apart[leg] >= LEG_M + LEG * long[leg]:
            off = f"{apart[leg]:.1f} m off {self._track.name}'s, relative to gate {leg}"
            yield f"gate {leg + 1} of the simulator's map is {off}"

    @property
    def _name(self) -> str:
        return f"profile {self._profile.name}"


def _wrapped(angle: float) -> float:
    """Return an angle (rad) within half a turn of zero."""
    return math.remainder(angle, math.tau)


MOVED = np.array([1.5, 1.5, 1.5, 0.3, 0.3, 0.3])  # m/s^2 and rad/s, largest change of the mean at rest
SAMPLES = 12  # samples in a mean: 0.1 to 0.2 s
SURE = 5.0  # standard deviations of the difference of two means that noise explains


class RestWatch:
    """Comparison of the newest samples with the first ones."""

    def __init__(self) -> None:
        self._first = list[Array]()
        self._newest: deque[Array] = deque(maxlen=SAMPLES)

    def moved(self, sample: messages.Imu) -> bool:
        """Return whether this sample and those just before it show motion since the first ones."""
        row = np.array([*sample.accel, *sample.gyro])
        if len(self._first) < SAMPLES:
            self._first.append(row)
        self._newest.append(row)
        first, newest = np.array(self._first), np.array(self._newest)
        steps = np.diff(first, axis=0) if len(first) > 1 else np.zeros((1, len(row)))
        # A difference holds the noise of two samples, as that of two means does.
        noise = SURE * np.sqrt((steps**2).mean(axis=0) / len(first))
        return bool((np.abs(newest.mean(axis=0) - first.mean(axis=0)) > MOVED + noise).any())


OFFBOARD = "OFFBOARD"
IDLE = messages.AttitudeTarget((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0), 0.0)
IDLE_S = 0.05  # s between idle set-points: well within the time-out after which PX4 leaves the mode
RETRY_S = 0.5  # s between requests
STALE_BEATS = 2  # consecutive heartbeats of another mode; the first after a switch may be stale
NAMES = {messages.ARM_COMMAND: "arming", messages.MODE_COMMAND: "OFFBOARD"}


class OffboardEntry:
    """State machine of the OFFBOARD entry: tracks PX4's mode, and `commands` returns the next request."""

    def __init__(self, rules: OffboardRules):
        self._stream_s = rules.stream_s
        self.entered = False  # according to PX4's last report
        self._confirmed, self._other_beats = False, 0  # confirmed by a heartbeat
        self._streaming_since: float | None = None  # s
        self._next_idle = self._next_ask = float("-inf")  # s
        self._mode = self._said = ""
        self._refused: dict[int, str] = {}  # result by refused command

    @property
    def refusal(self) -> str:
        """Return what PX4 has refused last, with its reason if given; empty if nothing."""
        words = ", ".join(f"{NAMES[command]} is refused ({result})" for command, result in self._refused.items())
        return f"{words}{self._said}" if words else ""

    @property
    def departure(self) -> str:
        """Return the message for a departure from OFFBOARD, with the new mode and PX4's reason."""
        return f"the autopilot left OFFBOARD for {self._mode}{self._said}"

    def receive(self, message: messages.Telemetry) -> None:
        if isinstance(message, messages.Heartbeat):
            self._mode, on = message.mode, message.mode == OFFBOARD
            self._other_beats = 0 if on else self._other_beats + 1
            if on:
                self._refused.pop(messages.MODE_COMMAND, None)
            if on or self._confirmed or self._other_beats >= STALE_BEATS:
                self.entered = self._confirmed = on
        elif isinstance(message, messages.Ack) and message.command in NAMES:
            if message.accepted:
                self._refused.pop(message.command, None)
                if message.command == messages.MODE_COMMAND:
                    self.entered, self._other_beats = True, 0
            else:
                self._refused[message.command] = message.result
        elif isinstance(message, messages.StatusText) and message.severity <= messages.WARNING:
            self._said = f": {message.text}"

    def commands(self, t: float) -> list[messages.Command]:
        """Return the commands before the flight at time t (s): idle set-points, then the mode, then arming."""
        idle = self.idle(t)
        if self._streaming_since is None:
            self._streaming_since = t
        if t < max(self._next_ask, self._streaming_since + self._stream_s + RETRY_S):
            return idle
        self._next_ask = t + RETRY_S
        return [*idle, messages.Arm(True) if self.entered else messages.EnterOffboard()]

    def idle(self, t: float) -> list[messages.Command]:
        """Return a set-point without thrust when one is due to keep the stream alive."""
        if t < self._next_idle:
            return []
        self._next_idle = t + IDLE_S
        return [IDLE]


REST_S = 1.0  # s at rest, to estimate the IMU biases
ARM_RETRY_S = 0.5  # s between arming commands
GO_MARGIN_S = 0.12  # s after a scheduled start: thrust before GO is an unreported false start
UNANSWERED_S = 5.0  # s without an acknowledgement, after which the simulator is taken not to implement arming
UNARMED_BEATS, UNARMED_S = 3, 0.3  # consecutive heartbeats and s that prove it disarmed: single ones may be stale
ATTITUDE_WAIT_S = 1.0  # s to wait for the first ATTITUDE; the gyro alone suffices
RESTART_S = 0.5  # s, least difference between start times of two races
# What is awaited by phase, once linked; else an accepted arm command.
AWAITED = {Phase.CALIBRATE: "a vehicle at rest on the pad", Phase.WAIT_GO: "GO of a race"}


class Handshake:
    def __init__(self, profile: Profile, preflight: Preflight | None = None):
        self._profile, self._preflight = profile, preflight
        self.go_t: float | None = None  # s, GO, or time of the first command if no race is announced
        self.forget()

    def forget(self) -> None:
        """Reset for a new link: another simulator may follow, with its own clock and race."""
        self.phase = Phase.WAIT_LINK
        self.end: End | None = None  # reason why the flight cannot begin, or must end
        self._since = 0.0  # s, start of the phase
        self._rest_t = 0.0  # s, start of the rest on the pad
        self._received: set[type] = set()
        self._armed = self._answered = self._beats_armed = False
        self._denied = ""  # what the simulator's last answer to arming says
        self._unarmed_beats, self._unarmed_since = 0, 0.0  # consecutive disarmed heartbeats in flight
        self._complete_but_attitude = np.inf  # s, time at which only ATTITUDE was missing
        self._counting_down = False  # a race was received before its start
        self._scheduled: float | None = None  # s, scheduled start
        self._go: float | None = None  # s, actual start
        self._rest = RestWatch()
        self._next_arm = -np.inf
        rules = self._profile.offboard
        self._offboard = OffboardEntry(rules) if rules is not None else None
        if self._preflight is not None:
            self._preflight.forget()

    @property
    def missing(self) -> list[str]:
        names: dict[type, str] = {messages.Heartbeat: "HEARTBEAT", messages.Imu: "HIGHRES_IMU", DetectedImage: "video"}
        names |= {messages.Attitude: "ATTITUDE"} if self._profile.attitude_hz else {}
        return [name for kind, name in names.items() if kind not in self._received]

    @property
    def awaited(self) -> str:
        """Return what the flight waits for, with what the simulator refuses and its reason if given."""
        if self.phase is Phase.WAIT_LINK:
            return ", ".join(self.missing)
        refusal = self._offboard.refusal if self._offboard is not None else self._denied
        awaited = AWAITED.get(self.phase, "an accepted arm command")
        return f"{awaited}; {refusal}" if refusal else awaited

    def receive(self, message: messages.Telemetry | DetectedImage, t: float, airborne: bool) -> None:
        """Process one message at time t (s). `airborne`: the launch has succeeded."""
        self._received.add(type(message))
        if self._offboard is not None and not isinstance(message, DetectedImage):
            self._offboard.receive(message)
        if self._preflight is not None and self.go_t is None:
            self._preflight.receive(message)
        if isinstance(message, messages.Heartbeat):
            self._receive_heartbeat(message.armed, t, airborne)
        elif isinstance(message, messages.Ack) and message.command == messages.ARM_COMMAND:
            self._armed = self._armed or (message.accepted and self.phase is Phase.ARM)
            self._answered = self._answered or message.known
            self._denied = "" if message.accepted or not message.known else "arming is refused"
        elif isinstance(message, messages.RaceStatus):
            self._follow_race(message)
        elif isinstance(message, messages.Farewell):
            self.end = End(EndReason.NO_LINK, f"the simulator has ended: {message.reason}")

    def rested_s(self, t: float) -> float:
        return t - self._rest_t

    def disturbed(self, sample: messages.Imu) -> bool:
        """Return whether the sample shows motion during the calibration; the rest then starts over."""
        if self.phase is not Phase.CALIBRATE:
            self._rest = RestWatch()
        if not self._rest.moved(sample):
            return False
        if self._preflight is not None:
            self._preflight.restart()
        self._rest = RestWatch()
        self._since = self._rest_t = sample.t
        return True

    def advance(self, t: float) -> list[messages.Command]:
        if self.phase is Phase.WAIT_LINK and self._linked(t):
            self._enter(Phase.CALIBRATE, t)
            self._rest_t = t
        if self.phase is Phase.CALIBRATE and t - self._since >= REST_S and self._may_start():
            self._enter(Phase.WAIT_GO, t)
        if self._go is None and self._scheduled is not None and t >= self._scheduled + GO_MARGIN_S:
            self._go = self._scheduled  # statuses are rare: the next one would come later
            self._next_arm = t  # what was denied before may be granted now
        begun = self._profile.race is None or self._go is not None
        due = self._scheduled is not None and t >= self._scheduled  # to arm is no thrust, and its answer takes time
        if self.phase is Phase.WAIT_GO and self._may_start() and (begun or due):
            self._enter(Phase.ARM, t)
        if self.phase is Phase.ARM:
            if self._offboard is not None and not (self._armed and self._offboard.entered):
                return self._offboard.commands(t)
            if not self._armed and (self._answered or t - self._since < UNANSWERED_S):
                if t < self._next_arm:
                    return []
                self._next_arm = t + ARM_RETRY_S
                return [messages.Arm(True)]
            if not begun:
                return []
            self.go_t = t if self._go is None else self._go
            self._enter(Phase.LAUNCH, t)
        return []

    def keep_alive(self, t: float) -> list[messages.Command]:
        """Return the commands that keep the link alive at time t (s) while the vehicle is not commanded."""
        return self._offboard.idle(t) if self._offboard is not None else []

    def _enter(self, phase: Phase, t: float) -> None:
        self.phase, self._since = phase, t

    def _linked(self, t: float) -> bool:
        """Return whether all required messages were received; ATTITUDE is waited for only briefly."""
        missing = self.missing
        if missing != ["ATTITUDE"]:
            return not missing
        self._complete_but_attitude = min(self._complete_but_attitude, t)
        return t - self._complete_but_attitude > ATTITUDE_WAIT_S

    def _may_start(self) -> bool:
        """Return whether the flight may begin; end it where something contradicts the profile or the track."""
        if self._preflight is not None and (why := self._preflight.contradiction()):
            self.end = End(EndReason.REFUSED, f"refused to start: {why}")
        return self.end is None

    def _receive_heartbeat(self, armed: bool, t: float, airborne: bool) -> None:
        if self.phase is Phase.LAUNCH and self._offboard is not None and not self._offboard.entered:
            self.end = End(EndReason.LEFT_OFFBOARD, self._offboard.departure)
        lost, self._beats_armed = self._armed and not armed, self._beats_armed or armed
        launching = self.phase is Phase.LAUNCH and not airborne
        restarted = lost and launching and self._profile.race is not None
        if not (self._beats_armed or restarted):
            return  # this peer has never reported armed, so disarmed has no meaning
        if restarted:
            self._armed = False
            self._enter(Phase.ARM, t)  # some builds disarm at the start of the race: arm once more
        elif lost and self.phase is Phase.LAUNCH:
            self._unarmed_since = self._unarmed_since if self._unarmed_beats else t
            self._unarmed_beats += 1
            if self._unarmed_beats >= UNARMED_BEATS and t - self._unarmed_since >= UNARMED_S:
                self.end = End(EndReason.DISARMED, "the simulator disarmed the vehicle")
        else:
            self._armed, self._unarmed_beats = armed, 0

    def _follow_race(self, status: messages.RaceStatus) -> None:
        """Set GO to a scheduled start that has passed and was seen in advance: others may be of an old race."""
        apart_s = None if status.start is None or self._go is None else abs(status.start - self._go)
        other = status.start != self._go if apart_s is None else apart_s > RESTART_S
        if self.go_t is not None and other:
            self.end = End(EndReason.RESTARTED, "the simulator started another race")
        elif not status.go:
            self._counting_down, self._scheduled = True, status.start
            if self.phase is Phase.ARM:  # the start was moved
                self._enter(Phase.WAIT_GO, status.t)
        elif self._counting_down:
            self._go, self._next_arm = status.start, -np.inf
