"""Sensors of the platform by `TypeID`, and the VisionSensorReq that creates, moves or controls one.

Topics are spelt correctly where the platform's are not. The request has three lengths, and is also an entry of Config.json.
The length follows from the content: 92 bytes (`<16H15f`), 144 with the choice of Euler angles or quaternion (`<16H28f`), 148
with the bit mask of a gimbal (`<2HI14H28f`), in which its state is reported as well.

Messages of CopterSim and RflySim3D besides frames: IMU, heartbeat, console commands, camera poses, and absolute time.
"""

import math
import struct
from dataclasses import dataclass, replace

from gate_racer.link.messages import Imu
from gate_racer.link.packed import Packed, unpacked
from gate_racer.link.reassembly import MalformedError
from gate_racer.vehicle.rotation import Vector


@dataclass(frozen=True)
class SensorType:
    name: str
    topic: str  # below /rflysim/sensorN/
    encoding: str = ""  # of an image, as in sensor_msgs/Image
    axes: str = ""  # axes of a cloud's points: "flu" of the sensor, or "ned" of the world

    @property
    def channels(self) -> int:
        return 3 if self.encoding == "bgr8" else 1

    @property
    def bytes_per_pixel(self) -> int:
        """Bytes of a pixel in raw mode; 0 for a sensor without images."""
        return {"bgr8": 3, "mono16": 2, "mono8": 1}[self.encoding]


RGB, DEPTH, GREY, SEGMENTATION, RANGE, DEPTH_CLOUD, FISHEYE, GIMBAL = 1, 2, 3, 4, 5, 7, 8, 9
LIDAR, LIDAR_WORLD, MID40, MID360, INFRARED_GREY, INFRARED = 20, 21, 22, 23, 40, 41

SENSORS: dict[int, SensorType] = {
    RGB: SensorType("RGB camera", "img_rgb", "bgr8"),
    DEPTH: SensorType("depth camera", "img_depth", "mono16"),
    GREY: SensorType("grey camera", "img_gray", "mono8"),
    SEGMENTATION: SensorType("segmentation camera", "img_Segmentation", "bgr8"),
    RANGE: SensorType("rangefinder", "distance"),
    DEPTH_CLOUD: SensorType("depth cloud", "Depth_Cloud", axes="flu"),
    FISHEYE: SensorType("fisheye camera", "fisheye", "bgr8"),
    GIMBAL: SensorType("gimballed camera", "img_cine", "bgr8"),
    LIDAR: SensorType("LiDAR in vehicle axes", "vehicle_lidar", axes="flu"),
    LIDAR_WORLD: SensorType("LiDAR in world axes", "global_lidar", axes="ned"),
    MID40: SensorType("Livox Mid-40", "livox_lidar", axes="flu"),
    MID360: SensorType("Livox Mid-360", "mid360_lidar", axes="flu"),
    INFRARED_GREY: SensorType("grey infrared camera", "img_Infrared_Gray", "mono8"),
    INFRARED: SensorType("infrared camera", "img_Infrared", "bgr8"),
}

OLD, CURRENT, MASKED = struct.Struct("<16H15f"), struct.Struct("<16H28f"), struct.Struct("<2HI14H28f")
REQUEST_SUM, STATE_SUM = 12345, 12346
OLD_PARAMETERS, PARAMETERS = 8, 16
FIRST_PORT = 9999  # port of the sensor with SeqID 0 whose SendProtocol has none
REQUEST_PORT = 20010  # port of RflySim3D's window 0
HERE = ((0, 0, 0, 0), (127, 0, 0, 1))  # addresses in a request that stand for its sender's

Floats = tuple[float, ...]
IDENTITY = (1.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class SensorRequest:
    """Fields as on the wire, in the platform's units. `by_quat` None: the old form; `mask`: for a gimbal."""

    seq_id: int
    type_id: int
    copter: int
    mount_type: int  # 0, 1 on the vehicle, 2 on the ground, 3 earth-fixed attitude, 4 on another sensor
    width_px: int
    height_px: int
    rate_hz: int  # DataCheckFreq
    send: tuple[int, ...]  # (8,) mode, four of the address, port, chunk bytes, segmentation
    fov_deg: float  # horizontal
    position_m: Floats  # (3,) in the carrier's axes, FRD
    euler: Floats  # (3,) roll, pitch, yaw
    other: Floats  # (8,) or (16,), by the sensor's type
    by_quat: float | None = None  # above 0.5 the quaternion is used
    quat: Floats = IDENTITY  # (4,) w, x, y, z
    mask: int | None = None
    check_sum: int = REQUEST_SUM

    @property
    def port(self) -> int:
        return self.send[5] or FIRST_PORT + self.seq_id

    @property
    def mode(self) -> int:
        """Image mode: 1 JPEG, 2 raw, 3 PNG; 0 would be shared memory."""
        return self.send[0]

    @property
    def turned_by_quat(self) -> bool:
        return (self.by_quat or 0.0) > 0.5

    def current(self) -> "SensorRequest":
        filled = (*self.other, *[0.0] * (PARAMETERS - len(self.other)))
        return self if self.by_quat is not None else replace(self, by_quat=0.0, other=filled)

    def encode(self) -> bytes:
        about = (self.type_id, self.copter, self.mount_type, self.width_px, self.height_px, self.rate_hz, *self.send)
        if self.by_quat is None:
            numbers = (self.fov_deg, *self.position_m, *self.euler, *self.other)
            return OLD.pack(self.check_sum, self.seq_id, *about, *numbers)
        numbers = (self.fov_deg, *self.position_m, self.by_quat, *self.euler, *self.quat, *self.other)
        if self.mask is None:
            return CURRENT.pack(self.check_sum, self.seq_id, *about, *numbers)
        return MASKED.pack(self.check_sum, self.seq_id, self.mask, *about, *numbers)


def reply_host(address: tuple[int, ...], sender: str) -> str:
    return sender if address in HERE else ".".join(map(str, address))


def decode_request(datagram: bytes) -> SensorRequest:
    """Decode a request or gimbal state. Raises MalformedError for another length or check_sum, or values not finite."""
    layout = {s.size: s for s in (OLD, CURRENT, MASKED)}.get(len(datagram))
    if layout is None:
        raise MalformedError(f"a VisionSensorReq has 92, 144 or 148 bytes, not {len(datagram)}")
    fields = list(layout.unpack(datagram))
    check_sum, seq_id = fields[:2]
    if check_sum not in (REQUEST_SUM, STATE_SUM):
        raise MalformedError(f"the checksum of a VisionSensorReq is {REQUEST_SUM} or {STATE_SUM}, not {check_sum}")
    if not all(map(math.isfinite, fields)):
        raise MalformedError("a VisionSensorReq holds numbers that are not finite")
    mask = fields.pop(2) if layout is MASKED else None
    type_id, copter, mount_type, width, height, rate, *send = fields[2:16]
    fov, x, y, z, *rest = fields[16:]
    by_quat = None if layout is OLD else rest.pop(0)
    roll, pitch, yaw, *rest = rest
    quat = IDENTITY if layout is OLD else (rest.pop(0), rest.pop(0), rest.pop(0), rest.pop(0))
    return SensorRequest(
        seq_id, type_id, copter, mount_type, width, height, rate, tuple(send), fov,
        (x, y, z), (roll, pitch, yaw), tuple(rest), by_quat, quat, mask, check_sum,
    )  # fmt: skip


COMMAND_SUM = 1234567890
COMMANDS = (struct.Struct("<i52s"), struct.Struct("<i252s"))
COMMAND_BYTES = tuple(layout.size for layout in COMMANDS)
CLEAR_COMMAND = "RflyClearCapture"  # releases all sensors
NUMBERED_IMU_PORT, IMU_REQUEST_PORT = 31000, 30100  # ports of copter 1: those of the next are higher by 1 and by 2
LAST_COPTER = 1000  # last copter whose ports are valid UDP ports
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
