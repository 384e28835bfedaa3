"""Records on their way to the disk: a bounded queue, and a thread that compresses and writes. No flight waits for a disk.

Where the queue is full, images are left out first; so they are when the file has grown to its limit. A disk that is full or
gone ends the log and nothing else. What is missing is counted.
"""

import base64
import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from link.record import RecordFile

DRAIN_S = 0.05  # between two looks at the queue: in portions, so that the thread seldom asks for the interpreter
IMAGE_BYTES = 8 << 20  # of images that may wait: some 5 s at 30 Hz
QUEUE_BYTES = 32 << 20  # of all that may wait
IMAGES_SHARE = 0.8  # of the file's limit, beyond which there are no more images: some 95 % of the bytes are theirs
CLOSE_S = 10.0  # for what is left at the end, after which a disk hangs


@dataclass
class Dropped:
    """What is not in the file."""

    images: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    channel: int
    t: float
    data: bytes
    is_image: bool


class LogWriter:
    """`add` never raises; it never waits either, unless `patient`."""

    def __init__(self, file: RecordFile, limit_bytes: int, patient: bool, tell: Callable[[str], None]):
        """
        Args:
            patient: wait for room instead of leaving something out: where time stands meanwhile.
            tell: hears once of what goes wrong.
        """
        self.problem, self.dropped = "", Dropped()
        self._file, self._limit, self._patient, self._tell = file, limit_bytes, patient, tell
        self._queue: deque[_Entry] = deque()
        self._bytes = self._image_bytes = 0  # that wait
        self._lock = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()

    def add(self, channel: int, t: float, data: bytes, is_image: bool = False) -> None:
        """One record at t, s; an image comes as JPEG."""
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
        """Writes what is left and completes the file; gives up on a disk that hangs."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._fail(f"the disk has hung for {CLOSE_S:g} s")
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
        """Writes all that waits."""
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
            except Exception as error:  # whatever it is, it is the log's
                self._fail(_reason(error))

    def _drop(self, entry: _Entry) -> None:
        self.dropped.images += entry.is_image
        self.dropped.records += not entry.is_image

    def _fail(self, reason: str) -> None:
        if not self.problem:
            self.problem = f"{self._file.path}: {reason}"
            self._tell(f"warning: {self.problem}; the flight goes on without a log")
        with self._lock:
            self._lock.notify_all()


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"


def _image(entry: _Entry) -> bytes:
    """A foxglove.CompressedImage."""
    sec, nsec = divmod(round(entry.t * 1e9), 1_000_000_000)
    image = {
        "timestamp": {"sec": sec, "nsec": nsec},
        "frame_id": "camera",
        "data": base64.b64encode(entry.data).decode(),
    }
    return json.dumps({**image, "format": "jpeg"}).encode()
