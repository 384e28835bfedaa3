"""Records in an MCAP file, which Foxglove, PlotJuggler and Rerun open: JSON channels with their schemas, and raw bytes.

Here they are written, and here they are read.
"""

import contextlib
import json
import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from mcap.exceptions import McapError
from mcap.records import Channel, Message
from mcap.stream_reader import StreamReader
from mcap.writer import Writer

from vehicle.errors import UserError

NO_SCHEMA = 0
MAGIC, VERSION = b"\x89MCAP", b"0\r\n"

Record = dict[str, Any]


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
            self._writer.finish()
        finally:
            self._file.close()


def read_records(
    path: Path, only: Collection[str] | None = None, without: Collection[str] = ()
) -> Iterator[tuple[str, Record]]:
    """Topic and record of every JSON message, in the order written.

    A file that was cut off gives what it still holds.

    Args:
        only: topics to read; None reads all.
        without: topics that are not even parsed.

    Raises:
        UserError: the file cannot be read, or is no MCAP file.
    """
    channels: dict[int, tuple[str, bool]] = {}
    try:
        with path.open("rb") as file:
            if not MAGIC.startswith(file.read(len(MAGIC))):
                raise UserError(f"{path}: is no MCAP file")
            file.seek(0)
            with contextlib.suppress(McapError, ValueError, struct.error):
                for item in StreamReader(file).records:
                    if isinstance(item, Channel):
                        wanted = item.topic not in without and (only is None or item.topic in only)
                        channels[item.id] = item.topic, wanted and item.message_encoding == "json"
                    elif isinstance(item, Message):
                        topic, wanted = channels[item.channel_id]
                        if wanted:
                            yield topic, json.loads(item.data)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def cut_off(path: Path) -> bool:
    """Whether a file lacks the end that `RecordFile.close` writes: the flight, or the disk, was over before."""
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - len(MAGIC + VERSION)))
        return file.read() != MAGIC + VERSION


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
