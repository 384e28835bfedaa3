"""Log writer: a bounded queue, and a thread that compresses and writes, so that no flight waits for a disk.

When the queue is full, or the file near its limit, images are dropped first. A full or missing disk ends the log only.
Dropped records are counted.
"""

import base64
import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gate_racer.link.record import RecordFile

DRAIN_S = 0.05  # s between writes: in portions, so that the thread rarely holds the interpreter
IMAGE_BYTES = 8 << 20  # bytes of queued images: some 5 s at 30 Hz
QUEUE_BYTES = 32 << 20  # bytes of all queued records
IMAGES_SHARE = 0.8  # fraction of the file's limit beyond which images are dropped: they make some 95 % of the bytes
CLOSE_S = 10.0  # s to write the rest at the end, after which the disk counts as hung


@dataclass
class Dropped:
    """Counts of records that are not in the file."""

    images: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    channel: int
    t: float
    data: bytes
    is_image: bool


class LogWriter:
    """Writer whose `add` never raises, and waits only if `patient`."""

    def __init__(self, file: RecordFile, limit_bytes: int, patient: bool, tell: Callable[[str], None]):
        """
        Args:
            patient: wait for room in the queue instead of dropping records, where simulated time stands.
            tell: called once with the first problem.
        """
        self.problem, self.dropped = "", Dropped()
        self._file, self._limit, self._patient, self._tell = file, limit_bytes, patient, tell
        self._queue: deque[_Entry] = deque()
        self._bytes = self._image_bytes = 0  # bytes queued
        self._lock = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def add(self, channel: int, t: float, data: bytes, is_image: bool = False) -> None:
        """Queue one record at t, s; an image comes as JPEG."""
        entry, size = _Entry(channel, t, data, is_image), len(data)
        with self._lock:
            while self._patient and self._bytes + size > QUEUE_BYTES and not self.problem:
                self._lock.wait()
            full = self._bytes + size > QUEUE_BYTES or (is_image and self._image_bytes + size > IMAGE_BYTES)
            if self.problem or (full and not self._patient):
                self._drop(entry)
                return
            self._queue.append(entry)
            self._bytes += size
            self._image_bytes += size * is_image

    def close(self) -> None:
        """Write the rest and complete the file, unless the disk hangs."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._fail(f"the disk has not responded for {CLOSE_S:g} s")
        elif not self.problem and not self._file.path.exists():
            self._fail("was removed in flight")

    def _work(self) -> None:
        while not self._closing:
            with self._lock:
                self._lock.wait_for(lambda: self._closing, DRAIN_S)
            self._drain()
        self._drain()
        try:
            self._file.close()
        except Exception as error:
            self._fail(_reason(error))

    def _drain(self) -> None:
        """Write all queued records."""
        while self._queue:
            with self._lock:
                entry = self._queue.popleft()
                self._bytes -= len(entry.data)
                self._image_bytes -= len(entry.data) * entry.is_image
                self._lock.notify_all()
            try:
                if self.problem or self._file.size > self._limit * (IMAGES_SHARE if entry.is_image else 1.0):
                    self._drop(entry)
                else:
                    self._file.add_raw(entry.channel, entry.t, _image(entry) if entry.is_image else entry.data)
            except Exception as error:  # any error concerns the log alone
                self._fail(_reason(error))

    def _drop(self, entry: _Entry) -> None:
        self.dropped.images += entry.is_image
        self.dropped.records += not entry.is_image

    def _fail(self, reason: str) -> None:
        if not self.problem:
            self.problem = f"{self._file.path}: {reason}"
            self._tell(f"warning: {self.problem}; the flight continues without a log")
        with self._lock:
            self._lock.notify_all()


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


def _image(entry: _Entry) -> bytes:
    """Return a foxglove.CompressedImage."""
    sec, nsec = divmod(round(entry.t * 1e9), 1_000_000_000)
    image = {
        "timestamp": {"sec": sec, "nsec": nsec},
        "frame_id": "camera",
        "data": base64.b64encode(entry.data).decode(),
    }
    return json.dumps({**image, "format": "jpeg"}).encode()
