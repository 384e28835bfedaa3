"""Records in an MCAP file, which Foxglove, PlotJuggler and Rerun open: JSON channels with their schemas, and raw bytes.

Here they are written; `link.record_reader` reads them.
"""

import json
from pathlib import Path
from typing import Any

from mcap.writer import Writer

from vehicle.errors import UserError

NO_SCHEMA = 0


class RecordFile:
    """Writes records as they come. `close` makes the file complete; without it the file still holds what was written."""

    def __init__(self, path: Path):
        """Raises UserError when the file cannot be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror})") from None
        self.path = path
        self._writer = Writer(self._file)
        self._writer.start(profile="", library="gate-racer")

    def json_channel(self, topic: str, name: str, schema: dict[str, Any]) -> int:
        """A channel /topic of records under a JSON Schema."""
        text = json.dumps(schema).encode()
        schema_id = self._writer.register_schema(name=name, encoding="jsonschema", data=text)
        return self._writer.register_channel(topic=f"/{topic}", message_encoding="json", schema_id=schema_id)

    def raw_channel(self, topic: str, encoding: str) -> int:
        """A channel /topic of bytes."""
        return self._writer.register_channel(topic=f"/{topic}", message_encoding=encoding, schema_id=NO_SCHEMA)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def add(self, channel: int, t: float, record: dict[str, Any]) -> None:
        """A JSON record at t, s; arrays may be numpy's."""
        self.add_raw(channel, t, encoded(record))

    def add_raw(self, channel: int, t: float, data: bytes) -> None:
        """Bytes at t, s."""
        stamp = max(0, round(t * 1e9))
        self._writer.add_message(channel, stamp, data, stamp)

    def close(self) -> None:
        try:
            self._writer.finish()  # type: ignore[no-untyped-call]
        finally:
            self._file.close()


def vector(n: int, description: str) -> dict[str, Any]:
    """The schema of n numbers."""
    return {
        "type": "array",
        "items": {"type": "number"},
        "minItems": n,
        "maxItems": n,
        "description": description,
    }


def record(**properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of a record at a time t."""
    return {"type": "object", "properties": {"t": {"type": "number", "description": "s"}, **properties}}


def encoded(record: dict[str, Any]) -> bytes:
    """A record as JSON; arrays may be numpy's."""
    return json.dumps(record, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Numpy arrays and scalars as plain lists and numbers."""
    return value.tolist()
