"""Small payloads: rangefinder, boxes ("simple vision") and spots ("simple LiDAR")."""

import math
import struct
from dataclasses import dataclass
from typing import Any

from gate_racer.link.rflysim.malformed import MalformedError
from gate_racer.vehicle.rotation import Vector

RANGE, COUNT = struct.Struct("<fi12f"), struct.Struct("<i")
BOX, SPOT = struct.Struct("<i5f"), struct.Struct("<i3f")


@dataclass(frozen=True, slots=True)
class Range:
    """Hit of a laser. World NED, m, except the mount."""

    distance_m: float
    copter: int
    origin_w: Vector
    euler: Vector  # roll, pitch, yaw of the mount
    hit_w: Vector
    target_w: Vector  # centre of the box that was hit

    def encode(self) -> bytes:
        """Return the payload."""
        return RANGE.pack(self.distance_m, self.copter, *self.origin_w, *self.euler, *self.hit_w, *self.target_w)


def decode_range(payload: bytes) -> Range:
    """Decode a range. Raises MalformedError for another length or an invalid distance."""
    if len(payload) != RANGE.size:
        raise MalformedError(f"a range has {RANGE.size} bytes, not {len(payload)}")
    distance, copter, *numbers = RANGE.unpack(payload)
    if not math.isfinite(distance) or distance < 0:
        raise MalformedError(f"a distance of {distance} m: must be finite and not negative")
    a, b, c, d = ((numbers[k], numbers[k + 1], numbers[k + 2]) for k in (0, 3, 6, 9))
    return Range(distance, copter, a, b, c, d)


@dataclass(frozen=True, slots=True)
class BoundingBox:
    """Bounding box of one object in an image, px."""

    copter: int
    credibility: float
    low_px: tuple[float, float]
    high_px: tuple[float, float]

    def encode(self) -> bytes:
        """Return the bytes of one item."""
        return BOX.pack(self.copter, self.credibility, *self.low_px, *self.high_px)


@dataclass(frozen=True, slots=True)
class Spot:
    """Position of one object, m."""

    copter: int
    p: Vector

    def encode(self) -> bytes:
        """Return the bytes of one item."""
        return SPOT.pack(self.copter, *self.p)


def decode_boxes(payload: bytes) -> list[BoundingBox]:
    """Decode boxes. Raises MalformedError when count and length differ."""
    return [BoundingBox(n, c, (u, v), (x, y)) for n, c, u, v, x, y in _items(payload, BOX)]


def decode_spots(payload: bytes) -> list[Spot]:
    """Decode spots. Raises MalformedError when count and length differ."""
    return [Spot(n, (x, y, z)) for n, x, y, z in _items(payload, SPOT)]


def encode_items(items: list[BoundingBox] | list[Spot]) -> bytes:
    """Return the payload of either list."""
    return COUNT.pack(len(items)) + b"".join(item.encode() for item in items)


def _items(payload: bytes, item: struct.Struct) -> list[tuple[Any, ...]]:
    if len(payload) < COUNT.size:
        raise MalformedError(f"a list of {len(payload)} bytes is shorter than its count")
    (number,) = COUNT.unpack_from(payload)
    if number < 0 or len(payload) != COUNT.size + number * item.size:
        raise MalformedError(f"a list of {len(payload)} bytes cannot hold {number} items of {item.size}")
    return list(item.iter_unpack(payload[COUNT.size :]))
