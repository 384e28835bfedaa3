"""Config.json: the sensors of a vehicle, and the checks of what no server can serve, made by both ends before any wait.

It is JSON with // and # comments; errors of an entry name file and path. Files of the platform's users are read as its own
clients read them: shared memory becomes UDP, 0 Hz is 30 Hz, `otherParams` are filled up, unknown fields are ignored, and sensors
that cannot be served are left out, each with a remark.
"""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import remark
from gate_racer.common.config import ConfigError, shown
from gate_racer.common.errors import nearest
from gate_racer.common.files import FileError, parse_json, read_text
from gate_racer.link.rflysim.request import (
    DEPTH,
    DEPTH_CLOUD,
    FISHEYE,
    IDENTITY,
    LIDAR,
    LIDAR_WORLD,
    OLD_PARAMETERS,
    PARAMETERS,
    RANGE,
    SENSORS,
    SensorRequest,
)
from gate_racer.link.rflysim.stream import JPEG, PNG, RAW
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import normalised, to_euler

MODES = JPEG, RAW, PNG
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
