"""Messages of CopterSim and RflySim3D besides frames: IMU, heartbeat, console commands, camera poses, and absolute time."""

import math
import struct
from dataclasses import dataclass
from typing import Any

from gate_racer.link.messages import Imu
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim.request import IDENTITY, REQUEST_SUM
from gate_racer.vehicle.rotation import Vector

IMU_SUM, HEARTBEAT_SUM, COMMAND_SUM, CAMERA_SUM = 1234567898, 123456789, 1234567890, 1234567891
IMU, IMU_REQUEST, HEARTBEAT = struct.Struct("<2id6f"), struct.Struct("<4H4B6f"), struct.Struct("<2i3q")
CAMERA = struct.Struct("<5i11fd")
COMMANDS = (struct.Struct("<i52s"), struct.Struct("<i252s"))
COMMAND_BYTES = tuple(layout.size for layout in COMMANDS)
CLEAR_COMMAND = "RflyClearCapture"  # releases all sensors
NUMBERED_IMU_PORT, IMU_REQUEST_PORT = 31000, 30100  # ports of copter 1: those of the next are higher by 1 and by 2
LAST_COPTER = 1000  # last copter whose ports are valid UDP ports
IMAGE_DELAY_S, IMU_DELAY_S = 0.010, 0.005  # assumed latencies where no heartbeat gives the start of the simulation
HERE_DELAY_S = 0.010  # assumed latency of the heartbeat between two computers


@dataclass(frozen=True, slots=True)
class ImuSample:
    """One sample, body FRD; t in s since CopterSim started."""

    number: int
    t: float
    accel: Vector
    gyro: Vector

    def encode(self) -> bytes:
        """Return the datagram."""
        return IMU.pack(IMU_SUM, self.number, self.t, *self.accel, *self.gyro)

    @property
    def imu(self) -> Imu:
        """The sample as from HIGHRES_IMU."""
        return Imu(self.t, self.accel, self.gyro)


def imu_port(copter: int) -> int:
    """Return the port on which a copter's CopterSim receives requests for its IMU."""
    return IMU_REQUEST_PORT + 2 * (copter - 1)


def decode_imu(datagram: bytes) -> ImuSample:
    """Decode an IMU sample. Raises MalformedError."""
    _, number, t, *numbers = _unpacked(IMU, IMU_SUM, datagram, "an IMU sample")
    return ImuSample(number, t, (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5]))


def flu(frd: Vector) -> Vector:
    """Return a vector converted from front-right-down to front-left-up axes, or back."""
    return frd[0], -frd[1], -frd[2]


@dataclass(frozen=True, slots=True)
class ImuRequest:
    """Request to CopterSim for IMU samples at rate_hz to address:port."""

    rate_hz: int
    port: int
    address: tuple[int, int, int, int]
    sensor_type: int = 0
    parameters: tuple[float, ...] = (0.0,) * 6

    def encode(self) -> bytes:
        """Return the datagram."""
        return IMU_REQUEST.pack(REQUEST_SUM, self.sensor_type, self.rate_hz, self.port, *self.address, *self.parameters)


def decode_imu_request(datagram: bytes) -> ImuRequest:
    """Decode an IMU request. Raises MalformedError."""
    _, kind, rate, port, a, b, c, d, *numbers = _unpacked(IMU_REQUEST, REQUEST_SUM, datagram, "an IMU request")
    return ImuRequest(rate, port, (a, b, c, d), kind, tuple(numbers))


@dataclass(frozen=True, slots=True)
class CopterHeartbeat:
    """Heartbeat of CopterSim. Times in ms since 1970 on its own clock."""

    copter: int
    start_ms: int  # start of the simulation
    now_ms: int
    count: int

    def encode(self) -> bytes:
        """Return the datagram."""
        return HEARTBEAT.pack(HEARTBEAT_SUM, self.copter, self.start_ms, self.now_ms, self.count)

    def start(self, received: float, same_host: bool) -> float:
        """Return the start of the simulation, s since 1970 on this computer's clock; `received` likewise."""
        if same_host:
            return self.start_ms / 1e3
        return received - (self.now_ms - self.start_ms) / 1e3 - HERE_DELAY_S


def decode_heartbeat(datagram: bytes) -> CopterHeartbeat:
    """Decode a heartbeat. Raises MalformedError."""
    return CopterHeartbeat(*_unpacked(HEARTBEAT, HEARTBEAT_SUM, datagram, "a heartbeat")[1:])


def start_without_heartbeat(received: float, t: float, delay_s: float) -> float:
    """Return the start as estimated from the first datagram of a stream, stamped t (s), with a latency delay_s."""
    return received - t - delay_s


def encode_command(text: str) -> bytes:
    """Encode a console command of RflySim3D. Raises ValueError if it is too long."""
    data = text.encode()
    for layout in COMMANDS:
        if len(data) <= layout.size - 5:  # check_sum and a final zero
            return layout.pack(COMMAND_SUM, data)
    raise ValueError(f"a command of {len(data)} bytes, at most {COMMANDS[-1].size - 5} are possible")


def decode_command(datagram: bytes) -> str:
    """Decode a console command. Raises MalformedError."""
    layout = {layout.size: layout for layout in COMMANDS}.get(len(datagram), COMMANDS[0])
    text = _unpacked(layout, COMMAND_SUM, datagram, "a command")[1]
    return text.split(b"\0")[0].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class CameraPose:
    """Pose of a camera of RflySim3D, sent on request ("CameraData")."""

    seq_id: int
    type_id: int
    height_px: int
    width_px: int
    fov_deg: float
    p_w: Vector
    euler: Vector
    quat: tuple[float, float, float, float] = IDENTITY
    t: float = 0.0

    def encode(self) -> bytes:
        """Return the datagram."""
        about = self.seq_id, self.type_id, self.height_px, self.width_px, self.fov_deg
        return CAMERA.pack(CAMERA_SUM, *about, *self.p_w, *self.euler, *self.quat, self.t)


def decode_camera(datagram: bytes) -> CameraPose:
    """Decode a camera's pose. Raises MalformedError."""
    _, seq, kind, height, width, fov, *numbers, t = _unpacked(CAMERA, CAMERA_SUM, datagram, "a camera's pose")
    p, euler = (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5])
    quat = numbers[6], numbers[7], numbers[8], numbers[9]
    return CameraPose(seq, kind, height, width, fov, p, euler, quat, t)


def _unpacked(layout: struct.Struct, check_sum: int, datagram: bytes, what: str) -> tuple[Any, ...]:
    if len(datagram) != layout.size:
        raise MalformedError(f"{what} has {layout.size} bytes, not {len(datagram)}")
    fields = layout.unpack(datagram)
    if fields[0] != check_sum:
        raise MalformedError(f"{what} begins with {check_sum}, not {fields[0]}")
    if not all(math.isfinite(field) for field in fields if isinstance(field, float)):
        raise MalformedError(f"{what} holds numbers that are not finite")
    return fields
