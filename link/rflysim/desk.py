"""What passes besides frames: requests, heartbeats, CopterSim's IMU, gimbals, and objects of RflySim3D's scene.

Gimbals take commands by bit mask, in the numbering of the document or of SDK 3.06, and report their state. An object is placed
or moved by its number, model, pose and scale (public SDK); `RflyReqObjData` deletes it, or asks for its state, which comes to the
port of the gimbals'. World NED of the map, m.
"""

import contextlib
import ipaddress
import math
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from gate_racer.link.messages import Imu
from gate_racer.link.packed import Packed, unpacked
from gate_racer.link.reassembly import RESTART_S, MalformedError
from gate_racer.link.rflysim.request import (
    GIMBAL,
    LARGEST_WORD,
    RAW,
    REQUEST_SUM,
    STATE_SUM,
    Floats,
    SensorRequest,
    decode_request,
)
from gate_racer.link.rflysim.stream import StreamHealth
from gate_racer.link.sockets import ANYWHERE, Address, UdpEndpoint, listening_host, reachable
from gate_racer.vehicle.rotation import Quaternion, Vector, conjugate, from_euler, log, product

COMMAND_SUM = 1234567890
COMMANDS = (struct.Struct("<i52s"), struct.Struct("<i252s"))
COMMAND_BYTES = tuple(layout.size for layout in COMMANDS)
CLEAR_COMMAND = "RflyClearCapture"  # releases all sensors
NUMBERED_IMU_PORT, IMU_REQUEST_PORT = 31000, 30100  # ports of copter 1: those of the next are higher by 1 and by 2
DELAY_S = 0.010  # assumed latency between two computers, of heartbeats and of frames


@dataclass(frozen=True, slots=True)
class ImuSample(Packed):
    """One sample, body FRD; t in s since CopterSim started."""

    LAYOUT, SUM, WHAT = struct.Struct("<2id6f"), (1234567898,), "an IMU sample"
    number: int
    t: float
    accel: Vector
    gyro: Vector

    @property
    def imu(self) -> Imu:
        return Imu(self.t, self.accel, self.gyro)


def imu_port(copter: int) -> int:
    return IMU_REQUEST_PORT + 2 * (copter - 1)


def flu(frd: Vector) -> Vector:
    return frd[0], -frd[1], -frd[2]


@dataclass(frozen=True, slots=True)
class ImuRequest(Packed):
    """Request to CopterSim for IMU samples at rate_hz to address:port."""

    LAYOUT, SUM, WHAT = struct.Struct("<4H4B6f"), (REQUEST_SUM,), "an IMU request"
    sensor_type: int
    rate_hz: int
    port: int
    address: tuple[int, int, int, int]
    parameters: tuple[float, float, float, float, float, float] = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class CopterHeartbeat(Packed):
    """Heartbeat of CopterSim. Times in ms since 1970 on its own clock."""

    LAYOUT, SUM, WHAT = struct.Struct("<2i3q"), (123456789,), "a heartbeat"
    copter: int
    start_ms: int  # start of the simulation
    now_ms: int
    count: int

    def start(self, received: float, same_host: bool) -> float:
        """Return the start of the simulation, s since 1970 on this computer's clock; `received` likewise."""
        if same_host:
            return self.start_ms / 1e3
        return received - (self.now_ms - self.start_ms) / 1e3 - DELAY_S


def encode_command(text: str) -> bytes:
    """Encode a console command of RflySim3D. Raises ValueError if it is too long."""
    data = text.encode()
    for layout in COMMANDS:
        if len(data) <= layout.size - 5:  # check_sum and a final zero
            return layout.pack(COMMAND_SUM, data)
    raise ValueError(f"a command of {len(data)} bytes, at most {COMMANDS[-1].size - 5} are possible")


def decode_command(datagram: bytes) -> str:
    layout = {layout.size: layout for layout in COMMANDS}.get(len(datagram), COMMANDS[0])
    text = unpacked(layout, (COMMAND_SUM,), datagram, "a command")[1]
    return text.split(b"\0")[0].decode(errors="replace")


M = TypeVar("M")
ASK_S = 1.0  # s between requests for what does not arrive
RENEW_S = 10.0  # s between requests for what arrives: a server need not send to another machine without end


class RequestSocket(UdpEndpoint):
    """A socket for requests to a server and its answers; datagrams of other hosts are counted."""

    def __init__(self, server: Address, port: int, buffer_bytes: int = 0, group: str = ""):
        """Bind the port, on loopback for a server there; join a multicast group. Raises LinkError."""
        self.server = reachable(server, ANYWHERE)
        super().__init__(listening_host(self.server), port, buffer_bytes)
        self.malformed = 0
        self.received = self._requested = -math.inf  # s, times of the last answer and of the last request
        if not ipaddress.ip_address(self.server[0]).is_multicast:  # else it answers from its own address
            self.only_host = self.server[0]
        if group:
            member = socket.inet_aton(group) + socket.inet_aton(ANYWHERE)
            with contextlib.suppress(OSError):  # unicast is delivered without, as on loopback
                self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)

    @property
    def port(self) -> int:
        return self.address[1]

    def send(self, datagram: bytes) -> None:
        self.transmit(datagram, self.server)

    def renew(self, datagram: bytes, now: float, patience_s: float) -> bool:
        """Send a request, often in a silence of patience_s. Return whether it was sent in silence."""
        silent = now - self.received > patience_s
        due = now - self._requested >= (ASK_S if silent else RENEW_S)
        if due:
            self._requested = now
            self.send(datagram)
        return silent and due

    def messages(self, decode: Callable[[bytes], M], timeout_s: float = 0.0) -> Iterator[tuple[M, Address, float]]:
        """Yield the messages received, with sender and time of reception; count the datagrams that are malformed."""
        for datagram, sender, received in self.drain(timeout_s):
            try:
                message = decode(datagram)
            except MalformedError:
                self.malformed += 1
                continue
            yield message, sender, received


STATE_PORT = 20006  # UDP port of the gimbals' states
ZOOM_MOST = 1000.0  # greatest zoom by doubling, as the document bounds its base
PIXEL_BOX = 2  # GimbalOrder.box: the object at `pixel`


@dataclass(frozen=True, slots=True)
class GimbalOrder:
    """Changes to a gimbal; None leaves a value."""

    focal: float | None = None
    centre: bool | None = None
    rates: tuple[float, float] | None = None  # pitch, yaw, rad/s
    zoom: float | None = None  # relative to the base
    zoom_by: float | None = None  # factor on the zoom of the last command, instead of `zoom`
    zoom_base: float | None = None  # 4 to 1000
    track: int | None = None  # copter to track
    ranging: bool | None = None
    light: int | None = None  # 0 RGB, 1 thermal, 2 grey infrared
    box: int | None = None  # 1: all copters; 2: the object at `pixel`
    pixel: tuple[float, float] | None = None  # for `box`
    fov_deg: float | None = None
    euler: Floats | None = None  # (3,)
    quat: Floats | None = None  # (4,)
    size_px: tuple[int, int] | None = None  # width, height


# Bits of the mask. None: transmitted without a bit; absent: not in this numbering.
GimbalMasks = Mapping[str, int | None]

DOCUMENT: GimbalMasks = {
    "focal": 4, "centre": 5, "rates": 6, "zoom": 7, "track": 8, "ranging": 9, "light": 10, "box": 11, "zoom_base": 13,
    "fov_deg": None, "euler": None, "quat": None, "size_px": None,
}  # fmt: skip
SDK306: GimbalMasks = {
    "fov_deg": 6, "euler": 7, "quat": 8, "focal": 9, "centre": 10, "rates": 11, "zoom": 12, "zoom_base": 13,
    "track": 14, "ranging": 15, "light": 16, "size_px": None,
}  # fmt: skip
DOCUMENTED = "document"
MASKS = {DOCUMENTED: DOCUMENT, "sdk306": SDK306}
PLACES = {  # indices of the values in otherParams
    "focal": (0,), "centre": (1,), "rates": (2, 3), "zoom": (4,), "zoom_base": (5,), "track": (5,), "ranging": (6,),
    "light": (7,), "box": (8,), "pixel": (9, 10),
}  # fmt: skip

KINDS: dict[str, type] = {"centre": bool, "track": int, "ranging": bool, "light": int, "box": int}  # else float


def gimbal_request(gimbal: SensorRequest, order: GimbalOrder, masks: GimbalMasks) -> SensorRequest:
    """Return the request that carries a command to a sensor's entry. Raises ValueError for one that the numbering lacks."""
    if order.zoom_base is not None and order.track is not None:
        raise ValueError("zoom_base and track share otherParams[5]: send them in two commands")
    if order.pixel is not None and order.box is None:
        raise ValueError("pixel needs box")
    width_px, height_px = order.size_px or (gimbal.width_px, gimbal.height_px)
    if not (0 < width_px <= LARGEST_WORD and 0 < height_px <= LARGEST_WORD):
        raise ValueError(f"an image of {width_px} x {height_px} px: expected 1 to {LARGEST_WORD} px a side")
    if order.size_px is not None and gimbal.mode == RAW:
        raise ValueError("raw images do not tell their size: request JPEG or PNG (SendProtocol[0] 1 or 3)")
    mask, other = 0, [0.0] * 16
    given = [(f.name, value) for f in fields(order) if (value := getattr(order, f.name)) is not None]
    for name, value in given:
        if name != "pixel":
            if name not in masks:
                raise ValueError(f"this numbering of the gimbal's mask has no bit for {name}")
            bit = masks[name]
            mask |= 0 if bit is None else 1 << bit
        for place, number in zip(PLACES.get(name, ()), value if isinstance(value, tuple) else (value,), strict=False):
            other[place] = float(number)
    turned = order.euler is not None or order.quat is not None
    by_quat = float(order.quat is not None) if turned else gimbal.by_quat or 0.0
    return replace(
        gimbal,
        mask=mask,
        other=tuple(other),
        by_quat=by_quat,
        euler=order.euler or gimbal.euler,
        quat=order.quat or gimbal.quat,
        fov_deg=gimbal.fov_deg if order.fov_deg is None else order.fov_deg,
        width_px=width_px,
        height_px=height_px,
    )


def read_order(request: SensorRequest, before: SensorRequest, masks: GimbalMasks) -> GimbalOrder:
    """Return the command in a request with a mask.

    Attitude, field of view and size are in every request; where they have no bit, only changes count: from `before`, the request
    that created the gimbal, or carried the last command.
    """
    decoded: dict[str, Any] = {}
    for name, bit in masks.items():
        if bit is not None and name in PLACES and (request.mask or 0) >> bit & 1:
            values = tuple(request.other[place] for place in PLACES[name])
            decoded[name] = KINDS.get(name, float)(values[0]) if len(values) == 1 else values
    if decoded.get("box") == PIXEL_BOX:
        decoded["pixel"] = tuple(request.other[place] for place in PLACES["pixel"])
    attitude, former = ("quat" if one.turned_by_quat else "euler" for one in (request, before))
    for name in ("fov_deg", attitude):
        bit, value = masks[name], getattr(request, name)
        changed = value != getattr(before, name) or name == attitude != former
        if changed if bit is None else (request.mask or 0) >> bit & 1:
            decoded[name] = value
    if (size_px := (request.width_px, request.height_px)) != (before.width_px, before.height_px):
        decoded["size_px"] = size_px
    return GimbalOrder(**decoded)


@dataclass(frozen=True, slots=True)
class GimbalState:
    seq_id: int
    copter: int
    euler: Floats  # (3,) roll, pitch, yaw
    quat: Floats  # (4,) w, x, y, z
    fov_deg: float
    focal: float
    rates: tuple[float, float]  # rad/s
    fx_px: float
    fy_px: float
    width_px: int
    height_px: int
    range_m: float

    def encode(self) -> bytes:
        reported = self.focal, *self.rates, self.fx_px, self.fy_px, self.width_px, self.height_px, self.range_m
        nowhere = (0.0, 0.0, 0.0)
        return SensorRequest(
            self.seq_id, GIMBAL, self.copter, 0, self.width_px, self.height_px, 0, (0,) * 8, self.fov_deg, nowhere,
            self.euler, (*map(float, reported), *[0.0] * 8), 0.0, self.quat, 0, STATE_SUM,
        ).encode()  # fmt: skip


def decode_state(datagram: bytes) -> GimbalState:
    """Decode the state in a datagram of 148 bytes, with either checksum. Raises MalformedError for any other datagram."""
    request = decode_request(datagram)
    if request.mask is None:
        raise MalformedError(f"a gimbal's state has 148 bytes, not {len(datagram)}")
    focal, pitch, yaw, fx, fy, width, height, range_m = request.other[:8]
    return GimbalState(
        request.seq_id, request.copter, request.euler, request.quat, request.fov_deg, focal, (pitch, yaw), fx, fy,
        round(width), round(height), range_m,
    )  # fmt: skip


GROUP = "224.0.0.10"  # RflySim3D and CopterSim multicast states and heartbeats
HEARTBEAT_PORT = 20005  # UDP port of CopterSim's heartbeats


class GimbalClient(RequestSocket):
    def __init__(
        self, sensors: Iterable[SensorRequest], server: Address, masks: GimbalMasks = DOCUMENT, port: int = STATE_PORT
    ):
        self.gimbals = {sensor.seq_id: sensor for sensor in sensors if sensor.type_id == GIMBAL}
        super().__init__(server, port, group=GROUP)
        self._masks, self._zoom = masks, {one.seq_id: max(one.other[4], 1.0) for one in self.gimbals.values()}

    def order(self, seq_id: int, order: GimbalOrder) -> None:
        """Send a command, with attitude, field of view and size of the last one. Raises ValueError for an impossible one."""
        before = self.gimbals[seq_id]
        if order.zoom_by is not None:
            zoom = min(max(self._zoom[seq_id] * order.zoom_by, 1.0), ZOOM_MOST)
            order = replace(order, zoom=zoom, zoom_by=None)
        request = gimbal_request(before, order, self._masks)
        self.send(request.encode())
        self.gimbals[seq_id] = replace(request, mask=before.mask, other=before.other)
        self._zoom[seq_id] = self._zoom[seq_id] if order.zoom is None else max(order.zoom, 1.0)

    def states(self) -> Iterator[GimbalState]:
        return (state for state, _, _ in self.messages(decode_state))


class HeartbeatReceiver(RequestSocket):
    """Start time of the simulation, s since 1970: from CopterSim's heartbeats, or estimated from the first frame."""

    def __init__(self, server: Address, copter: int = 1, port: int = HEARTBEAT_PORT):
        super().__init__(server, port, group=GROUP)
        self._copter = copter
        self._start: float | None = None
        self._t = -math.inf  # s, of the last sample
        self.from_heartbeat = False  # whether the start is from a heartbeat

    def listen(self, wall_minus_monotonic_s: float) -> None:
        for beat, sender, received in self.messages(CopterHeartbeat.decode):
            if beat.copter == self._copter:
                here = sender[0].startswith("127.") or sender[0] == ".".join(map(str, _own_address(sender)))
                self._start, self.from_heartbeat = beat.start(received + wall_minus_monotonic_s, here), True

    def start(self, t: float, arrival: float) -> float:
        """Return the start for a sample stamped t (s); without heartbeats a stamp that runs back is a restart."""
        restarted, self._t = t < self._t - RESTART_S, t
        if self._start is None or (restarted and not self.from_heartbeat):
            self._start = arrival - t - DELAY_S
        return self._start


class ImuReceiver(RequestSocket):
    """IMU samples of one copter, requested until they arrive, and again at intervals."""

    def __init__(self, host: str, rate_hz: int, copter: int = 1, ask_port: int | None = None, port: int | None = None):
        """Bind the port; by default ports follow the copter's number. Raises LinkError as `bind_udp` and `reachable`."""
        ask_port = imu_port(copter) if ask_port is None else ask_port
        super().__init__((host, ask_port), NUMBERED_IMU_PORT + copter - 1 if port is None else port)
        self._request = ImuRequest(0, rate_hz, self.port, _own_address(self.server)).encode()
        self.health = StreamHealth()

    def samples(self) -> Iterator[ImuSample]:
        for sample, _, received in self.messages(ImuSample.decode):
            self.received = received
            self.health.saw(received)
            yield sample
        self.renew(self._request, time.monotonic(), ASK_S)

    def report(self, now: float) -> str:
        trouble = f", {self.malformed} malformed" if self.malformed else ""
        return f"IMU on port {self.port}: {self.health.report(now, 'sample', self.server)}{trouble}"


def _own_address(server: Address) -> tuple[int, int, int, int]:
    """Return this machine's address on the route to the server; no datagram is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(server)
            a, b, c, d = socket.inet_aton(probe.getsockname()[0])
        except OSError:
            a, b, c, d = 127, 0, 0, 1
    return a, b, c, d


NUMBERS = range(10_000, 10_500)  # of our objects (chosen: no aircraft has them, and 16 bit hold them)
CUBE = 1000813  # model of a box with sides of 1 m, as courses of users have it; the SDK's pages list no models
QUERY, TELL, DELETE = "RflyReqObjData", 1, 11  # the command, and what it does with an object
FAR_M = 1e5  # m below the map, where a removed object is moved to, in case that deletion only ends its states
PAUSE_S = 0.001  # s between objects, whose datagrams would overflow a receiver's buffer (chosen)
NEAR_M, NEAR_RAD = 0.05, 0.02  # differences of a state from what was placed (chosen)


@dataclass(frozen=True, slots=True)
class SceneObject(Packed):
    LAYOUT, SUM, WHAT = struct.Struct("<3i10f"), (COMMAND_SUM,), "an object"
    number: int
    model: int
    rotor_rpm: float
    p_w: Vector
    rpy: Vector  # rad
    scale: Vector  # of the model; m for one of 1 m

    def state(self, t: float = 0.0) -> "ObjectState":
        (w, x, y, z), (length, width, height) = from_euler(*self.rpy).tolist(), self.scale
        half_m = length / 2, width / 2, height / 2
        return ObjectState(self.number, self.p_w, self.rpy, (w, x, y, z), self.p_w, half_m, t)


@dataclass(frozen=True, slots=True)
class ObjectState(Packed):
    LAYOUT, SUM, WHAT = struct.Struct("<2i16fd"), (1234567891,), "an object's state"
    number: int
    p_w: Vector
    rpy: Vector  # rad
    q: Quaternion  # zeros from older servers
    box_w: Vector  # centre of its box
    half_m: Vector  # half sides of its box
    t: float  # s

    def near(self, other: "ObjectState") -> bool:
        apart = max(math.dist(self.p_w, other.p_w), math.dist(self.half_m, other.half_m))
        turn = log(product(conjugate(from_euler(*other.rpy)), from_euler(*self.rpy)))
        return apart < NEAR_M and math.hypot(*turn) < NEAR_RAD


def object_state(datagram: bytes) -> ObjectState:
    """Decode a state of 80 bytes, or of 64 without the quaternion. Raises MalformedError."""
    return ObjectState.decode(datagram[:32] + bytes(16) + datagram[32:] if len(datagram) == 64 else datagram)


def query(what: int, number: int) -> bytes:
    return encode_command(f"{QUERY} {what} {number} 0")


def read_query(datagram: bytes) -> tuple[int, int] | None:
    """Return what is to be done with which object; None for another command. Raises MalformedError."""
    found = re.match(rf"{QUERY} (\d{{1,9}}) (\d{{1,9}})\b", decode_command(datagram), re.ASCII)
    return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True)
class SceneReport:
    placed: int  # confirmed
    missing: list[int]  # numbers without a state
    different: list[int]  # elsewhere or of another size
    removed: int
    left: list[int]  # still there


class SceneClient(RequestSocket):
    def __init__(self, server: Address, port: int = STATE_PORT):
        super().__init__(server, port, group=GROUP)

    def make(self, objects: Sequence[SceneObject], patience_s: float = 5.0) -> SceneReport:
        """Place objects, and remove all others with NUMBERS; states tell what came of it, waited for at most patience_s."""
        wanted = {one.number: one for one in objects}
        others = [number for number in self._present(NUMBERS) if number not in wanted]
        for number in others:
            hidden = SceneObject(number, CUBE, 0.0, (0.0, 0.0, FAR_M), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
            self._send_all((hidden.encode(), query(DELETE, number)))
        told = self._told(wanted, patience_s)
        different = [number for number, state in told.items() if not state.near(wanted[number].state())]
        left = self._present(others)
        missing = [number for number in wanted if number not in told]
        return SceneReport(len(told) - len(different), missing, different, len(others) - len(left), left)

    def _present(self, numbers: Iterable[int]) -> list[int]:
        told = self._told(dict.fromkeys(numbers), 2 * ASK_S)
        return sorted(number for number, state in told.items() if state.p_w[2] < FAR_M / 2)

    def _told(self, wanted: Mapping[int, SceneObject | None], patience_s: float) -> dict[int, ObjectState]:
        """Place objects, ask for their states until each is as wanted, or as it may be (None), and return the last ones."""
        told: dict[int, ObjectState] = {}
        pending, end = dict(wanted), time.monotonic() + patience_s
        while pending and (now := time.monotonic()) < end:
            for number, placed in pending.items():
                self._send_all((*((placed.encode(),) if placed else ()), query(TELL, number)))
            until = min(now + ASK_S, end)
            while pending and (left := until - time.monotonic()) > 0:
                for state, _, _ in self.messages(object_state, left):
                    if state.number in pending:
                        told[state.number], placed = state, pending[state.number]
                        if placed is None or state.near(placed.state()):
                            del pending[state.number]
        return told

    def _send_all(self, datagrams: Iterable[bytes]) -> None:
        for datagram in datagrams:
            self.send(datagram)
        time.sleep(PAUSE_S)
