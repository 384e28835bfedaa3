"""Perception in a process of its own: it owns the video socket, always works on the newest complete frame, and hands over
what it found. A slow detector then costs frames, never commands.
"""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection

from link.priority import prefer
from link.rflysim.vision import VisionReceiver
from link.udp import LinkError, VideoReceiver
from perception.detection import Detection, decode
from perception.detectors import open_detector
from perception.search import Expected
from vehicle.camera import Camera

Receiver = VideoReceiver | VisionReceiver
POLL_S = 0.2  # how often the worker looks whether it is still wanted


@dataclass(frozen=True, slots=True)
class Seen:
    """One processed frame, still on the video's own clock."""

    stamp: float  # s, of exposure, as the stream says
    received: float  # s, local monotonic clock
    id: int
    detections: list[Detection]
    jpeg: bytes
    skipped: int  # complete frames passed over so far because a newer one was there
    counters: dict[str, int]  # of the video link


class PerceptionProcess:
    """Starts the worker and reads its mailbox."""

    def __init__(self, open_receiver: Callable[[], Receiver], camera: Camera, detector: str):
        """Opens the receiver over there. Raises LinkError when its port cannot be bound."""
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        # A mailbox that nobody waits for. What is read while it is written is half old, a window as good as the other two.
        self._expected = context.RawArray("d", len(Expected._fields))
        self._process = context.Process(
            target=_work, args=(theirs, open_receiver, camera, detector, self._expected), name="perception", daemon=True
        )
        self._process.start()
        theirs.close()
        try:
            self.address, problem = self.pipe.recv()
        except EOFError:
            self.address, problem = None, "the perception process died at its start"
        if problem:
            self.close()
            raise LinkError(problem)

    def expect(self, expected: Expected) -> None:
        """Tells the worker what the next picture may show."""
        self._expected[:] = expected

    def receive(self) -> list[Seen]:
        """Everything found since the last call; an empty list as well when the worker is gone (see `alive`)."""
        seen = []
        try:
            while self.pipe.poll():
                seen.append(self.pipe.recv())
        except (EOFError, OSError):
            pass
        return seen

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def __enter__(self) -> "PerceptionProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.pipe.close()
        self._process.join(timeout=2.0)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()


def _work(
    pipe: Connection, open_receiver: Callable[[], Receiver], camera: Camera, name: str, mailbox: Sequence[float]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process by closing the pipe
    prefer()
    try:
        receiver = open_receiver()
    except LinkError as error:
        pipe.send((None, str(error)))
        return
    detector, skipped = open_detector(name, camera), 0
    detector.detect(None)
    with receiver:
        pipe.send((receiver.address, ""))
        try:
            while not pipe.poll():  # the parent never sends: readable means closed
                frames = receiver.receive(POLL_S)
                if not frames:
                    continue
                skipped += len(frames) - 1
                frame, received = frames[-1]
                proportion, *window = mailbox[:]
                detections = detector.detect(decode(frame.jpeg), Expected(proportion, *map(int, window)))
                counters = asdict(receiver.counters)
                pipe.send(Seen(frame.t, received, frame.id, detections, frame.jpeg, skipped, counters))
        except (EOFError, OSError):
            pass  # the parent is gone
