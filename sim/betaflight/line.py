"""Serial line with transmission time and queueing of bytes."""

import math
from collections import deque

BITS = 10  # of a byte on the line: one start bit, eight of data, one stop bit


class SerialLine:
    """One direction of a serial line. Times in s, as arguments, non-decreasing."""

    def __init__(self, baud: float):
        self._byte_s = BITS / baud
        self._free = -math.inf  # when the last byte that was sent has arrived
        self._under_way: deque[tuple[float, bytes]] = deque()  # when its first bit left, and what

    def send(self, data: bytes, t: float) -> None:
        """Queue bytes for transmission at t."""
        if data:
            begin = max(t, self._free)
            self._under_way.append((begin, data))
            self._free = begin + len(data) * self._byte_s

    def arrived(self, t: float) -> bytes:
        """Return the bytes that have arrived by t since the last call."""
        received = b""
        while self._under_way:
            begin, data = self._under_way[0]
            count = min(len(data), max(0, math.floor((t - begin) / self._byte_s + 1e-6)))
            received += data[:count]
            if count < len(data):
                self._under_way[0] = begin + count * self._byte_s, data[count:]
                break
            self._under_way.popleft()
        return received

    @property
    def next_t(self) -> float:
        """Time at which the oldest transmission has arrived completely; inf if there is none."""
        if not self._under_way:
            return math.inf
        begin, data = self._under_way[0]
        return begin + len(data) * self._byte_s


class Uart:
    """Port of a flight controller: both directions of its line, and the rate of its serial task."""

    def __init__(self, baud: float, task_hz: float):
        self._in, self._out, self._task_hz = SerialLine(baud), SerialLine(baud), task_hz
        self._tasks = 0  # done so far

    @property
    def next_t(self) -> float:
        """Time of the next event on the line, s."""
        return min(self._task_t, self._out.next_t)

    @property
    def _task_t(self) -> float:
        return (self._tasks + 1) / self._task_hz

    def receive(self, data: bytes, t: float) -> None:
        """Send bytes from the other end at t, s."""
        self._in.send(data, t)

    def spoken(self, t: float) -> bytes:
        """Return the bytes that have arrived at the other end by t, s, since the last call."""
        return self._out.arrived(t)
