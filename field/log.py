"""Records of an MCAP log, as far as it goes: one that was cut off gives what it still holds."""

import contextlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcap.exceptions import McapError
from mcap.records import Channel, Message
from mcap.stream_reader import StreamReader

Record = dict[str, Any]


def records(path: Path, without: tuple[str, ...] = ()) -> Iterator[tuple[str, Record]]:
    """Topic and record of every JSON message, in the order written; topics of `without` are not even parsed."""
    channels: dict[int, Channel] = {}
    with path.open("rb") as file, contextlib.suppress(McapError, ValueError, struct.error):
        for record in StreamReader(file).records:
            if isinstance(record, Channel):
                channels[record.id] = record
            elif isinstance(record, Message):
                channel = channels[record.channel_id]
                if channel.message_encoding == "json" and channel.topic not in without:
                    yield channel.topic, json.loads(record.data)
