"""Image files, checked before they are decoded, and video files that every browser plays.

A header of a few bytes may claim an image of gigabytes, so size and number of scans are checked beforehand.
"""

import io
import os
from pathlib import Path

import cv2
import numpy as np
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from gate_racer.common.command import ERR, descriptor_aside
from gate_racer.common.errors import UserError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
IMAGE_BYTES = 32 << 20  # bytes, largest encoded image: a 4K frame as PNG
MOST_PX = 4096 * 4096  # pixels, largest image without an expected size (chosen)
MOST_SCANS = 40  # most scans of a progressive JPEG, each as slow to decode as the whole image; encoders write about 10
JPEG_BEGIN, JPEG_END, PNG_BEGIN = b"\xff\xd8\xff", b"\xff\xd9", b"\x89PNG\r\n\x1a\n"
KINDS = {JPEG_BEGIN: JpegImageFile, PNG_BEGIN: PngImageFile}
SCAN = b"\xff\xda"


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height, px, from the header; None unless the bytes are a complete JPEG or a PNG."""
    kind = next((kind for begin, kind in KINDS.items() if data.startswith(begin)), None)
    if kind is None or (kind is JpegImageFile and (data.count(SCAN) > MOST_SCANS or data.rfind(JPEG_END) < 0)):
        return None
    try:
        return kind(io.BytesIO(data)).size
    except Exception:  # Pillow's have no class in common
        return None


def decode_image(data: bytes, size: tuple[int, int] | None = None, flag: int = cv2.IMREAD_COLOR) -> np.ndarray | None:
    """Decode an image (H, W, 3), BGR uint8, or as OpenCV's `flag` selects; None if the bytes are not an image.

    `size`: required width and height, px; None accepts up to MOST_PX.
    """
    stated = image_size(data) if len(data) <= IMAGE_BYTES else None
    if stated is None or (stated != size if size else stated[0] * stated[1] > MOST_PX):
        return None
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), flag | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None


class Film:
    """WebM video (VP8) in real time of the flight: over skipped steps the next frame is repeated.

    Of what OpenCV's wheels write, browsers play VP8 and VP9, which takes three times as long.
    """

    def __init__(self, path: Path, step_s: float):
        """`step_s`: s, time between two frames."""
        self._path, self._hz, self._shown = path, 1 / step_s, 0
        self._writer: cv2.VideoWriter | None = None

    def show(self, frame: np.ndarray, step: int) -> None:
        """Append a frame (H, W, 3), BGR uint8, of constant size, up to a step. Raises UserError."""
        if self._writer is None:
            size = (frame.shape[1], frame.shape[0])
            # FFmpeg warns, regardless of OpenCV's log level, about the codec's tag in WebM.
            with Path(os.devnull).open("wb") as nowhere, descriptor_aside(ERR, nowhere.fileno()):
                self._writer = cv2.VideoWriter(str(self._path), cv2.VideoWriter.fourcc(*"VP80"), self._hz, size)
            if not self._writer.isOpened():
                raise UserError(f"{self._path}: cannot be written as a WebM film")
        for _ in range(max(1, step + 1 - self._shown)):
            self._writer.write(frame)
        self._shown = step + 1

    def close(self) -> None:
        if self._writer is not None:
            self._writer.release()
