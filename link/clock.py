"""Brings the stamps of one stream (video) onto the clock of another (IMU), from the times at which both arrive here.

A datagram stamped s arrives at r = s + o + d: o is the constant offset of its clock to ours, d its delay. Over a window of
seconds the fastest datagram of a stream has the least r - s = o + d_min. For video and IMU together

    t_imu = s_video + (o_video - o_imu),   o_video - o_imu = least_video - least_imu - (d_min_video - d_min_imu)

where d_min_video is taken to be the nominal latency of the video. A TIMESYNC answer, asked at a, stamped s and received at r,
measures d_min_imu: r - s = o_imu + d as with any datagram, s - a = -o_imu + d' on the way there, and half of the sum of the two
least is the delay of one way. Where nobody answers, or nonsense, d_min_imu is 0. The error of t_imu is thus the error of the
nominal latency and of d_min_imu, plus how far the fastest datagram of the window lags the fastest possible (well below the
jitter once some ten have come), plus the drift of the clocks within the window: 0.2 ms at 50 ppm, so no rate is estimated.
What remains is slow, and the error-state filter's to find, from gyro and pictures.
"""

import math
from collections import deque

WINDOW_S = 4.0
JUMP_S = 0.5  # a change of r - s beyond all jitter: a clock was set
TRIP_S = 0.1  # a TIMESYNC answer that took longer tells nothing
SAME_CLOCK_S = 0.5  # closer stamps than this are of one clock


class StreamClock:
    """Feed it every stamp of the reference stream; it maps those of the other."""

    def __init__(self, latency_s: float):
        """`latency_s`: how much longer the other stream travels than the reference, nominally."""
        self._latency_s = latency_s
        self._reference, self._other, self._asked = _LeastDelay(), _LeastDelay(), _LeastDelay()
        self.nonsense = 0  # TIMESYNC answers that contradict the reference
        self._newest: tuple[float, float] | None = None  # stamp and reception of the reference

    @property
    def jumps(self) -> int:
        """How often either clock was set."""
        return self._reference.jumps + self._other.jumps

    def reference(self, stamp: float, received: float) -> None:
        """A datagram of the reference stream, `received` (s) on the local clock."""
        if self._reference.add(stamp, received):
            self._asked = _LeastDelay()
        self._newest = stamp, received

    def timesync(self, asked: float, stamp: float, received: float) -> None:
        """An answer to a TIMESYNC, asked and received (s) on the local clock. One that cannot be true is counted and left."""
        if self._newest is None:
            return
        least = self._reference.least
        if not (asked <= received <= asked + TRIP_S and asked - TRIP_S <= stamp + least <= received + TRIP_S):
            self.nonsense += 1
            return
        self._reference.add(stamp, received)
        self._asked.add(asked, stamp)

    @property
    def delay_s(self) -> float:
        """Least delay of the reference: measured by TIMESYNC, or else 0."""
        if self._newest is None or self._newest[0] - self._asked.newest > WINDOW_S:
            return 0.0
        return max(0.5 * (self._reference.least + self._asked.least), 0.0)

    def stream(self, stamp: float, received: float) -> float | None:
        """The stamp of the other stream on the reference's clock; None as long as there is no reference.

        Stamps within half a second of the reference's are of the same clock and come back unchanged.
        """
        self._other.add(stamp, received)
        if self._newest is None:
            return None
        expected = self._newest[0] + received - self._newest[1]
        if abs(stamp - expected) < SAME_CLOCK_S:
            return stamp
        return stamp + self._other.least - self._reference.least + self.delay_s - self._latency_s


class _LeastDelay:
    """The least `received - stamp` of the last few seconds."""

    def __init__(self) -> None:
        self.jumps = 0
        self._candidates: deque[tuple[float, float]] = deque()  # received, difference; both rise

    @property
    def newest(self) -> float:
        """When something came last."""
        return self._candidates[-1][0] if self._candidates else -math.inf

    @property
    def least(self) -> float:
        return self._candidates[0][1]

    def add(self, stamp: float, received: float) -> bool:
        """Whether a clock was set."""
        difference, candidates = received - stamp, self._candidates
        jumped = bool(candidates) and abs(difference - self.least) > JUMP_S
        if jumped:
            candidates.clear()
            self.jumps += 1
        while candidates and candidates[-1][1] >= difference:
            candidates.pop()  # older and slower: never again the least
        candidates.append((received, difference))
        while candidates[0][0] < received - WINDOW_S:
            candidates.popleft()
        return jumped
