"""What passes between a team's program and RflySim besides frames: orders to gimbals, their states, and CopterSim's IMU."""

import contextlib
import math
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping

from link.peer import Address
from link.rflysim.copter import (
    IMAGE_DELAY_S,
    NUMBERED_IMU_PORT,
    ImuRequest,
    ImuSample,
    decode_heartbeat,
    decode_imu,
    imu_port,
    start_without_heartbeat,
)
from link.rflysim.fragments import RESTART_S
from link.rflysim.gimbal import DOCUMENT, STATE_PORT, GimbalOrder, GimbalState, decode_state, gimbal_request
from link.rflysim.malformed import MalformedError
from link.rflysim.request import MASKED, SensorRequest
from link.rflysim.sensors import GIMBAL
from link.rflysim.stream import StreamHealth
from link.sockets import bind_udp, drain, reachable

STATE_GROUP = "224.0.0.10"  # RflySim3D and CopterSim tell states and heartbeats to everybody
HEARTBEAT_PORT = 20005
ASK_S = 1.0  # a CopterSim whose samples have stopped is asked again so often


class _Desk:
    """A bound socket, whom it asks, and what it counts."""

    def __init__(self, server: Address, port: int):
        self._server = reachable(server, "0.0.0.0")
        self._socket = bind_udp("0.0.0.0", port)
        self._socket.setblocking(False)
        self.malformed = self.socket_errors = 0

    @property
    def port(self) -> int:
        """Where is listened."""
        return self._socket.getsockname()[1]

    def _join(self) -> None:
        """Hear the group too; a network without multicast still brings what is sent here alone."""
        with contextlib.suppress(OSError):
            group = struct.pack("4s4s", socket.inet_aton(STATE_GROUP), socket.inet_aton("0.0.0.0"))
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)

    def _send(self, datagram: bytes) -> None:
        try:
            self._socket.sendto(datagram, self._server)
        except OSError:
            self._failed()

    def _failed(self) -> None:
        self.socket_errors += 1

    def close(self) -> None:
        self._socket.close()


class GimbalDesk(_Desk):
    """Takes orders for the gimbals of a Config.json, and hears what they say of themselves."""

    def __init__(
        self,
        sensors: Iterable[SensorRequest],
        server: Address,
        masks: Mapping[str, int | None] = DOCUMENT,
        port: int = STATE_PORT,
    ):
        """Raises LinkError when the port is in use, or the server is not known."""
        self.gimbals = {sensor.seq_id: sensor for sensor in sensors if sensor.type_id == GIMBAL}
        super().__init__(server, port)
        self._masks = masks
        self._join()

    def order(self, seq_id: int, order: GimbalOrder) -> None:
        """Sends an order. Raises ValueError when the numbering of its bits has no place for it."""
        self._send(gimbal_request(self.gimbals[seq_id], order, dict(self._masks)).encode())

    def states(self) -> Iterator[GimbalState]:
        """What has come. Replies of other kinds share the port and are told apart by their length."""
        for datagram, _, _ in drain(self._socket, 0.0, self._failed):
            if len(datagram) == MASKED.size:
                try:
                    yield decode_state(datagram)
                except MalformedError:
                    self.malformed += 1


class HeartbeatEar(_Desk):
    """Hears when the simulation began, s since 1970: from CopterSim's heartbeats, or guessed from the first frame."""

    def __init__(self, server: Address, copter: int = 1, port: int = HEARTBEAT_PORT):
        """Raises LinkError when the port is in use, or the server is not known."""
        super().__init__(server, port)
        self._join()
        self._copter = copter
        self._start: float | None = None
        self._t = -math.inf  # of the last sample
        self.told = False  # by a heartbeat

    def listen(self, wall_minus_monotonic_s: float) -> None:
        """Take what has come."""
        for datagram, sender, received in drain(self._socket, 0.0, self._failed):
            try:
                beat = decode_heartbeat(datagram)
            except MalformedError:
                self.malformed += 1
                continue
            if sender[0] == self._server[0] and beat.copter == self._copter:
                here = sender[0].startswith("127.") or sender[0] == ".".join(map(str, _own_address(sender)))
                self._start, self.told = beat.start(received + wall_minus_monotonic_s, here), True

    def start(self, t: float, arrival: float) -> float:
        """When the simulation began; t of a sample, s, that arrived then, s since 1970. Time that goes back means anew."""
        anew, self._t = t < self._t - RESTART_S, t
        if self._start is None or (anew and not self.told):
            self._start = start_without_heartbeat(arrival, t, IMAGE_DELAY_S)
        return self._start


class ImuEar(_Desk):
    """Samples of one copter, asked for until they come."""

    def __init__(self, host: str, rate_hz: int, copter: int = 1, ask_port: int | None = None, port: int | None = None):
        """Ports are those of the copter's number unless told. Raises LinkError as `bind_udp` and `reachable` do."""
        ask_port = imu_port(copter) if ask_port is None else ask_port
        super().__init__((host, ask_port), NUMBERED_IMU_PORT + copter - 1 if port is None else port)
        self._request = ImuRequest(rate_hz, self.port, _own_address(self._server)).encode()
        self.health = StreamHealth()
        self._heard = self._asked = float("-inf")

    def samples(self) -> Iterator[ImuSample]:
        """What has come; asks again after a silence. Call it often."""
        for datagram, _, received in drain(self._socket, 0.0, self._failed):
            try:
                sample = decode_imu(datagram)
            except MalformedError:
                self.malformed += 1
                continue
            self._heard = received
            self.health.saw(received)
            yield sample
        now = time.monotonic()
        if now - max(self._heard, self._asked) > ASK_S:
            self._asked = now
            self._send(self._request)

    def report(self, now: float) -> str:
        """A line: what came of it, or what did not."""
        trouble = f", {self.malformed} malformed" if self.malformed else ""
        return f"IMU on port {self.port}: {self.health.report(now, 'sample', self._server)}{trouble}"


def _own_address(server: Address) -> tuple[int, int, int, int]:
    """This machine's number on the way to the server, which no datagram leaves for."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(server)
            a, b, c, d = socket.inet_aton(probe.getsockname()[0])
        except OSError:
            a, b, c, d = 127, 0, 0, 1
    return a, b, c, d
