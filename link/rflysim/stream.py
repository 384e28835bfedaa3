"""Stream of one sensor: datagrams in, decoded samples out; unusable input is counted and reported once.

Frames come in datagrams, whose header has two generations, distinguished by `check_sum` ("1.1 Communication Packet Header").
The sensor type is not transmitted: it follows from the port and the Config.json.

Payloads on the wire: images, ranges and point clouds.

Images are JPEG, PNG or raw pixels. The first bytes identify the first two; depth is never JPEG. A cloud comes with the vehicle's
odometry, in the layouts of the document, of 4.12 and of the SDK up to 3.07. No version is transmitted; the layout is inferred
from the length. With a copter number and float32: 36 + stride N, the count N at byte 32. Without, and int16 fractions of the
range: 28 + stride N, the count at byte 24. One of the first kind is never mistaken for the second: there byte 24 is a float.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np
from numpy.typing import NDArray

from gate_racer.common.images import JPEG_BEGIN, PNG_BEGIN, decode_image, image_size
from gate_racer.link.packed import Packed
from gate_racer.link.reassembly import RESTART_S, Chunk, MalformedError, Reassembler
from gate_racer.link.rflysim.request import DEPTH_CLOUD, GIMBAL, JPEG, LAST_COPTER, PNG, RAW, SENSORS, SensorRequest
from gate_racer.link.sockets import Address
from gate_racer.vehicle.rotation import Vector

Image = np.ndarray  # (H, W, 3) or (H, W) of 8 bit, (H, W) of 16 bit for depth

METRES_PER_COUNT = 0.001  # default, where otherParams[2] is 0
NO_DEPTH = 65535  # counts, no surface within range
LOSSLESS_FAST = [cv2.IMWRITE_PNG_COMPRESSION, 1]  # least compression: the fastest
FLAGS = {"mono16": cv2.IMREAD_UNCHANGED, "bgr8": cv2.IMREAD_COLOR, "mono8": cv2.IMREAD_GRAYSCALE}  # by encoding


def decode_payload(payload: bytes, sensor: SensorRequest) -> Image:
    """Return BGR (H, W, 3) or grey (H, W) of 8 bit, or depth (H, W) of 16 bit. Raises MalformedError."""
    kind = SENSORS[sensor.type_id]
    if is_raw(payload, sensor):
        dtype = np.dtype("<u2") if kind.encoding == "mono16" else np.dtype(np.uint8)
        shape = (sensor.height_px, sensor.width_px, 3) if kind.channels == 3 else (sensor.height_px, sensor.width_px)
        return np.frombuffer(payload, dtype).reshape(shape)
    image = decode_image(payload, _require_size(payload, sensor), FLAGS[kind.encoding])
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
    """Return the payload of an image; depth is sent as PNG where JPEG is requested. Raises ValueError for another mode."""
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
    return sensor.other[2] or METRES_PER_COUNT


def depth_counts(metres: NDArray[np.floating], sensor: SensorRequest) -> NDArray[np.uint16]:
    counts = np.nan_to_num(np.round(metres / metres_per_count(sensor)), nan=NO_DEPTH, posinf=NO_DEPTH)
    return np.clip(counts, 0, NO_DEPTH).astype(np.uint16)


def image_file(payload: bytes, sensor: SensorRequest) -> bytes:
    """Return a frame as a common image file: as it is, or PNG for raw pixels. Raises MalformedError for another size."""
    if is_raw(payload, sensor):
        return encode_payload(decode_payload(payload, sensor), PNG)
    _require_size(payload, sensor)
    return payload


def _require_size(payload: bytes, sensor: SensorRequest) -> tuple[int, int]:
    size, wanted = image_size(payload), (sensor.width_px, sensor.height_px)
    if size is not None and sensor.type_id == GIMBAL:  # commands change its size
        return size
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
    """Decode a range, whose positions need not be finite. Raises MalformedError for another length or an invalid distance."""
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
    """Decode the cloud of a LiDAR or depth camera in the layout whose length fits. Raises MalformedError for an invalid one."""
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


CHECK_SUM, PLAIN_SUM, NUMBERED_SUM = struct.Struct("<i"), 1234567890, 1234567893
PLAIN = struct.Struct("<4id")  # check_sum, pkg_len, pkg_id, pkg_num, time_stamp
NUMBERED = struct.Struct("<6id")  # check_sum, pkg_len, pkg_id, pkg_num, frame_id, reserved, time_stamp
HEADERS = {PLAIN_SUM: PLAIN, NUMBERED_SUM: NUMBERED}
STAMP_MAX_S = 9e9  # s, largest time of a nanosecond count in 64 bit
CHUNK_BYTES = 60_000  # as in the SDK; 1400 suits WSL and real networks
MOST_BEHIND = 64  # range of frame_ids that are late
MOST_PARTS = 1 << 15  # datagrams of a frame


@dataclass(frozen=True, slots=True)
class Payload:
    t: float  # s of simulation time, at the exposure
    frame_id: int | None  # signed, 32 bit; None: older generation
    data: bytes


def fragments(payload: Payload, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """Return the datagrams of a frame. As in the SDK, a multiple of chunk_bytes ends with a datagram that is only a header."""
    check_sum, number = (PLAIN_SUM, ()) if payload.frame_id is None else (NUMBERED_SUM, (payload.frame_id, 0))
    layout, parts, datagrams = HEADERS[check_sum], len(payload.data) // chunk_bytes + 1, []
    for part in range(parts):
        chunk = payload.data[part * chunk_bytes : (part + 1) * chunk_bytes]
        datagrams.append(layout.pack(check_sum, layout.size + len(chunk), part, parts, *number, payload.t) + chunk)
    return datagrams


def read_fragment(datagram: bytes) -> Chunk:
    """Decode one datagram. Raises MalformedError.

    `pkg_len` is the datagram's length, as with all known senders, or the whole frame's, as in the document, with headers or not.
    """
    if len(datagram) < CHECK_SUM.size:
        raise MalformedError(f"{len(datagram)} bytes are shorter than a header")
    (check_sum,) = CHECK_SUM.unpack_from(datagram)
    layout = HEADERS.get(check_sum)
    if layout is None:
        raise MalformedError(f"check_sum {check_sum} is neither {PLAIN_SUM} nor {NUMBERED_SUM}")
    if len(datagram) < layout.size:
        raise MalformedError(f"{len(datagram)} bytes are shorter than the header of {layout.size}")
    _, length, part, parts, *number, t = layout.unpack_from(datagram)
    if not 0 <= part < parts <= MOST_PARTS:
        raise MalformedError(f"packet {part} of {parts}, of {MOST_PARTS} at most")
    if not abs(t) <= STAMP_MAX_S:
        raise MalformedError(f"time_stamp {t:g} s is not a valid time")
    chunk = datagram[layout.size :]
    if length < len(chunk) or (parts == 1 and length not in (len(chunk), len(datagram))):
        raise MalformedError(f"pkg_len {length} in a datagram of {len(datagram)} bytes")
    return Chunk(t, number[0] if number else None, part, parts, chunk)


def fragment_reassembler(max_frames: int = 3, max_frame_bytes: int = 32 << 20) -> Reassembler[Payload]:
    return Reassembler(read_fragment, Payload, _straggles, max_frames, max_frame_bytes)


def _straggles(chunk: Chunk, newest: Chunk) -> bool:
    """Return whether a frame is not newer than the newest one, and not from a restarted simulation."""
    if (chunk.frame_id is None) != (newest.frame_id is None) or newest.t - chunk.t > RESTART_S:
        return False
    if chunk.frame_id is None or newest.frame_id is None:
        return chunk.t <= newest.t
    behind = (newest.frame_id - chunk.frame_id) & 0xFFFFFFFF  # the count wraps
    return behind < MOST_BEHIND and chunk.t <= newest.t  # a later exposure with a lower number: the count restarted


Value = Image | Cloud | Range | bytes  # bytes: of an image file
Tell = Callable[[str], None]
MOST_TOPICS = 20  # per stream


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    sensor: SensorRequest
    t: float
    frame_id: int | None
    value: Value


class FirstReporter:
    """Reporter of events at their first occurrence, for at most `MOST_TOPICS` topics."""

    def __init__(self, tell: Tell, name: str):
        self._tell, self._name, self._told = tell, name, set[str]()

    def __call__(self, topic: str, text: str) -> None:
        if topic not in self._told and len(self._told) < MOST_TOPICS:
            self._told.add(topic)
            self._tell(f"rflysim: {self._name}: {text}")


class Stream:
    def __init__(self, sensor: SensorRequest, tell: Tell, read: Callable[[bytes], Value]):
        self.sensor, self.read, self.health = sensor, read, StreamHealth()
        name = f"sensor {sensor.seq_id} ({SENSORS[sensor.type_id].name}), port {sensor.port}"
        self.say = FirstReporter(tell, name)
        self._fragments = fragment_reassembler()
        self.counters = self._fragments.counters

    def feed(self, datagram: bytes, now: float) -> Sample | None:
        before = self.counters.malformed
        payload = self._fragments.feed(datagram)
        if self.counters.malformed > before:
            self.say("malformed", f"dropped a datagram: {self._fragments.reason}; further ones are only counted")
        if payload is None:
            return None
        try:
            value = self.read(payload.data)
        except MalformedError as error:
            self.counters.unreadable += 1
            self.say("unreadable", f"dropped a frame: {error}; further ones are only counted")
            return None
        self.health.saw(now)
        return Sample(self.sensor, payload.t, payload.frame_id, value)


def reader(sensor: SensorRequest) -> Callable[[bytes], Value]:
    if SENSORS[sensor.type_id].encoding:
        return partial(decode_payload, sensor=sensor)
    return partial(decode_cloud, sensor=sensor) if SENSORS[sensor.type_id].axes else decode_range


class StreamHealth:
    def __init__(self) -> None:
        self.frames, self.longest_gap_s, self.shortest_gap_s, self.gap_s = 0, 0.0, 0.0, 0.0
        self._first = self._last = 0.0

    def saw(self, now: float) -> None:
        if self.frames:
            self.gap_s = max(now - self._last, 0.0)
            self.longest_gap_s = max(self.longest_gap_s, self.gap_s)
            self.shortest_gap_s = min(self.shortest_gap_s, self.gap_s) if self.frames > 1 else self.gap_s
        else:
            self._first = now
        self.frames += 1
        self._last = now

    @property
    def hz(self) -> float:
        return (self.frames - 1) / (self._last - self._first) if self._last > self._first else 0.0

    def report(self, now: float, what: str, server: Address) -> str:
        if not self.frames:
            return f"no {what} yet from {server[0]}:{server[1]}"
        age = max(now - self._last, 0.0)
        return f"{self.frames} {what}s, {self.hz:.1f} Hz, gap {self.longest_gap_s:.2f} s, age {age:.2f} s"
