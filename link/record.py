"""MCAP files: their writer, for Foxglove, PlotJuggler and Rerun, and a reader, also of truncated, damaged or malicious ones.

Written are JSON channels with schemas, and raw bytes. Read are intact parts, whatever precedes them; the rest is counted. Format:
mcap.dev/spec. A file is a sequence of records (opcode u8, length u64, content), most of them in compressed chunks with a CRC.
"""

import json
import mmap
import os
import re
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lz4.frame
import zstandard
from mcap.writer import Writer

from gate_racer.common.errors import UserError
from gate_racer.common.files import CAUSES, FileError, parse_json

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
    return {"type": "array", "items": {"type": "number"}, "minItems": n, "maxItems": n, "description": description}


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


MAGIC = b"\x89MCAP0\r\n"
HEAD = struct.Struct("<BQ")  # opcode, length
CHUNK = struct.Struct("<QQQI")  # first and last time, uncompressed size and CRC
CHANNEL, MESSAGE, CHUNK_OPCODE, DATA_END, FOOTER, LAST_OPCODE = 0x04, 0x05, 0x06, 0x0F, 0x02, 0x0F
MESSAGE_HEAD = struct.Struct("<HIQQ")  # channel, number, times
# To the name of its compression.
CHUNK_BEGIN = re.compile(rb"\x06(.{8}).{28}(?:\x04\0\0\0zstd|\x03\0\0\0lz4)", re.DOTALL)
CHUNK_BYTES = 64 << 20  # largest chunk, uncompressed; our own have 1 MB and one record more
# Limit of the uncompressed size: ratio to the file size, plus bytes; our own have a ratio of 12.
MOST_RATIO, FREE_BYTES = 100, 16 << 20

Record = dict[str, Any]
Topics = dict[int, tuple[str, bool]]  # by channel: topic, and whether its messages are JSON
Bytes = bytes | mmap.mmap


@dataclass
class Losses:
    """Parts of a file that could not be read."""

    counts: Counter[str] = field(default_factory=Counter)
    skipped_bytes: int = 0
    cut_off: int | None = None  # position where a truncated file ceases to be readable
    last_s: float | None = None  # s, time of the last message read

    def __str__(self) -> str:
        """Return the losses in a line; empty if there are none."""
        parts = [f"{count} {what}{'s' if count > 1 else ''} damaged" for what, count in self.counts.items()]
        if self.skipped_bytes:
            parts.append(f"{self.skipped_bytes / 1e3:.1f} kB unreadable")
        if self.cut_off is not None:
            at = "" if self.last_s is None else f", at {self.last_s:.2f} s"
            parts.append(f"it is truncated after {self.cut_off / 1e3:.1f} kB{at}")
        return f"{', '.join(parts)}; the undamaged part is used" if parts else ""


def tell_losses(path: Path, losses: Losses) -> None:
    """Print the losses to stderr, if any."""
    if str(losses):
        print(f"{path}: {losses}", file=sys.stderr)


def read_records(
    path: Path,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    report: Callable[[Path, Losses], None] = tell_losses,
) -> Iterator[tuple[str, Record]]:
    """Yield topic and record of every JSON message, in the order written.

    Args:
        only: topics to read; None reads all.
        without: topics to skip unparsed.
        report: called at the end with the losses.

    Raises:
        FileError: the file cannot be read, or is not an MCAP file.
    """
    losses = Losses()
    for topic, data in _messages(path, losses, lambda topic: topic not in without and (only is None or topic in only)):
        try:
            record = parse_json(data, str(path))
        except (FileError, UnicodeDecodeError):
            record = None
        if isinstance(record, dict):
            yield topic, record
        else:
            losses.counts["record"] += 1
    report(path, losses)


def _messages(path: Path, losses: Losses, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield topic and bytes of every JSON message of the wanted topics."""
    data = _mapped(path)
    if not MAGIC.startswith(data[: len(MAGIC)]):  # a shorter file was truncated within it
        raise FileError(f"{path}: is not an MCAP file")
    topics, complete = _summary(data)
    for opcode, content in _records(data, losses):
        if opcode == CHANNEL:
            topics |= _channel(content)
        elif opcode == MESSAGE and len(content) >= MESSAGE_HEAD.size:
            channel, _, stamp_ns, _ = MESSAGE_HEAD.unpack_from(content)
            topic, is_json = topics.get(channel, ("", False))
            losses.last_s = stamp_ns / 1e9
            if not topic:
                losses.counts["record"] += 1
            elif is_json and wanted(topic):
                yield topic, content[MESSAGE_HEAD.size :]
    if losses.cut_off is None and not complete:
        losses.cut_off = len(data)


def _mapped(path: Path) -> Bytes:
    try:
        with path.open("rb") as file:
            empty = not os.fstat(file.fileno()).st_size
            return b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None


def _summary(data: Bytes) -> tuple[Topics, bool]:
    """Return the channels that a complete file repeats at its end, as the chunk with the first mention may be lost.

    Also return whether the file has its end.
    """
    topics: Topics = {}
    footer = HEAD.size + 20
    tail = data[max(0, len(data) - len(MAGIC) - footer) :]
    if len(tail) == footer + len(MAGIC) and tail[0] == FOOTER:
        begin = int.from_bytes(tail[HEAD.size : HEAD.size + 8], "little")
        for opcode, content in _split(data[begin : begin + CHUNK_BYTES] if begin else b"", Losses()):
            if opcode == CHANNEL:
                topics |= _channel(content)
    return topics, tail.endswith(MAGIC)


def _records(data: Bytes, losses: Losses) -> Iterator[tuple[int, bytes]]:
    """Yield opcode and content of every data record, chunks opened."""
    room, at, size = FREE_BYTES + MOST_RATIO * len(data), len(MAGIC), len(data)
    while True:
        opcode, length = HEAD.unpack_from(data, at) if at + HEAD.size <= size else (0, 0)
        begin, end = at + HEAD.size, at + HEAD.size + length
        if opcode in (DATA_END, FOOTER) and end <= size:
            return
        if not 0 < opcode <= LAST_OPCODE or end > size or length > CHUNK_BYTES:
            found = _next_chunk(data, at + 1)
            losses.skipped_bytes += (size if found is None else found) - at
            if found is None:
                losses.cut_off = at
                return
            at = found
        elif opcode != CHUNK_OPCODE:
            yield opcode, data[begin:end]
            at = end
        elif (unpacked := _unpacked(data[begin:end], room)) is not None:
            room -= len(unpacked)
            yield from _split(unpacked, losses)
            at = end
        else:
            losses.counts["chunk"] += 1
            at = min(_next_chunk(data, at + 1) or end, end)  # its length may be the damaged part


def _next_chunk(data: Bytes, at: int) -> int | None:
    """Return the position of the next record that looks like a chunk, by opcode, length and name of a compression."""
    while (found := CHUNK_BEGIN.search(data, at)) is not None:
        at = found.start()
        if at + HEAD.size + int.from_bytes(found[1], "little") <= len(data):
            return at
        at += 1
    return None


def _unpacked(chunk: bytes, room: int) -> bytes | None:
    """Return the uncompressed records of a chunk; None if it is damaged or too large."""
    try:
        _, _, length, crc = CHUNK.unpack_from(chunk)
        compression, at = _text(chunk, CHUNK.size)
        data = chunk[at + 8 : at + 8 + int.from_bytes(chunk[at : at + 8], "little")]
        if length > min(CHUNK_BYTES, room):
            return None
        if compression == "zstd":
            with zstandard.ZstdDecompressor(max_window_size=CHUNK_BYTES).stream_reader(data) as stream:
                unpacked = stream.read(length + 1)
        elif compression == "lz4":
            unpacked = lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=length + 1)
        else:
            unpacked = data if not compression else b""
    except (*CAUSES, RuntimeError, MemoryError, struct.error, zstandard.ZstdError):
        return None
    return unpacked if len(unpacked) == length and crc in (0, zlib.crc32(unpacked)) else None


def _split(data: bytes, losses: Losses) -> Iterator[tuple[int, bytes]]:
    """Yield opcode and content of consecutive records."""
    at = 0
    while at + HEAD.size <= len(data):
        opcode, length = HEAD.unpack_from(data, at)
        at += HEAD.size + length
        if at > len(data):
            losses.counts["record"] += 1
            return
        yield opcode, data[at - length : at]


def _channel(content: bytes) -> Topics:
    """Return a channel's topic and whether its messages are JSON; empty if the record is malformed."""
    try:
        topic, at = _text(content, 4)
        encoding, _ = _text(content, at)
    except (ValueError, struct.error):
        return {}
    return {int.from_bytes(content[:2], "little"): (topic, encoding == "json")}


def _text(content: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<I", content, at)
    text = content[at + 4 : at + 4 + length]
    if len(text) != length:
        raise ValueError("text beyond the end of the record")
    return text.decode(), at + 4 + length
