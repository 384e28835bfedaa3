"""File of a policy with random weights, as trainers leave it: an ONNX model with metadata.

`small.onnx` is the export of an untrained actor of rsl_rl with one layer of eight nodes, 31 observations and four actions.
"""

from pathlib import Path

from gate_racer.mpc.policy.policy import PolicyProvenance, described
from gate_racer.tracks.observation import Scaling

SMALL = Path(__file__).parent / "small.onnx"


def provenance(track, vehicle):
    return PolicyProvenance(track.name, track.hash, vehicle.name, vehicle.hash, 60.0, (1, 3), 7, 0)


def write_onnx(path, track, vehicle):
    """Write an .onnx file."""
    path.write_bytes(described(SMALL.read_bytes(), provenance(track, vehicle), Scaling.of(track, vehicle)))
