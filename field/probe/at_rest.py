"""Conventions of a simulator from its link at rest, compared with a wire profile.

Those of its race are found before it is flown: its clock, disarming at the start, and reference of its map.
"""

import contextlib
import math
from collections import Counter
from dataclasses import replace

import numpy as np

from gate_racer.field.probe.check import Check, CheckVerdict, number, same, unknown
from gate_racer.field.probe.links import ReceivedMessages, is_armed
from gate_racer.field.probe.motion import PITCH, TILTED_RAD, RestMean, imu_values, rest_of
from gate_racer.link.messages import MapGate
from gate_racer.link.profile import Profile, RaceSchedule, Signs, load_profile
from gate_racer.perception.detection import decode
from gate_racer.perception.registry import CLASSICAL, open_detector
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.dynamics import GRAVITY
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
        checks.append(unknown("GO disarms", race.disarm_at_go))
    else:
        checks.append(same("GO disarms", race.disarm_at_go, disarmed))
        race = replace(race, disarm_at_go=disarmed)
    return checks, race


def probe_map(received: ReceivedMessages, race: RaceSchedule, camera: Camera) -> tuple[Check, RaceSchedule]:
    """Determine whether the map gives the feet of the gates or the centres of their openings, by the camera."""
    expected = "feet" if race.map_at_foot else "centres"
    name, rest = "map positions are gate", rest_of(received)
    if received.map is None or rest is None or not rest.still:
        return unknown(name, expected), race
    at_foot = _at_foot(received, received.map[1].gates, rest, camera)
    if at_foot is None:
        return unknown(name, expected), race
    return same(name, expected, "feet" if at_foot else "centres"), replace(race, map_at_foot=at_foot)


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
            ray = R_lb @ camera.R_bc @ [*camera.rays(found.corners_px.mean(axis=0)), 1.0]
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


RATE_TOLERANCE = 0.12  # relative: rates vary that much with the host's load
AT_REST_M_S2 = 0.3  # m/s^2, largest spread and error of gravity at rest
GROUND_MESSAGES = ("SYS_STATUS", "EXTENDED_SYS_STATE", "HOME_POSITION")
EPOCH_S = 1e8  # s, offset between video and telemetry clock that shows another epoch


def probe(received: ReceivedMessages, profile: Profile) -> tuple[list[Check], Profile]:
    """Return all checks against a profile, and the profile with measured values in place of those that differ."""
    checks, found = list[Check](), profile
    stamps = [m.time_usec * 1e-6 for _, m in received["HIGHRES_IMU"]]
    stamp_hz = max(_clock_hz(stamps), profile.imu_hz) if stamps else None
    images = Counter((frame, stamp) for _, frame, stamp in received.images)  # copies of each
    copies = float(np.median(list(images.values()))) if images else None
    chunk_bytes = float(received.chunk_bytes) if received.chunk_bytes else None
    for name, field, value, tolerance in (
        ("component", "component", float(received.components.most_common(1)[0][0][1]), 0.0),
        ("HEARTBEAT, Hz", "heartbeat_hz", _hz(received, "HEARTBEAT"), RATE_TOLERANCE),
        ("stamp clock, Hz", "stamp_hz", stamp_hz, 0.03),
        ("HIGHRES_IMU, Hz", "imu_hz", _hz(received, "HIGHRES_IMU"), RATE_TOLERANCE),
        ("ATTITUDE, Hz", "attitude_hz", _hz(received, "ATTITUDE"), RATE_TOLERANCE),
        ("ACTUATOR_OUTPUT_STATUS, Hz", "motors_hz", _hz(received, "ACTUATOR_OUTPUT_STATUS"), RATE_TOLERANCE),
        ("images, Hz", "video_hz", len(images) / received.seconds or None, RATE_TOLERANCE),
        ("copies of an image", "video_copies", copies, 0.0),
        ("bytes in a chunk", "video_chunk_bytes", chunk_bytes, 0.0),
        ("video clock's epoch, s", "video_epoch_s", _video_offset(received, stamps), 1e-3),
        ("video stamps' resolution, ns", "video_stamp_ns", _resolution(received), 0.0),
        ("LOCAL_POSITION_NED, Hz", "local_position_hz", _hz(received, "LOCAL_POSITION_NED") or None, RATE_TOLERANCE),
        ("ODOMETRY, Hz", "odometry_hz", _hz(received, "ODOMETRY") or None, RATE_TOLERANCE),
    ):
        expected = getattr(profile, field)
        checks.append(number(name, float(expected), value, tolerance * max(float(expected), 1e-9)))
        if value is not None and checks[-1].verdict is CheckVerdict.DIFFERS:
            with contextlib.suppress(ValueError):  # no valid profile has this value, such as no IMU
                found = replace(found, **{field: type(expected)(value)})
    answered = any(message.tc1 for _, message in received["TIMESYNC"])  # others are requests of the simulator
    ground = any(received[kind] for kind in GROUND_MESSAGES)
    checks += [
        same("TIMESYNC answered", profile.timesync, answered),
        same("ground station messages", profile.ground_station, ground),
        unknown("copies of a COLLISION", profile.collision_copies, "needs a contact"),
        unknown("position set-points yaw the vehicle", profile.position_yaw, "not tried"),
    ]
    news, race = probe_race(received, profile.race)
    rest, signs = _at_rest(received, profile.signs)
    found = replace(found, timesync=answered, ground_station=ground, race=race, signs=signs)
    return [*checks, *news, *rest], found


def best(received: ReceivedMessages, profiles: list[Profile]) -> Profile:
    """Return the profile with the fewest differences."""
    return min(profiles, key=lambda p: sum(check.verdict is CheckVerdict.DIFFERS for check in probe(received, p)[0]))


def jitter(received: ReceivedMessages) -> str:
    """Return one line on the jitter of IMU samples, and the share of repeats."""
    rows = received["HIGHRES_IMU"]
    if len(rows) < 3:
        return "no HIGHRES_IMU received: jitter unknown"
    late = np.array([arrival - m.time_usec * 1e-6 for arrival, m in rows])
    steps = Counter(
        round((b.time_usec - a.time_usec) * 1e-3, 1) for (_, a), (_, b) in zip(rows, rows[1:], strict=False)
    )
    same = np.mean([imu_values(a) == imu_values(b) for (_, a), (_, b) in zip(rows, rows[1:], strict=False)])
    common = ", ".join(f"{step:g} ms x {n}" for step, n in steps.most_common(3))
    spread = (np.percentile(late, 99) - late.min()) * 1e3
    return f"IMU stamps step by {common}; {same:.0%} of the samples repeat the previous one; 99 % arrive within {spread:.1f} ms"


def _at_rest(received: ReceivedMessages, signs: Signs) -> tuple[list[Check], Signs]:
    """Compare gravity's length and direction with ATTITUDE's pitch. Roll, yaw and the gyro require motion."""
    rest, expected = rest_of(received), f"{GRAVITY:.2f} upward"
    pitch_check = unknown("sign of ATTITUDE pitch", f"{signs.euler[1]:+g}")
    if rest is None:
        return [unknown("gravity at rest, m/s^2", expected), pitch_check], signs
    still = rest.spread < AT_REST_M_S2
    right = still and abs(rest.weight - GRAVITY) < AT_REST_M_S2 and rest.force_b[2] < 0
    verdict = CheckVerdict.UNKNOWN if not still else CheckVerdict.PASS if right else CheckVerdict.DIFFERS
    measured = f"({', '.join(f'{v:.2f}' for v in rest.force_b)})"
    gravity = Check("gravity at rest, m/s^2", expected, measured, verdict)
    pitch = rest.tilt[PITCH]
    if right and received["ATTITUDE"] and abs(pitch) > TILTED_RAD:
        reported = float(np.mean([m.pitch for _, m in received["ATTITUDE"]]))
        sign = 1.0 if reported * pitch > 0 else -1.0
        agrees = sign == signs.euler[PITCH] and abs(abs(reported) - abs(pitch)) < TILTED_RAD
        verdict = CheckVerdict.PASS if agrees else CheckVerdict.DIFFERS
        pitch_check = Check("sign of ATTITUDE pitch", f"{signs.euler[PITCH]:+g}", f"{sign:+g}", verdict)
        signs = replace(signs, euler=(signs.euler[0], sign, signs.euler[2]))
    return [gravity, pitch_check], signs


NEED_A_FLIGHT = ("signs of ATTITUDE roll and yaw", "signs of the gyro", "rate gain and hover throttle", "attitude mode")


def unflown() -> list[Check]:
    """Return the checks that require a flight, as unknown."""
    return [unknown(name, "as in profile", "needs a flight") for name in NEED_A_FLIGHT]


def _hz(received: ReceivedMessages, kind: str) -> float | None:
    return len(received[kind]) / received.seconds


def _clock_hz(stamps: list[float]) -> float:
    """Return the rate of the clock behind the stamps: one over their shortest common step."""
    steps = np.diff(stamps)
    steps = steps[steps > 1e-4]
    return float(1 / np.percentile(steps, 10)) if len(steps) else 0.0


def _video_offset(received: ReceivedMessages, stamps: list[float]) -> float | None:
    """Return the video clock minus the telemetry clock, s; 0 if they have the same epoch."""
    if not received.images or not stamps:
        return None
    video = np.mean([stamp * 1e-9 - arrival for arrival, _, stamp in received.images])
    imu = np.mean([stamp - arrival for stamp, (arrival, _) in zip(stamps, received["HIGHRES_IMU"], strict=True)])
    offset = float(video - imu)
    return offset if abs(offset) > EPOCH_S else 0.0


def _resolution(received: ReceivedMessages) -> float | None:
    """Return the power of ten (ns) that divides all stamps; None with too few."""
    stamps = {stamp for _, _, stamp in received.images}
    if len(stamps) < 10:
        return None
    step = math.gcd(*stamps)
    return float(10 ** min(9, len(str(step)) - len(str(step).rstrip("0"))))
