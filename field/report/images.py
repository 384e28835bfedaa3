"""Thumbnails of a flight's camera, of bounded total size: one just before each gate, and others as space permits."""

import base64

import cv2
import numpy as np

from gate_racer.field.report.flight import ReportedFlight, TimedImage
from gate_racer.vehicle.image_file import decode_image

WIDTH_PX, QUALITY = 320, 70
MOST_IMAGES = 400  # images considered, evenly in time
BUDGET_BYTES = 700_000  # bytes of all thumbnails; base 64 adds a third, and the page is to stay below 3 MB
BEFORE_S = 0.15  # s before a gate, last image in which it is in view


def thumbnails(flight: ReportedFlight) -> tuple[list[tuple[float, str]], list[int | None]]:
    """Return times (s since GO) and JPEGs (base 64), in order of time; and the index for each gate passed, or None."""
    images = flight.images
    stamps = np.array([t for t, _ in images])
    before = [int(k) - 1 for k in np.searchsorted(stamps, flight.gate_times_s - BEFORE_S)]
    evenly = np.linspace(0, len(images) - 1, min(len(images), MOST_IMAGES)).astype(int).tolist()
    small: dict[int, bytes] = {}
    for k in sorted({*evenly, *(k for k in before if k >= 0)}):
        if data := _thumbnail(images[k]):
            small[k] = data
    step = max(1, -(-sum(map(len, small.values())) // BUDGET_BYTES))
    room, kept = BUDGET_BYTES, set[int]()
    for k in [*(k for k in before if k in small), *list(small)[::step]]:
        if k not in kept and len(small[k]) <= room:
            kept.add(k)
            room -= len(small[k])
    order = sorted(kept)
    shown = [(images[k][0], base64.b64encode(small[k]).decode()) for k in order]
    return shown, [order.index(k) if k in kept else None for k in before]


def _thumbnail(image: TimedImage) -> bytes | None:
    """Return a thumbnail; None if the bytes are not an image."""
    pixels = decode_image(image[1])
    if pixels is None:
        return None
    height = max(1, round(pixels.shape[0] * WIDTH_PX / pixels.shape[1]))
    small = cv2.resize(pixels, (WIDTH_PX, height), interpolation=cv2.INTER_AREA)
    done, data = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return data.tobytes() if done else None
