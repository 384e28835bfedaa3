"""Properties of a race from the wire before it is flown: its clock, disarming at the start, and reference of its map."""

import math
from dataclasses import replace

import numpy as np

from gate_racer.field.probe.check import Check, CheckVerdict, number, same
from gate_racer.field.probe.motion import RestMean, rest_of
from gate_racer.field.probe.raw_link import ReceivedMessages, is_armed
from gate_racer.link.messages import MapGate
from gate_racer.link.profile import RaceSchedule, load_profile
from gate_racer.perception.detection import decode
from gate_racer.perception.registry import CLASSICAL, open_detector
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import from_euler, matrix

RATE, TIME_S = 0.1, 0.6  # tolerances: relative; s, since a status is sent four times a second
LIKELY_PX, NEAR_DEG = 0.3, 1.2  # errors of size (relative) and elevation with which a gate in view matches the map
RACE_OF = "dcl"  # profile whose race is assumed where only the clock is observable


def probe_race(received: ReceivedMessages, expected: RaceSchedule | None) -> tuple[list[Check], RaceSchedule | None]:
    """Return the checks, and the race as found; None if none is reported."""
    checks = [same("race status", expected is not None, bool(received.race))]
    if not received.race:
        return checks, None
    race = expected or load_profile(RACE_OF).race
    assert race is not None
    times = [arrival for arrival, _ in received.race]
    hz = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 4 else None
    checks.append(number("race status, Hz", race.status_hz, hz, RATE * race.status_hz))
    if hz is not None and checks[-1].verdict is CheckVerdict.DIFFERS:
        race = replace(race, status_hz=round(hz, 2))
    countdown = _countdown(received)
    checks.append(number("countdown, s", race.countdown_s, countdown, TIME_S))
    if countdown is not None and checks[-1].verdict is CheckVerdict.DIFFERS:
        race = replace(race, countdown_s=round(countdown, 1))
    disarmed = _disarmed(received)
    if disarmed is None:
        checks.append(Check("GO disarms", str(race.disarm_at_go), "-", CheckVerdict.UNKNOWN))
    else:
        checks.append(same("GO disarms", race.disarm_at_go, disarmed))
        race = replace(race, disarm_at_go=disarmed)
    return checks, race


def probe_map(received: ReceivedMessages, race: RaceSchedule, camera: Camera) -> tuple[Check, RaceSchedule]:
    """Determine whether the map gives the feet of the gates or the centres of their openings, by the camera."""
    expected = "feet" if race.map_at_foot else "centres"
    name, rest = "map positions are gate", rest_of(received)
    if received.map is None or rest is None or not rest.still:
        return Check(name, expected, "-", CheckVerdict.UNKNOWN), race
    at_foot = _at_foot(received, received.map[1].gates, rest, camera)
    if at_foot is None:
        return Check(name, expected, "-", CheckVerdict.UNKNOWN), race
    verdict = CheckVerdict.PASS if at_foot == race.map_at_foot else CheckVerdict.DIFFERS
    return Check(name, expected, "feet" if at_foot else "centres", verdict), replace(race, map_at_foot=at_foot)


def _countdown(received: ReceivedMessages) -> float | None:
    """Return the time (s) from the first status with a start to the start, if the one before had none."""
    for (_, before), (_, status) in zip(received.race, received.race[1:], strict=False):
        if before.start is None and status.start is not None:
            return status.start - status.t
    return None


def _disarmed(received: ReceivedMessages) -> bool | None:
    """Return whether a vehicle armed before GO was disarmed after it; None if it never was armed, or GO has not come."""
    go = next((arrival for arrival, status in received.race if status.go), None)
    if not received.armed_early or go is None:
        return None
    after = [message for arrival, message in received["HEARTBEAT"] if arrival > go + 0.15]
    return not is_armed(after[0]) if after else None


def _at_foot(received: ReceivedMessages, gates: tuple[MapGate, ...], rest: RestMean, camera: Camera) -> bool | None:
    """Return whether feet match the elevation of the largest gate in view, from the pad, which is the origin of the map."""
    R_lb = matrix(from_euler(*rest.tilt, 0.0))
    detector, votes = open_detector(CLASSICAL, camera), []
    for _, frame in received.frames:
        for found in detector.detect(decode(frame.jpeg, camera))[:2]:
            outer = found.outer_px
            if outer is None or not found.visible.all():
                continue
            u, v = found.corners_px.mean(axis=0)
            ray = (
                R_lb
                @ camera.R_bc
                @ np.array([(u - camera.cx_px) / camera.fx_px, (v - camera.cy_px) / camera.fy_px, 1.0])
            )
            elevation = math.degrees(math.atan2(-ray[2], math.hypot(ray[0], ray[1])))
            side_px = float(np.linalg.norm(outer - np.roll(outer, 1, axis=0), axis=1).max())
            votes += [_nearer(gate, elevation, side_px, camera) for gate in gates]
    decided = [vote for vote in votes if vote is not None]
    return None if not decided else sum(decided) > len(decided) / 2


def _nearer(gate: MapGate, elevation: float, side_px: float, camera: Camera) -> bool | None:
    """Return True if the gate's foot matches, False if its centre does, None if this gate is not the one in view."""
    x, y, z = gate.p_w
    away = math.hypot(x, y)
    if away < 3.0 or gate.height <= 0 or abs(side_px * away / (camera.fx_px * gate.height) - 1) > LIKELY_PX:
        return None
    centre, foot = (abs(math.degrees(math.atan2(up, away)) - elevation) for up in (-z, gate.height / 2 - z))
    return None if min(centre, foot) > NEAR_DEG or abs(centre - foot) < 0.5 * NEAR_DEG else foot < centre
