"""Payloads on the wire: images, ranges, boxes ("simple vision"), spots ("simple LiDAR") and point clouds.

Images are JPEG, PNG or raw pixels. The first bytes identify the first two; depth is never JPEG. A cloud comes with the vehicle's
odometry, in the layouts of the document, of 4.12 and of the SDK up to 3.07. No version is transmitted; the layout is inferred
from the length. With a copter number and float32: 36 + stride N, the count N at byte 32. Without, and int16 fractions of the
range: 28 + stride N, the count at byte 24. One of the first kind is never mistaken for the second: there byte 24 is a float.
"""

import enum
import math
import struct
from dataclasses import dataclass
from typing import TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from gate_racer.common.images import JPEG_BEGIN, PNG_BEGIN, decode_image, image_size
from gate_racer.link.packed import Packed
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim.request import DEPTH_CLOUD, SENSORS, SensorRequest
from gate_racer.vehicle.rotation import Vector

Image = np.ndarray  # (H, W, 3) or (H, W) of 8 bit, (H, W) of 16 bit for depth

JPEG, RAW, PNG = 1, 2, 3  # SendProtocol[0]
METRES_PER_COUNT = 0.001  # default, where otherParams[2] is 0
NO_DEPTH = 65535  # counts, no surface within range
Item = TypeVar("Item", bound=Packed)
LOSSLESS_FAST = [cv2.IMWRITE_PNG_COMPRESSION, 1]  # least compression: the fastest


def decode_payload(payload: bytes, sensor: SensorRequest) -> Image:
    """Return (H, W, 3) BGR of 8 bit, (H, W) grey of 8 bit or (H, W) depth of 16 bit, by the sensor's type.

    Raises:
        MalformedError: not an image, or of another size or type.
    """
    kind = SENSORS[sensor.type_id]
    if is_raw(payload, sensor):
        dtype = np.dtype("<u2") if kind.encoding == "mono16" else np.dtype(np.uint8)
        shape = (sensor.height_px, sensor.width_px, 3) if kind.channels == 3 else (sensor.height_px, sensor.width_px)
        return np.frombuffer(payload, dtype).reshape(shape)
    stated, image = image_size(payload), None
    if stated is not None:
        if stated != (sensor.width_px, sensor.height_px):
            size = f"{stated[0]} x {stated[1]}"
            raise MalformedError(f"an image of {size} px, Config.json states {sensor.width_px} x {sensor.height_px}")
        as_it_is, colour, grey = cv2.IMREAD_UNCHANGED, cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE
        flag = {"mono16": as_it_is, "bgr8": colour, "mono8": grey}[kind.encoding]
        image = decode_image(payload, stated, flag)
    if image is None:
        raise MalformedError(
            f"{len(payload)} bytes are neither JPEG nor PNG nor {sensor.width_px} x {sensor.height_px} pixels"
        )
    if kind.encoding == "mono16" and (image.dtype != np.uint16 or image.ndim != 2):
        raise MalformedError("depth must be one channel of 16 bit")
    return image


def is_raw(payload: bytes, sensor: SensorRequest) -> bool:
    """Return whether a payload is raw pixels: of exactly their size, and in mode RAW or without the start of JPEG or PNG."""
    size = sensor.width_px * sensor.height_px * SENSORS[sensor.type_id].bytes_per_pixel
    return len(payload) == size and (sensor.mode == RAW or not payload.startswith((JPEG_BEGIN, PNG_BEGIN)))


def encode_payload(image: Image, mode: int, quality: int = 95) -> bytes:
    """Return the payload of an image; depth is sent as PNG where JPEG is requested.

    Raises:
        ValueError: a mode that is not JPEG, RAW or PNG.
    """
    if mode == RAW:
        return image.astype(image.dtype.newbyteorder("<")).tobytes()
    if mode not in (JPEG, PNG):
        raise ValueError(f"images are sent in mode {JPEG} JPEG, {RAW} raw or {PNG} PNG, not {mode}")
    if mode == JPEG and image.dtype == np.uint8:
        ok, packed = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    else:
        ok, packed = cv2.imencode(".png", image, LOSSLESS_FAST)
    assert ok, "images of 8 and 16 bit can always be compressed"
    return np.asarray(packed).tobytes()


def metres_per_count(sensor: SensorRequest) -> float:
    """Return the unit of a depth image, m."""
    return sensor.other[2] or METRES_PER_COUNT


def depth_m(counts: Image, sensor: SensorRequest) -> NDArray[np.float32]:
    """Return the depth (H, W) m; NaN where the sensor measured nothing."""
    metres = counts.astype(np.float32) * np.float32(metres_per_count(sensor))
    metres[counts == NO_DEPTH] = np.nan
    return metres


def depth_counts(metres: NDArray[np.floating], sensor: SensorRequest) -> NDArray[np.uint16]:
    """Return the inverse of `depth_m`; values not finite or too far become `NO_DEPTH`."""
    counts = np.nan_to_num(np.round(metres / metres_per_count(sensor)), nan=NO_DEPTH, posinf=NO_DEPTH)
    return np.clip(counts, 0, NO_DEPTH).astype(np.uint16)


def image_file(payload: bytes, sensor: SensorRequest) -> bytes:
    """Return a colour or grey frame as a common image file: unchanged, or PNG for raw pixels.

    Raises:
        MalformedError: not an image of the sensor's size.
    """
    if is_raw(payload, sensor):
        return encode_payload(decode_payload(payload, sensor), PNG)
    size, wanted = image_size(payload), (sensor.width_px, sensor.height_px)
    if size != wanted:
        found = f"an image of {size[0]} x {size[1]} px" if size else f"{len(payload)} bytes that are not an image"
        raise MalformedError(f"{found}, Config.json states {wanted[0]} x {wanted[1]} px")
    return payload


COUNT = struct.Struct("<i")


@dataclass(frozen=True, slots=True)
class Range(Packed):
    """Hit of a laser. World NED, m, except the mount."""

    LAYOUT, WHAT = struct.Struct("<fi12f"), "a range"
    distance_m: float
    copter: int
    origin_w: Vector
    euler: Vector  # roll, pitch, yaw of the mount
    hit_w: Vector
    target_w: Vector  # centre of the box that was hit


def decode_range(payload: bytes) -> Range:
    """Decode a range. Raises MalformedError for another length or an invalid distance."""
    if len(payload) != Range.LAYOUT.size:
        raise MalformedError(f"a range has {Range.LAYOUT.size} bytes, not {len(payload)}")
    hit = Range.of(Range.LAYOUT.unpack(payload))
    if not math.isfinite(hit.distance_m) or hit.distance_m < 0:
        raise MalformedError(f"a distance of {hit.distance_m} m: must be finite and not negative")
    return hit


@dataclass(frozen=True, slots=True)
class BoundingBox(Packed):
    """Bounding box of one object in an image, px."""

    LAYOUT = struct.Struct("<i5f")
    copter: int
    credibility: float
    low_px: tuple[float, float]
    high_px: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Spot(Packed):
    """Position of one object, m."""

    LAYOUT = struct.Struct("<i3f")
    copter: int
    p: Vector


def decode_items(payload: bytes, kind: type[Item]) -> list[Item]:
    """Decode the items of a list. Raises MalformedError when count and length differ."""
    if len(payload) < COUNT.size:
        raise MalformedError(f"a list of {len(payload)} bytes is shorter than its count")
    (number,) = COUNT.unpack_from(payload)
    if number < 0 or len(payload) != COUNT.size + number * kind.LAYOUT.size:
        raise MalformedError(f"a list of {len(payload)} bytes cannot hold {number} items of {kind.LAYOUT.size}")
    return [kind.of(item) for item in kind.LAYOUT.iter_unpack(payload[COUNT.size :])]


def encode_items(items: list[BoundingBox] | list[Spot]) -> bytes:
    """Return the payload of either list."""
    return COUNT.pack(len(items)) + b"".join(item.encode() for item in items)


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
