"""Gimbals: commands by bit mask, in the numbering of the document or of SDK 3.06, and the reported state."""

from dataclasses import dataclass, fields, replace
from typing import Any

from gate_racer.link.rflysim.malformed import MalformedError
from gate_racer.link.rflysim.request import STATE_SUM, Floats, SensorRequest, decode_request
from gate_racer.link.rflysim.sensors import GIMBAL

STATE_PORT = 20006  # UDP port of the gimbals' states
PIXEL_BOX = 2  # GimbalOrder.box: the object at `pixel`


@dataclass(frozen=True, slots=True)
class GimbalOrder:
    """Changes to a gimbal; None leaves a value."""

    focal: float | None = None
    centre: bool | None = None
    rates: tuple[float, float] | None = None  # pitch, yaw, rad/s
    zoom: float | None = None  # relative to the base
    zoom_base: float | None = None  # 4 to 1000
    track: int | None = None  # copter to track
    ranging: bool | None = None
    light: int | None = None  # 0 RGB, 1 thermal, 2 grey infrared
    box: int | None = None  # 1: all copters; 2: the object at `pixel`
    pixel: tuple[float, float] | None = None  # for `box`
    fov_deg: float | None = None
    euler: Floats | None = None  # (3,)
    quat: Floats | None = None  # (4,)


# Bits of the mask. None: transmitted without a bit. Absent: not in this numbering.
DOCUMENT: dict[str, int | None] = {
    "focal": 4, "centre": 5, "rates": 6, "zoom": 7, "track": 8, "ranging": 9, "light": 10, "box": 11, "zoom_base": 13,
    "fov_deg": None, "euler": None, "quat": None,
}  # fmt: skip
SDK306: dict[str, int | None] = {
    "fov_deg": 6, "euler": 7, "quat": 8, "focal": 9, "centre": 10, "rates": 11, "zoom": 12, "zoom_base": 13,
    "track": 14, "ranging": 15, "light": 16,
}  # fmt: skip
MASKS = {"document": DOCUMENT, "sdk306": SDK306}
PLACES = {  # indices of the values in otherParams
    "focal": (0,), "centre": (1,), "rates": (2, 3), "zoom": (4,), "zoom_base": (5,), "track": (5,), "ranging": (6,),
    "light": (7,), "box": (8,), "pixel": (9, 10),
}  # fmt: skip


KINDS: dict[str, type] = {"centre": bool, "track": int, "ranging": bool, "light": int, "box": int}


def gimbal_request(gimbal: SensorRequest, order: GimbalOrder, masks: dict[str, int | None]) -> SensorRequest:
    """Return the request that carries a command; `gimbal` is the sensor's entry.

    Raises:
        ValueError: the numbering has no such command, or two commands share an index.
    """
    if order.zoom_base is not None and order.track is not None:
        raise ValueError("zoom_base and track share otherParams[5]: send them in two commands")
    if order.pixel is not None and order.box is None:
        raise ValueError("pixel needs box")
    mask, other = 0, [0.0] * 16
    given = [(f.name, value) for f in fields(order) if (value := getattr(order, f.name)) is not None]
    for name, value in given:
        if name != "pixel":
            if name not in masks:
                raise ValueError(f"this numbering of the gimbal's mask has no bit for {name}")
            bit = masks[name]
            mask |= 0 if bit is None else 1 << bit
        for place, number in zip(PLACES.get(name, ()), value if isinstance(value, tuple) else (value,), strict=False):
            other[place] = float(number)
    by_quat = gimbal.by_quat or 0.0
    if order.euler is not None or order.quat is not None:
        by_quat = float(order.quat is not None)
    return replace(
        gimbal,
        mask=mask,
        other=tuple(other),
        by_quat=by_quat,
        euler=order.euler or gimbal.euler,
        quat=order.quat or gimbal.quat,
        fov_deg=gimbal.fov_deg if order.fov_deg is None else order.fov_deg,
    )


def read_order(request: SensorRequest, before: SensorRequest, masks: dict[str, int | None]) -> GimbalOrder:
    """Return the command in a request with a mask. Attitude and field of view are in every request: only changes count.

    Args:
        before: the request that created the gimbal, or carried the last command.
    """
    decoded: dict[str, Any] = {}
    for name, bit in masks.items():
        if bit is not None and name in PLACES and (request.mask or 0) >> bit & 1:
            values = tuple(request.other[place] for place in PLACES[name])
            decoded[name] = KINDS.get(name, float)(values[0]) if len(values) == 1 else values
    if decoded.get("box") == PIXEL_BOX:
        decoded["pixel"] = tuple(request.other[place] for place in PLACES["pixel"])
    for name in ("euler", "fov_deg"):
        if getattr(request, name) != getattr(before, name):
            decoded[name] = getattr(request, name)
    if (request.by_quat or 0.0) > 0.5 and request.quat != before.quat:
        decoded["quat"] = request.quat
    return GimbalOrder(**decoded)


@dataclass(frozen=True, slots=True)
class GimbalState:
    """State reported by a gimbal."""

    seq_id: int
    copter: int
    euler: Floats  # (3,) roll, pitch, yaw
    quat: Floats  # (4,) w, x, y, z
    fov_deg: float
    focal: float
    rates: tuple[float, float]  # rad/s
    fx_px: float
    fy_px: float
    width_px: int
    height_px: int
    range_m: float

    def encode(self) -> bytes:
        """Return the datagram of 148 bytes."""
        reported = self.focal, *self.rates, self.fx_px, self.fy_px, self.width_px, self.height_px, self.range_m
        nowhere = (0.0, 0.0, 0.0)
        return SensorRequest(
            self.seq_id, GIMBAL, self.copter, 0, self.width_px, self.height_px, 0, (0,) * 8, self.fov_deg, nowhere,
            self.euler, (*map(float, reported), *[0.0] * 8), 0.0, self.quat, 0, STATE_SUM,
        ).encode()  # fmt: skip


def decode_state(datagram: bytes) -> GimbalState:
    """Decode the state in a datagram of 148 bytes, with either checksum.

    Raises:
        MalformedError: the datagram is not a gimbal state.
    """
    request = decode_request(datagram)
    if request.mask is None:
        raise MalformedError(f"a gimbal's state has 148 bytes, not {len(datagram)}")
    focal, pitch, yaw, fx, fy, width, height, range_m = request.other[:8]
    return GimbalState(
        request.seq_id, request.copter, request.euler, request.quat, request.fov_deg, focal, (pitch, yaw), fx, fy,
        round(width), round(height), range_m,
    )  # fmt: skip
