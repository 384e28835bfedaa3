"""Messages of CopterSim and RflySim3D besides frames: IMU, heartbeat, console commands, camera poses, and absolute time."""

import struct
from dataclasses import dataclass

from gate_racer.link.messages import Imu
from gate_racer.link.packed import Packed, unpacked
from gate_racer.link.rflysim.request import IDENTITY, REQUEST_SUM
from gate_racer.vehicle.rotation import Vector

COMMAND_SUM = 1234567890
COMMANDS = (struct.Struct("<i52s"), struct.Struct("<i252s"))
COMMAND_BYTES = tuple(layout.size for layout in COMMANDS)
CLEAR_COMMAND = "RflyClearCapture"  # releases all sensors
NUMBERED_IMU_PORT, IMU_REQUEST_PORT = 31000, 30100  # ports of copter 1: those of the next are higher by 1 and by 2
LAST_COPTER = 1000  # last copter whose ports are valid UDP ports
IMAGE_DELAY_S = 0.010  # assumed latency where no heartbeat gives the start of the simulation
HERE_DELAY_S = 0.010  # assumed latency of the heartbeat between two computers


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
        """The sample as from HIGHRES_IMU."""
        return Imu(self.t, self.accel, self.gyro)


def imu_port(copter: int) -> int:
    """Return the port on which a copter's CopterSim receives requests for its IMU."""
    return IMU_REQUEST_PORT + 2 * (copter - 1)


def flu(frd: Vector) -> Vector:
    """Return a vector converted from front-right-down to front-left-up axes, or back."""
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
        return received - (self.now_ms - self.start_ms) / 1e3 - HERE_DELAY_S


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
    text = unpacked(layout, (COMMAND_SUM,), datagram, "a command")[1]
    return text.split(b"\0")[0].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class CameraPose(Packed):
    """Pose of a camera of RflySim3D, sent on request ("CameraData")."""

    LAYOUT, SUM, WHAT = struct.Struct("<5i11fd"), (1234567891,), "a camera's pose"
    seq_id: int
    type_id: int
    height_px: int
    width_px: int
    fov_deg: float
    p_w: Vector
    euler: Vector
    quat: tuple[float, float, float, float] = IDENTITY
    t: float = 0.0
