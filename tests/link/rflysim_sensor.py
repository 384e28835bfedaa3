"""A request for a sensor of RflySim, for tests."""

from gate_racer.link.rflysim.payloads import JPEG
from gate_racer.link.rflysim.request import SensorRequest


def sensor(type_id=1, mode=JPEG, width=64, height=48, other=(0.0,) * 16):
    send = (mode, 127, 0, 0, 1, 0, 0, 0)
    return SensorRequest(2, type_id, 1, 0, width, height, 30, send, 90.0, (0.0,) * 3, (0.0,) * 3, other, 0.0)
