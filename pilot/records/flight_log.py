"""The flight log: MCAP with one JSON channel per kind of record, behind a bounded queue, so that no flight waits for a disk.

When the queue is full, or the file near its limit, images are dropped first. A full or missing disk ends the log only.
Dropped records are counted.

The log's time is the simulator's; `channels.yaml` has the fields of each channel.
"""

import base64
import json
import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gate_racer.common.config import read_fields
from gate_racer.link.record import RecordFile, encoded, record, scalar, vector

if TYPE_CHECKING:
    from gate_racer.pilot.records.view import LiveView

DRAIN_S = 0.05  # s between writes: in portions, so that the thread rarely holds the interpreter
IMAGES_QUEUED, RECORDS_QUEUED = 150, 20_000  # images for 5 s at 30 Hz, some 8 MB; records for half a minute
IMAGES_SHARE = 0.8  # fraction of the file's limit beyond which images are dropped: they make some 95 % of the bytes
CLOSE_S = 10.0  # s to write the rest at the end, after which the disk counts as hung


@dataclass(frozen=True, slots=True)
class _Entry:
    channel: int
    t: float
    data: bytes  # JPEG of an image
    is_image: bool = False


def _compressed(entry: _Entry) -> bytes:
    sec, nsec = divmod(round(entry.t * 1e9), 1_000_000_000)
    image = {"timestamp": {"sec": sec, "nsec": nsec}, "frame_id": "camera", "format": "jpeg"}
    return json.dumps({**image, "data": base64.b64encode(entry.data).decode()}).encode()


def _schema(text: str) -> dict[str, Any]:
    """Return the JSON Schema of a field as `channels.yaml` has it."""
    kind, _, description = text.partition(", ")
    if kind.startswith("list of "):
        return {"type": "array", "items": _schema(text.removeprefix("list of "))}
    if kind.isdecimal():
        return vector(int(kind), description)
    items = {"additionalProperties": {"type": kind.removeprefix("map of ")}} if kind.startswith("map of ") else {}
    return scalar("object" if items else kind, description) | items


SCHEMAS = {
    channel: record(**{name: _schema(text) for name, text in fields.items()})
    for channel, fields in read_fields(Path(__file__).with_name("channels.yaml")).items()
}
IMAGE = {
    "type": "object",
    "title": "foxglove.CompressedImage",
    "properties": {
        "timestamp": {"type": "object", "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}}},
        "frame_id": {"type": "string"},
        "data": {"type": "string", "contentEncoding": "base64"},
        "format": {"type": "string"},
    },
}


class FlightLog:
    """Log of one flight. `close` completes the file; without it the file holds what was written so far.

    Writing never raises, and waits only if `patient`.
    """

    def __init__(
        self,
        path: Path,
        view: "LiveView | None" = None,
        limit_mb: float = math.inf,
        patient: bool = True,
        tell: Callable[[str], None] = lambda line: None,
    ):
        """Open the log. Raises UserError if the file cannot be written.

        `view` receives the same records, `tell` the first problem. Where simulated time stands, be `patient`: wait for room in
        the queue instead of dropping records.
        """
        self._file, self.path, self._view = RecordFile(path), path, view
        channel = self._file.json_channel
        self._channels = {name: channel(name, f"gate_racer.{name}", schema) for name, schema in SCHEMAS.items()}
        self._image = channel("camera", "foxglove.CompressedImage", IMAGE)
        self.images = True  # images are logged; they are the first to be dropped when time is short
        self.problem = ""  # reason why the file is incomplete; empty if it is complete
        self.images_dropped = self.records_dropped = 0  # counts of those that are not in the file
        self._limit, self._patient, self._tell = limit_mb * 1e6, patient, tell
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._images_queued, self._records_queued = map(threading.Semaphore, (IMAGES_QUEUED, RECORDS_QUEUED))
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def write(self, channel: str, t: float, **fields: Any) -> None:
        """Write one record to a channel of `SCHEMAS` at t, s; arrays may be numpy's."""
        self._add(_Entry(self._channels[channel], t, encoded({"t": t, **fields})))
        if self._view is not None:
            self._view.offer(channel, t, {"t": t, **fields})

    def image(self, t: float, jpeg: bytes) -> None:
        """Write one camera image, exposed at t, s."""
        entry = _Entry(self._image, t, jpeg, is_image=True)
        if self.images:
            self._add(entry)
        else:
            self._drop(entry)
        if self._view is not None:
            self._view.offer("camera", t, jpeg)

    def close(self) -> None:
        """Write the rest and complete the file, unless the disk hangs; end the live view."""
        self._queue.put(None)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._fail(f"the disk has not responded for {CLOSE_S:g} s")
        elif not self.problem and not self.path.exists():
            self._fail("was removed in flight")
        if self._view is not None:
            self._view.close()

    def _add(self, entry: _Entry) -> None:
        limit = self._images_queued if entry.is_image else self._records_queued
        if self.problem or not limit.acquire(blocking=self._patient):
            self._drop(entry)
        else:
            self._queue.put(entry)

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None:
            try:
                if self.problem or self._file.size > self._limit * (IMAGES_SHARE if entry.is_image else 1.0):
                    self._drop(entry)
                else:
                    self._file.add_raw(entry.channel, entry.t, _compressed(entry) if entry.is_image else entry.data)
            except Exception as error:  # any error concerns the log alone
                self._fail(error)
            (self._images_queued if entry.is_image else self._records_queued).release()
            if self._queue.empty():
                time.sleep(DRAIN_S)
        try:
            self._file.close()
        except Exception as error:
            self._fail(error)

    def _drop(self, entry: _Entry) -> None:
        self.images_dropped += entry.is_image
        self.records_dropped += not entry.is_image

    def _fail(self, why: str | Exception) -> None:
        if not self.problem:
            self.problem = f"{self.path}: {getattr(why, 'strerror', None) or why}"
            self._tell(f"warning: {self.problem}; the flight continues without a log")
