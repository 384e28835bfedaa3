"""Sensors of the platform by `TypeID`, the VisionSensorReq that creates, moves or controls one, and Config.json, a list of them.

Topics are spelt correctly where the platform's are not. The length of a request follows from the content: 92 bytes
(`<16H15f`), 144 with the choice of Euler angles or quaternion (`<16H28f`), 148 with the bit mask of a gimbal (`<2HI14H28f`), in
which its state is reported as well.

Config.json is JSON with // and # comments; errors of an entry name file and path. What no server can serve is refused by both
ends before any wait. Files of the platform's users are read as its own clients read them: shared memory becomes UDP, 0 Hz
is 30 Hz, `otherParams` are filled up, unknown fields are ignored, and sensors that cannot be served are left out, with a remark.
"""

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import remark
from gate_racer.common.config import ConfigError, shown
from gate_racer.common.errors import nearest
from gate_racer.common.files import FileError, parse_json, read_text
from gate_racer.link.reassembly import MalformedError
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import normalised, to_euler


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
LAST_COPTER = 1000  # last copter whose ports are valid UDP ports
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


MODES = JPEG, RAW, PNG = 1, 2, 3  # SendProtocol[0] of images
SHARED_MEMORY = 0  # SendProtocol[0] of images in shared memory, on the machine of RflySim3D
RATE_HZ = 30  # Hz, for which DataCheckFreq 0 stands
ON_GROUND, EARTH_FIXED, ON_SENSOR = 2, 3, 4  # TargetMountType; the first and the last are not carried by a copter
WHOLE_TURN_DEG = 360.0
# Indices in otherParams of lengths or steps; for all other rays the first, their range.
MEASURES = {DEPTH: (0, 1, 2), DEPTH_CLOUD: (0, 1)}
SINGLE = RANGE, DEPTH_CLOUD  # sensors whose size in pixels does not matter


def fault(sensor: SensorRequest) -> str:
    """Return the first invalid field of a Config.json entry, with what would be right; empty if all are valid."""
    kind = SENSORS.get(sensor.type_id)
    if kind is None:
        return f"TypeID: unknown sensor type {sensor.type_id}; known: {', '.join(map(str, SENSORS))}"
    addressed = max(sensor.send[1:5]) <= 255 and sensor.port <= LARGEST_WORD
    of_unit_length = not sensor.turned_by_quat or abs(math.hypot(*sensor.quat) - 1) <= UNIT_TOLERANCE
    carried = sensor.copter >= 1 or sensor.mount_type in (ON_GROUND, ON_SENSOR)
    sized = sensor.width_px * sensor.height_px > 0 or sensor.type_id in SINGLE
    lengths = [sensor.other[k] for k in MEASURES.get(sensor.type_id, () if kind.encoding else (0,))]
    widest_deg = WHOLE_TURN_DEG if sensor.type_id == FISHEYE else WHOLE_TURN_DEG / 2
    seen = not kind.encoding or 0 < sensor.fov_deg < widest_deg
    left, right, low, high = angles = sensor.other[2:6]
    across = left < right <= left + WHOLE_TURN_DEG or sensor.width_px == 1
    up = -90.0 <= low < high <= 90.0 or (low == high and sensor.height_px == 1)
    spread = sensor.type_id not in (LIDAR, LIDAR_WORLD) or (across and up)  # not all rays in one direction
    checks = (
        (sensor.mode in MODES, "SendProtocol[0]", f"set {JPEG} for JPEG by UDP, {RAW} for raw or {PNG} for PNG"),
        (addressed, "SendProtocol", "must be an address and a port"),
        (of_unit_length, "SensorAngQuat", "must have length 1"),
        (carried, "TargetCopter", "must be at least 1"),
        (min(lengths, default=0.0) >= 0, "otherParams", f"lengths must not be negative, found {lengths}"),
        (sized, "DataWidth", "DataWidth and DataHeight must be positive"),
        (seen, "CameraFOV", f"must lie between 0 and {widest_deg:g} degrees, found {sensor.fov_deg:g}"),
        (spread, "otherParams[2..5]", f"LiDAR angles must satisfy left < right and low < high, found {angles}"),
    )
    return next((f"{field}: {words}" for good, field, words in checks if not good), "")


CONFIG_BYTES = 1 << 20  # largest Config.json; a sensor takes 1 kB
STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|(?://|#).*')
WORD, LARGEST_WORD = "a whole number from 0 to 65535", 0xFFFF
SPELLINGS = {"EulerOrQuat": "EularOrQuat", "SensorAngEuler": "SensorAngEular"}
WHOLE = {
    "SeqID": "seq_id",
    "TypeID": "type_id",
    "TargetCopter": "copter",
    "TargetMountType": "mount_type",
    "DataWidth": "width_px",
    "DataHeight": "height_px",
    "DataCheckFreq": "rate_hz",
}
REQUIRED = (*WHOLE, "SendProtocol", "CameraFOV", "SensorPosXYZ", "SensorAngEular", "otherParams")
OPTIONAL = ("EularOrQuat", "SensorAngQuat")
ON_VEHICLE = (0, 1)  # TargetMountType
FLOAT32_MAX = float(np.finfo(np.float32).max)
UNIT_TOLERANCE, LEVEL_DEG = 1e-3, 1e-3
FINENESS_PX = 6  # digits: FOV 90 must give the same focal length on every machine


def load_sensors(path: str | Path, tell: Callable[[str], None] = remark) -> tuple[SensorRequest, ...]:
    """Load the sensors of a Config.json, all in the current form if one of them is. Raises ConfigError if none is valid.

    Calls `tell` with a line per field that is read in another sense, and per sensor that is left out.
    """
    try:
        data = parse_json(without_comments(read_text(Path(path), CONFIG_BYTES)), str(path))
    except FileError as error:
        raise ConfigError(str(error)) from None
    entries = data.get("VisionSensors") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{path}: VisionSensors: expected a list of sensors")
    sensors, faults = list[SensorRequest](), list[ConfigError]()
    for number, entry in enumerate(entries):
        try:
            sensors.append(_sensor(entry, sensors, f"{path}: VisionSensors[{number}]", tell))
        except ConfigError as error:
            faults.append(error)
    if not sensors:
        raise faults[0]
    for left_out in faults:
        tell(f"{left_out}; this sensor is left out")
    current = any(sensor.by_quat is not None for sensor in sensors)
    return tuple(sensor.current() if current else sensor for sensor in sensors)


def without_comments(text: str) -> str:
    """Return JSON text without // and # comments outside of strings; line numbers are kept."""
    return STRING_OR_COMMENT.sub(lambda found: found[1] or "", text)


def _sensor(entry: Any, before: list[SensorRequest], where: str, tell: Callable[[str], None]) -> SensorRequest:
    sensor = _parsed(entry, where, tell)
    if before and sensor.seq_id == 0:  # as assigned by the platform
        sensor = replace(sensor, seq_id=(before[-1].seq_id + 1) & LARGEST_WORD)
    if sensor.mode == SHARED_MEMORY:
        mode, name = (PNG, "PNG") if sensor.type_id == DEPTH else (JPEG, "JPEG")
        tell(f"{where}.SendProtocol[0]: shared memory is requested as {name} by UDP ({mode})")
        sensor = replace(sensor, send=(mode, *sensor.send[1:]))
    if wrong := fault(sensor):
        raise ConfigError(f"{where}.{wrong}")
    if SENSORS[sensor.type_id].encoding and not sensor.rate_hz:
        tell(f"{where}.DataCheckFreq: 0 stands for {RATE_HZ} Hz")
        sensor = replace(sensor, rate_hz=RATE_HZ)
    if any(sensor.seq_id == other.seq_id or sensor.port == other.port for other in before):
        raise ConfigError(f"{where}: SeqID {sensor.seq_id} or port {sensor.port} is used by an earlier sensor")
    return sensor


def _parsed(entry: Any, where: str, tell: Callable[[str], None]) -> SensorRequest:
    """Return the request that an entry spells. Raises ConfigError for a field that is missing or holds anything else."""
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: expected named fields, found {shown(entry)}")
    entry = {SPELLINGS.get(key, key): value for key, value in entry.items()}
    if unknown := [key for key in entry if key not in REQUIRED and key not in OPTIONAL]:
        tell(f"{where}: unknown fields are ignored: {', '.join(map(shown, unknown))}")
    chosen = entry.get("EularOrQuat")
    by_quat = None if chosen is None else _number(chosen, f"{where}.EularOrQuat")
    for key in (*REQUIRED, *(("SensorAngQuat",) if (by_quat or 0.0) > 0.5 else ())):
        if key not in entry:
            raise ConfigError(f"{where}.{key}: missing;{nearest(key, unknown)}".removesuffix(";"))

    def numbers(key: str, *lengths: int, whole: bool = False) -> tuple[Any, ...]:
        value = entry[key]
        if not isinstance(value, list) or len(value) not in lengths:
            raise ConfigError(f"{where}.{key}: expected {' or '.join(map(str, lengths))} numbers, found {shown(value)}")
        return tuple(_number(item, f"{where}.{key}[{k}]", whole) for k, item in enumerate(value))

    whole: dict[str, Any] = {field: _number(entry[key], f"{where}.{key}", True) for key, field in WHOLE.items()}
    sensor = SensorRequest(
        **whole,
        send=numbers("SendProtocol", 8, whole=True),
        fov_deg=_number(entry["CameraFOV"], f"{where}.CameraFOV"),
        position_m=numbers("SensorPosXYZ", 3),
        euler=numbers("SensorAngEular", 3),
        other=numbers("otherParams", OLD_PARAMETERS, PARAMETERS),
    )
    if by_quat is None and len(sensor.other) == OLD_PARAMETERS:
        return sensor
    quat = numbers("SensorAngQuat", 4) if "SensorAngQuat" in entry else IDENTITY
    return replace(sensor.current(), by_quat=by_quat or 0.0, quat=quat)


def _number(value: Any, where: str, whole: bool = False) -> Any:
    real, most = isinstance(value, int | float) and not isinstance(value, bool), LARGEST_WORD if whole else FLOAT32_MAX
    if not real or not abs(value) <= most or (whole and not value == int(value) >= 0):
        raise ConfigError(f"{where}: expected {WORD if whole else 'a finite number of 32 bit'}, found {shown(value)}")
    return int(value) if whole else float(value)


def pinhole(sensor: SensorRequest) -> Camera:
    """Return the intrinsics of a valid entry on a level mount: square pixels, fx = W / (2 tan(CameraFOV/2)), centre W/2, H/2."""
    focal = round(sensor.width_px / (2 * math.tan(math.radians(sensor.fov_deg) / 2)), FINENESS_PX)
    width, height = sensor.width_px, sensor.height_px
    return Camera(width, height, focal, focal, width / 2, height / 2, tilt_deg=0.0)


def camera_of(sensor: SensorRequest, radians: bool = False) -> Camera:
    """Return the camera model of an entry. Raises ConfigError for one that is not fixed to the vehicle, rolled or yawed.

    `radians`: unit of SensorAngEular: degrees in 4.12 and in real files, radians in documents of 3.06.
    """
    where = f"sensor {sensor.seq_id}"
    if sensor.mount_type not in ON_VEHICLE:
        raise ConfigError(f"{where}: TargetMountType: must be 0 or 1, on the vehicle, found {sensor.mount_type}")
    (x, y, z), (roll, pitch, yaw) = sensor.position_m, mount_deg(sensor, radians)
    if max(abs(roll), abs(yaw)) > LEVEL_DEG:
        turned = f"the pilot's camera may be rotated in pitch only, found {sensor.euler}"
        raise ConfigError(f"{where}: SensorAngEular: {turned}")
    return replace(pinhole(sensor), tilt_deg=round(pitch, FINENESS_PX), p_bc_m=(x, y, z))


def mount_deg(sensor: SensorRequest, radians: bool = False) -> tuple[float, float, float]:
    """Return roll, pitch and yaw of the mount in degrees, from the Euler angles or the quaternion, whichever applies."""
    angles = to_euler(normalised(sensor.quat)) if sensor.turned_by_quat else sensor.euler
    roll, pitch, yaw = map(math.degrees, angles) if radians or sensor.turned_by_quat else angles
    return roll, pitch, yaw
