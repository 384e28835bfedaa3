"""Sticks and requests over one port: scheduling, sending, and stamping of replies."""

import time
from collections.abc import Callable

from gate_racer.link.msp.codec import CodecCounters, MspCodec
from gate_racer.link.msp.messages import Code, Message
from gate_racer.link.msp.ports import Port
from gate_racer.link.msp.profile import LOW_US, MID_US, BetaflightProfile
from gate_racer.link.msp.schedule import PollScheduler

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
