"""Communication with RflySim besides frames: commands to gimbals, their states, and CopterSim's IMU."""

import contextlib
import math
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping

from gate_racer.link.peer import Address
from gate_racer.link.rflysim.copter import (
    IMAGE_DELAY_S,
    NUMBERED_IMU_PORT,
    ImuRequest,
    ImuSample,
    decode_heartbeat,
    decode_imu,
    imu_port,
    start_without_heartbeat,
)
from gate_racer.link.rflysim.fragments import RESTART_S
from gate_racer.link.rflysim.gimbal import DOCUMENT, STATE_PORT, GimbalOrder, GimbalState, decode_state, gimbal_request
from gate_racer.link.rflysim.malformed import MalformedError
from gate_racer.link.rflysim.request import MASKED, SensorRequest
from gate_racer.link.rflysim.request_socket import RequestSocket
from gate_racer.link.rflysim.sensors import GIMBAL
from gate_racer.link.rflysim.stream import StreamHealth
from gate_racer.link.sockets import ANYWHERE, drain

STATE_GROUP = "224.0.0.10"  # RflySim3D and CopterSim multicast states and heartbeats
HEARTBEAT_PORT = 20005  # UDP port of CopterSim's heartbeats
ASK_S = 1.0  # s between requests to a CopterSim whose samples have stopped


class GimbalClient(RequestSocket):
    """Commands to the gimbals of a Config.json, and their reported states."""

    def __init__(
        self,
        sensors: Iterable[SensorRequest],
        server: Address,
        masks: Mapping[str, int | None] = DOCUMENT,
        port: int = STATE_PORT,
    ):
        """Bind the port. Raises LinkError when the port is in use, or the server is unknown."""
        self.gimbals = {sensor.seq_id: sensor for sensor in sensors if sensor.type_id == GIMBAL}
        super().__init__(server, port)
        self._masks = masks
        _join(self.socket)

    def order(self, seq_id: int, order: GimbalOrder) -> None:
        """Send a command. Raises ValueError when the mask numbering has no bit for it."""
        self._send(gimbal_request(self.gimbals[seq_id], order, dict(self._masks)).encode())

    def states(self) -> Iterator[GimbalState]:
        """Yield the states received. Replies of other kinds share the port and differ in length."""
        for datagram, _, _ in drain(self.socket, 0.0, self._failed):
            if len(datagram) == MASKED.size:
                try:
                    yield decode_state(datagram)
                except MalformedError:
                    self.malformed += 1


class HeartbeatReceiver(RequestSocket):
    """Start time of the simulation, s since 1970: from CopterSim's heartbeats, or estimated from the first frame."""

    def __init__(self, server: Address, copter: int = 1, port: int = HEARTBEAT_PORT):
        """Bind the port. Raises LinkError when the port is in use, or the server is unknown."""
        super().__init__(server, port)
        _join(self.socket)
        self._copter = copter
        self._start: float | None = None
        self._t = -math.inf  # s, of the last sample
        self.from_heartbeat = False  # whether the start is from a heartbeat

    def listen(self, wall_minus_monotonic_s: float) -> None:
        """Process the received heartbeats."""
        for datagram, sender, received in drain(self.socket, 0.0, self._failed):
            try:
                beat = decode_heartbeat(datagram)
            except MalformedError:
                self.malformed += 1
                continue
            if sender[0] == self.server[0] and beat.copter == self._copter:
                here = sender[0].startswith("127.") or sender[0] == ".".join(map(str, _own_address(sender)))
                self._start, self.from_heartbeat = beat.start(received + wall_minus_monotonic_s, here), True

    def start(self, t: float, arrival: float) -> float:
        """Return the start of the simulation, for a sample stamped t (s), received at `arrival` (s since 1970).

        A stamp that runs back is taken as a restart, unless heartbeats are received.
        """
        restarted, self._t = t < self._t - RESTART_S, t
        if self._start is None or (restarted and not self.from_heartbeat):
            self._start = start_without_heartbeat(arrival, t, IMAGE_DELAY_S)
        return self._start


class ImuReceiver(RequestSocket):
    """IMU samples of one copter, requested until they arrive."""

    def __init__(self, host: str, rate_hz: int, copter: int = 1, ask_port: int | None = None, port: int | None = None):
        """Bind the port; by default ports follow the copter's number. Raises LinkError as `bind_udp` and `reachable`."""
        ask_port = imu_port(copter) if ask_port is None else ask_port
        super().__init__((host, ask_port), NUMBERED_IMU_PORT + copter - 1 if port is None else port)
        self._request = ImuRequest(rate_hz, self.port, _own_address(self.server)).encode()
        self.health = StreamHealth()
        self._received = self._requested = float("-inf")

    def samples(self) -> Iterator[ImuSample]:
        """Yield the samples received; request them again after a silence. Call often."""
        for datagram, _, received in drain(self.socket, 0.0, self._failed):
            try:
                sample = decode_imu(datagram)
            except MalformedError:
                self.malformed += 1
                continue
            self._received = received
            self.health.saw(received)
            yield sample
        now = time.monotonic()
        if now - max(self._received, self._requested) > ASK_S:
            self._requested = now
            self._send(self._request)

    def report(self, now: float) -> str:
        """Return a line on the state of the stream."""
        trouble = f", {self.malformed} malformed" if self.malformed else ""
        return f"IMU on port {self.port}: {self.health.report(now, 'sample', self.server)}{trouble}"


def _join(bound: socket.socket) -> None:
    """Join the multicast group; a network without multicast still delivers unicast datagrams."""
    with contextlib.suppress(OSError):
        group = struct.pack("4s4s", socket.inet_aton(STATE_GROUP), socket.inet_aton(ANYWHERE))
        bound.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)


def _own_address(server: Address) -> tuple[int, int, int, int]:
    """Return this machine's address on the route to the server; no datagram is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(server)
            a, b, c, d = socket.inet_aton(probe.getsockname()[0])
        except OSError:
            a, b, c, d = 127, 0, 0, 1
    return a, b, c, d
