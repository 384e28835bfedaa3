"""Payloads on the wire: images, ranges and point clouds.

Images are JPEG, PNG or raw pixels. The first bytes identify the first two; depth is never JPEG. A cloud comes with the vehicle's
odometry, in the layouts of the document, of 4.12 and of the SDK up to 3.07. No version is transmitted; the layout is inferred
from the length. With a copter number and float32: 36 + stride N, the count N at byte 32. Without, and int16 fractions of the
range: 28 + stride N, the count at byte 24. One of the first kind is never mistaken for the second: there byte 24 is a float.
"""

import math
import struct
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from gate_racer.common.images import JPEG_BEGIN, PNG_BEGIN, decode_image, image_size
from gate_racer.link.packed import Packed
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim.request import DEPTH_CLOUD, LAST_COPTER, SENSORS, SensorRequest
from gate_racer.vehicle.rotation import Vector

Image = np.ndarray  # (H, W, 3) or (H, W) of 8 bit, (H, W) of 16 bit for depth

JPEG, RAW, PNG = 1, 2, 3  # SendProtocol[0]
METRES_PER_COUNT = 0.001  # default, where otherParams[2] is 0
NO_DEPTH = 65535  # counts, no surface within range
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
    size = _require_size(payload, sensor)
    as_it_is, colour, grey = cv2.IMREAD_UNCHANGED, cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE
    image = decode_image(payload, size, {"mono16": as_it_is, "bgr8": colour, "mono8": grey}[kind.encoding])
    if image is None:
        raise MalformedError(f"{len(payload)} bytes that begin like an image are none")
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
    _require_size(payload, sensor)
    return payload


def _require_size(payload: bytes, sensor: SensorRequest) -> tuple[int, int]:
    """Return width and height of the image in a payload. Raises MalformedError unless they are the sensor's."""
    size, wanted = image_size(payload), (sensor.width_px, sensor.height_px)
    if size != wanted:
        found = f"an image of {size[0]} x {size[1]} px" if size else f"{len(payload)} bytes that are not an image"
        raise MalformedError(f"{found}, Config.json states {wanted[0]} x {wanted[1]} px")
    return wanted


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


PREFIX = struct.Struct("<2i6fi")  # copter, axis_type, x, y, z, roll, pitch, yaw, N
OLD_PREFIX = struct.Struct("<6fi")  # x, y, z, roll, pitch, yaw, N
FULL_SCALE = 32767  # int16 value of a point at the range, otherParams[0]
LOCAL, WORLD = 0, 1  # axis_type
# Prefix, type and columns of a cloud: x, y, z, and the segment (padding in clouds of depth cameras).
LAYOUTS = (PREFIX, "<f4", 4), (PREFIX, "<f4", 3), (OLD_PREFIX, "<i2", 4), (OLD_PREFIX, "<i2", 3)


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """Points in the sensor's axes (`SENSORS`), m, and the pose of the vehicle at the measurement, world NED."""

    p_wb: Vector
    rpy: Vector  # rad
    points: NDArray[np.float32]  # (N, 3)
    segments: NDArray[np.float32] | None  # (N,) labels
    copter: int | None  # None where the layout has none
    axes: int | None  # axes of the pose: LOCAL or WORLD


def decode_cloud(payload: bytes, sensor: SensorRequest) -> Cloud:
    """Decode the cloud of a LiDAR or depth camera in the layout whose length fits.

    Raises:
        MalformedError: no layout fits, or the pose is not finite.
    """
    depth = sensor.type_id == DEPTH_CLOUD
    prefix, values = _points(payload, depth)
    *about, x, y, z, roll, pitch, yaw, _ = prefix.unpack_from(payload)
    if not all(map(math.isfinite, (x, y, z, roll, pitch, yaw))):
        raise MalformedError("the pose in a cloud is not finite")
    if prefix is OLD_PREFIX and sensor.other[0] <= 0:
        raise MalformedError("points are fractions of the range, but otherParams[0] has no range")
    metres = sensor.other[0] / FULL_SCALE if prefix is OLD_PREFIX else 1.0
    points = (values[:, :3] * metres).astype(np.float32)
    segments = values[:, 3].astype(np.float32) if values.shape[1] == 4 and not depth else None
    copter, axes = about or (None, None)
    if copter is not None and not 0 <= copter <= LAST_COPTER:  # it names topics and frames
        raise MalformedError(f"copter {copter} in a cloud: must lie between 0 and {LAST_COPTER}")
    return Cloud((x, y, z), (roll, pitch, yaw), points, segments, copter, axes)


def _points(payload: bytes, depth: bool) -> tuple[struct.Struct, np.ndarray]:
    """Return prefix and points (N, columns) of the layout whose length fits; of the old ones depth has three columns."""
    for prefix, dtype, columns in LAYOUTS:
        if len(payload) >= prefix.size and (prefix is PREFIX or depth == (columns == 3)):
            number = prefix.unpack_from(payload)[-1]
            if number >= 0 and len(payload) == prefix.size + number * columns * np.dtype(dtype).itemsize:
                return prefix, np.frombuffer(payload, dtype, offset=prefix.size).reshape(number, columns)
    raise MalformedError(f"a cloud of {len(payload)} bytes matches no known layout")


def encode_cloud(cloud: Cloud) -> bytes:
    """Return the payload in the layout of the document, without a fourth column where there are no segments."""
    head = PREFIX.pack(cloud.copter or 0, cloud.axes or LOCAL, *cloud.p_wb, *cloud.rpy, len(cloud.points))
    segments = [] if cloud.segments is None else [cloud.segments[:, None]]
    return head + np.hstack([cloud.points, *segments]).astype("<f4").tobytes()
