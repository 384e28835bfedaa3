"""One slow line: sticks at a fixed mean rate, with new commands at once, a request after each answer, and stamps of the answers.

Betaflight executes one command in each run of its serial task, at most 100 per second, sticks and requests alike: the
capacity left by sticks goes to requests. Beside 40 Hz of sticks that is a request every 17 ms. Pure: time is an argument, in
s of any monotonic clock.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gate_racer.link.msp.codec import CodecCounters, MspCodec
from gate_racer.link.msp.messages import Code, Message
from gate_racer.link.msp.ports import Port
from gate_racer.link.msp.profile import LOW_US, MID_US, BetaflightProfile

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
        if stick_hz < 0 or timeout_s <= 0:
            raise ValueError("stick_hz must not be negative and timeout_s must be positive")
        self._beat_s = 1 / stick_hz if stick_hz else math.inf
        self._timeout_s = timeout_s
        self._beat_t: float | None = None  # time of the next beat
        self._new = self._led = False  # a command waits; the last sticks carried a new one
        self._requested: float | None = None  # time of the pending request
        self._poll_due = -math.inf  # time at which it counts as lost
        self._answered: float | None = None
        self._intervals: deque[float] = deque(maxlen=KEPT)
        self.answers = self.timeouts = self.unasked = 0
        self.missed_beats = 0  # stick frames skipped because the caller was late

    def sticks_due(self, now: float) -> bool:
        """Return whether sticks are to be sent now; if so, they count as sent."""
        if math.isinf(self._beat_s):
            return False
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
        """Let the next sticks carry a new command: the beat follows commands, at its mean rate at most.

        On a beat of their own, two commands could fall between two sticks: the first would be lost, the next delayed.
        """
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
        """Record a reply; one without a pending request is counted only."""
        if self._requested is None:
            self.unasked += 1
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
        return max(0.0, min(poll, math.inf if math.isinf(self._beat_s) else stick))

    @property
    def figures(self) -> LinkFigures:
        """Figures of the newest replies."""
        p95 = float(np.percentile(self._intervals, 95)) if self._intervals else math.nan
        mean = sum(self._intervals) / len(self._intervals) if self._intervals else math.nan
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
        """Create it; the caller keeps ownership of the port.

        Args:
            stick_hz: 0 sends requests only.
            counters: may be shared.
            clock: s, monotonic, also that of the port's waits.
        """
        self.codec, self.scheduler = MspCodec(counters), PollScheduler(stick_hz, profile.poll_timeout_s)
        self._clock = clock
        self.sticks = neutral(profile)
        self._port, self._profile, self._timeouts = port, profile, 0
        self._read_t = clock()  # time at which nothing was left to read
        self.undated = 0  # replies dropped because the caller was late

    def exchange(self, timeout_s: float) -> list[tuple[float, Message]]:
        """Send what is due, wait at most timeout_s for bytes, and return messages with their sampling time (s of the clock).

        Raises:
            LinkError: the line failed.
        """
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
        """Send neutral sticks, now and in every following period."""
        self.sticks = neutral(self._profile)
        self._port.write(self.codec.sticks(self.sticks))

    def send_due(self, now: float) -> None:
        """Send what is due at `now` (s of the clock)."""
        if self.scheduler.sticks_due(now):
            self._port.write(self.codec.sticks(self.sticks))
        if self.scheduler.poll_due(now):
            if self.scheduler.timeouts > self._timeouts:
                self._timeouts = self.scheduler.timeouts
                self.codec.give_up()
            self._port.write(self.codec.poll(self._profile.polled))


def neutral(profile: BetaflightProfile) -> tuple[int, ...]:
    """Return centred sticks and low throttle, in the order of the receiver's map."""
    return tuple(LOW_US if letter == "T" else MID_US for letter in profile.channel_map)
