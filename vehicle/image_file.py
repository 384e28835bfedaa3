"""JPEG and PNG images, decoded only once their headers say what was to be expected.

A header of some bytes may claim an image of gigabytes: size, depth and number of scans are read from it beforehand.
JPEG: ITU T.81, annex B (markers); PNG: ISO 15948, 11.2.2 (IHDR).
"""

import struct
import zlib

import cv2
import numpy as np

IMAGE_BYTES = 32 << 20  # largest encoded image: a frame of 4K as PNG
MOST_PX = 4096 * 4096  # of an image whose size nobody states
MOST_SCANS = 40  # of a progressive JPEG, each of which takes as long as the whole image; encoders write about 10
JPEG_BEGIN, JPEG_END, PNG_BEGIN = b"\xff\xd8\xff", b"\xff\xd9", b"\x89PNG\r\n\x1a\n"
FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive; encoders of cameras write no others
NO_LENGTH = {0x01, *range(0xD0, 0xD8)}  # markers without a segment
SCAN, END = 0xDA, 0xD9


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in px as the header says; None where the bytes are no whole JPEG, and no PNG, that a camera sends."""
    if data.startswith(JPEG_BEGIN):
        return _jpeg_size(data)
    if data.startswith(PNG_BEGIN):
        return _png_size(data)
    return None


def decode_image(data: bytes, size: tuple[int, int] | None = None, flag: int = cv2.IMREAD_COLOR) -> np.ndarray | None:
    """The image (H, W, 3) BGR uint8, or as `flag` of OpenCV says; None where the bytes are none.

    Args:
        size: width and height in px that it must have; None takes up to MOST_PX.
    """
    stated = image_size(data) if len(data) <= IMAGE_BYTES else None
    if stated is None or (stated != size if size else stated[0] * stated[1] > MOST_PX):
        return None
    try:
        return cv2.imdecode(np.frombuffer(data, np.uint8), flag | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """By the segments up to the first scan, which all have to be whole; the end of the image has to be there as well."""
    if data.count(bytes([0xFF, SCAN])) > MOST_SCANS or data.rfind(JPEG_END) < 0:
        return None
    size, at = None, 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # filling
            at += 1
            continue
        if marker in NO_LENGTH:
            at += 2
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        body = data[at + 4 : at + 2 + length]
        if length < 2 or len(body) != length - 2 or marker == END:
            return None
        if marker == SCAN:
            return size
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a frame: not tables, not reserved
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
