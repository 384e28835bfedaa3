"""The flight log: MCAP with one JSON channel per kind of record. Foxglove, PlotJuggler and Rerun open it.

Schemas are JSON Schema (`SCHEMAS`); the log's time is the simulator's. World NED, body FRD, quaternions wxyz, SI.
"""

import base64
import json
from pathlib import Path
from typing import Any

from mcap.writer import Writer

from vehicle.rotation import Array


def _vector(n: int, description: str) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {"type": "number"},
        "minItems": n,
        "maxItems": n,
        "description": description,
    }


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"t": {"type": "number", "description": "s"}, **properties}}


_NUMBER, _INTEGER, _TEXT = {"type": "number"}, {"type": "integer"}, {"type": "string"}
SCHEMAS = {
    "flight": _object(track=_TEXT, vehicle=_TEXT, plan_hash=_TEXT, seed=_INTEGER, profile=_TEXT),
    "phase": _object(phase=_TEXT, reason=_TEXT),
    "state": _object(
        p=_vector(3, "m, world NED"),
        q=_vector(4, "body to world, wxyz"),
        v=_vector(3, "m/s, world NED"),
        w=_vector(3, "rad/s, body FRD"),
        sigma_p=_vector(3, "m, standard deviation"),
        drift={"type": "number", "description": "m, estimated error of the odometry"},
    ),
    "reference": _object(
        theta={"type": "number", "description": "s of plan time, one command delay ahead"},
        p=_vector(3, "m, world NED"),
        q=_vector(4, "body to world, wxyz"),
        v=_vector(3, "m/s, world NED"),
    ),
    "command": _object(
        q=_vector(4, "attitude, body to world, wxyz"),
        w=_vector(3, "rad/s, body FRD"),
        throttle={"type": "number", "description": "0..1"},
        source=_TEXT,
        status={"type": "integer", "description": "of the solver, 0 = solved"},
        solve_ms=_NUMBER,
    ),
    "sighting": _object(
        frame=_INTEGER,
        gate=_INTEGER,
        range_m=_NUMBER,
        p=_vector(3, "m, the vehicle as this gate places it"),
        sigma_p=_vector(3, "m, standard deviation"),
        corners_px={"type": "array", "items": _vector(2, "px")},
    ),
    "link": _object(counters={"type": "object", "additionalProperties": {"type": "number"}}),
    "truth": _object(p=_vector(3, "m"), q=_vector(4, "wxyz"), v=_vector(3, "m/s"), w=_vector(3, "rad/s")),
    "referee": _object(
        status=_TEXT,
        gate_times_s={"type": "array", "items": _NUMBER},
        gate_margins_m={"type": "array", "items": _NUMBER},
    ),
}
IMAGE = {
    "type": "object",
    "title": "foxglove.CompressedImage",
    "properties": {
        "timestamp": {"type": "object", "properties": {"sec": _INTEGER, "nsec": _INTEGER}},
        "frame_id": _TEXT,
        "data": {"type": "string", "contentEncoding": "base64"},
        "format": _TEXT,
    },
}


class FlightLog:
    """Writes records as they come. `close` makes the file complete; without it the file still holds what was written."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("wb")
        self._writer = Writer(self._file)
        self._writer.start(profile="", library="gate-racer")
        self._channels = {name: self._channel(name, f"gate_racer.{name}", schema) for name, schema in SCHEMAS.items()}
        self._image = self._channel("camera", "foxglove.CompressedImage", IMAGE)

    def _channel(self, topic: str, name: str, schema: dict[str, Any]) -> int:
        text = json.dumps(schema).encode()
        schema_id = self._writer.register_schema(name=name, encoding="jsonschema", data=text)
        return self._writer.register_channel(topic=f"/{topic}", message_encoding="json", schema_id=schema_id)

    def write(self, channel: str, t: float, **fields: Any) -> None:
        """One record of a channel of `SCHEMAS` at t, s; arrays may be numpy's."""
        self._add(self._channels[channel], t, {"t": t, **fields})

    def picture(self, t: float, jpeg: bytes) -> None:
        """One camera picture, exposed at t, s."""
        sec, nsec = divmod(round(t * 1e9), 1_000_000_000)
        data = base64.b64encode(jpeg).decode()
        stamp = {"sec": sec, "nsec": nsec}
        self._add(self._image, t, {"timestamp": stamp, "frame_id": "camera", "data": data, "format": "jpeg"})

    def _add(self, channel: int, t: float, record: dict[str, Any]) -> None:
        stamp = max(0, round(t * 1e9))
        self._writer.add_message(channel, stamp, json.dumps(record, default=_plain).encode(), stamp)

    def close(self) -> None:
        self._writer.finish()
        self._file.close()


def _plain(value: Any) -> Any:
    """Numpy arrays and scalars as plain lists and numbers."""
    return value.tolist()


def sigmas(cov: Array) -> Array:
    """Standard deviations (n,) of a covariance (n, n)."""
    return cov.diagonal() ** 0.5
