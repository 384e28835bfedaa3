"""Perception in a process of its own, which owns the video socket, processes the newest complete frame and returns its
detections. A slow detector then costs frames, never commands.
"""

import contextlib
import ctypes
import multiprocessing
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection

from gate_racer.common.parts import LIVE_PATIENCE_S
from gate_racer.common.process import Worker, end, ignore_signals, prefer
from gate_racer.link.camera import CameraReceiver
from gate_racer.link.client import VideoReceiver
from gate_racer.link.rflysim.client import VisionReceiver
from gate_racer.link.sockets import Closing, LinkError
from gate_racer.perception.detection import Detection
from gate_racer.perception.registry import open_detector
from gate_racer.perception.roi import SearchWindow
from gate_racer.vehicle.camera import Camera

ImageReceiver = VideoReceiver | VisionReceiver | CameraReceiver
START_S = 120.0  # s for the worker to load on a busy machine; about one is usual
POLL_S = 0.2  # s between the worker's checks whether it should end
FROZEN_S = 1.0  # s without a cycle of the worker, after which it is reported; an image takes at most a tenth of that
REVIVE_S = 3.0  # s, least interval between two starts of the worker, which takes about one to load
END_S = 2.0  # s to wait at the end for a worker that responds
REFUSED = "images_refused"  # counter of images without an answer of the detector
FOUND_KEPT = 100  # detections buffered for the loop: some seconds


@dataclass(frozen=True, slots=True)
class SeenImage:
    """One processed frame, still on the video's own clock."""

    stamp: float  # s, time of exposure by the stream's stamp
    received: float  # s, local monotonic clock
    id: int
    detections: list[Detection]
    jpeg: bytes
    skipped: int  # complete frames skipped so far for a newer one
    counters: dict[str, int]  # counters of the video link
    window: SearchWindow


class PerceptionProcess(Closing):
    """Owner of the worker process and reader of its mailbox."""

    def __init__(self, open_receiver: Callable[[], ImageReceiver], camera: Camera, detector: str):
        """Start the worker, which opens the receiver. Raises LinkError when its port cannot be bound."""
        self._tools = open_receiver, camera, detector
        context = multiprocessing.get_context("spawn")
        # Shared memory without a lock. A window read during a write is half old, and as good as either.
        self._window = context.RawArray("d", len(SearchWindow._fields))
        self._host = context.RawValue("I", 0)  # IPv4 address of the only sender, 0 for any
        self._round = context.RawValue("d", 0.0)  # monotonic s, last cycle of the worker
        self._found: deque[SeenImage] = deque(maxlen=FOUND_KEPT)
        self._launch()
        self.address, successor = self.worker.started(START_S, LinkError)
        self._reader.start()
        self._tools = successor, camera, detector

    def _launch(self) -> None:
        """Start a worker, which first sends address and successor, and create the thread that reads its images."""
        self._launched = self._round.value = time.monotonic()
        self.worker = Worker(_work, *self._tools, self._window, self._host, self._round, name="perception")
        self.pipe = self.worker.pipe
        self._reader = threading.Thread(target=self._read, args=(self.pipe,), name="perception", daemon=True)

    def revive(self) -> None:
        """Replace a worker that has died, at most every `REVIVE_S`, at its port; nobody waits for the new one."""
        if not self.alive and time.monotonic() - self._launched > REVIVE_S:
            self._reader.join(END_S)
            self.pipe.close()
            self._launch()
            self._reader.start()

    def expect(self, window: SearchWindow) -> None:
        self._window[:] = window

    def accept_only(self, host: str) -> None:
        """Restrict the worker to images from one host (IPv4 address); empty: any host."""
        self._host.value = int.from_bytes(socket.inet_aton(host), "big") if host else 0

    def receive(self) -> list[SeenImage]:
        """Return all detections since the last call; empty also when the worker has ended (see `alive`)."""
        return [self._found.popleft() for _ in range(len(self._found))]

    def _read(self, pipe: Connection) -> None:
        """Read on a thread: a worker that stalls in the middle of a message blocks only this thread."""
        ended = EOFError, OSError, ValueError, TypeError  # the worker has ended, or the pipe is closed
        with contextlib.suppress(*ended):
            while True:
                if isinstance(received := pipe.recv(), SeenImage):  # else the address of a worker that was revived
                    self._found.append(received)

    @property
    def alive(self) -> bool:
        return self.worker.process.is_alive()

    def silent_s(self, now: float) -> float:
        """Return the time since the worker's last cycle, at `now` (monotonic, s): it has stalled, or works on one image."""
        return now - self._round.value

    def close(self) -> None:
        """End the worker, by force if it has stalled, and close the pipe."""
        frozen = self.silent_s(time.monotonic()) > FROZEN_S
        with contextlib.suppress(OSError):
            self.pipe.send(None)  # readable means the end; the pipe itself may be in use by the reader
        end(self.worker.process, 0.0 if frozen else END_S)
        self._reader.join(END_S)
        self.pipe.close()


def _work(
    pipe: Connection,
    open_receiver: Callable[[], ImageReceiver],
    camera: Camera,
    name: str,
    mailbox: Sequence[float],
    host: ctypes.c_uint,
    last_round: ctypes.c_double,
) -> None:
    ignore_signals()
    prefer()
    receiver, detector = open_receiver(), open_detector(name, camera, LIVE_PATIENCE_S)
    skipped = 0
    detector.detect(None)
    refused = detector.refused
    with receiver:
        last_round.value = time.monotonic()
        pipe.send((receiver.address, receiver.successor))
        try:
            while not pipe.poll():  # readable means the end, or that the parent has ended
                last_round.value = time.monotonic()
                receiver.accept_only(socket.inet_ntoa(host.value.to_bytes(4, "big")) if host.value else "")
                frames = receiver.receive(POLL_S)
                if not frames:
                    continue
                skipped += len(frames) - 1
                frame, received = frames[-1]
                frame_ratio, *region = mailbox[:]
                window = SearchWindow(frame_ratio, *map(int, region))
                detections = detector.detect_encoded(frame.jpeg, window)
                counters = asdict(receiver.counters) | {REFUSED: detector.refused - refused}
                pipe.send(SeenImage(frame.t, received, frame.id, detections, frame.jpeg, skipped, counters, window))
        except (EOFError, OSError):
            pass  # the parent has ended
