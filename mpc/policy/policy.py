"""Learned policies: the network and its .npz file, and the controller that commands by it; inference needs NumPy only.

| array | shape | what |
|---|---|---|
| `about` | () text | JSON of `PolicyProvenance` |
| `middle_m`, `half_m`, `speed_m_s`, `thrust_max_m_s2`, `rate_max_rad_s` | (3,) or () | `Scaling` |
| `weight_k`, `bias_k` | (out, in), (out,) float32 | layer k; the first includes the normalisation of observations in training |

    h_k+1 = l(W_k h_k + b_k),    l(z) = max(z, 0.2 z),    action = tanh(W_n h_n + b_n)

with Swift's two layers of 128 and their negative slope of 0.2 (Methods, "Training details").
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate_racer.common.config import shown
from gate_racer.common.errors import UserError
from gate_racer.common.files import parse_json, read_arrays, reading, write_arrays
from gate_racer.mpc import geometric
from gate_racer.mpc.control import Control, Source
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.observation import ACTION, OBSERVATION, Scaling
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import Array, exp, product
from gate_racer.vehicle.vehicle import Vehicle

FOLDER = Path(__file__).parent
SLOPE = 0.2  # -, negative slope of the leaky ReLU, as in Swift
BYTES = 4 << 20  # bytes, largest unpacked file; two layers of 128 take 90 kB, of 512 1.2 MB
Layer = tuple[NDArray[np.float32], NDArray[np.float32]]  # weights (out, in), biases (out,)
SCALING = Scaling._fields


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
    """Network from observation to action, with its scaling and provenance."""

    about: PolicyProvenance
    scaling: Scaling
    layers: Sequence[Layer]  # weights (out, in) and biases (out,), float32

    def act(self, observation: Array) -> Array:
        """Return the action (4,), in -1..1, for an observation (31,)."""
        h: NDArray[np.float32] = observation.astype(np.float32)
        for weight, bias in self.layers[:-1]:
            h = weight @ h + bias
            h = np.maximum(h, SLOPE * h)
        weight, bias = self.layers[-1]
        return np.tanh(weight @ h + bias).astype(float)

    def require(self, vehicle: Vehicle, command_hz: float) -> None:
        """Check that vehicle and command rate are those of the training.

        Raises:
            UserError: another vehicle or command rate.
        """
        if vehicle.hash != self.about.vehicle_hash:
            given, trained = f"{vehicle.name} ({vehicle.hash})", f"{self.about.vehicle} ({self.about.vehicle_hash})"
            raise UserError(
                f"the policy was trained for vehicle {trained}, not for {given}; add --vehicle {self.about.vehicle}"
            )
        if command_hz != self.about.command_hz:
            raise UserError(
                f"the policy was trained at {self.about.command_hz:g} Hz, the command rate of the profile is {command_hz:g} Hz"
            )

    def warning(self, track: Track) -> str:
        """Return a warning if the track is not that of the training, or ""."""
        if track.hash == self.about.track_hash:
            return ""
        return f"the policy was trained for {self.about.track} ({self.about.track_hash}), not for {track.name} ({track.hash})"


def names() -> list[str]:
    """Return the names of the shipped policies."""
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


def is_policy(name: str) -> bool:
    """Return whether it is the name or the file of a policy."""
    return Path(name).suffix == ".npz" or name in names()


def path_of(name: str) -> Path:
    """Return the file of a policy, by its name or path. Raises UserError for an unknown name."""
    if Path(name).suffix == ".npz":
        return Path(name)
    if name not in names():
        raise UserError(f"no policy {shown(name)}; known: {', '.join(names())}, or the path of an .npz file")
    return FOLDER / f"{name}.npz"


def load_policy(name: str) -> Policy:
    """Load the policy of a name, or of an .npz file's path.

    Raises:
        UserError: no such policy, or a malformed file.
    """
    path = path_of(name)
    arrays = read_arrays(path, BYTES)
    with reading(path, "not a policy file"):
        about = parse_json(str(arrays["about"]), str(path))
        about["settings"] = tuple(map(int, about["settings"]))
        layers: list[Layer] = []
        while f"weight_{len(layers)}" in arrays:
            layers.append((arrays[f"weight_{len(layers)}"], arrays[f"bias_{len(layers)}"]))
        numbers: dict[str, Any] = {key: arrays[key] if arrays[key].ndim else float(arrays[key]) for key in SCALING}
        scaling = Scaling(**numbers)
        _check(scaling, layers)
        return Policy(PolicyProvenance(**about), scaling, layers)


def write_policy(path: Path, policy: Policy) -> None:
    """Write a policy to an .npz file.

    Raises:
        FileError: the file cannot be written.
    """
    arrays = {"about": np.array(json.dumps(asdict(policy.about)))}
    arrays |= {key: np.array(getattr(policy.scaling, key)) for key in SCALING}
    for k, (weight, bias) in enumerate(policy.layers):
        arrays |= {f"weight_{k}": weight, f"bias_{k}": bias}
    write_arrays(path, arrays)


def _check(scaling: Scaling, layers: Sequence[Layer]) -> None:
    """Check shapes and values of a policy.

    Raises:
        ValueError: a layer or a scaling does not fit.
    """
    columns = OBSERVATION.size
    for k, (weight, bias) in enumerate(layers):
        rows = ACTION.size if k == len(layers) - 1 else len(bias)
        if weight.dtype != np.float32 or weight.shape != (rows, columns) or bias.shape != (rows,):
            raise ValueError(f"weight_{k} is {weight.dtype} {weight.shape}, must be float32 ({rows}, {columns})")
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise ValueError(f"layer {k} is not finite")
        columns = rows
    if not layers:
        raise ValueError("no layer: weight_0 is missing")
    for key in SCALING:
        value = np.asarray(getattr(scaling, key))
        shape = (3,) if key in ("middle_m", "half_m", "rate_max_rad_s") else ()
        if value.shape != shape or not np.isfinite(value).all() or (key != "middle_m" and (value <= 0).any()):
            raise ValueError(
                f"{key} is {value.tolist()}, must be {'three positive finite numbers' if shape else 'a positive finite number'}"
            )


P, Q, V = (RATES_X[name].at for name in "pqv")


class PolicyController:
    """Policy in the loop; call `step` once per command. Its only memory is the last action."""

    def __init__(self, policy: Policy, vehicle: Vehicle):
        self._policy, self._attitude_gain = policy, vehicle.attitude_gain_1_s
        self._action = policy.scaling.hover

    def step(self, t: float, x: Array, gate: Gate) -> Control:
        """Compute the command for a state x (14,), RATES_X, and the next gate, in the map frame; hover if x is not finite."""
        begin = time.perf_counter()
        if not np.isfinite(x).all():
            u, q_wb = geometric.brake(x), np.array([1.0, 0.0, 0.0, 0.0])
            reference = np.concatenate([np.zeros(3), q_wb, np.zeros(3), u])
            return Control(u, q_wb, Source.LEVEL, "the state is not finite", -1, 0.0, 0.0, 0.0, reference)
        scaling = self._policy.scaling
        self._action = self._policy.act(scaling.observation(x, gate.corners(), self._action))
        u = scaling.input(self._action)
        q_wb = np.array(product(x[Q], exp(u[:3] / self._attitude_gain)))
        reference = np.concatenate([x[P], x[Q], x[V], u])
        step_s = time.perf_counter() - begin
        return Control(u, q_wb, Source.SOLVED, "", 0, step_s, step_s, 0.0, reference)
