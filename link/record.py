"""Writer of MCAP files for Foxglove, PlotJuggler and Rerun: JSON channels with schemas, and raw bytes.

`link.record_reader` reads them.
"""

import json
from pathlib import Path
from typing import Any

from mcap.writer import Writer

from gate_racer.common.errors import UserError

NO_SCHEMA = 0  # schema_id of a channel without a schema (MCAP specification)


class RecordFile:
    """MCAP file open for writing. `close` completes the file; without it the file holds the records written so far."""

    def __init__(self, path: Path):
        """Open the file. Raises UserError when it cannot be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror})") from None
        self.path = path
        self._writer = Writer(self._file)
        self._writer.start(profile="", library="gate-racer")

    def json_channel(self, topic: str, name: str, schema: dict[str, Any]) -> int:
        """Add a channel /topic of records with a JSON Schema."""
        text = json.dumps(schema).encode()
        schema_id = self._writer.register_schema(name=name, encoding="jsonschema", data=text)
        return self._writer.register_channel(topic=f"/{topic}", message_encoding="json", schema_id=schema_id)

    def raw_channel(self, topic: str, encoding: str) -> int:
        """Add a channel /topic of bytes."""
        return self._writer.register_channel(topic=f"/{topic}", message_encoding=encoding, schema_id=NO_SCHEMA)

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def add(self, channel: int, t: float, record: dict[str, Any]) -> None:
        """Add a JSON record at t, s; arrays may be numpy's."""
        self.add_raw(channel, t, encoded(record))

    def add_raw(self, channel: int, t: float, data: bytes) -> None:
        """Add bytes at t, s."""
        stamp = max(0, round(t * 1e9))
        self._writer.add_message(channel, stamp, data, stamp)

    def close(self) -> None:
        """Finish and close the file."""
        try:
            self._writer.finish()  # type: ignore[no-untyped-call]
        finally:
            self._file.close()


def vector(n: int, description: str) -> dict[str, Any]:
    """Return the schema of n numbers."""
    return {
        "type": "array",
        "items": {"type": "number"},
        "minItems": n,
        "maxItems": n,
        "description": description,
    }


def scalar(kind: str, description: str) -> dict[str, Any]:
    """Return the schema of one value of a JSON type."""
    return {"type": kind, "description": description}


def record(**properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a record at a time t."""
    return {"type": "object", "properties": {"t": scalar("number", "s"), **properties}}


def encoded(record: dict[str, Any]) -> bytes:
    """Return a record as JSON; arrays may be numpy's."""
    return json.dumps(record, default=_plain).encode()


def _plain(value: Any) -> Any:
    """Return a numpy array or scalar as plain list or number."""
    return value.tolist()
