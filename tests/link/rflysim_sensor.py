"""A request for a sensor of RflySim, for tests."""

from dataclasses import replace

from gate_racer.link.rflysim.request import SensorRequest
from gate_racer.link.rflysim.stream import JPEG


def sensor(type_id=1, mode=JPEG, width=64, height=48, other=(), seq_id=2, port=0, **fields):
    """`other` is filled up with zeros."""
    send, filled = (mode, 127, 0, 0, 1, port, 0, 0), (*other, *[0.0] * (16 - len(other)))
    made = SensorRequest(seq_id, type_id, 1, 0, width, height, 30, send, 90.0, (0.0,) * 3, (0.0,) * 3, filled, 0.0)
    return replace(made, **fields)
