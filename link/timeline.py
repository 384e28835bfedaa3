"""Keep the simulator's time continuous for the pilot: drop impossible stamps, and follow a clock that was set.

HIGHRES_IMU paces the flight, so its stamps are the reference. A stamp that goes back, or ahead by more than the time elapsed
locally, is an outlier until `CONFIRM_S` of consistent samples have followed it; then the simulator's clock was set, and an
offset keeps the pilot's time continuous: the interval between the last good sample and the first of those is that of their
receptions. All other messages of that clock get the same offset, or are dropped where they contradict it; of a race status
only the differences of its times are used then.
"""

from dataclasses import replace
from math import isfinite

from gate_racer.link.messages import (
    Ack,
    Collision,
    Farewell,
    Heartbeat,
    Imu,
    RaceStatus,
    StatusText,
    Telemetry,
    TrackMap,
)

STEP_S = 0.03  # s between two samples: three at 107 Hz; a longer gap must show in the reception as well
RATE = 0.5  # least ratio of elapsed to stamped time in a gap: a simulator may be twice as fast as real time
CHAIN_S = 0.1  # s, longest interval between two samples of a clock that was set
CONFIRM_S = 0.1  # s of consistent samples, by stamp and by reception, that show a clock that was set
LEAST_STEP_S = 1e-3  # s, least step of the pilot's time over a change of the clock
APART_S = 1.0  # s, largest difference of another message's stamp from the newest sample's: status is sent at 4 Hz
UNSTAMPED = (
    Heartbeat,
    Ack,
    StatusText,
    Collision,
    TrackMap,
    Farewell,
)  # get the newest stamp, whatever it is


class Timeline:
    """Filter of messages: pass every message in order of arrival to `admit`, and use what it returns."""

    def __init__(self) -> None:
        self.refused = 0  # messages with an impossible stamp
        self.clock_set = 0  # number of times the simulator's clock was set
        self._ahead_s = 0.0  # s, wire time minus the pilot's
        self._newest: tuple[float, float] | None = None  # wire stamp and reception of the newest good sample
        self._doubtful: list[tuple[Imu, float]] = []  # samples of a possibly new time, with their reception

    def to_wire(self, t: float) -> float:
        """Return the simulator's time of a time of the pilot, s."""
        return t + self._ahead_s

    def to_pilot(self, t: float) -> float:
        """Return the pilot's time of a time of the simulator, s."""
        return t - self._ahead_s

    def admit(self, message: Telemetry, received: float) -> list[Telemetry]:
        """Return the messages to be used now, in order, on the pilot's time.

        Args:
            received: s, of any monotonic clock.
        """
        if isinstance(message, Imu):
            return [_shifted(sample, self._ahead_s) for sample in self._samples(message, received)]
        if self._newest is None:
            return [message]
        newest = self._newest[0]
        if isinstance(message, UNSTAMPED):
            return [replace(message, t=self.to_pilot(newest))]
        if abs(message.t - newest) <= APART_S:
            return [_shifted(message, self._ahead_s)]
        if isinstance(message, RaceStatus):
            return [_shifted(message, message.t - self.to_pilot(newest))]
        self.refused += 1
        return []

    def _samples(self, sample: Imu, received: float) -> list[Imu]:
        """Return the samples accepted with this one, on the wire's time."""
        if not isfinite(sample.t):
            self.refused += 1
            return []
        if self._newest is None or self._follows(sample, received):
            self.refused += len(self._doubtful)
            self._doubtful.clear()
            self._newest = sample.t, received
            return [sample]
        if self._newest[0] == sample.t:  # a copy, without information on the clock
            self.refused += 1
            return []
        doubtful = self._doubtful
        if doubtful and not 0.0 < sample.t - doubtful[-1][0].t <= CHAIN_S:
            self.refused += len(doubtful)
            doubtful.clear()
        doubtful.append((sample, received))
        if min(sample.t - doubtful[0][0].t, received - doubtful[0][1]) < CONFIRM_S:
            return []
        return self._set_clock()

    def _follows(self, sample: Imu, received: float) -> bool:
        """Return whether a sample continues the current time."""
        assert self._newest is not None
        step, passed = sample.t - self._newest[0], received - self._newest[1]
        return 0.0 < step <= STEP_S or 0.0 < RATE * step <= passed

    def _set_clock(self) -> list[Imu]:
        """Accept the doubtful samples, on a clock that was set."""
        assert self._newest is not None
        (stamp, received), (first, first_received) = self._newest, self._doubtful[0]
        passed = max(first_received - received, LEAST_STEP_S)
        self._ahead_s += first.t - (stamp + passed)
        self.clock_set += 1
        samples = [sample for sample, _ in self._doubtful]
        self._newest = samples[-1].t, self._doubtful[-1][1]
        self._doubtful.clear()
        return samples


def _shifted(message: Telemetry, by: float) -> Telemetry:
    """Return a message with all its times on a clock that is `by` (s) behind."""
    if by == 0.0:
        return message
    if isinstance(message, RaceStatus):
        start, finish = (None if t is None else t - by for t in (message.start, message.finish))
        return replace(message, t=message.t - by, start=start, finish=finish)
    return replace(message, t=message.t - by)
