"""MCAP files: their writer, for Foxglove, PlotJuggler and Rerun, and a reader, also of truncated, damaged or malicious ones.

Written are JSON channels with schemas, and raw bytes. Chunks whose CRC is wrong are counted and skipped; where the sequence of
records itself is broken, the file ends. Format: mcap.dev/spec.
"""

import contextlib
import io
import json
import mmap
import os
import struct
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lz4.frame
import zstandard
from mcap.exceptions import McapError
from mcap.reader import SeekingReader
from mcap.records import Channel, Chunk, Message
from mcap.stream_reader import StreamReader, breakup_chunk
from mcap.writer import Writer

from gate_racer.common.errors import UserError
from gate_racer.common.files import CAUSES, FileError, parse_json

NO_SCHEMA = 0  # schema_id of a channel without a schema (MCAP specification)


class RecordFile:
    """MCAP file open for writing. `close` completes the file; without it the file holds the records written so far."""

    def __init__(self, path: Path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("wb")
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror})") from None
        self.path = path
        self._writer = Writer(self._file)
        self._writer.start(profile="", library="gate-racer")

    def json_channel(self, topic: str, name: str, schema: dict[str, Any]) -> int:
        text = json.dumps(schema).encode()
        schema_id = self._writer.register_schema(name=name, encoding="jsonschema", data=text)
        return self._writer.register_channel(topic=f"/{topic}", message_encoding="json", schema_id=schema_id)

    def raw_channel(self, topic: str, encoding: str) -> int:
        return self._writer.register_channel(topic=f"/{topic}", message_encoding=encoding, schema_id=NO_SCHEMA)

    @property
    def size(self) -> int:
        return self._file.tell()

    def add(self, channel: int, t: float, record: dict[str, Any]) -> None:
        """Add a JSON record at t, s; arrays may be numpy's."""
        self.add_raw(channel, t, encoded(record))

    def add_raw(self, channel: int, t: float, data: bytes) -> None:
        stamp = max(0, round(t * 1e9))
        self._writer.add_message(channel, stamp, data, stamp)

    def close(self) -> None:
        try:
            self._writer.finish()  # type: ignore[no-untyped-call]
        finally:
            self._file.close()


def vector(n: int, description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "number"}, "minItems": n, "maxItems": n, "description": description}


def scalar(kind: str, description: str) -> dict[str, Any]:
    return {"type": kind, "description": description}


def record(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"t": scalar("number", "s"), **properties}}


def encoded(record: dict[str, Any]) -> bytes:
    return json.dumps(record, default=lambda value: value.tolist()).encode()


MAGIC = b"\x89MCAP0\r\n"
RECORD_BYTES = 64 << 20  # largest record, and chunk unpacked; our own have 1 MB and one record more
# Limit of all that is unpacked: ratio to the file size, plus bytes; our own have a ratio of 12.
MOST_RATIO, FREE_BYTES = 100, 16 << 20
DAMAGE = (*CAUSES, EOFError, McapError, MemoryError, RuntimeError, struct.error, zstandard.ZstdError)

Record = dict[str, Any]


@dataclass
class Losses:
    counts: Counter[str] = field(default_factory=Counter)
    cut_off: int | None = None  # position where the file ceases to be readable
    last_s: float | None = None  # s, time of the last message read

    def __str__(self) -> str:
        parts = [f"{count} {what}{'s' if count > 1 else ''} damaged" for what, count in self.counts.items()]
        if self.cut_off is not None:
            at = ", and no message was read" if self.last_s is None else f", at {self.last_s:.2f} s"
            parts.append(f"it is truncated after {self.cut_off / 1e3:.1f} kB{at}")
        return f"{', '.join(parts)}; the undamaged part is used" if parts else ""


def tell_losses(path: Path, losses: Losses) -> None:
    if str(losses):
        print(f"{path}: {losses}", file=sys.stderr)


def read_records(
    path: Path,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    report: Callable[[Path, Losses], None] = tell_losses,
) -> Iterator[tuple[str, Record]]:
    """Yield topic and record of every JSON message, in the order written: of the topics `only`, skipping `without` unparsed.

    Calls `report` at the end with the losses. Raises FileError if the file cannot be read, or is not an MCAP file.
    """
    losses, data, channels = Losses(), _mapped(path), dict[int, Channel]()
    # A complete file repeats its channels at its end; the chunk with the first mention may be lost.
    with contextlib.suppress(*DAMAGE):
        data.seek(0)
        summary = SeekingReader(data, record_size_limit=RECORD_BYTES).get_summary()
        channels |= summary.channels if summary is not None else {}
    for found in _found(data, losses):
        if isinstance(found, Channel):
            channels[found.id] = found
            continue
        losses.last_s, channel = found.log_time / 1e9, channels.get(found.channel_id)
        if channel is None:
            losses.counts["record"] += 1
        elif channel.message_encoding == "json" and channel.topic not in without:
            if only is not None and channel.topic not in only:
                continue
            try:
                record = parse_json(found.data, str(path))
            except (FileError, UnicodeDecodeError):
                record = None
            if isinstance(record, dict):
                yield channel.topic, record
            else:
                losses.counts["record"] += 1
    report(path, losses)


def _mapped(path: Path) -> Any:  # a file in memory
    try:
        with path.open("rb") as file:
            empty = not os.fstat(file.fileno()).st_size
            data = io.BytesIO() if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    if not MAGIC.startswith(data.read(len(MAGIC))):  # a shorter file was truncated within it
        raise FileError(f"{path}: is not an MCAP file")
    return data


def _found(data: Any, losses: Losses) -> Iterator[Channel | Message]:
    data.seek(0, os.SEEK_END)
    room = FREE_BYTES + MOST_RATIO * data.tell()
    data.seek(0)
    try:
        for record in StreamReader(data, emit_chunks=True, record_size_limit=RECORD_BYTES).records:
            if isinstance(record, Channel | Message):
                yield record
            elif isinstance(record, Chunk):
                try:
                    inner = breakup_chunk(_unpacked(record, room), validate_crc=True)
                except DAMAGE:
                    losses.counts["chunk"] += 1
                    continue
                room -= record.uncompressed_size
                yield from (one for one in inner if isinstance(one, Channel | Message))
    except DAMAGE:
        losses.cut_off = data.tell()


def _unpacked(chunk: Chunk, room: int) -> Chunk:
    """Return a chunk without compression. Raises one of DAMAGE if it is damaged, or larger than it states or may be."""
    size, data = chunk.uncompressed_size, chunk.data
    if size > min(RECORD_BYTES, room):
        raise ValueError("too large")
    if chunk.compression == "zstd":
        with zstandard.ZstdDecompressor(max_window_size=RECORD_BYTES).stream_reader(data) as stream:
            data = stream.read(size + 1)
    elif chunk.compression == "lz4":
        data = lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=size + 1)
    if len(data) != size:
        raise ValueError("another size than stated")
    return replace(chunk, compression="", data=data)
