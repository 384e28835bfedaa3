"""Files of policies with random weights, as trainers leave them: arrays, and an ONNX model with metadata.

`small.onnx` is the export of an untrained actor of rsl_rl with one layer of eight nodes, 31 observations and four actions.
"""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from gate_racer.common.files import write_arrays
from gate_racer.mpc.policy.policy import PolicyProvenance, described
from gate_racer.tracks.observation import ACTION, OBSERVATION, Scaling

SMALL = Path(__file__).parent / "small.onnx"


def provenance(track, vehicle):
    return PolicyProvenance(track.name, track.hash, vehicle.name, vehicle.hash, 60.0, (1, 3), 7, 0)


def random_layers(sizes=(OBSERVATION.size, 16, 16, ACTION.size)):
    rng = np.random.default_rng(0)
    return [
        (rng.normal(0, 0.5, (b, a)).astype(np.float32), rng.normal(0, 0.1, b).astype(np.float32))
        for a, b in zip(sizes[:-1], sizes[1:], strict=True)
    ]


def write_layers(path, track, vehicle, layers):
    """Write an .npz file."""
    arrays = {"about": np.array(json.dumps(asdict(provenance(track, vehicle))))}
    arrays |= {key: np.array(value) for key, value in Scaling.of(track, vehicle)._asdict().items()}
    for k, (weight, bias) in enumerate(layers):
        arrays |= {f"weight_{k}": weight, f"bias_{k}": bias}
    write_arrays(path, arrays)


def write_onnx(path, track, vehicle):
    """Write an .onnx file."""
    path.write_bytes(described(SMALL.read_bytes(), provenance(track, vehicle), Scaling.of(track, vehicle)))
