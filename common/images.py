"""Image files, checked before they are decoded, and video files that every browser plays.

A header of a few bytes may claim an image of gigabytes, so size, depth and number of scans are checked beforehand.
JPEG: ITU T.81, annex B (markers); PNG: ISO 15948, 11.2.2 (IHDR).
"""

import os
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np

from gate_racer.common.command import ERR, descriptor_aside
from gate_racer.common.errors import UserError

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
IMAGE_BYTES = 32 << 20  # bytes, largest encoded image: a 4K frame as PNG
MOST_PX = 4096 * 4096  # pixels, largest image without an expected size (chosen)
MOST_SCANS = 40  # most scans of a progressive JPEG, each as slow to decode as the whole image; encoders write about 10
JPEG_BEGIN, JPEG_END, PNG_BEGIN = b"\xff\xd8\xff", b"\xff\xd9", b"\x89PNG\r\n\x1a\n"
FRAMES = (0xC0, 0xC1, 0xC2)  # frame types: baseline, extended, progressive; camera encoders write no others
SCAN, END = 0xDA, 0xD9


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height, px, from the header; None unless the bytes are a complete, supported JPEG or a PNG."""
    if data.startswith(JPEG_BEGIN):
        return _jpeg_size(data)
    if data.startswith(PNG_BEGIN):
        return _png_size(data)
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


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Read the size from the segments before the first scan, which must be complete, as must the end of the image."""
    if data.count(bytes([0xFF, SCAN])) > MOST_SCANS or data.rfind(JPEG_END) < 0:
        return None
    size, at = None, 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        body = data[at + 4 : at + 2 + length]
        if length < 2 or len(body) != length - 2 or marker == END:
            return None
        if marker == SCAN:
            return size
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a frame header, not a table or reserved
            if size is not None or marker not in FRAMES or len(body) < 6:
                return None
            bits, height, width, components = struct.unpack_from(">BHHB", body)
            if bits != 8 or not width or not height or components not in (1, 3) or len(body) != 6 + 3 * components:
                return None
            size = width, height
        at += 2 + length
    return None


def _png_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 33 or data[8:16] != b"\0\0\0\rIHDR" or zlib.crc32(data[12:29]) != int.from_bytes(data[29:33], "big"):
        return None
    width, height, bits = struct.unpack_from(">IIB", data, 16)
    return (width, height) if width and height and bits in (1, 2, 4, 8, 16) else None


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
