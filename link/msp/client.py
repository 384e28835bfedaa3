"""The pilot's end of a Betaflight link, with the interface of `link.client.MavlinkClient`: polls to telemetry, targets to sticks.

One slow line: Betaflight executes one command in each run of its serial task, at most 100 per second, sticks and requests alike.
Sticks are sent at a fixed mean rate from the start, neutral until the first target, and with each new target at once; the newest
is repeated as long as the client is called. The capacity left by sticks goes to requests, one after each answer: beside 40 Hz of
sticks that is one every 17 ms.

MSP has no clock: times are of this computer, from the client's start, at which the sample left the flight controller. MSP
cannot arm: an arm command is acknowledged by whether the person has armed and handed over.
"""

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gate_racer.link.client import RateGuard, finite_command
from gate_racer.link.messages import Ack, Arm, AttitudeTarget, Command, Heartbeat, HumanSticks, Telemetry, TimesyncReply
from gate_racer.link.msp.messages import Channels, Code, CodecCounters, Message, MspCodec, RawAttitude, RawImu, StatusEx
from gate_racer.link.msp.ports import Port
from gate_racer.link.msp.profile import LOW_US, MID_US, OWN_ORDER, STICKS, BetaflightProfile
from gate_racer.link.sockets import Address, Closing, LinkError
from gate_racer.vehicle.rotation import to_euler

KEPT = 1000  # newest replies used for the figures
LATE_BEATS = 1.0  # beats of delay, beyond which missed sticks are skipped
# Beats by which sticks with a new command may be early, and their repetition is late (chosen): commands at 40 Hz that follow
# polled samples come 20 or 30 ms apart.
EARLY, GRACE = 0.5, 0.25


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """Figures of a line. Intervals between replies in s; nan before there were two."""

    answers: int
    timeouts: int
    interval_mean_s: float
    interval_p95_s: float


class PollScheduler:
    """Scheduler with at most one pending request. Call `sticks_due` and `poll_due` often, and send when they return True."""

    def __init__(self, stick_hz: float, timeout_s: float):
        """Create it; `stick_hz` 0 sends no sticks; `timeout_s`: time after which a request counts as lost."""
        self._beat_s = 1 / stick_hz if stick_hz else 0.0
        self._timeout_s = timeout_s
        self._beat_t = None if stick_hz else math.inf  # time of the next beat
        self._new = self._led = False  # a command waits; the last sticks carried a new one
        self._requested: float | None = None  # time of the pending request
        self._poll_due = -math.inf  # time at which it counts as lost
        self._answered: float | None = None
        self._intervals: deque[float] = deque(maxlen=KEPT)
        self.answers = self.timeouts = 0
        self.missed_beats = 0  # stick frames skipped because the caller was late

    def sticks_due(self, now: float) -> bool:
        """Return whether sticks are to be sent now; if so, they count as sent."""
        if self._beat_t is None:
            self._beat_t = now
        if now < self._stick_due(self._beat_t):
            return False
        missed = math.floor((now - self._beat_t) / self._beat_s)
        if missed > LATE_BEATS:
            self.missed_beats += missed
            self._beat_t += missed * self._beat_s
        self._beat_t = (max(now, self._beat_t) if self._new else self._beat_t) + self._beat_s
        self._new, self._led = False, self._new
        return True

    def lead_sticks(self) -> None:
        """Let the next sticks carry a new command: else two could fall between beats, and one be lost."""
        self._new = True

    def _stick_due(self, beat_t: float) -> float:
        """Return when the next sticks are due around a beat, s."""
        return beat_t - EARLY * self._beat_s if self._new else beat_t + GRACE * self._beat_s * self._led

    def poll_due(self, now: float) -> bool:
        """Return whether a request is to be sent now; if so, it counts as sent."""
        if self._requested is not None and now < self._poll_due:
            return False
        if self._requested is not None:
            self.timeouts += 1
            self._answered = None  # the gap is a loss, not an interval
        self._requested, self._poll_due = now, now + self._timeout_s
        return True

    def answer(self, now: float) -> None:
        if self._requested is None:
            return
        self._requested = None
        if self._answered is not None:
            self._intervals.append(now - self._answered)
        self._answered = now
        self.answers += 1

    def next_s(self, now: float) -> float:
        """Return how long the caller may wait for bytes before something is due, s."""
        poll = 0.0 if self._requested is None else self._poll_due - now
        stick = 0.0 if self._beat_t is None else self._stick_due(self._beat_t) - now
        return max(0.0, min(poll, stick))

    @property
    def figures(self) -> LinkFigures:
        intervals = [*self._intervals] or [math.nan]
        mean, p95 = float(np.mean(intervals)), float(np.percentile(intervals, 95))
        return LinkFigures(self.answers, self.timeouts, mean, p95)


LATE_S = 0.06  # s between two reads, beyond which the waiting time of a reply is unknown: it is not stamped
BITS_PER_BYTE = 10  # on the line: one start bit, eight data bits, one stop bit


class MspLine:
    """Line with `sticks` streamed at a fixed rate and polls as fast as it permits. Call `exchange` often."""

    def __init__(
        self,
        port: Port,
        profile: BetaflightProfile,
        stick_hz: float,
        counters: CodecCounters | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """Create it; the caller keeps the port. `stick_hz` 0: requests only; `clock`: s, monotonic, also of the port's waits."""
        self.codec, self.scheduler = MspCodec(counters), PollScheduler(stick_hz, profile.poll_timeout_s)
        self._clock = clock
        self.sticks = neutral(profile)
        self._port, self._profile = port, profile
        self._read_t = clock()  # time at which nothing was left to read
        self.undated = 0  # replies dropped because the caller was late

    def exchange(self, timeout_s: float) -> list[tuple[float, Message]]:
        """Send what is due, and return messages with their sampling time (s of the clock). Raises LinkError."""
        now = self._clock()
        self.send_due(now)
        data, late = self._port.read(min(timeout_s, self.scheduler.next_s(now))), now - self._read_t > LATE_S
        arrivals, received = list[tuple[float, Message]](), self._clock()
        self._read_t = received
        for answer in self.codec.feed(data):
            if answer.command == Code.SET_RAW_RC:
                continue
            self.scheduler.answer(received)
            if late:
                self.undated += 1
                continue
            sampled = received - answer.wire_bytes * BITS_PER_BYTE / self._profile.baud
            arrivals += [(sampled, message) for message in answer.messages]
        self.send_due(self._clock())
        return arrivals

    def ask(self, code: Code, timeout_s: float) -> Message | None:
        """Request one message, before anything is polled; None if it is refused or does not come."""
        self._port.write(self.codec.request(code))
        until = self._clock() + timeout_s
        while (left := until - self._clock()) > 0:
            for answer in self.codec.feed(self._port.read(left)):
                if answer.command == code:
                    return answer.messages[0] if answer.messages else None
        return None

    def rest(self) -> None:
        self.sticks = neutral(self._profile)
        self._port.write(self.codec.sticks(self.sticks))

    def send_due(self, now: float) -> None:
        if self.scheduler.sticks_due(now):
            self._port.write(self.codec.sticks(self.sticks))
        timeouts = self.scheduler.timeouts
        if self.scheduler.poll_due(now):
            if self.scheduler.timeouts > timeouts:
                self.codec.give_up()
            self._port.write(self.codec.poll(self._profile.polled))


def neutral(profile: BetaflightProfile) -> tuple[int, ...]:
    """Return centred sticks and low throttle, in the order of the receiver's map."""
    return tuple(LOW_US if letter == "T" else MID_US for letter in profile.channel_map)


HEARTBEAT_S = 0.25  # s between heartbeats


@dataclass(slots=True)
class MspCounters(CodecCounters):
    unsent: int = 0  # commands that MSP cannot carry, not finite, or for a mode that is not on
    timeouts: int = 0  # requests without a reply
    missed_beats: int = 0  # stick frames skipped because this computer was late
    undated: int = 0  # replies dropped because their sampling time is unknown
    unguarded: int = 0  # 1 once the guard was lost, and the line is driven from here


class MspClient(Closing):
    """One flight controller on one port, which the client closes. Call `receive` or `keep_alive` every few ms."""

    peer: Address | None = None  # a serial line has no addresses
    knocking: Address | None = None
    host = refused = ""  # no host, no signatures

    def __init__(
        self, port: Port, profile: BetaflightProfile, clock: Callable[[], float] = time.monotonic, shadow: bool = False
    ):
        """Create it; `clock`: s, monotonic, also that of the port's waits. A `shadow` sends no sticks, and reads the person's."""
        self.counters = MspCounters()
        self.socket: Any = port  # for `select`, by its descriptor
        self.address: Address = profile.name, profile.baud
        self.where = f"the line of {profile.name}"
        self._profile = profile
        self._line = MspLine(port, profile, 0.0 if shadow else profile.stick_hz, self.counters, clock)
        self._shadow, self._gyro = shadow, (0.0, 0.0, 0.0)
        # Of the accepted targets; counts only: the line sends each at once, or the newest at the profile's `stick_hz`.
        self.rates = RateGuard(math.inf)
        self._clock, self._epoch = clock, clock()
        self._armed = self._handed_over = self._angle = False
        self._arm_requested = self._gone = False  # arming or disarming was requested; the line has failed
        self._heartbeat_due = -math.inf
        self._throttle = 0.0

    @property
    def handed_over(self) -> bool:
        """Whether the person has armed and switched the override on, so that sticks act. For a shadow: whether armed."""
        return self._armed and (self._handed_over or self._shadow)

    def reconsider(self, now: float, complete: bool) -> bool:
        """Return False: the other end of a line cannot be replaced."""
        return False

    def receive(self, timeout_s: float) -> list[tuple[float, Telemetry | TimesyncReply]]:
        """Return messages with their reception (s); wait at most timeout_s. Raises LinkError, after the hand-over nothing."""
        arrivals, exchanged = list[tuple[float, Telemetry | TimesyncReply]](), list[tuple[float, Message]]()
        with self._outliving():
            exchanged = [] if self._gone else self._line.exchange(timeout_s)
        for sampled, message in exchanged:
            received, t = self._clock(), sampled - self._epoch
            arrivals += [(received, reading) for reading in self._read(message, t)]
        scheduler = self._line.scheduler
        self.counters.timeouts, self.counters.missed_beats = scheduler.timeouts, scheduler.missed_beats
        self.counters.undated = self._line.undated
        self.counters.unguarded = int(getattr(self.socket, "unguarded", False))
        return arrivals

    @contextlib.contextmanager
    def _outliving(self) -> Iterator[None]:
        """Context in which a line may fail after the hand-over: the guard then has the vehicle."""
        try:
            yield
        except LinkError:
            self._gone = self.handed_over
            if not self._gone:
                raise

    def _read(self, message: Message, t: float) -> list[Telemetry]:
        match message:
            case RawImu():
                sample = self._profile.imu(message, t, spinning=self._armed)
                self._gyro = sample.gyro
                return [sample]
            case RawAttitude():
                return [self._profile.attitude(message, t)]
            case Channels():
                self._handed_over = self._profile.aux.override.on(message.us)
                angle = self._profile.aux.angle.on(message.us)
                if angle is not self._angle:  # rates would act as angles, or angles as rates
                    self._angle = angle
                    self._line.sticks = self._profile.sticks_by_rates((0.0, 0.0, 0.0), self._throttle)
                if not self._shadow or len(message.us) < STICKS:
                    return []
                us = [message.us[OWN_ORDER.index(letter)] for letter in self._profile.channel_map]
                rates = self._gyro if angle else self._profile.asked_rates(us)  # in angle mode sticks are angles
                return [HumanSticks(t, rates, self._profile.asked_throttle(us))]
            case StatusEx():
                self._armed = message.armed
                messages: list[Telemetry] = [Ack(t, self.handed_over)] if self._arm_requested else []
                self._arm_requested = False
                if t >= self._heartbeat_due:
                    self._heartbeat_due = t + HEARTBEAT_S
                    messages.append(Heartbeat(t, self.handed_over))
                return messages
        return []

    def send(self, command: Command, now: float, t: float) -> bool:
        """Accept a command; False, and counted, if withheld. MSP cannot disarm: its sticks are neutral."""
        match command:
            case Arm():
                self._arm_requested = True
                if not command.arm:
                    self._line.sticks, self._throttle = neutral(self._profile), 0.0
                return True
            case AttitudeTarget() if finite_command(command) and (self._shadow or command.by_rates is not self._angle):
                self.rates.admit(now)
                self._throttle = self._throttle if command.keep_throttle else command.throttle
                if command.by_rates:
                    self._line.sticks = self._profile.sticks_by_rates(command.omega, self._throttle)
                else:
                    roll, pitch, _ = to_euler(command.q_wb)
                    yaw_rate = command.omega[2]
                    self._line.sticks = self._profile.sticks_by_angles(roll, pitch, yaw_rate, self._throttle)
                self._line.scheduler.lead_sticks()
                return True
        self.counters.unsent += 1
        return False

    def keep_alive(self, now: float) -> None:
        """Send what is due; call often. Raises LinkError as `receive`."""
        with self._outliving():
            if not self._gone:
                self._line.send_due(now)

    def ask_time(self, now: float) -> None:
        """Do nothing: MSP has no clock."""

    def hold(self, t: float) -> None:
        """Do nothing: a line has no lock-step."""

    def close(self) -> None:
        """Close the port. The last sticks stay in effect in the flight controller: the person must take over before."""
        self.socket.close()
