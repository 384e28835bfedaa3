"""Logs of flights that never were: along a plan, with what is known to go wrong in them."""

from dataclasses import replace

import cv2
import numpy as np

from gate_racer.field.report.flight import TimeSeries
from gate_racer.pilot.records.flight_log import FlightLog

SLOW_LEG, SLOW_PACE = 4, 0.86


def write_log(path, plan, slow=None, late_s=0.0, throttle=0.5, learned=None, records=()):
    """A flight along the plan.

    Args:
        slow: a leg and the pace on it; there the throttle is full.
        late_s: s that are lost before the first gate, standing still.
        learned: of the vehicle.
        records: (channel, t, fields) of further records.
    """
    log, gates = FlightLog(path), plan.gate_times_s
    begin = np.array([0.0, *gates[:-1]])
    pace = np.where(np.arange(len(gates)) == slow[0], slow[1], 1.0) if slow else np.ones(len(gates))
    passed = late_s + np.cumsum((gates - begin) / pace)
    more = {"planned_gate_times_s": gates}
    log.write("flight", 0.0, track="vq1", vehicle="dcl", plan_hash=plan.hash, seed=0, profile="spec", **more)
    for t in np.arange(0.0, passed[-1], 1 / 60):
        theta = np.interp(t, [0.0, late_s, *passed], [0.0, 0.0, *gates])
        on_slow = slow is not None and begin[slow[0]] <= theta < gates[slow[0]]
        x = np.array([np.interp(theta, plan.t, column) for column in plan.x.T])
        pose = {"p": x[:3], "q": x[3:7], "v": x[7:10]}
        log.write("state", t, **pose, w=x[10:13], sigma_p=np.full(3, 0.01), drift=0.0)
        log.write("reference", t, theta=theta, **pose)
        log.write("truth", t, **pose, w=x[10:13])
        full = 1.0 if on_slow else throttle
        log.write("command", t, q=x[3:7], w=x[10:13], throttle=full, source="solved", status=0, solve_ms=1.0)
    for channel, t, fields in records:
        log.write(channel, t, **fields)
    if learned:
        log.write("learned", passed[-1], **learned)
    log.write("referee", passed[-1], status="finished", gate_times_s=passed, gate_margins_m=[0.4] * len(gates))
    log.close()
    return path


SQUARE = np.array([[300.0, 160.0], [340.0, 160.0], [340.0, 200.0], [300.0, 200.0]])
IMAGES_S = 0.5, 0.9


def standing(flight, camera, p=(0.0, 0.0, 0.0), q=(1.0, 0.0, 0.0, 0.0)):
    """The same flight, standing still somewhere, with two images, and a detection of SQUARE in the first."""
    still = {"p": np.tile(p, (2, 1)), "q": np.tile(q, (2, 1)), "v": np.zeros((2, 3)), "w": np.zeros((2, 3))}
    state = TimeSeries(np.array([0.0, 1.0]), still | {"sigma_p": np.full((2, 3), 0.1)})
    jpeg = cv2.imencode(".jpg", np.zeros((360, 640, 3), np.uint8))[1].tobytes()
    images, seen = tuple((t, jpeg) for t in IMAGES_S), ((IMAGES_S[0], SQUARE),)
    return replace(flight, state=state, camera=camera, images=images, detections=seen)
