"""Images of a camera of this machine, or of a film, by OpenCV, in place of the video stream."""

import threading
import time
from collections import deque
from functools import partial
from itertools import count

import cv2

from gate_racer.link.messages import VideoFrame
from gate_racer.link.options import FILM, GSTREAMER, V4L2
from gate_racer.link.reassembly import StreamCounters
from gate_racer.link.sockets import Closing, LinkError

BACKENDS = {V4L2: cv2.CAP_V4L2, GSTREAMER: cv2.CAP_GSTREAMER, FILM: cv2.CAP_FFMPEG}
QUALITY = 92  # of 100, JPEG quality of the log's images
KEPT = 8  # images buffered, of which the newest is used


class CameraReceiver(Closing):
    """Receiver of a camera, in place of `link.client.VideoReceiver`; a film plays at its own speed, once."""

    address = ("", 0)  # nothing arrives by the network

    def __init__(self, source: str, size_px: tuple[int, int], hz: float):
        """Open the camera, and read on a thread. Raises LinkError if it cannot be opened, or its images have another size."""
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)  # it warns of what raises here
        kind, _, name = source.partition(":")
        self._film, self._capture = kind == FILM, cv2.VideoCapture(name, BACKENDS[kind])
        wanted = (cv2.CAP_PROP_FRAME_WIDTH, size_px[0]), (cv2.CAP_PROP_FRAME_HEIGHT, size_px[1]), (cv2.CAP_PROP_FPS, hz)
        for what, value in (*wanted, (cv2.CAP_PROP_BUFFERSIZE, 1)):
            self._capture.set(what, value)
        good, image = self._capture.read()
        if not good or image.shape[1::-1] != size_px:
            self._capture.release()
            (w, h), (width, height) = image.shape[1::-1] if good else size_px, size_px
            sizes = f"its images have {w}x{h} px; the vehicle's camera has {width}x{height} px"
            raise LinkError(f"link.video {source}: {sizes if good else 'cannot be read'}")
        self.counters, self.successor = StreamCounters(), partial(CameraReceiver, source, size_px, hz)
        self._frames: deque[tuple[VideoFrame, float]] = deque(maxlen=KEPT)
        self._arrived, self._closed = threading.Event(), threading.Event()
        self._reader = threading.Thread(target=self._read, name="camera", daemon=True)
        self._reader.start()

    def accept_only(self, host: str) -> None:
        """Do nothing: no host sends the images."""

    def receive(self, timeout_s: float) -> list[tuple[VideoFrame, float]]:
        """Return the images since the last call, with their reception (monotonic, s); wait at most timeout_s for one."""
        if self._arrived.wait(timeout_s):
            self._arrived.clear()
        return [self._frames.popleft() for _ in range(len(self._frames))]

    def _read(self) -> None:
        begin = time.monotonic()
        for number in count():
            good, image = self._capture.read()
            stamp = 1e-3 * self._capture.get(cv2.CAP_PROP_POS_MSEC)  # the driver's, or the place in the film
            if self._film:
                self._closed.wait(max(0.0, begin + stamp - time.monotonic()))
            received = time.monotonic()
            if not good or self._closed.is_set():
                return
            jpeg = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()
            self._frames.append((VideoFrame(stamp if self._film else stamp or received, number, jpeg), received))
            self._arrived.set()

    def close(self) -> None:
        self._closed.set()
        self._reader.join()
        self._capture.release()
