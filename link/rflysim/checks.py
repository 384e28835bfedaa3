"""Checks of sensor requests that no server can serve, made by both ends before any wait for frames."""

from gate_racer.link.rflysim.images import JPEG, PNG, RAW
from gate_racer.link.rflysim.request import SensorRequest
from gate_racer.link.rflysim.sensors import (
    DEPTH,
    DEPTH_CLOUD,
    FISHEYE,
    LIDAR,
    LIDAR_WORLD,
    MID40,
    MID360,
    SENSORS,
    SensorKind,
)

MODES = JPEG, RAW, PNG
SHARED_MEMORY = 0  # SendProtocol[0] of images in shared memory
UDP_MODES = f"set {JPEG} for JPEG by UDP, {RAW} for raw or {PNG} for PNG"
ON_GROUND, EARTH_FIXED, ON_SENSOR = 2, 3, 4  # TargetMountType; the first and the last are not carried by a copter
WHOLE_TURN_DEG = 360.0
# Indices in otherParams of lengths or steps; for all other rays the first, their range.
MEASURES = {DEPTH: (0, 1, 2), DEPTH_CLOUD: (0, 1)}


def fault(sensor: SensorRequest) -> tuple[str, str] | None:
    """Return the invalid field of a Config.json entry and what would be right; None if all are valid."""
    kind = SENSORS[sensor.type_id].kind if sensor.type_id in SENSORS else None
    if kind is None:
        return "TypeID", f"unknown sensor type {sensor.type_id}; known: {', '.join(map(str, SENSORS))}"
    if sensor.mode == SHARED_MEMORY:
        return "SendProtocol[0]", f"0, shared memory, works only on the machine of RflySim3D: {UDP_MODES}"
    if sensor.mode not in MODES:
        return "SendProtocol[0]", f"unknown mode {sensor.mode}: {UDP_MODES}"
    if sensor.copter < 1 and sensor.mount_type not in (ON_GROUND, ON_SENSOR):
        return "TargetCopter", "must be at least 1"
    for place in MEASURES.get(sensor.type_id, (0,) if kind in (SensorKind.RANGE, SensorKind.CLOUD) else ()):
        if sensor.other[place] < 0:
            return f"otherParams[{place}]", f"must not be negative, found {sensor.other[place]:g}"
    if kind is SensorKind.IMAGE:
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
