"""Fly a figure of eight in crazyflow (`pip install crazyflow`), told the state: a Crazyflie, by attitude and thrust."""

from dataclasses import replace

import numpy as np
from crazyflow.sim import Sim

from gate_racer import Racer, RacerOptions, State, load_track, load_vehicle
from gate_racer.vehicle.rotation import to_euler

MASS_KG, MOST_N = 0.04338, 0.7
track, vehicle = load_track("figure8"), load_vehicle("dcl")
curve = replace(vehicle.throttle, command=(0.0, 1.0), thrust_m_s2=(0.0, MOST_N / MASS_KG))
lags = {"thrust_lag_s": 0.07, "rate_lag_s": (0.03,) * 3, "attitude_gain_1_s": 5.6, "command_delay_s": 0.0}
drag = {"drag_quadratic_1_m": 0.0, "drag_linear_1_s": (0.5, 0.5, 0.54)}
vehicle = replace(vehicle, throttle=curve, mixer=None, rate_max_rad_s=(4.0, 4.0, 2.0), **lags, **drag)
racer, t = Racer(track, vehicle, RacerOptions(command_hz=50.0)), 0.0
axes, up = np.array([1, -1, -1]), np.array([0, 0, 0.5])  # half a turn about x: from NED to z up; its floor is lower
sim = Sim(control="attitude", drone_model="cf21B_500", attitude_freq=500)
pose = {"pos": up, "quat": np.roll(track.start.q_wb * [1, 1, -1, -1], -1)}
placed = sim.data.states.replace(**{name: np.float32(value)[None, None] for name, value in pose.items()})
sim.data = sim.data.replace(states=placed)
while racer.end is None:
    now = sim.data.states
    p, q, v, w = (np.asarray(a, float)[0, 0] for a in (now.pos, now.quat, now.vel, now.ang_vel))
    command = racer.step(t, State(t, axes * (p - up), np.roll(q, 1) * [1, 1, -1, -1], axes * v, axes * w))
    asked = [*(axes * to_euler(command.q_wb)), MASS_KG * command.thrust_m_s2]
    sim.attitude_control(np.array([[asked]], np.float32))
    sim.step(10)
    t += 0.02
print(racer.end.reason, racer.passages.times_s)
