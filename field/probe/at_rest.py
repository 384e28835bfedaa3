"""Conventions of a simulator from its link at rest, compared with a wire profile."""

import contextlib
import math
from collections import Counter
from dataclasses import replace

import numpy as np

from gate_racer.field.probe.check import Check, CheckVerdict, same
from gate_racer.field.probe.motion import TILTED_RAD, imu_values
from gate_racer.field.probe.race import probe_race
from gate_racer.field.probe.raw_link import ReceivedMessages
from gate_racer.link.profile import Profile, Signs
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array

RATE_TOLERANCE = 0.12  # relative: rates vary that much with the host's load
AT_REST_M_S2, AT_REST_RAD_S = 0.3, 0.05  # spread and reading at rest
GROUND_MESSAGES = ("SYS_STATUS", "EXTENDED_SYS_STATE", "HOME_POSITION")
EPOCH_S = 1e8  # s, offset between video and telemetry clock that shows another epoch


def probe(received: ReceivedMessages, profile: Profile) -> tuple[list[Check], Profile]:
    """Return all checks against a profile, and the profile with measured values in place of those that differ."""
    checks: list[Check] = []
    found = profile

    def number(name: str, field: str, value: float | None, tolerance: float = RATE_TOLERANCE) -> None:
        nonlocal found
        expected = float(getattr(profile, field))
        if value is None:
            checks.append(Check(name, f"{expected:g}", "-", CheckVerdict.UNKNOWN))
            return
        same = abs(value - expected) <= tolerance * max(expected, 1e-9)
        checks.append(Check(name, f"{expected:g}", f"{value:.4g}", CheckVerdict.PASS if same else CheckVerdict.DIFFERS))
        if not same:
            with contextlib.suppress(ValueError):  # no valid profile has this value, such as no IMU
                found = replace(found, **{field: type(getattr(profile, field))(value)})

    number("component", "component", float(received.components.most_common(1)[0][0][1]), 0.0)
    number("HEARTBEAT, Hz", "heartbeat_hz", _hz(received, "HEARTBEAT"))
    stamps = [m.time_usec * 1e-6 for _, m in received["HIGHRES_IMU"]]
    if stamps:
        number("stamp clock, Hz", "stamp_hz", max(_clock_hz(stamps), profile.imu_hz), 0.03)
    number("HIGHRES_IMU, Hz", "imu_hz", _hz(received, "HIGHRES_IMU"))
    number("ATTITUDE, Hz", "attitude_hz", _hz(received, "ATTITUDE"))
    number("ACTUATOR_OUTPUT_STATUS, Hz", "motors_hz", _hz(received, "ACTUATOR_OUTPUT_STATUS"))
    number("images, Hz", "video_hz", _image_hz(received))
    number("copies of an image", "video_copies", _copies(received), 0.0)
    number("bytes in a chunk", "video_chunk_bytes", float(received.chunk_bytes) if received.chunk_bytes else None, 0.0)
    offset = _video_offset(received, stamps)
    number("video clock's epoch, s", "video_epoch_s", offset, 1e-3)
    answered = any(message.tc1 for _, message in received["TIMESYNC"])  # others are requests of the simulator
    checks.append(same("TIMESYNC answered", profile.timesync, answered))
    number("video stamps' resolution, ns", "video_stamp_ns", _resolution(received), 0.0)
    number("LOCAL_POSITION_NED, Hz", "local_position_hz", _hz(received, "LOCAL_POSITION_NED") or None)
    number("ODOMETRY, Hz", "odometry_hz", _hz(received, "ODOMETRY") or None)
    ground = any(received[kind] for kind in GROUND_MESSAGES)
    checks.append(same("ground station messages", profile.ground_station, ground))
    for name, expected_value, why in (
        ("copies of a COLLISION", profile.collision_copies, "needs a contact"),
        ("position set-points yaw the vehicle", profile.position_yaw, "not tried"),
    ):
        checks.append(Check(name, str(expected_value), why, CheckVerdict.UNKNOWN))
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
    checks = []
    rows = received["HIGHRES_IMU"]
    if not rows:
        return [Check("gravity", f"{GRAVITY:g}", "-", CheckVerdict.UNKNOWN)], signs
    force = np.mean([imu_values(m)[:3] for _, m in rows], axis=0)
    still = np.std([imu_values(m)[:3] for _, m in rows], axis=0).max() < AT_REST_M_S2
    right = still and abs(float(np.linalg.norm(force)) - GRAVITY) < AT_REST_M_S2 and force[2] < 0
    verdict = (CheckVerdict.PASS if right else CheckVerdict.DIFFERS) if still else CheckVerdict.UNKNOWN
    checks.append(Check("gravity at rest, m/s^2", f"{GRAVITY:.2f} upward", _formatted(force), verdict))
    if right and received["ATTITUDE"]:
        pitch = math.asin(max(-1.0, min(1.0, force[0] / float(np.linalg.norm(force)))))
        reported = float(np.mean([m.pitch for _, m in received["ATTITUDE"]]))
        if abs(pitch) > TILTED_RAD:
            sign = 1.0 if reported * pitch > 0 else -1.0
            agrees = sign == signs.euler[1] and abs(abs(reported) - abs(pitch)) < TILTED_RAD
            checks.append(
                Check(
                    "sign of ATTITUDE pitch",
                    f"{signs.euler[1]:+g}",
                    f"{sign:+g}",
                    CheckVerdict.PASS if agrees else CheckVerdict.DIFFERS,
                )
            )
            signs = replace(signs, euler=(signs.euler[0], sign, signs.euler[2]))
    known = {check.name for check in checks}
    if "sign of ATTITUDE pitch" not in known:
        checks.append(Check("sign of ATTITUDE pitch", f"{signs.euler[1]:+g}", "-", CheckVerdict.UNKNOWN))
    return checks, signs


NEED_A_FLIGHT = ("signs of ATTITUDE roll and yaw", "signs of the gyro", "rate gain and hover throttle", "attitude mode")


def unflown() -> list[Check]:
    """Return the checks that require a flight, as unknown."""
    return [Check(name, "as in profile", "needs a flight", CheckVerdict.UNKNOWN) for name in NEED_A_FLIGHT]


def _hz(received: ReceivedMessages, kind: str) -> float | None:
    return len(received[kind]) / received.seconds


def _clock_hz(stamps: list[float]) -> float:
    """Return the rate of the clock behind the stamps: one over their shortest common step."""
    steps = np.diff(stamps)
    steps = steps[steps > 1e-4]
    return float(1 / np.percentile(steps, 10)) if len(steps) else 0.0


def _image_hz(received: ReceivedMessages) -> float | None:
    return len({(frame, stamp) for _, frame, stamp in received.images}) / received.seconds or None


def _copies(received: ReceivedMessages) -> float | None:
    counts = Counter((frame, stamp) for _, frame, stamp in received.images)
    return float(np.median(list(counts.values()))) if counts else None


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


def _formatted(vector: Array) -> str:
    return "(" + ", ".join(f"{v:.2f}" for v in vector) + ")"
