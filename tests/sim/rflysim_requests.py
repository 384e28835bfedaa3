"""Exposures and requests for sensors of RflySim, for tests."""

import numpy as np

from gate_racer.link.rflysim.stream import JPEG
from gate_racer.sim.simulator import Exposure
from gate_racer.vehicle.rotation import from_euler
from tests.link.rflysim_sensor import sensor
from tests.processes import free_port

LOCAL_HOST = "127.0.0.1"


def at(track, t=0.0, number=0, yaw=0.0):
    return Exposure(
        number, t, track.start.p_wb + [0, 0, -1.0], from_euler(0.1, -0.2, yaw), np.zeros(3), np.zeros(3), t, 0.0
    )


def request(type_id, seq_id=0, width=64, height=36, mode=JPEG, other=(), **fields):
    """One whose samples go to a port of their own."""
    return sensor(type_id, mode, width, height, other, seq_id, free_port(), **fields)
