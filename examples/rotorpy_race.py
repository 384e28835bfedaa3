"""Fly a figure of eight in RotorPy (`pip install rotorpy`), told the state: its Hummingbird, by body rates and thrust."""

from dataclasses import replace

import numpy as np
from rotorpy.vehicles.hummingbird_params import quad_params
from rotorpy.vehicles.multirotor import Multirotor

from gate_racer import Racer, State, load_track, load_vehicle

track, vehicle = load_track("figure8"), replace(load_vehicle("dcl"), command_delay_s=0.0)
quad = Multirotor(quad_params | {"k_w": 40.0}, control_abstraction="cmd_ctbr")
axes = np.array([1, -1, -1])  # half a turn about x: from NED to its axes with z up, and from FRD to FLU
body = {"x": axes * track.start.p_wb, "q": np.roll(track.start.q_wb * [1, 1, -1, -1], -1)}
body |= {"v": np.zeros(3), "w": np.zeros(3), "wind": np.zeros(3), "rotor_speeds": np.zeros(4)}
racer, t = Racer(track, vehicle), 0.0
while racer.end is None:
    p, v, w = (axes * body[name] for name in "xvw")
    command = racer.step(t, State(t, p, np.roll(body["q"], 1) * [1, 1, -1, -1], v, w))
    asked = {"cmd_thrust": quad.mass * command.thrust_m_s2, "cmd_w": axes * command.omega_b}
    for _ in range(10):
        body = quad.step(body, asked, 1 / 600)
    t += 1 / 60
print(racer.end.reason, racer.passages.times_s)
