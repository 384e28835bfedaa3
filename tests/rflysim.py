"""Requests for sensors of RflySim, and the exposures that they are answered by."""

from dataclasses import replace

import numpy as np

from gate_racer.link.rflysim.request import SensorRequest
from gate_racer.link.rflysim.stream import JPEG
from gate_racer.sim.simulator import Exposure
from gate_racer.vehicle.rotation import from_euler
from tests.processes import free_port

LOCAL_HOST = "127.0.0.1"


def sensor(type_id=1, mode=JPEG, width=64, height=48, other=(), seq_id=2, port=0, **fields):
    """`other` is filled up with zeros."""
    send, filled = (mode, 127, 0, 0, 1, port, 0, 0), (*other, *[0.0] * (16 - len(other)))
    made = SensorRequest(seq_id, type_id, 1, 0, width, height, 30, send, 90.0, (0.0,) * 3, (0.0,) * 3, filled, 0.0)
    return replace(made, **fields)


def request(type_id, seq_id=0, width=64, height=36, mode=JPEG, other=(), **fields):
    """One whose samples go to a port of their own."""
    return sensor(type_id, mode, width, height, other, seq_id, free_port(), **fields)


def at(track, t=0.0, number=0, yaw=0.0):
    p_w, q_wb, still = track.start.p_wb + [0, 0, -1.0], from_euler(0.1, -0.2, yaw), np.zeros(3)
    return Exposure(number, t, p_w, q_wb, still, still, t, 0.0)
