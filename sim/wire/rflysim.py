"""The simulator's end of the RflySim vision protocol: makes the sensors that a client asks for and sends their frames."""

import sys
from dataclasses import dataclass

from link.peer import Address
from link.profile import RateDivider
from link.rflysim.checks import ON_GROUND, ON_SENSOR, fault
from link.rflysim.copter import CLEAR_COMMAND, decode_command
from link.rflysim.fragments import CHUNK_BYTES, Payload, fragments
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
    asker: Address
    target: Address
    sent: int = 0

    def datagrams(self, exposure: Exposure, epoch_s: float) -> list[tuple[bytes, Address]]:
        """The frame of an exposure, if it is one of the sensor's; epoch_s is what its clock shows at the simulator's 0."""
        if not self.beat(exposure.id):
            return []
        number = (self.sent + 0x80000000) % 0x100000000 - 0x80000000
        self.sent += 1
        payload = Payload(epoch_s + exposure.stamp, number, self.sense.payload(exposure))
        chunk = min(max(self.request.send[6], LEAST_CHUNK), MOST_CHUNK) if self.request.send[6] else CHUNK_BYTES
        return [(datagram, self.target) for datagram in fragments(payload, chunk)]


class RflySimOutlet:
    """Hears requests on a socket of its own, whenever a picture is due.

    RflySim3D has one sensor of each SeqID, which the last client to ask takes away, and a release ends all of them. Here every
    port that is asked for gets its own, and a client releases its own.
    """

    def __init__(
        self,
        track: Track,
        look: Look,
        seed: int,
        video_hz: float,
        own: Address,
        copter: int = 1,
        epoch_s: float = 0.0,
    ):
        """What is seen from one copter.

        Args:
            own: where requests are heard.
            epoch_s: what the clock of the frames shows when the simulator's is at 0.

        Raises:
            LinkError: the port for requests is in use.
        """
        self._track, self._look, self._seed, self._hz = track, look, seed, video_hz
        self._copter, self._epoch_s = copter, epoch_s
        self._colliders, self._sensors = Colliders(track), dict[Address, Sensor]()  # by where their frames go
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
        return [packet for sensor in self._sensors.values() for packet in sensor.datagrams(exposure, self._epoch_s)]

    def _hear(self, datagram: bytes, sender: Address) -> None:
        """Never raises, whatever the bytes."""
        try:
            if len(datagram) in (56, 256):
                if decode_command(datagram) == CLEAR_COMMAND:
                    self._release(sender)
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
            self._say(f"refused {error}", f"a request from {sender[0]}:{sender[1]} is refused: {error}")

    def _make(self, request: SensorRequest, sender: Address) -> None:
        self._require(request)
        address = request.send[1:5]
        host = sender[0] if address in HERE else ".".join(map(str, address))
        target = host, request.port
        known = self._sensors.get(target) or self._moved(request, sender)
        if known is not None and (known.request, known.target) == (request, target):
            known.asker = sender
            return
        if known is None and len(self._sensors) == MOST_SENSORS:
            raise UserError(f"sensor {request.seq_id}: {MOST_SENSORS} sensors are the most")
        sense = open_sense(request, self._track, self._colliders, self._look, self._seed)
        if known is not None:
            self._drop(known)
        self._tell_rivals(request, target)
        beat = RateDivider(min(request.rate_hz or self._hz, self._hz), self._hz)
        sent = known.sent if known is not None else 0  # numbers go on, or the client would take them for old
        self._sensors[target] = Sensor(request, sense, beat, sender, target, sent)

    def _require(self, request: SensorRequest) -> None:
        """Raises UserError on what cannot be sent from here."""
        where = f"sensor {request.seq_id}"
        if max(request.send[1:5]) > 255 or request.port > 0xFFFF:
            raise UserError(f"{where}: SendProtocol {request.send}: no address to send to")
        if (wrong := fault(request)) is not None:
            raise UserError(f"{where}: {wrong[0]}: {wrong[1]}")
        if request.mount_type not in (ON_GROUND, ON_SENSOR) and request.copter != self._copter:
            raise UserError(f"{where}: TargetCopter {request.copter}: here flies copter {self._copter}")
        if request.mask is not None:
            raise UserError(f"{where}: there are no gimbals here")

    def _moved(self, request: SensorRequest, sender: Address) -> Sensor | None:
        """The sensor of this number that the same client had elsewhere."""
        for sensor in self._sensors.values():
            if (sensor.request.seq_id, sensor.asker) == (request.seq_id, sender):
                return sensor
        return None

    def _tell_rivals(self, request: SensorRequest, target: Address) -> None:
        for other in self._sensors.values():
            if other.request.seq_id == request.seq_id:
                ends = " and ".join(f"{host}:{port}" for host, port in (other.target, target))
                what = f"sensor {request.seq_id} is asked for by {ends}: RflySim3D would serve the last alone"
                self._say(f"shared {request.seq_id}", f"{what}; give each a SeqID of its own")

    def _release(self, sender: Address) -> None:
        """Ends what a client has asked for."""
        own = [sensor for sensor in self._sensors.values() if sensor.asker == sender]
        if self._sensors and not own:
            self._say(f"release {sender}", f"{sender[0]}:{sender[1]} releases sensors and has none: others keep theirs")
        for sensor in own:
            self._drop(sensor)

    def _drop(self, sensor: Sensor) -> None:
        sensor.sense.close()
        del self._sensors[sensor.target]

    def _failed(self) -> None:
        self.socket_errors += 1

    def close(self) -> None:
        for sensor in list(self._sensors.values()):
            self._drop(sensor)
        self._socket.close()
