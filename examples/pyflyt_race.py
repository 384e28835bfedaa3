"""Fly a figure of eight in PyFlyt, told the state, by body rates and thrust.

It asks for NumPy below 2, but flies with later ones: `pip install --no-deps pyflyt pybullet pettingzoo`.
"""

from dataclasses import replace

import numpy as np
from PyFlyt.core import Aviary

from gate_racer import Racer, State, load_track, load_vehicle

track, vehicle = load_track("figure8"), load_vehicle("dcl")
curve = replace(vehicle.throttle, command=(0.0, 1.0), thrust_m_s2=(0.0, 40.0))  # of its drone of 1 kg
vehicle = replace(vehicle, command_delay_s=0.0, throttle=curve, drag_quadratic_1_m=0.1)
axes, up = np.array([1, -1, -1]), np.array([0, 0, 1.0])  # half a turn about x: from NED to z up; its floor is lower
yaw = -np.radians(track.start.yaw_deg)
options = {"drone_model": "primitive_drone"}
sky = Aviary(np.array([up]), np.array([[0, 0, yaw]]), "quadx", drone_options=options, seed=0)
sky.set_mode(0)
racer, t = Racer(track, vehicle), 0.0
while racer.end is None:
    p, q = map(np.array, sky.getBasePositionAndOrientation(sky.drones[0].Id))
    v = np.array(sky.getBaseVelocity(sky.drones[0].Id)[0])
    w = sky.state(0)[0]
    command = racer.step(t, State(t, axes * (p - up), np.roll(q, 1) * [1, 1, -1, -1], axes * v, axes * w))
    throttle = np.sqrt(max(command.thrust_m_s2, 0.0) / 40.0)
    sky.set_setpoint(0, np.array([*(axes * command.omega_b), throttle]))
    for _ in range(2):
        sky.step()
    t += 1 / 60
print(racer.end.reason, racer.passages.times_s)
