"""One direction of a serial line: bytes take their time, and wait for those before them."""

import math
from collections import deque

BITS = 10  # of a byte on the line: one start bit, eight of data, one stop bit


class SerialLine:
    """Pure: time by argument, in s, never backwards."""

    def __init__(self, baud: float):
        self._byte_s = BITS / baud
        self._free = -math.inf  # when the last byte that was sent has arrived
        self._under_way: deque[tuple[float, bytes]] = deque()  # when its first bit left, and what

    def send(self, data: bytes, t: float) -> None:
        """Hands bytes over at t."""
        if data:
            begin = max(t, self._free)
            self._under_way.append((begin, data))
            self._free = begin + len(data) * self._byte_s

    def arrived(self, t: float) -> bytes:
        """The bytes that have arrived since the last call."""
        heard = b""
        while self._under_way:
            begin, data = self._under_way[0]
            count = min(len(data), max(0, math.floor((t - begin) / self._byte_s + 1e-6)))
            heard += data[:count]
            if count < len(data):
                self._under_way[0] = begin + count * self._byte_s, data[count:]
                break
            self._under_way.popleft()
        return heard

    @property
    def next_t(self) -> float:
        """When what was sent first has arrived whole; inf where nothing is under way."""
        if not self._under_way:
            return math.inf
        begin, data = self._under_way[0]
        return begin + len(data) * self._byte_s
