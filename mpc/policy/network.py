"""Networks of policies: ONNX files of any trainer, run by OpenCV.

What a file observes, commands and was trained for stands in its metadata (`ModelProto.metadata_props`), as text:

| key | what |
|---|---|
| `observation`, `action` | columns of the network's input and output, in order: `p_x p_y ...`, as of `tracks.observation` |
| `about`, `scaling` | JSON of `PolicyProvenance` and of `Scaling` |
| `digest` | SHA-256 of all before this entry, the last: OpenCV can die of a damaged model |
"""

import hashlib
from collections.abc import Iterator, Mapping

import cv2
import numpy as np
from numpy.typing import NDArray

from gate_racer.tracks.observation import ACTION, OBSERVATION
from gate_racer.vehicle.rotation import Array

COLUMNS = {"observation": " ".join(OBSERVATION.columns), "action": " ".join(ACTION.columns)}
METADATA, KEY, VALUE, LENGTH_DELIMITED = (
    14,
    1,
    2,
    2,
)  # fields of ModelProto and of an entry; a wire type of Protocol Buffers
FIXED = {1: 8, 5: 4}  # bytes of the wire types of fixed length


class PolicyNetwork:
    """Network of an ONNX file; its outputs are limited to -1..1, and NaN counts as 0, as in training."""

    def __init__(self, model: bytes):
        """Load the network and run it once. Raises ValueError for one that OpenCV cannot run, or of other sizes."""
        try:
            self._net = cv2.dnn.readNetFromONNX(np.frombuffer(model, np.uint8))
            out = self._forward(np.zeros(OBSERVATION.size))
        except cv2.error:
            raise ValueError("OpenCV cannot run it") from None
        if out.shape != (1, ACTION.size):
            raise ValueError(f"its output is {out.shape}, must be (1, {ACTION.size})")

    def __call__(self, observation: Array) -> Array:
        return np.clip(np.nan_to_num(self._forward(observation)[0].astype(float)), -1.0, 1.0)

    def _forward(self, observation: Array) -> NDArray[np.float32]:
        self._net.setInput(observation[None].astype(np.float32))
        return np.asarray(self._net.forward())


def metadata(model: bytes) -> dict[str, str]:
    """Return the metadata of an ONNX model. Raises ValueError or IndexError for bytes that are no Protocol Buffers."""
    found = {}
    for number, entry in _fields(model):
        if number == METADATA:
            parts = dict(_fields(entry))
            found[parts[KEY].decode()] = parts[VALUE].decode()
    return found


def with_metadata(model: bytes, entries: Mapping[str, str]) -> bytes:
    """Return an ONNX model with further metadata: in Protocol Buffers, repeated fields may be appended."""
    for key, value in entries.items():
        model += _field(METADATA, _field(KEY, key.encode()) + _field(VALUE, value.encode()))
    return model


def sealed(model: bytes) -> bytes:
    """Return an ONNX model with the digest of its content at its end."""
    return with_metadata(model, {"digest": hashlib.sha256(model).hexdigest()})


def require_sealed(model: bytes) -> None:
    """Raise ValueError for a model that does not end with the digest of its content."""
    if sealed(model[: -len(sealed(b""))]) != model:
        raise ValueError("its content does not have its digest")


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the length-delimited fields of a message (Protocol Buffers, "Encoding")."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == LENGTH_DELIMITED:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("cut off")
            yield tag >> 3, data[at : at + size]
            at += size
        elif tag & 7 in FIXED:
            at += FIXED[tag & 7]
        elif tag & 7 == 0:
            _, at = _varint(data, at)
        else:
            raise ValueError("no ONNX model")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, and the place behind it."""
    value = shift = 0
    while data[at] & 0x80:
        value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
    return value | data[at] << shift, at + 1


def _field(number: int, content: bytes) -> bytes:
    """Encode one length-delimited field."""
    return bytes([number << 3 | LENGTH_DELIMITED]) + _as_varint(len(content)) + content


def _as_varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _as_varint(value >> 7)
