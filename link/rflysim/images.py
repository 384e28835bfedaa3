"""Images on the wire: JPEG, PNG or raw pixels. The first bytes identify the first two; depth is never JPEG."""

import cv2
import numpy as np
from numpy.typing import NDArray

from gate_racer.link.rflysim.malformed import MalformedError
from gate_racer.link.rflysim.request import SensorRequest
from gate_racer.link.rflysim.sensors import SENSORS
from gate_racer.vehicle.image_file import JPEG_BEGIN, PNG_BEGIN, decode_image, image_size

Image = np.ndarray  # (H, W, 3) or (H, W) of 8 bit, (H, W) of 16 bit for depth

JPEG, RAW, PNG = 1, 2, 3  # SendProtocol[0]
METRES_PER_COUNT = 0.001  # default, where otherParams[2] is 0
NO_DEPTH = 65535  # counts, no surface within range
LOSSLESS_FAST = [cv2.IMWRITE_PNG_COMPRESSION, 1]  # least compression: the fastest


def decode_payload(payload: bytes, sensor: SensorRequest) -> Image:
    """Return (H, W, 3) BGR of 8 bit, (H, W) grey of 8 bit or (H, W) depth of 16 bit, by the sensor's type.

    Raises:
        MalformedError: not an image, or of another size or type.
    """
    kind = SENSORS[sensor.type_id]
    if is_raw(payload, sensor):
        dtype = np.dtype("<u2") if kind.encoding == "mono16" else np.dtype(np.uint8)
        shape = (sensor.height_px, sensor.width_px, 3) if kind.channels == 3 else (sensor.height_px, sensor.width_px)
        return np.frombuffer(payload, dtype).reshape(shape)
    stated, image = image_size(payload), None
    if stated is not None:
        if stated != (sensor.width_px, sensor.height_px):
            size = f"{stated[0]} x {stated[1]}"
            raise MalformedError(f"an image of {size} px, Config.json states {sensor.width_px} x {sensor.height_px}")
        as_it_is, colour, grey = cv2.IMREAD_UNCHANGED, cv2.IMREAD_COLOR, cv2.IMREAD_GRAYSCALE
        flag = {"mono16": as_it_is, "bgr8": colour, "mono8": grey}[kind.encoding]
        image = decode_image(payload, stated, flag)
    if image is None:
        raise MalformedError(
            f"{len(payload)} bytes are neither JPEG nor PNG nor {sensor.width_px} x {sensor.height_px} pixels"
        )
    if kind.encoding == "mono16" and (image.dtype != np.uint16 or image.ndim != 2):
        raise MalformedError("depth must be one channel of 16 bit")
    return image


def is_raw(payload: bytes, sensor: SensorRequest) -> bool:
    """Return whether a payload is raw pixels: of exactly their size, and in mode RAW or without the start of JPEG or PNG."""
    size = sensor.width_px * sensor.height_px * SENSORS[sensor.type_id].bytes_per_pixel
    return len(payload) == size and (sensor.mode == RAW or not payload.startswith((JPEG_BEGIN, PNG_BEGIN)))


def encode_payload(image: Image, mode: int, quality: int = 95) -> bytes:
    """Return the payload of an image; depth is sent as PNG where JPEG is requested.

    Raises:
        ValueError: a mode that is not JPEG, RAW or PNG.
    """
    if mode == RAW:
        return image.astype(image.dtype.newbyteorder("<")).tobytes()
    if mode not in (JPEG, PNG):
        raise ValueError(f"images are sent in mode {JPEG} JPEG, {RAW} raw or {PNG} PNG, not {mode}")
    if mode == JPEG and image.dtype == np.uint8:
        ok, packed = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])
    else:
        ok, packed = cv2.imencode(".png", image, LOSSLESS_FAST)
    assert ok, "images of 8 and 16 bit can always be compressed"
    return np.asarray(packed).tobytes()


def metres_per_count(sensor: SensorRequest) -> float:
    """Return the unit of a depth image, m."""
    return sensor.other[2] or METRES_PER_COUNT


def depth_m(counts: Image, sensor: SensorRequest) -> NDArray[np.float32]:
    """Return the depth (H, W) m; NaN where the sensor measured nothing."""
    metres = counts.astype(np.float32) * np.float32(metres_per_count(sensor))
    metres[counts == NO_DEPTH] = np.nan
    return metres


def depth_counts(metres: NDArray[np.floating], sensor: SensorRequest) -> NDArray[np.uint16]:
    """Return the inverse of `depth_m`; values not finite or too far become `NO_DEPTH`."""
    counts = np.nan_to_num(np.round(metres / metres_per_count(sensor)), nan=NO_DEPTH, posinf=NO_DEPTH)
    return np.clip(counts, 0, NO_DEPTH).astype(np.uint16)


def image_file(payload: bytes, sensor: SensorRequest) -> bytes:
    """Return a colour or grey frame as a common image file: unchanged, or PNG for raw pixels.

    Raises:
        MalformedError: not an image of the sensor's size.
    """
    if is_raw(payload, sensor):
        return encode_payload(decode_payload(payload, sensor), PNG)
    size, wanted = image_size(payload), (sensor.width_px, sensor.height_px)
    if size != wanted:
        found = f"an image of {size[0]} x {size[1]} px" if size else f"{len(payload)} bytes that are not an image"
        raise MalformedError(f"{found}, Config.json states {wanted[0]} x {wanted[1]} px")
    return payload
