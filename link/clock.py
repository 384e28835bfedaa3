"""Brings the stamps of one stream (video) onto the clock of another (IMU), from the times at which both arrive here.

A datagram stamped s arrives at r = s + o + d: o is the constant offset of its clock to ours, d its delay. Over a window of
seconds the fastest datagram of a stream has the least r - s = o + d_min. For video and IMU together

    t_imu = s_video + (o_video - o_imu),   o_video - o_imu = least_video - least_imu - (d_min_video - d_min_imu)

where only the last difference cannot be measured and is taken to be the nominal latency of the video. The error of t_imu is
thus the error of that latency, plus how far the fastest datagram of the window lags the fastest possible (well below the
jitter once some ten have come), plus the drift of the clocks within the window (microseconds).
"""

from collections import deque

WINDOW_S = 4.0
JUMP_S = 0.5  # a change of r - s beyond all jitter: a clock was set
SAME_CLOCK_S = 0.5  # closer stamps than this are of one clock


class StreamClock:
    """Feed it every stamp of the reference stream; it maps those of the other."""

    def __init__(self, latency_s: float):
        """`latency_s`: how much longer the other stream travels than the reference, nominally."""
        self._latency_s = latency_s
        self._reference, self._other = _LeastDelay(), _LeastDelay()
        self._newest: tuple[float, float] | None = None  # stamp and reception of the reference

    @property
    def jumps(self) -> int:
        """How often either clock was set."""
        return self._reference.jumps + self._other.jumps

    def reference(self, stamp: float, received: float) -> None:
        """A datagram of the reference stream, `received` (s) on the local clock."""
        self._reference.add(stamp, received)
        self._newest = stamp, received

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
        return stamp + self._other.least - self._reference.least - self._latency_s


class _LeastDelay:
    """The least `received - stamp` of the last few seconds."""

    def __init__(self) -> None:
        self.jumps = 0
        self._candidates: deque[tuple[float, float]] = deque()  # received, difference; both rise

    @property
    def least(self) -> float:
        return self._candidates[0][1]

    def add(self, stamp: float, received: float) -> None:
        difference, candidates = received - stamp, self._candidates
        if candidates and abs(difference - self.least) > JUMP_S:
            candidates.clear()
            self.jumps += 1
        while candidates and candidates[-1][1] >= difference:
            candidates.pop()  # older and slower: never again the least
        candidates.append((received, difference))
        while candidates[0][0] < received - WINDOW_S:
            candidates.popleft()
