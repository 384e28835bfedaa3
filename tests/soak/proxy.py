"""A hostile network between a simulator and the pilot: two UDP ports in the middle, through which every datagram passes as an
`Injury` wants it: late, twice, changed, never, or with company.

    race-sim --client PROXY --video PROXY  ->  Proxy  ->  run-mpc --listen ... --video ...
"""

import contextlib
import heapq
import math
import random
import select
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from pymavlink.dialects.v20 import common as dialect

from gate_racer.common.process import real_time

LOCAL = "127.0.0.1"
Passage = tuple[float, bytes]  # delay in s, datagram


@dataclass
class Context:
    """Inputs of an injury: the seed's random numbers and the progress of the race."""

    rng: random.Random
    t: float = 0.0  # s since the proxy began
    since_go: float = -1.0  # s since the first set-point; negative before


class Injury:
    """What passes in place of telemetry, video and commands, and what other senders say to the MAVLink and the video port.

    This one passes everything on unharmed.
    """

    def telemetry(self, datagram: bytes, about: Context) -> Iterable[Passage]:
        return [(0.0, datagram)]

    def video(self, datagram: bytes, about: Context) -> Iterable[Passage]:
        return [(0.0, datagram)]

    def commands(self, datagram: bytes, about: Context) -> Iterable[Passage]:
        return [(0.0, datagram)]

    def strangers(self, about: Context) -> Iterable[bytes]:
        return []

    def noise(self, about: Context) -> Iterable[bytes]:
        return []


@dataclass
class Witness:
    set_points: int = 0
    not_finite: int = 0
    disarms: int = 0  # since the last set-point
    passed: int = 0  # datagrams, of all sorts
    _parser: dialect.MAVLink = field(default_factory=lambda: dialect.MAVLink(None))

    def receive(self, datagram: bytes) -> None:
        try:
            messages = self._parser.parse_buffer(bytearray(datagram)) or []
        except dialect.MAVError:
            return
        for message in messages:
            if message.get_type() == "SET_ATTITUDE_TARGET":
                values = (*message.q, message.body_roll_rate, message.body_pitch_rate, message.body_yaw_rate)
                self.set_points += 1
                self.not_finite += not all(map(math.isfinite, (*values, message.thrust)))
                self.disarms = 0
            elif message.get_type() == "COMMAND_LONG" and message.command == 400 and message.param1 == 0:
                self.disarms += 1


class Proxy:
    def __init__(self, injury: Injury, seed: int):
        self._injury, self.about = injury, Context(random.Random(seed))
        self._pilots: tuple[int, int] = (0, 0)
        # Towards the simulator (it sends there), and towards the pilot (it answers there); video, and two strangers.
        self._near, self._far, self._video, *self._strange = (self._bound() for _ in range(5))
        self.mavlink_port, self.video_port = (one.getsockname()[1] for one in (self._near, self._video))
        self._simulator: tuple[str, int] | None = None
        self._waiting: list[tuple[float, int, socket.socket, bytes, tuple[str, int]]] = []
        self._number = count()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="proxy", daemon=True)
        self.witness = Witness()

    @staticmethod
    def _bound() -> socket.socket:
        bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        bound.bind((LOCAL, 0))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        bound.setblocking(False)
        return bound

    def start(self, mavlink: int, video: int) -> None:
        self._pilots = mavlink, video
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join(5.0)
        for one in (self._near, self._far, self._video, *self._strange):
            one.close()

    def _work(self) -> None:
        with real_time():  # as both ends have it: else a busy machine adds injuries of its own
            self._run()

    def _run(self) -> None:
        begin, next_strangers, go = time.monotonic(), 0.0, math.inf
        to_pilot, to_video = ((LOCAL, port) for port in self._pilots)
        injury, about = self._injury, self.about
        while not self._over.is_set():
            now = time.monotonic()
            until = min([next_strangers, *(self._waiting[0][:1] if self._waiting else ())])
            ready, _, _ = select.select([self._near, self._far, self._video], [], [], min(max(until - now, 0.0), 0.01))
            now = time.monotonic()
            about.t, about.since_go = now - begin, now - go if go < now else -1.0
            for arrived in ready:
                for datagram, sender in _all(arrived):
                    self.witness.passed += 1
                    if arrived is self._near:
                        self._simulator = sender
                        self._queue(now, self._far, to_pilot, injury.telemetry(datagram, about))
                    elif arrived is self._video:
                        self._queue(now, self._video, to_video, injury.video(datagram, about))
                    else:
                        self.witness.receive(datagram)
                        go = min(go, now) if self.witness.set_points else go
                        if self._simulator is not None:
                            self._queue(now, self._near, self._simulator, injury.commands(datagram, about))
            if now >= next_strangers:
                next_strangers = now + 0.01
                for stranger, target, said in zip(
                    self._strange, (to_pilot, to_video), (injury.strangers(about), injury.noise(about)), strict=True
                ):
                    self._queue(now, stranger, target, ((0.0, datagram) for datagram in said))
            while self._waiting and self._waiting[0][0] <= now:
                _, _, through, datagram, target = heapq.heappop(self._waiting)
                _send(through, datagram, target)

    def _queue(self, now: float, through: socket.socket, target: tuple[str, int], passages: Iterable[Passage]) -> None:
        for delay, datagram in passages:
            if delay <= 0.0:
                _send(through, datagram, target)
            else:
                heapq.heappush(self._waiting, (now + delay, next(self._number), through, datagram, target))


def _all(bound: socket.socket) -> Iterable[tuple[bytes, tuple[str, int]]]:
    while True:
        try:
            yield bound.recvfrom(65535)
        except OSError:
            return


def _send(through: socket.socket, datagram: bytes, target: tuple[str, int]) -> None:
    with contextlib.suppress(OSError):
        through.sendto(datagram, target)
