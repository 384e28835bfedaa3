"""The simulator's end of the RflySim vision protocol: makes the sensors that a client asks for and sends their frames."""

import sys
from dataclasses import dataclass

from link.peer import Address
from link.profile import RateDivider
from link.rflysim.copter import CLEAR_COMMAND, decode_command
from link.rflysim.fragments import CHUNK_BYTES, Payload, fragments
from link.rflysim.images import JPEG, PNG, RAW
from link.rflysim.malformed import MalformedError
from link.rflysim.request import SensorRequest, decode_request
from link.rflysim.stream import Teller
from link.sockets import bind_udp, drain
from sim.physics.contact import Colliders
from sim.simulator import Exposure
from sim.view.look import Look
from sim.view.sensing import Sense, open_sense
from tracks.track import Track
from vehicle.errors import UserError

MOST_SENSORS = 8
HERE = ((0, 0, 0, 0), (127, 0, 0, 1))  # addresses that stand for the sender's
LEAST_CHUNK, MOST_CHUNK = 256, 65_000  # bytes; a UDP datagram holds 65507


@dataclass(slots=True)
class Sensor:
    """One that was asked for."""

    request: SensorRequest
    sense: Sense
    beat: RateDivider
    target: Address
    sent: int = 0

    def datagrams(self, exposure: Exposure) -> list[tuple[bytes, Address]]:
        """The frame of an exposure, if it is one of the sensor's."""
        if not self.beat(exposure.id):
            return []
        number = (self.sent + 0x80000000) % 0x100000000 - 0x80000000
        self.sent += 1
        payload = Payload(exposure.t, number, self.sense.payload(exposure))
        chunk = min(max(self.request.send[6], LEAST_CHUNK), MOST_CHUNK) if self.request.send[6] else CHUNK_BYTES
        return [(datagram, self.target) for datagram in fragments(payload, chunk)]


class RflySimOutlet:
    """Hears requests on a socket of its own, whenever a picture is due."""

    def __init__(self, track: Track, look: Look, seed: int, video_hz: float, own: Address):
        """Raises LinkError when the port for requests is in use."""
        self._track, self._look, self._seed, self._hz = track, look, seed, video_hz
        self._colliders, self._sensors = Colliders(track), dict[int, Sensor]()
        self._socket = bind_udp(*own)
        self._socket.setblocking(False)
        self.malformed = self.refused = self.socket_errors = 0
        self._say = Teller(lambda line: print(line, file=sys.stderr, flush=True), f"port {own[1]}")

    @property
    def address(self) -> Address:
        """Where requests are heard."""
        return self._socket.getsockname()

    def datagrams(self, exposure: Exposure) -> list[tuple[bytes, Address]]:
        """What is due, after the requests that have come."""
        for datagram, sender, _ in drain(self._socket, 0.0, self._failed):
            self._hear(datagram, sender)
        return [packet for sensor in self._sensors.values() for packet in sensor.datagrams(exposure)]

    def _hear(self, datagram: bytes, sender: Address) -> None:
        """Never raises, whatever the bytes."""
        try:
            if len(datagram) in (56, 256):
                if decode_command(datagram) == CLEAR_COMMAND:
                    self._clear()
                return
            request = decode_request(datagram)
        except MalformedError as error:
            self.malformed += 1
            self._say("malformed", f"a request from {sender[0]} is dropped: {error}; more of the kind are only counted")
            return
        try:
            self._make(request, sender)
        except (UserError, ValueError) as error:
            self.refused += 1
            self._say(f"refused {request.seq_id}", f"a request from {sender[0]} is refused: {error}")

    def _make(self, request: SensorRequest, sender: Address) -> None:
        address = request.send[1:5]
        if max(address) > 255 or request.port > 0xFFFF:
            raise UserError(f"SendProtocol {request.send}: no address to send to")
        host = sender[0] if address in HERE else ".".join(map(str, address))
        known = self._sensors.get(request.seq_id)
        if known is not None and known.request == request:
            known.target = host, request.port
            return
        if request.mode not in (JPEG, RAW, PNG):
            raise UserError(f"SendProtocol[0] {request.mode}: frames go by UDP, {JPEG} JPEG, {RAW} raw or {PNG} PNG")
        if request.mask is not None:
            raise UserError(f"sensor {request.seq_id}: there are no gimbals here")
        if known is None and len(self._sensors) == MOST_SENSORS:
            raise UserError(f"sensor {request.seq_id}: {MOST_SENSORS} sensors are the most")
        sense = open_sense(request, self._track, self._colliders, self._look, self._seed)
        if known is not None:
            known.sense.close()
        beat = RateDivider(min(request.rate_hz or self._hz, self._hz), self._hz)
        self._sensors[request.seq_id] = Sensor(request, sense, beat, (host, request.port))

    def _clear(self) -> None:
        for sensor in self._sensors.values():
            sensor.sense.close()
        self._sensors.clear()

    def _failed(self) -> None:
        self.socket_errors += 1

    def close(self) -> None:
        self._clear()
        self._socket.close()
