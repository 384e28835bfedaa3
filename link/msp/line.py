"""Sticks and requests over one port: what is due is sent, what comes is read and dated."""

import time
from collections.abc import Callable

from link.msp.codec import CodecCounters, MspCodec
from link.msp.messages import Code, Message
from link.msp.ports import Port
from link.msp.profile import LOW_US, MID_US, BetaflightProfile
from link.msp.schedule import PollScheduler

LATE_S = 0.06  # between two readings, after which nobody knows how long an answer has waited: it is not dated
BITS_PER_BYTE = 10  # on the line: one start bit, eight of data, one stop bit


class MspLine:
    """Streams `sticks` on their beat and polls as fast as the line allows. Call `exchange` often."""

    def __init__(
        self,
        port: Port,
        profile: BetaflightProfile,
        stick_hz: float,
        counters: CodecCounters | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        """The port stays the caller's.

        Args:
            stick_hz: 0 only asks.
            counters: the caller's own, if any.
            clock: s, steady, and the one by which the port waits.
        """
        self.codec, self.scheduler = MspCodec(counters), PollScheduler(stick_hz, profile.poll_timeout_s)
        self._clock = clock
        self.sticks = neutral(profile)
        self._port, self._profile, self._timeouts = port, profile, 0
        self._read_t = clock()  # when there was nothing left to read
        self.undated = 0  # answers that were dropped, since the caller came too late for them

    def exchange(self, timeout_s: float) -> list[tuple[float, Message]]:
        """Sends what is due and waits at most so long for bytes. Messages with the time of their sampling (s of the clock).

        Raises:
            LinkError: the line is gone.
        """
        now = self._clock()
        self.send_due(now)
        data, late = self._port.read(min(timeout_s, self.scheduler.next_s(now))), now - self._read_t > LATE_S
        heard, received = list[tuple[float, Message]](), self._clock()
        self._read_t = received
        for answer in self.codec.feed(data):
            if answer.command == Code.SET_RAW_RC:
                continue
            self.scheduler.answer(received)
            if late:
                self.undated += 1
                continue
            sampled = received - answer.wire_bytes * BITS_PER_BYTE / self._profile.baud
            heard += [(sampled, message) for message in answer.messages]
        self.send_due(self._clock())
        return heard

    def ask(self, code: Code, timeout_s: float) -> Message | None:
        """One message, before anything is polled; None if it is refused or does not come."""
        self._port.write(self.codec.request(code))
        until = self._clock() + timeout_s
        while (left := until - self._clock()) > 0:
            for answer in self.codec.feed(self._port.read(left)):
                if answer.command == code:
                    return answer.messages[0] if answer.messages else None
        return None

    def rest(self) -> None:
        """Sends neutral sticks, now and on every beat to come."""
        self.sticks = neutral(self._profile)
        self._port.write(self.codec.sticks(self.sticks))

    def send_due(self, now: float) -> None:
        """Sends what is due at `now` (s of the clock)."""
        if self.scheduler.sticks_due(now):
            self._port.write(self.codec.sticks(self.sticks))
        if self.scheduler.poll_due(now):
            if self.scheduler.timeouts > self._timeouts:
                self._timeouts = self.scheduler.timeouts
                self.codec.give_up()
            self._port.write(self.codec.poll(self._profile.polled))


def neutral(profile: BetaflightProfile) -> tuple[int, ...]:
    """Centred sticks and a low throttle, in the order of the receiver's map."""
    return tuple(LOW_US if letter == "T" else MID_US for letter in profile.channel_map)
