"""Learned policies: ONNX files of any trainer, run by OpenCV, and the controller that commands by them.

What a file observes, commands and was trained for stands in its metadata (`ModelProto.metadata_props`), as text:

| key | what |
|---|---|
| `observation`, `action` | columns of the network's input and output, in order: `p_x p_y ...`, as of `tracks.observation` |
| `about`, `scaling` | JSON of `PolicyProvenance` and of `Scaling` |
| `digest` | SHA-256 of all before this entry, the last: OpenCV can die of a damaged model |
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from gate_racer.common.config import from_dict, shown
from gate_racer.common.errors import UserError, meant
from gate_racer.common.files import parse_json, read_bytes, reading
from gate_racer.mpc.control import Control, unplanned
from gate_racer.mpc.geometric import brake
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.observation import ACTION, OBSERVATION, Scaling
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

COLUMNS = {"observation": " ".join(OBSERVATION.columns), "action": " ".join(ACTION.columns)}
METADATA, KEY, VALUE = 14, 1, 2  # fields of ModelProto and of an entry, all length-delimited
VARINT, LENGTH_DELIMITED = 0, 2  # the wire types of Protocol Buffers that a ModelProto has


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


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the length-delimited fields of a message (Protocol Buffers, "Encoding")."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)  # or the size of the content
        if tag & 7 == LENGTH_DELIMITED:
            if at + value > len(data):
                raise ValueError("cut off")
            yield tag >> 3, data[at : at + value]
            at += value
        elif tag & 7 != VARINT:
            raise ValueError("no ONNX model")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
    return value | data[at] << shift, at + 1


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | LENGTH_DELIMITED]) + _as_varint(len(content)) + content


def _as_varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _as_varint(value >> 7)


FOLDER = Path(__file__).parent
ONNX = ".onnx"  # suffix of files
BYTES = 4 << 20  # bytes, largest file; two layers of 128 take 90 kB, of 512 1.2 MB


@dataclass(frozen=True)
class PolicyProvenance:
    """Provenance of a policy: track, vehicle, command rate and training."""

    track: str
    track_hash: str
    vehicle: str
    vehicle_hash: str
    command_hz: float
    settings: tuple[int, ...]  # settings of Swift's plant used in training
    steps: int  # steps of training, over all vehicles
    seed: int


@dataclass(frozen=True, eq=False)
class Policy:
    """Network from observation (31,) to action (4,), in -1..1, with its scaling and provenance."""

    about: PolicyProvenance
    scaling: Scaling
    act: PolicyNetwork

    def require(self, vehicle: Vehicle, command_hz: float) -> None:
        """Check that vehicle and command rate are those of the training. Raises UserError for others."""
        if vehicle.hash != self.about.vehicle_hash:
            given, trained = f"{vehicle.name} ({vehicle.hash})", f"{self.about.vehicle} ({self.about.vehicle_hash})"
            mend = f"add --vehicle {self.about.vehicle}"
            raise UserError(f"the policy was trained for vehicle {trained}, not for {given}; {mend}")
        if command_hz != self.about.command_hz:
            rates = f"at {self.about.command_hz:g} Hz, the command rate of the profile is {command_hz:g} Hz"
            raise UserError(f"the policy was trained {rates}")

    def warning(self, track: Track) -> str:
        """Return a warning if the track is not that of the training, or ""."""
        if track.hash == self.about.track_hash:
            return ""
        return f"the policy was trained for {self.about.track} ({self.about.track_hash}), not for {track.name} ({track.hash})"


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob(f"*{ONNX}"))


def is_policy(name: str) -> bool:
    return Path(name).suffix == ONNX or name.casefold() in map(str.casefold, names())


def path_of(name: str) -> Path:
    """Return the file of a policy, by its name or path. Raises UserError for an unknown name."""
    if Path(name).suffix == ONNX:
        return Path(name)
    return FOLDER / f"{meant(name, names(), 'policy', 'the path of an .onnx file')}{ONNX}"


def load_policy(name: str) -> Policy:
    """Load the policy of a name, or of a file's path. Raises UserError for no such policy, or a malformed file."""
    path = path_of(name)
    model = read_bytes(path, BYTES)
    with reading(path, "not a policy file"):
        known = metadata(model)
        if sealed(model[: -len(sealed(b""))]) != model:
            raise ValueError("its content does not have its digest")
        for key, columns in COLUMNS.items():
            if known[key] != columns:
                raise ValueError(f"its {key} is {shown(known[key])}, must be {columns}")
        about, scaling = (parse_json(known[key], f"{path}: {key}") for key in ("about", "scaling"))
        return Policy(from_dict(about, PolicyProvenance, str(path)), _scaling(scaling), PolicyNetwork(model))


def described(model: bytes, about: PolicyProvenance, scaling: Scaling) -> bytes:
    """Return an ONNX model, whose input is an observation and whose output an action, with its metadata as a policy."""
    numbers = {key: np.asarray(value).tolist() for key, value in scaling._asdict().items()}
    return sealed(with_metadata(model, COLUMNS | {"about": json.dumps(asdict(about)), "scaling": json.dumps(numbers)}))


def _scaling(values: Mapping[str, Any]) -> Scaling:
    """Return the scaling of a file. Raises ValueError for a number that is none."""
    found: dict[str, Any] = {}
    for key in Scaling._fields:
        value, shape = np.asarray(values[key], float), (3,) if key in ("middle_m", "half_m", "rate_max_rad_s") else ()
        if value.shape != shape or not np.isfinite(value).all() or (key != "middle_m" and (value <= 0).any()):
            form = "three positive finite numbers" if shape else "a positive finite number"
            raise ValueError(f"{key} is {value.tolist()}, must be {form}")
        found[key] = value if shape else float(value)
    return Scaling(**found)


class PolicyController:
    """Policy in the loop; call `step` once per command. Its only memory is the last action."""

    def __init__(self, policy: Policy, vehicle: Vehicle):
        self._policy, self._attitude_gain = policy, vehicle.attitude_gain_1_s
        self._action = policy.scaling.hover

    def step(self, t: float, x: Array, gate: Gate) -> Control:
        """Compute the command for a state x (14,), RATES_X, and the next gate, in the map frame; hover if x is not finite."""
        begin = time.perf_counter()
        if not np.isfinite(x).all():
            return unplanned(x, brake(x), self._attitude_gain, "the state is not finite")
        scaling = self._policy.scaling
        self._action = self._policy.act(scaling.observation(x, gate.corners(), self._action))
        return unplanned(x, scaling.input(self._action), self._attitude_gain, step_s=time.perf_counter() - begin)
