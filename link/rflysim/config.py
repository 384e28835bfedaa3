"""Config.json: the sensors of a vehicle, and the checks of what no server can serve, made by both ends before any wait.

It is JSON with // and # comments; errors of an entry name file and path. Files of the platform's users are read as its own
clients read them: shared memory becomes UDP, 0 Hz is 30 Hz, `otherParams` are filled up, unknown fields are ignored, and sensors
that cannot be served are left out, each with a remark.
"""

import difflib
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import remark
from gate_racer.common.config import ConfigError, shown
from gate_racer.common.files import FileError, parse_json, read_text
from gate_racer.link.rflysim.request import (
    DEPTH,
    DEPTH_CLOUD,
    FISHEYE,
    IDENTITY,
    LIDAR,
    LIDAR_WORLD,
    MID40,
    MID360,
    OLD_PARAMETERS,
    PARAMETERS,
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


def fault(sensor: SensorRequest) -> tuple[str, str] | None:
    """Return the invalid field of a Config.json entry and what would be right; None if all are valid."""
    kind = SENSORS.get(sensor.type_id)
    if kind is None:
        return "TypeID", f"unknown sensor type {sensor.type_id}; known: {', '.join(map(str, SENSORS))}"
    if sensor.mode not in MODES:
        known = f"set {JPEG} for JPEG by UDP, {RAW} for raw or {PNG} for PNG"
        return "SendProtocol[0]", f"unknown mode {sensor.mode}: {known}"
    if sensor.turned_by_quat and abs(math.hypot(*sensor.quat) - 1) > UNIT_TOLERANCE:
        return "SensorAngQuat", f"must have length 1, found {sensor.quat}"
    if sensor.copter < 1 and sensor.mount_type not in (ON_GROUND, ON_SENSOR):
        return "TargetCopter", "must be at least 1"
    for place in MEASURES.get(sensor.type_id, () if kind.encoding else (0,)):
        if sensor.other[place] < 0:
            return f"otherParams[{place}]", f"must not be negative, found {sensor.other[place]:g}"
    if kind.encoding:
        return _camera_fault(sensor)
    if sensor.type_id in (LIDAR, LIDAR_WORLD, MID40, MID360) and not sensor.width_px * sensor.height_px:
        found = f"{sensor.width_px} x {sensor.height_px}"
        return "DataWidth", f"DataWidth x DataHeight, the LiDAR points, must be positive, found {found}"
    return _angles_fault(sensor) if sensor.type_id in (LIDAR, LIDAR_WORLD) else None


def _camera_fault(sensor: SensorRequest) -> tuple[str, str] | None:
    for field, value in (("DataWidth", sensor.width_px), ("DataHeight", sensor.height_px)):
        if not value:
            return field, "must be positive for a camera"
    most = WHOLE_TURN_DEG if sensor.type_id == FISHEYE else WHOLE_TURN_DEG / 2
    if not 0 < sensor.fov_deg < most:
        return "CameraFOV", f"must lie between 0 and {most:g} degrees, found {sensor.fov_deg:g}"
    return None


def _angles_fault(sensor: SensorRequest) -> tuple[str, str] | None:
    """Check the angles of a scanning LiDAR, which must not send all rays in one direction."""
    left, right, low, high = sensor.other[2:6]
    across = left < right <= left + WHOLE_TURN_DEG or sensor.width_px == 1
    up = -90.0 <= low < high <= 90.0 or (low == high and sensor.height_px == 1)
    if across and up:
        return None
    found = f"{left:g}, {right:g}, {low:g}, {high:g}"
    return "otherParams[2..5]", f"LiDAR angles must satisfy left < right and low < high, in degrees, found {found}"


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
    """Load the sensors of a Config.json, all in the current form if one of them is.

    Calls `tell` with a line per field that is read in another sense, and per sensor that is left out. Raises ConfigError if the
    file is missing or is not such JSON, or none of its sensors is valid.
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
        where, told = f"{path}: VisionSensors[{number}]", list[str]()
        try:
            sensors.append(_beside(sensors, _sensor(entry, where, told.append), where))
        except ConfigError as error:
            faults.append(error)
            continue
        for line in told:
            tell(line)
    if not sensors:
        raise faults[0]
    for left_out in faults:
        tell(f"{left_out}; this sensor is left out")
    if any(sensor.by_quat is not None for sensor in sensors):
        sensors = [sensor.current() for sensor in sensors]
    return tuple(sensors)


def _beside(sensors: list[SensorRequest], sensor: SensorRequest, where: str) -> SensorRequest:
    """Return a sensor with the number that follows the last one's if it has none, as assigned by the platform.

    Raises ConfigError if its number or port is used by one of the others, or its address is none.
    """
    if sensors and sensor.seq_id == 0:
        sensor = replace(sensor, seq_id=_word(sensors[-1].seq_id + 1, f"{where}.SeqID"))
    if any(sensor.seq_id == other.seq_id for other in sensors):
        raise ConfigError(f"{where}.SeqID: {sensor.seq_id} is used by an earlier sensor")
    if sensor.port > LARGEST_WORD or max(sensor.send[1:5]) > 255:
        raise ConfigError(f"{where}.SendProtocol: {sensor.send[1:5]} and port {sensor.port} are not an address")
    if any(sensor.port == other.port for other in sensors):
        raise ConfigError(f"{where}.SendProtocol[5]: port {sensor.port} is used by an earlier sensor")
    return sensor


def without_comments(text: str) -> str:
    """Return JSON text without // and # comments outside of strings; line numbers are kept."""
    return STRING_OR_COMMENT.sub(lambda found: found[1] or "", text)


def _sensor(entry: Any, where: str, tell: Callable[[str], None]) -> SensorRequest:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: expected named fields, found {shown(entry)}")
    entry = {SPELLINGS.get(key, key): value for key, value in entry.items()}
    if unknown := [key for key in entry if key not in REQUIRED and key not in OPTIONAL]:
        tell(f"{where}: unknown fields are ignored: {', '.join(map(shown, unknown))}")
    for key in REQUIRED:
        if key not in entry:
            near = difflib.get_close_matches(key, unknown, 1)
            raise ConfigError(f"{where}.{key}: missing" + (f"; is {shown(near[0])} meant?" if near else ""))
    fields: dict[str, Any] = {field: _word(entry[key], f"{where}.{key}") for key, field in WHOLE.items()}
    send, other = _list(entry["SendProtocol"], 8, f"{where}.SendProtocol"), entry["otherParams"]
    if "EularOrQuat" in entry:
        fields["by_quat"] = _number(entry["EularOrQuat"], f"{where}.EularOrQuat")
        if fields["by_quat"] > 0.5 and "SensorAngQuat" not in entry:
            raise ConfigError(f"{where}.SensorAngQuat: missing, though EularOrQuat chooses it")
        fields["quat"] = _numbers(entry.get("SensorAngQuat", list(IDENTITY)), 4, f"{where}.SensorAngQuat")
    elif isinstance(other, list) and len(other) == PARAMETERS:
        fields["by_quat"] = 0.0
    parameters = PARAMETERS if "by_quat" in fields else OLD_PARAMETERS
    if "EularOrQuat" in entry and isinstance(other, list) and len(other) == OLD_PARAMETERS:
        tell(f"{where}.otherParams: {OLD_PARAMETERS} numbers are filled up with zeros to {PARAMETERS}")
        other = other + [0] * (PARAMETERS - OLD_PARAMETERS)
    sensor = SensorRequest(
        **fields,
        send=tuple(_word(value, f"{where}.SendProtocol[{k}]") for k, value in enumerate(send)),
        fov_deg=_number(entry["CameraFOV"], f"{where}.CameraFOV"),
        position_m=_numbers(entry["SensorPosXYZ"], 3, f"{where}.SensorPosXYZ"),
        euler=_numbers(entry["SensorAngEular"], 3, f"{where}.SensorAngEular"),
        other=_numbers(other, parameters, f"{where}.otherParams"),
    )
    return _by_udp(sensor, where, tell)


def _by_udp(sensor: SensorRequest, where: str, tell: Callable[[str], None]) -> SensorRequest:
    """Return a valid sensor whose frames come by UDP, at a rate. Raises ConfigError if a field is invalid."""
    if sensor.mode == SHARED_MEMORY:
        mode, name = (PNG, "PNG") if sensor.type_id == DEPTH else (JPEG, "JPEG")
        tell(f"{where}.SendProtocol[0]: shared memory is requested as {name} by UDP ({mode})")
        sensor = replace(sensor, send=(mode, *sensor.send[1:]))
    if (wrong := fault(sensor)) is not None:
        raise ConfigError(f"{where}.{wrong[0]}: {wrong[1]}")
    if SENSORS[sensor.type_id].encoding and not sensor.rate_hz:
        tell(f"{where}.DataCheckFreq: 0 stands for {RATE_HZ} Hz")
        sensor = replace(sensor, rate_hz=RATE_HZ)
    return sensor


def _word(value: Any, where: str) -> int:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not real or not 0 <= value <= LARGEST_WORD or value != int(value):  # the range first: infinity has no int
        raise ConfigError(f"{where}: expected {WORD}, found {shown(value)}")
    return int(value)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == math.inf:
        raise ConfigError(f"{where}: expected a finite number, found {shown(value)}")
    if abs(value) > FLOAT32_MAX:  # includes integers too large for a float
        raise ConfigError(f"{where}: expected a number of 32 bit, at most 3.4e38, found {shown(value)}")
    return float(value)


def _list(value: Any, length: int, where: str) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise ConfigError(f"{where}: expected {length} numbers, found {shown(value)}")
    return value


def _numbers(value: Any, length: int, where: str) -> tuple[float, ...]:
    return tuple(_number(item, f"{where}[{k}]") for k, item in enumerate(_list(value, length, where)))


def pinhole(sensor: SensorRequest) -> Camera:
    """Return the intrinsics of a valid entry on a level mount: square pixels, fx = W / (2 tan(CameraFOV/2)), centre W/2, H/2."""
    focal = round(sensor.width_px / (2 * math.tan(math.radians(sensor.fov_deg) / 2)), FINENESS_PX)
    return Camera(
        sensor.width_px, sensor.height_px, focal, focal, sensor.width_px / 2, sensor.height_px / 2, tilt_deg=0.0
    )


def camera_of(sensor: SensorRequest, radians: bool = False) -> Camera:
    """Return the camera model of an entry for the pilot.

    Args:
        radians: unit of SensorAngEular: degrees in 4.12 and in real files, radians in documents of 3.06.

    Raises:
        ConfigError: the camera is unsuitable for flight: not fixed to the vehicle, rolled or yawed.
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
