"""The client's sockets: asks RflySim3D for its sensors and hears them, each on the port that its entry names."""

import contextlib
import ipaddress
import math
import select
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

from link.peer import Address
from link.rflysim.clouds import CloudLayout
from link.rflysim.copter import CLEAR_COMMAND, encode_command
from link.rflysim.request import SensorRequest
from link.rflysim.stream import Sample, Stream, Tell
from link.sockets import LinkError, bind_udp, drain, reachable

BUFFER_BYTES = 8 << 20
ASK_S = 1.0  # a sensor that does not send is asked for so often
SILENCE_S = 2.0  # after which it does not send


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Ear:
    """One bound port and the request that makes its sensor send."""

    def __init__(self, sensor: SensorRequest, server: Address, host: str = "0.0.0.0"):
        """Raises LinkError when the port is in use or the server's name is not known."""
        self._server, self._request = reachable(server, host), sensor.encode()
        self._anyone = ipaddress.ip_address(
            self._server[0]
        ).is_multicast  # who is asked then answers from its own address
        self.socket = bind_udp(host, sensor.port)
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.port: int = self.socket.getsockname()[1]
        self.socket_errors = self.foreign = 0
        self._heard, self._asked = -math.inf, -math.inf
        self.ask(time.monotonic())

    def ask(self, now: float) -> None:
        """Asks for the sensor, if it is silent, once in a while; call it often."""
        if now - self._heard > SILENCE_S and now - self._asked >= ASK_S:
            self._asked = now
            self._send(self._request)

    def heard(self, now: float) -> None:
        """The sensor sends."""
        self._heard = now

    def drain(self, timeout_s: float) -> Iterator[tuple[bytes, Address, float]]:
        """What is there of the server's host, with sender and time of reception."""
        for datagram, sender, received in drain(self.socket, timeout_s, self._failed):
            if self._anyone or sender[0] == self._server[0]:
                yield datagram, sender, received
            else:
                self.foreign += 1

    def _send(self, datagram: bytes) -> None:
        try:
            self.socket.sendto(datagram, self._server)
        except OSError:
            self._failed()

    def _failed(self) -> None:
        self.socket_errors += 1

    def close(self) -> None:
        """Releases the sensors of RflySim3D and the port."""
        self._send(encode_command(CLEAR_COMMAND))
        self.socket.close()


class SensorReceiver:
    """All sensors of a Config.json."""

    def __init__(
        self,
        sensors: tuple[SensorRequest, ...],
        server: Address,
        tell: Tell = to_stderr,
        layout: CloudLayout | None = None,
    ):
        """Raises LinkError when a port is in use."""
        self.streams = [Stream(sensor, tell, layout) for sensor in sensors]
        self._ears: list[Ear] = []
        try:
            self._ears += (Ear(sensor, server) for sensor in sensors)
        except LinkError:
            self.close()
            raise

    def receive(self, timeout_s: float) -> list[tuple[Sample, float]]:
        """The samples completed, with the time (monotonic, s) of the datagram that did; waits at most timeout_s."""
        samples = []
        select.select([ear.socket for ear in self._ears], [], [], max(0.0, timeout_s))
        for ear, stream in zip(self._ears, self.streams, strict=True):
            for datagram, sender, received in ear.drain(0.0):
                sample = stream.feed(datagram, (sender, ear.port), received)
                if sample is not None:
                    ear.heard(received)
                    samples.append((sample, received))
            ear.ask(time.monotonic())
        return samples

    def report(self, now: float) -> list[str]:
        """A line for each sensor: what came of it, or what did not."""
        lines = []
        for ear, stream in zip(self._ears, self.streams, strict=True):
            age, health = stream.health.age(now), stream.health
            stream.counters.foreign = ear.foreign
            lost = {name: count for name, count in asdict(stream.counters).items() if count and name != "complete"}
            if age is None:
                state = "no frame yet"
            else:
                state = f"{health.frames} frames, {health.hz:.1f} Hz, gap {health.longest_gap_s:.2f} s, age {age:.2f} s"
            trouble = "".join(f", {count} {name}" for name, count in lost.items())
            lines.append(f"sensor {stream.sensor.seq_id} on port {ear.port}: {state}{trouble}")
        return lines

    def __enter__(self) -> "SensorReceiver":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for ear in self._ears:
            with contextlib.suppress(OSError):
                ear.close()
