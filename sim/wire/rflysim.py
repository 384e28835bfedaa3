"""Servers of the RflySim vision protocol, which creates the sensors that a client requests, and of CopterSim's IMU."""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gate_racer.common.command import remark
from gate_racer.common.errors import UserError
from gate_racer.link.messages import Imu
from gate_racer.link.profile import Profile, RateDivider
from gate_racer.link.rflysim import desk
from gate_racer.link.rflysim.request import ON_GROUND, ON_SENSOR, SensorRequest, decode_request, fault, reply_host
from gate_racer.link.rflysim.stream import CHUNK_BYTES, FirstReporter, Payload, fragments
from gate_racer.link.sockets import Address, LinkError, UdpEndpoint
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.sensing import Gimbal, Sense, open_sense, surroundings
from gate_racer.sim.view.style import RenderingStyle
from gate_racer.tracks.track import Track

LEASE_S = 30.0  # s for which a request holds on a port that other machines reach (chosen)


class RequestPort(UdpEndpoint):
    """Bound socket of a service that clients send requests to; unusable requests are counted and reported.

    A small request brings much data, and its sender can be forged: data go to the host of the sender only, and where others
    than this machine can send, for `LEASE_S` after the last request.
    """

    def __init__(self, own: Address, clock: Callable[[], float], prefix: str = ""):
        """Bind `own`; `clock`: s, of the leases. Raises LinkError when the port is in use."""
        super().__init__(*own)
        self.refused, self._clock = 0, clock
        self._say = FirstReporter(remark, f"{prefix}port {self.address[1]}")

    @abstractmethod
    def _receive(self, datagram: bytes, sender: Address) -> None:
        """Process one request. Raises UserError or ValueError for one that cannot be served."""

    def _process_requests(self) -> None:
        """Process the pending requests. Never raises."""
        for datagram, sender, _ in self.drain():
            try:
                self._receive(datagram, sender)
            except (UserError, ValueError) as error:
                self.refused += 1
                topic = str(error).partition(", found")[0]  # other values of the same field are no other topic
                self._say(topic, f"refused a request from {sender[0]}:{sender[1]}: {error}")

    def _tell_of_another(self, address: tuple[int, ...], sender: str, where: str) -> None:
        """Report that data will not go to the address in a request, but to its sender."""
        if (host := reply_host(address, sender)) != sender:
            self._say(where, f"{where}: data go to {sender}, which requests them, not to {host}")

    def _expired(self, host: str, requested: float, what: str) -> bool:
        """Check whether the lease of a host has ended, and report it."""
        ended = not self.address[0].startswith("127.") and self._clock() - requested > LEASE_S
        if ended:
            self._say(f"lease {host}", f"{what} for {host} ends: no request from there for {LEASE_S:g} s")
        return ended


MOST_SUBSCRIPTIONS = 8  # largest number of subscriptions (chosen)


@dataclass(slots=True)
class _Subscription:
    beat: RateDivider
    requested: float  # s, time of the last request
    sent: int


class CopterSimImu(RequestPort):
    """IMU service on its own socket. The protocol has no release: newer subscriptions displace the oldest."""

    def __init__(self, own: Address, profile: Profile, clock: Callable[[], float] = time.monotonic):
        self._hz, self._epoch_s = profile.imu_hz, profile.video_epoch_s
        self._subscriptions = dict[Address, _Subscription]()  # by target address, most recent request last
        self._count = 0
        super().__init__(own, clock, "IMU, ")

    def serve(self, measured: Iterable[Imu]) -> None:
        """Process requests and send the samples of a tick. Their clock is that of the frames: s since the start of CopterSim."""
        self._process_requests()
        for target, known in list(self._subscriptions.items()):
            if self._expired(target[0], known.requested, "the IMU"):
                del self._subscriptions[target]
        for imu in measured:
            self._count += 1
            for target, known in self._subscriptions.items():
                if known.beat(self._count):
                    known.sent = (known.sent + 1) % 0x80000000
                    sample = desk.ImuSample(known.sent, self._epoch_s + imu.t, imu.accel, imu.gyro)
                    self.transmit(sample.encode(), target)

    def _receive(self, datagram: bytes, sender: Address) -> None:
        request = desk.ImuRequest.decode(datagram)
        self._tell_of_another(request.address, sender[0], "address")
        if request.sensor_type != 0 or not request.rate_hz or not request.port:
            raise UserError(f"sensor type must be 0, the IMU, and rate and port at least 1, found {request}")
        target = sender[0], request.port
        known = self._subscriptions.pop(target, None)
        if known is None and len(self._subscriptions) == MOST_SUBSCRIPTIONS:
            self._subscriptions.pop(next(iter(self._subscriptions)))
        if request.rate_hz > self._hz:
            self._say(f"rate {request.rate_hz}", f"{request.rate_hz} Hz were requested, limited to {self._hz:g} Hz")
        beat, sent = RateDivider(min(request.rate_hz, self._hz), self._hz), known.sent if known is not None else 0
        self._subscriptions[target] = _Subscription(beat, self._clock(), sent)


def open_imu(own: Address, profile: Profile, chosen: bool) -> CopterSimImu | None:
    """Open CopterSim's IMU service; None, with a message on stderr, where another program has the default port.

    Raises LinkError where the port is in use and was `chosen` by the user.
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
    request: SensorRequest
    ordered: SensorRequest  # last command to a gimbal, or its initial request
    sense: Sense
    beat: RateDivider
    client: Address
    target: Address
    requested: float  # s, time of the last request of its client
    sent: int  # frames

    def datagrams(self, exposure: Exposure, at: Exposure, ticks: int, epoch_s: float) -> list[tuple[bytes, Address]]:
        """Return the datagrams of an exposure if the sensor is due.

        `at`: the exposure with the pose of the sensor's carrier. `ticks`: exposures since the last one that was rendered.
        `epoch_s`: the frames' clock at simulator time 0, s.
        """
        if not self.beat(exposure.id, ticks):
            return []
        number = (self.sent + 0x80000000) % 0x100000000 - 0x80000000
        self.sent += 1
        payload = Payload(epoch_s + exposure.stamp, number, self.sense.payload(at))
        chunk = min(max(self.request.send[6], LEAST_CHUNK), MOST_CHUNK) if self.request.send[6] else CHUNK_BYTES
        sent = [(datagram, self.target) for datagram in fragments(payload, chunk)]
        if isinstance(self.sense, Gimbal):
            sent.append((self.sense.state(exposure).encode(), (self.target[0], desk.STATE_PORT)))
        return sent


class RflySimOutlet(RequestPort):
    """Sensor server with its own socket; requests are processed whenever an image is due.

    RflySim3D has one sensor per SeqID, which the last client to request it takes over, and a release ends all sensors. Here each
    target port has its own sensor, and a client releases its own only. Objects that clients place are reported, not rendered.
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
        masks: desk.GimbalMasks = desk.DOCUMENT,
    ):
        """Serve the sensors of one vehicle at the address `own`. Raises LinkError when the port is in use.

        `epoch_s`: the frames' clock at simulator time 0. `clock`: s since 1970. `masks`: numbering of the gimbals' commands.
        """
        self._hz, self._around = video_hz, surroundings(track, style, seed)
        self._copter, self._epoch_s, self._masks = copter, epoch_s, masks
        self._objects, self._answers = dict[int, desk.SceneObject](), list[tuple[bytes, Address]]()
        self._start: float | None = None  # s since 1970, zero of the frames' clock
        self._beat, self._beats, self._last_id = RateDivider(HEARTBEAT_HZ, video_hz), 0, 0
        self._sensors = dict[Address, Sensor]()  # by target address of their frames
        super().__init__(own, clock)

    def datagrams(self, exposure: Exposure) -> list[tuple[bytes, Address]]:
        """Process pending requests, then return the datagrams that are due."""
        self._process_requests()
        for sensor in list(self._sensors.values()):
            if self._expired(sensor.target[0], sensor.requested, f"sensor {sensor.request.seq_id}"):
                self._drop(sensor)
        ticks, self._last_id = max(exposure.id - self._last_id, 1), exposure.id  # a slow machine leaves some out
        packets = list[tuple[bytes, Address]]()
        for sensor in self._sensors.values():
            carried = sensor.request.mount_type == ON_SENSOR
            carrier = self._carrier(sensor.request, sensor.client) if carried else None
            if carrier or not carried:  # else the carrier was released
                at = carrier.sense.pose(exposure) if carrier else exposure
                packets += sensor.datagrams(exposure, at, ticks, self._epoch_s)
        answers, self._answers = self._answers, []
        return packets + answers + (self._heartbeats(exposure) if self._beat(exposure.id, ticks) else [])

    def _heartbeats(self, exposure: Exposure) -> list[tuple[bytes, Address]]:
        """Return a heartbeat for each sensor's host with the absolute start time of the simulation, as CopterSim sends it."""
        now = self._clock()
        self._start = now - self._epoch_s - exposure.stamp if self._start is None else self._start
        self._beats += 1
        heartbeat = desk.CopterHeartbeat(self._copter, round(self._start * 1e3), round(now * 1e3), self._beats).encode()
        return [(heartbeat, (host, desk.HEARTBEAT_PORT)) for host in sorted({host for host, _ in self._sensors})]

    def _receive(self, datagram: bytes, sender: Address) -> None:
        if len(datagram) == desk.SceneObject.LAYOUT.size:
            placed = desk.SceneObject.decode(datagram)
            if placed.number not in self._objects and len(self._objects) == len(desk.NUMBERS):
                raise UserError(f"at most {len(desk.NUMBERS)} objects are possible")
            self._objects[placed.number] = placed
        elif len(datagram) in desk.COMMAND_BYTES:
            self._obey(datagram, sender)
        else:
            self._make(decode_request(datagram), sender)

    def _obey(self, datagram: bytes, sender: Address) -> None:
        """Execute a console command: release the client's sensors, delete an object, or tell its state."""
        if desk.decode_command(datagram) == desk.CLEAR_COMMAND:
            for sensor in list(self._sensors.values()):
                if sensor.client == sender:
                    self._drop(sensor)
        elif (asked := desk.read_query(datagram)) is not None and len(self._answers) < len(desk.NUMBERS):
            what, number = asked
            found = self._objects.pop(number, None) if what == desk.DELETE else self._objects.get(number)
            if found is not None and what == desk.TELL:
                self._answers.append((found.state(self._clock()).encode(), (sender[0], desk.STATE_PORT)))

    def _make(self, request: SensorRequest, sender: Address) -> None:
        """Make or change a sensor, or order a gimbal; any request renews its client's leases. Raises UserError."""
        for sensor in self._sensors.values():
            if sensor.client == sender:
                sensor.requested = self._clock()
        where = f"sensor {request.seq_id}"
        if wrong := fault(request):
            raise UserError(f"{where}: {wrong}")
        if request.mount_type not in (ON_GROUND, ON_SENSOR) and request.copter != self._copter:
            raise UserError(f"{where}: TargetCopter {request.copter}: the simulated vehicle is copter {self._copter}")
        if request.mask is not None:
            self._order(request)
            return
        self._tell_of_another(request.send[1:5], sender[0], f"{where}: SendProtocol")
        target = sender[0], request.port
        same = (s for s in self._sensors.values() if (s.request.seq_id, s.client) == (request.seq_id, sender))
        known = self._sensors.get(target) or next(same, None)  # the latter moves to another port
        if known is not None and (known.request, known.target) == (request, target):
            known.client, known.requested = sender, self._clock()
            return
        if known is None and len(self._sensors) == MOST_SENSORS:
            raise UserError(f"{where}: at most {MOST_SENSORS} sensors are possible")
        if request.mount_type == ON_SENSOR and self._carrier(request, sender) is None:
            raise UserError(f"{where}: mounted on sensor {request.copter}, which has to be requested before")
        sense = open_sense(request, self._around)
        if known is not None:
            self._drop(known)
        beat = RateDivider(min(request.rate_hz or self._hz, self._hz), self._hz)
        sent = known.sent if known is not None else 0  # frame numbers continue, or the client would discard them as old
        self._sensors[target] = Sensor(request, request, sense, beat, sender, target, self._clock(), sent)

    def _carrier(self, request: SensorRequest, client: Address) -> Sensor | None:
        """Return the sensor of the client's host that another one is mounted on, itself not on a sensor."""
        for sensor in self._sensors.values():
            known = sensor.client[0], sensor.request.seq_id
            if known == (client[0], request.copter) and sensor.request.mount_type != ON_SENSOR:
                return sensor
        return None

    def _order(self, request: SensorRequest) -> None:
        """Forward a command to every gimbal with its SeqID. Raises UserError where it cannot be executed."""
        ordered = False
        for sensor in self._sensors.values():
            if isinstance(sensor.sense, Gimbal) and sensor.request.seq_id == request.seq_id:
                sensor.sense.order(desk.read_order(request, sensor.ordered, self._masks))
                sensor.ordered, ordered = request, True
        if not ordered:
            raise UserError(f"sensor {request.seq_id}: no such gimbal: request its frames first")

    def _drop(self, sensor: Sensor) -> None:
        sensor.sense.close()
        del self._sensors[sensor.target]

    def close(self) -> None:
        for sensor in list(self._sensors.values()):
            self._drop(sensor)
        super().close()
