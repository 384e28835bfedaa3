"""Servers of the RflySim vision protocol, which creates the sensors that a client requests, and of CopterSim's IMU."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gate_racer.common.command import remark
from gate_racer.common.errors import UserError
from gate_racer.link.messages import Imu
from gate_racer.link.profile import Profile, RateDivider
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim.config import ON_GROUND, ON_SENSOR, fault
from gate_racer.link.rflysim.desk import (
    DELETE,
    DOCUMENT,
    HEARTBEAT_PORT,
    NUMBERS,
    STATE_PORT,
    TELL,
    GimbalMasks,
    SceneObject,
    read_order,
    read_query,
)
from gate_racer.link.rflysim.request import (
    CLEAR_COMMAND,
    COMMAND_BYTES,
    CopterHeartbeat,
    ImuRequest,
    ImuSample,
    SensorRequest,
    decode_command,
    decode_request,
    reply_host,
)
from gate_racer.link.rflysim.stream import CHUNK_BYTES, Payload, RateLimitedReporter, fragments
from gate_racer.link.sockets import Address, LinkError, UdpEndpoint
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.sensing import Gimbal, Sense, open_sense, surroundings
from gate_racer.sim.view.style import RenderingStyle
from gate_racer.tracks.track import Track

LEASE_S = 30.0  # s for which a request holds on a port that other machines reach (chosen)


class RequestPort(UdpEndpoint, ABC):
    """Bound socket of a service that clients send requests to; malformed and refused ones are counted and reported.

    A small request brings much data, and its sender can be forged: data go to the host of the sender only, and where others
    than this machine can send, for `LEASE_S` after the last request.
    """

    def __init__(self, own: Address, prefix: str = ""):
        """Bind `own`, and report with a prefix. Raises LinkError when the port is in use."""
        super().__init__(*own)
        self.malformed = self.refused = 0
        self._say = RateLimitedReporter(remark, f"{prefix}port {self.address[1]}")

    @abstractmethod
    def _receive(self, datagram: bytes, sender: Address) -> None:
        """Process one request. Raises MalformedError for a datagram that is none, UserError for one that cannot be served."""

    def _process_requests(self) -> None:
        """Process the pending requests. Never raises."""
        for datagram, sender, _ in self.drain():
            try:
                self._receive(datagram, sender)
            except MalformedError as error:
                self.malformed += 1
                self._say("malformed", f"dropped a request from {sender[0]}: {error}; further ones are only counted")
            except (UserError, ValueError) as error:
                self.refused += 1
                topic = str(error).partition(", found")[0]  # other values of the same field are no other topic
                self._say(topic, f"refused a request from {sender[0]}:{sender[1]}: {error}")

    def _expired(self, host: str, requested: float, now: float, what: str) -> bool:
        """Check whether the lease of a host has ended, and report it. Times in s of any one clock."""
        ended = not self.address[0].startswith("127.") and now - requested > LEASE_S
        if ended:
            self._say(f"lease {host}", f"{what} for {host} ends: no request from there for {LEASE_S:g} s")
        return ended


MOST_SUBSCRIPTIONS = 8  # largest number of subscriptions (chosen)


@dataclass(slots=True)
class _Subscription:
    rate_hz: int
    beat: RateDivider
    requested: float  # s, time of the last request
    sent: int = 0


class CopterSimImu(RequestPort):
    """IMU service on its own socket. The protocol has no release: newer subscriptions displace the oldest."""

    def __init__(self, own: Address, profile: Profile, clock: Callable[[], float] = time.monotonic):
        """Bind `own`, the address for requests. `clock`: s. Raises LinkError when the port is in use."""
        self._clock = clock
        self._hz, self._epoch_s = profile.imu_hz, profile.video_epoch_s
        self._subscriptions = dict[Address, _Subscription]()  # by target address, most recent request last
        self._count = 0
        super().__init__(own, "IMU, ")

    def serve(self, measured: Iterable[Imu]) -> None:
        """Process requests and send the samples of a tick. Their clock is that of the frames: s since the start of CopterSim."""
        self._process_requests()
        now = self._clock()
        for target, known in list(self._subscriptions.items()):
            if self._expired(target[0], known.requested, now, "the IMU"):
                del self._subscriptions[target]
        for imu in measured:
            self._count += 1
            for target, known in self._subscriptions.items():
                if known.beat(self._count):
                    known.sent = (known.sent + 1) % 0x80000000
                    datagram = ImuSample(known.sent, self._epoch_s + imu.t, imu.accel, imu.gyro).encode()
                    self.transmit(datagram, target)

    def _receive(self, datagram: bytes, sender: Address) -> None:
        request = ImuRequest.decode(datagram)
        _require_own(request.address, sender[0], "address")
        if request.sensor_type != 0:
            raise UserError(f"sensor type: must be 0, the IMU, found {request.sensor_type}")
        if not request.rate_hz:
            raise UserError("rate: must be at least 1 Hz, found 0")
        if not request.port:
            raise UserError("port: must be 1 to 65535, found 0")
        target = sender[0], request.port
        known = self._subscriptions.pop(target, None)
        if known is None and len(self._subscriptions) == MOST_SUBSCRIPTIONS:
            self._subscriptions.pop(next(iter(self._subscriptions)))
        if request.rate_hz > self._hz:
            self._say(f"rate {request.rate_hz}", f"{request.rate_hz} Hz were requested, limited to {self._hz:g} Hz")
        if known is None or known.rate_hz != request.rate_hz:
            beat = RateDivider(min(request.rate_hz, self._hz), self._hz)
            known = _Subscription(request.rate_hz, beat, 0.0, known.sent if known is not None else 0)
        known.requested = self._clock()
        self._subscriptions[target] = known


def _require_own(address: tuple[int, ...], sender: str, where: str) -> None:
    """Check that the address in a request is its sender's. Raises UserError."""
    if (host := reply_host(address, sender)) != sender:
        why = "data go to whoever requests them"
        raise UserError(f"{where}: must be 0.0.0.0 or that of the sender, {sender}, found {host}: {why}")


def open_imu(own: Address, profile: Profile, chosen: bool) -> CopterSimImu | None:
    """Open CopterSim's IMU service; None, with a message on stderr, where another program has the default port.

    Raises:
        LinkError: the port is in use and was `chosen` by the user.
    """
    try:
        return CopterSimImu(own, profile)
    except LinkError as error:
        if chosen:
            raise
        remark(f"{error}: CopterSim's IMU is not simulated (rflysim://HOST:PORT?imu=PORT names another)")
        return None


MOST_SENSORS = 8  # largest number of sensors (chosen)
HEARTBEAT_HZ = 1.0  # Hz, rate of CopterSim's heartbeats
LEAST_CHUNK, MOST_CHUNK = 256, 65_000  # bytes of a chunk; a UDP datagram holds 65507


@dataclass(slots=True)
class Sensor:
    """Sensor requested by a client."""

    request: SensorRequest
    sense: Sense
    beat: RateDivider
    client: Address
    target: Address
    requested: float  # s, time of the last request of its client
    sent: int = 0
    ordered: SensorRequest = field(init=False)  # last command to a gimbal, or its initial request

    def __post_init__(self) -> None:
        self.ordered = self.request

    @property
    def gimbal(self) -> Gimbal | None:
        """The sensor as a gimbal; None for any other sensor."""
        return self.sense if isinstance(self.sense, Gimbal) else None

    def datagrams(self, exposure: Exposure, epoch_s: float) -> list[tuple[bytes, Address]]:
        """Return the datagrams of an exposure if the sensor is due. `epoch_s`: the frames' clock at simulator time 0, s."""
        if not self.beat(exposure.id):
            return []
        number = (self.sent + 0x80000000) % 0x100000000 - 0x80000000
        self.sent += 1
        payload = Payload(epoch_s + exposure.stamp, number, self.sense.payload(exposure))
        state = (
            [(self.gimbal.state(exposure).encode(), (self.target[0], STATE_PORT))] if self.gimbal is not None else []
        )
        chunk = min(max(self.request.send[6], LEAST_CHUNK), MOST_CHUNK) if self.request.send[6] else CHUNK_BYTES
        return [*((datagram, self.target) for datagram in fragments(payload, chunk)), *state]


class Scene:
    """Objects that clients placed, which are told, not seen."""

    def __init__(self) -> None:
        self._objects = dict[int, SceneObject]()

    def place(self, placed: SceneObject) -> None:
        """Place or move an object. Raises UserError when there are too many."""
        if placed.number not in self._objects and len(self._objects) == len(NUMBERS):
            raise UserError(f"at most {len(NUMBERS)} objects are possible")
        self._objects[placed.number] = placed

    def answer(self, what: int, number: int, t: float) -> bytes | None:
        """Delete an object, or return its state at t (s); nothing for one that is not there."""
        found = self._objects.pop(number, None) if what == DELETE else self._objects.get(number)
        return found.state(t).encode() if found is not None and what == TELL else None


class RflySimOutlet(RequestPort):
    """Sensor server with its own socket; requests are processed whenever an image is due.

    RflySim3D has one sensor per SeqID, which the last client to request it takes over, and a release ends all sensors. Here each
    target port has its own sensor, and a client releases its own only.
    """

    def __init__(
        self,
        track: Track,
        style: RenderingStyle,
        seed: int,
        video_hz: float,
        own: Address,
        copter: int = 1,
        epoch_s: float = 0.0,
        clock: Callable[[], float] = time.time,
        masks: GimbalMasks = DOCUMENT,
    ):
        """Set up the sensors of one vehicle.

        Args:
            own: address for requests.
            epoch_s: the frames' clock at simulator time 0, s.
            clock: returns s since 1970, for heartbeats and leases.
            masks: numbering of the gimbals' commands.

        Raises:
            LinkError: the port for requests is in use.
        """
        self._hz, self._around = video_hz, surroundings(track, style, seed)
        self._copter, self._epoch_s, self._clock, self._masks = copter, epoch_s, clock, masks
        self._scene, self._answers = Scene(), list[tuple[bytes, Address]]()
        self._start: float | None = None  # s since 1970, zero of the frames' clock
        self._beat, self._beats = RateDivider(HEARTBEAT_HZ, video_hz), 0
        self._sensors = dict[Address, Sensor]()  # by target address of their frames
        super().__init__(own)

    def datagrams(self, exposure: Exposure) -> list[tuple[bytes, Address]]:
        """Process pending requests, then return the datagrams that are due."""
        self._process_requests()
        now = self._clock()
        for sensor in list(self._sensors.values()):
            if self._expired(sensor.target[0], sensor.requested, now, f"sensor {sensor.request.seq_id}"):
                self._drop(sensor)
        packets = [packet for sensor in self._sensors.values() for packet in sensor.datagrams(exposure, self._epoch_s)]
        answers, self._answers = self._answers, []
        return packets + answers + (self._heartbeats(exposure) if self._beat(exposure.id) else [])

    def _heartbeats(self, exposure: Exposure) -> list[tuple[bytes, Address]]:
        """Return a heartbeat for each sensor's host with the absolute start time of the simulation, as CopterSim sends it."""
        now = self._clock()
        self._start = now - self._epoch_s - exposure.stamp if self._start is None else self._start
        self._beats += 1
        heartbeat = CopterHeartbeat(self._copter, round(self._start * 1e3), round(now * 1e3), self._beats).encode()
        return [(heartbeat, (host, HEARTBEAT_PORT)) for host in sorted({host for host, _ in self._sensors})]

    def _receive(self, datagram: bytes, sender: Address) -> None:
        if len(datagram) == SceneObject.LAYOUT.size:
            self._scene.place(SceneObject.decode(datagram))
        elif len(datagram) in COMMAND_BYTES:
            self._obey(datagram, sender)
        else:
            self._make(decode_request(datagram), sender)

    def _obey(self, datagram: bytes, sender: Address) -> None:
        """Execute a console command. Raises MalformedError."""
        if decode_command(datagram) == CLEAR_COMMAND:
            self._release(sender)
        elif (asked := read_query(datagram)) is not None and len(self._answers) < len(NUMBERS):
            answer = self._scene.answer(*asked, self._clock())
            self._answers += [(answer, (sender[0], STATE_PORT))] if answer is not None else []

    def _make(self, request: SensorRequest, sender: Address) -> None:
        """Make or change a sensor, or order a gimbal; any request renews its client's leases. Raises UserError."""
        for sensor in self._sensors.values():
            if sensor.client == sender:
                sensor.requested = self._clock()
        self._require(request)
        if request.mask is not None:
            self._order(request)
            return
        _require_own(request.send[1:5], sender[0], f"sensor {request.seq_id}: SendProtocol: its address")
        target = sender[0], request.port
        known = self._sensors.get(target) or self._moved(request, sender)
        if known is not None and (known.request, known.target) == (request, target):
            known.client, known.requested = sender, self._clock()
            return
        if known is None and len(self._sensors) == MOST_SENSORS:
            raise UserError(f"sensor {request.seq_id}: at most {MOST_SENSORS} sensors are possible")
        sense = open_sense(request, self._around)
        if known is not None:
            self._drop(known)
        self._warn_of_shared_id(request, target)
        beat = RateDivider(min(request.rate_hz or self._hz, self._hz), self._hz)
        sent = known.sent if known is not None else 0  # frame numbers continue, or the client would discard them as old
        self._sensors[target] = Sensor(request, sense, beat, sender, target, self._clock(), sent)

    def _require(self, request: SensorRequest) -> None:
        """Check that a request can be served. Raises UserError otherwise."""
        where = f"sensor {request.seq_id}"
        if max(request.send[1:5]) > 255 or request.port > 0xFFFF:
            raise UserError(f"{where}: SendProtocol {request.send}: is not a target address")
        if (wrong := fault(request)) is not None:
            raise UserError(f"{where}: {wrong[0]}: {wrong[1]}")
        if request.mount_type not in (ON_GROUND, ON_SENSOR) and request.copter != self._copter:
            raise UserError(f"{where}: TargetCopter {request.copter}: the simulated vehicle is copter {self._copter}")

    def _order(self, request: SensorRequest) -> None:
        """Forward a command to every gimbal with its SeqID. Raises UserError where it cannot be executed."""
        gimbals = [s for s in self._sensors.values() if s.gimbal is not None and s.request.seq_id == request.seq_id]
        if not gimbals:
            raise UserError(f"sensor {request.seq_id}: no such gimbal: request its frames first")
        for sensor in gimbals:
            assert sensor.gimbal is not None
            sensor.gimbal.order(read_order(request, sensor.ordered, self._masks))
            sensor.ordered = request

    def _moved(self, request: SensorRequest, sender: Address) -> Sensor | None:
        """Return the sensor with this SeqID that the same client had at another target address."""
        for sensor in self._sensors.values():
            if (sensor.request.seq_id, sensor.client) == (request.seq_id, sender):
                return sensor
        return None

    def _warn_of_shared_id(self, request: SensorRequest, target: Address) -> None:
        for other in self._sensors.values():
            if other.request.seq_id == request.seq_id:
                ends = " and ".join(f"{host}:{port}" for host, port in (other.target, target))
                what = f"sensor {request.seq_id} is requested by {ends}: RflySim3D would serve only the last"
                self._say(f"shared {request.seq_id}", f"{what}; give each its own SeqID")

    def _release(self, sender: Address) -> None:
        """Close the sensors that a client has requested."""
        own = [sensor for sensor in self._sensors.values() if sensor.client == sender]
        if self._sensors and not own:
            self._say(
                f"release {sender}",
                f"{sender[0]}:{sender[1]} releases sensors but has requested none: other clients keep theirs",
            )
        for sensor in own:
            self._drop(sensor)

    def _drop(self, sensor: Sensor) -> None:
        sensor.sense.close()
        del self._sensors[sensor.target]

    def close(self) -> None:
        """Close all sensors and the socket."""
        for sensor in list(self._sensors.values()):
            self._drop(sensor)
        super().close()
