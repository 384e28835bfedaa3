"""Point clouds, with the vehicle's odometry in them, in the layouts of the document, of 4.12 and of the SDK up to 3.07.

No version is transmitted; the layout is inferred from the length. With a copter number and float32: 36 + stride N, the count
N at byte 32. Without, and int16 fractions of the range: 28 + stride N, the count at byte 24. A payload of the first kind is
never mistaken for the second: there byte 24 is a float.
"""

import enum
import math
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gate_racer.link.rflysim.malformed import MalformedError
from gate_racer.link.rflysim.request import SensorRequest
from gate_racer.link.rflysim.sensors import DEPTH_CLOUD
from gate_racer.vehicle.rotation import Vector

PREFIX = struct.Struct("<2i6fi")  # copter, axis_type, x, y, z, roll, pitch, yaw, N
OLD_PREFIX = struct.Struct("<6fi")  # x, y, z, roll, pitch, yaw, N
FULL_SCALE = 32767  # int16 value of a point at the range, otherParams[0]
LOCAL, WORLD = 0, 1  # axis_type
LOCK_AFTER = 5  # consecutive clouds of one layout, after which the layout is fixed


class CloudLayout(enum.Enum):
    """Name, type and number of values of a point, of which the fourth is the segment or padding."""

    XYZ_SEG = "xyzseg_f32", "<f4", 4
    XYZ = "xyz_f32", "<f4", 3
    XYZ_PAD = "xyzpad_f32", "<f4", 4
    OLD_XYZ_SEG = "xyzseg_i16", "<i2", 4
    OLD_XYZ = "xyz_i16", "<i2", 3

    @property
    def label(self) -> str:
        """Name of the layout in reports."""
        return self.value[0]

    @property
    def old(self) -> bool:
        """Whether it is a layout of an older version of RflySim3D."""
        return self.dtype == np.int16

    @property
    def dtype(self) -> np.dtype:
        """Type of the numbers of a point."""
        return np.dtype(self.value[1])

    @property
    def columns(self) -> int:
        """Numbers of a point."""
        return self.value[2]

    def size(self, points: int) -> int:
        """Return the bytes of a payload."""
        return (OLD_PREFIX if self.old else PREFIX).size + points * self.columns * self.dtype.itemsize


LAYOUTS = {layout.label: layout for layout in CloudLayout}


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """Points in the sensor's axes (`SENSORS`), m, and the pose of the vehicle at the measurement, world NED."""

    p_wb: Vector
    rpy: Vector  # rad
    points: NDArray[np.float32]  # (N, 3)
    segments: NDArray[np.float32] | None  # (N,) labels; scaled by the SDK like metres
    copter: int | None  # None where the layout has none
    axes: int | None  # axes of the pose: LOCAL or WORLD
    layout: CloudLayout


def decode_cloud(payload: bytes, sensor: SensorRequest, layout: CloudLayout | None = None) -> Cloud:
    """Decode the cloud of a LiDAR or depth camera in a given layout, or in the one that fits.

    Raises:
        MalformedError: no layout fits, or the pose is not finite.
    """
    layout = layout or detect(payload, sensor.type_id)
    prefix = OLD_PREFIX if layout.old else PREFIX
    if len(payload) < prefix.size:
        raise MalformedError(f"a cloud of {len(payload)} bytes")
    fields = prefix.unpack_from(payload)
    copter, axes = (None, None) if layout.old else fields[:2]
    x, y, z, roll, pitch, yaw, number = fields[-7:]
    if number < 0 or len(payload) != layout.size(number):
        raise MalformedError(f"a cloud of {len(payload)} bytes cannot hold {number} points as {layout.label}")
    if not all(map(math.isfinite, (x, y, z, roll, pitch, yaw))):
        raise MalformedError("the pose in a cloud is not finite")
    values = np.frombuffer(payload, layout.dtype, offset=prefix.size).reshape(number, layout.columns)
    points = values[:, :3].astype(np.float32)
    if layout.old:
        if sensor.other[0] <= 0:
            raise MalformedError("points are fractions of the range, but otherParams[0] has no range")
        points = (values[:, :3] * (sensor.other[0] / FULL_SCALE)).astype(np.float32)
    segments = values[:, 3].astype(np.float32) if layout in (CloudLayout.XYZ_SEG, CloudLayout.OLD_XYZ_SEG) else None
    return Cloud((x, y, z), (roll, pitch, yaw), points, segments, copter, axes, layout)


def detect(payload: bytes, type_id: int) -> CloudLayout:
    """Return the layout whose length fits.

    Raises:
        MalformedError: no layout fits.
    """
    depth = type_id == DEPTH_CLOUD
    candidates = (CloudLayout.XYZ, CloudLayout.XYZ_PAD) if depth else (CloudLayout.XYZ_SEG, CloudLayout.XYZ)
    for layout in (*candidates, CloudLayout.OLD_XYZ if depth else CloudLayout.OLD_XYZ_SEG):
        prefix = OLD_PREFIX if layout.old else PREFIX
        if len(payload) >= prefix.size:
            (number,) = struct.unpack_from("<i", payload, prefix.size - 4)
            if number >= 0 and len(payload) == layout.size(number):
                return layout
    raise MalformedError(f"a cloud of {len(payload)} bytes matches no known layout")


def encode_cloud(cloud: Cloud, range_m: float = 0.0) -> bytes:
    """Return the payload; the int16 layouts need the sensor's range (otherParams[0])."""
    pose, number = (*cloud.p_wb, *cloud.rpy), len(cloud.points)
    layout = cloud.layout
    numbers = pose if layout.old else (cloud.copter or 0, cloud.axes or LOCAL, *pose)
    head = (OLD_PREFIX if layout.old else PREFIX).pack(*numbers, number)
    values = np.zeros((number, layout.columns), layout.dtype)
    if layout.old:
        counts = np.round(cloud.points.astype(np.float64) * FULL_SCALE / range_m)
        values[:, :3] = np.clip(counts, -FULL_SCALE - 1, FULL_SCALE)
    else:
        values[:, :3] = cloud.points
    if cloud.segments is not None and layout.columns == 4:
        values[:, 3] = cloud.segments
    return head + values.tobytes()


class CloudReader:
    """Reader of the clouds of one stream; after a few of one layout the layout is fixed."""

    def __init__(self, sensor: SensorRequest, layout: CloudLayout | None = None):
        """Create it; `layout` fixes the layout from the start."""
        self.layout = layout  # once it is fixed
        self._sensor, self._last, self._alike = sensor, layout, 0

    def read(self, payload: bytes) -> Cloud:
        """Decode a cloud. Raises MalformedError as `decode_cloud`."""
        cloud = decode_cloud(payload, self._sensor, self.layout)
        if self.layout is None and len(cloud.points):
            self._alike = self._alike + 1 if cloud.layout is self._last else 1
            self._last = cloud.layout
            if self._alike == LOCK_AFTER:
                self.layout = cloud.layout
        return cloud
