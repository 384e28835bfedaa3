"""Conventions of a simulator, from its link at rest and from a probe flight, compared with a wire profile and a vehicle.

Those of its race are found before it is flown: its clock, and disarming at the start. In flight, signs are found by
correlation of independent sensors, gains, lags and delays by least squares. Wire units.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from itertools import product as choices
from typing import Any

import numpy as np
from pymavlink.dialects.v20 import common as dialect

from gate_racer.field.probe.check import Check, CheckVerdict, Comparison, judged, number, same, unknown
from gate_racer.field.probe.flight import LEGACY, RAD_S, ProbeFlight
from gate_racer.field.probe.links import ReceivedMessages, is_armed
from gate_racer.field.probe.motion import PITCH, TILTED_RAD, Fitted, Series, rest_of, turned
from gate_racer.link.profile import Profile, RaceSchedule, RateGain, Signs, load_profile
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, as_vector, conjugate, exp, from_euler, log, normalised, product, to_euler
from gate_racer.vehicle.vehicle import Vehicle

STATUS_RATE, TIME_S = 0.1, 0.6  # tolerances: relative; s, since a status is sent four times a second
RACE_OF = "dcl"  # profile whose race is assumed where only the clock is observable
RATE_TOLERANCE = 0.12  # relative: rates vary that much with the host's load
AT_REST_M_S2 = 0.3  # m/s^2, largest spread and error of gravity at rest
GROUND_MESSAGES = ("SYS_STATUS", "EXTENDED_SYS_STATE", "HOME_POSITION")
EPOCH_S = 1e8  # s, offset between video and telemetry clock that shows another epoch


def probe(received: ReceivedMessages, profile: Profile) -> tuple[list[Check], Profile]:
    """Return all checks against a profile, and the profile with measured values in place of those that differ."""
    compared = Comparison(profile, profile)
    hz = {kind: len(messages) / received.seconds for kind, messages in received.messages.items()}
    stamps = [m.time_usec * 1e-6 for _, m in received["HIGHRES_IMU"]]
    stamp_hz = max(_clock_hz(stamps), profile.imu_hz) if stamps else None
    images = Counter((frame, stamp) for _, frame, stamp in received.images)  # copies of each
    copies = float(np.median(list(images.values()))) if images else None
    chunk_bytes = float(received.chunk_bytes) if received.chunk_bytes else None
    for name, field, value, tolerance in (
        ("component", "component", float(received.components.most_common(1)[0][0][1]), 0.0),
        ("HEARTBEAT, Hz", "heartbeat_hz", hz.get("HEARTBEAT", 0.0), RATE_TOLERANCE),
        ("stamp clock, Hz", "stamp_hz", stamp_hz, 0.03),
        ("HIGHRES_IMU, Hz", "imu_hz", hz.get("HIGHRES_IMU", 0.0), RATE_TOLERANCE),
        ("ATTITUDE, Hz", "attitude_hz", hz.get("ATTITUDE", 0.0), RATE_TOLERANCE),
        ("ACTUATOR_OUTPUT_STATUS, Hz", "motors_hz", hz.get("ACTUATOR_OUTPUT_STATUS", 0.0), RATE_TOLERANCE),
        ("images, Hz", "video_hz", len(images) / received.seconds or None, RATE_TOLERANCE),
        ("copies of an image", "video_copies", copies, 0.0),
        ("bytes in a chunk", "video_chunk_bytes", chunk_bytes, 0.0),
        ("video clock's epoch, s", "video_epoch_s", _video_offset(received, stamps), 1e-3),
        ("video stamps' resolution, ns", "video_stamp_ns", _resolution(received), 0.0),
        ("LOCAL_POSITION_NED, Hz", "local_position_hz", hz.get("LOCAL_POSITION_NED"), RATE_TOLERANCE),
        ("ODOMETRY, Hz", "odometry_hz", hz.get("ODOMETRY"), RATE_TOLERANCE),
    ):
        compared.number(name, field, value, tolerance * max(float(getattr(profile, field)), 1e-9))
    # Requests of the simulator have one stamp only. Ours in tc1 have odd stamps.
    odd = {message.ts1 % 2 == 1 for _, message in received["TIMESYNC"] if message.tc1 and message.ts1}
    compared.flag("TIMESYNC answered", "timesync", bool(odd))
    compared.flag("TIMESYNC requests in tc1", "timesync_in_tc1", odd.pop() if len(odd) == 1 else None)
    compared.flag("ground station messages", "ground_station", any(received[kind] for kind in GROUND_MESSAGES))
    race_checks, race = _race(received, profile.race)
    rest_checks, signs = _at_rest(received, profile.signs)
    untried = [
        unknown("copies of a COLLISION", profile.collision_copies, "needs a contact"),
        unknown("position set-points yaw the vehicle", profile.position_yaw, "not tried"),
    ]
    return [*compared.checks, *untried, *race_checks, *rest_checks], replace(compared.found, race=race, signs=signs)


def best(received: ReceivedMessages, profiles: list[Profile]) -> Profile:
    """Return the profile that differs least; one with PX4's modes for a PX4 only, unless there is no other."""
    px4 = any(beat.autopilot == dialect.MAV_AUTOPILOT_PX4 for _, beat in received["HEARTBEAT"])
    profiles = [profile for profile in profiles if px4 or profile.offboard is None] or profiles
    return min(profiles, key=lambda p: sum(check.verdict is CheckVerdict.DIFFERS for check in probe(received, p)[0]))


def _race(received: ReceivedMessages, expected: RaceSchedule | None) -> tuple[list[Check], RaceSchedule | None]:
    reported = same("race status", expected is not None, bool(received.race))
    if not received.race:
        return [reported], None
    race = expected or load_profile(RACE_OF).race
    assert race is not None
    compared, times = Comparison(race, race), [arrival for arrival, _ in received.race]
    hz = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 4 else None
    compared.number("race status, Hz", "status_hz", hz, STATUS_RATE * race.status_hz)
    countdowns = (  # from the first status with a start, if the one before had none
        max(status.start - status.t, 0.0)
        for (_, before), (_, status) in pairwise(received.race)
        if before.start is None and status.start is not None
    )
    compared.number("countdown, s", "countdown_s", next(countdowns, None), TIME_S)
    compared.flag("GO disarms", "disarm_at_go", _disarmed(received))
    return [reported, *compared.checks], compared.found


def _disarmed(received: ReceivedMessages) -> bool | None:
    """Return whether a vehicle armed before GO was disarmed after it; None if it never was armed, or GO has not come."""
    go = next((arrival for arrival, status in received.race if status.go), None)
    if not received.armed_early or go is None:
        return None
    after = [message for arrival, message in received["HEARTBEAT"] if arrival > go + 0.15]
    return not is_armed(after[0]) if after else None


def _at_rest(received: ReceivedMessages, signs: Signs) -> tuple[list[Check], Signs]:
    """Compare gravity's length and direction with ATTITUDE's pitch. Roll, yaw and the gyro require motion."""
    rest, expected = rest_of(received), f"{GRAVITY:.2f} upward"
    pitch_check = unknown("sign of ATTITUDE pitch", f"{signs.euler[1]:+g}")
    if rest is None:
        return [unknown("gravity at rest, m/s^2", expected), pitch_check], signs
    still = rest.spread < AT_REST_M_S2
    right = still and abs(rest.weight - GRAVITY) < AT_REST_M_S2 and rest.force_b[2] < 0
    measured = f"({', '.join(f'{v:.2f}' for v in rest.force_b)})"
    gravity = Check("gravity at rest, m/s^2", expected, measured, judged(right) if still else CheckVerdict.UNKNOWN)
    pitch = rest.tilt[PITCH]
    pitches = [m.pitch for _, m in received["ATTITUDE"] if math.isfinite(m.pitch)]
    if right and pitches and abs(pitch) > TILTED_RAD:
        reported = float(np.mean(pitches))
        sign = 1.0 if reported * pitch > 0 else -1.0
        agrees = sign == signs.euler[PITCH] and abs(abs(reported) - abs(pitch)) < TILTED_RAD
        pitch_check = replace(pitch_check, found=f"{sign:+g}", verdict=judged(agrees))
        signs = replace(signs, euler=(signs.euler[0], sign, signs.euler[2]))
    return [gravity, pitch_check], signs


NEED_A_FLIGHT = ("signs of ATTITUDE roll and yaw", "signs of the gyro", "rate gain and hover throttle")


def unflown() -> list[Check]:
    return [unknown(name, "as in profile", "needs a flight") for name in NEED_A_FLIGHT]


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


KINDS = (LEGACY, RAD_S)
TELLING = 0.5  # -, correlation above which a sign is accepted (chosen)
MOVED_RAD, MOVED_RAD_S = 0.03, 0.1  # standard deviation below which a signal gives no sign
GROWS = 0.015  # s/rad, growth of a gain with the rate below which it counts as constant (chosen)
POORLY = 0.3  # -, share of unexplained motion above which the fit of an axis is rejected (chosen)
SHIFTS_S = np.arange(-0.06, 0.0601, 0.001)  # s, grid of time shifts between camera and gyro (chosen)
UNDECIDED = (None, None, None)
MeasuredSigns = Sequence[float | None]  # of the wire relative to world NED or body FRD; None: not measured
SIGNS = {  # fields of `Signs`
    "gyro": "the gyro",
    "euler": "ATTITUDE's angles",
    "euler_rates": "ATTITUDE's rates",
    "odometry_q": "ODOMETRY's quaternion",
    "odometry_rates": "ODOMETRY's rates",
}


def _rates(series: Series, t: Array, rates: Array, used: np.ndarray) -> tuple[Fitted | None, ...]:
    """Fit each axis: growth of the gains first, from all axes together; then gains, delay and lag with that growth."""
    commanded = [series.commands(t, axis, KINDS) for axis in range(3)]
    free = [one.fit(rates[:, axis], used, None) for axis, one in enumerate(commanded)]
    growth = []
    for k in range(len(KINDS)):
        good = [f for f in free if f is not None and f.unexplained < POORLY and abs(f.gain[k]) > 0.1]
        weight = sum(f.gain[k] ** 2 for f in good)
        mean = sum(f.growth[k] * f.gain[k] ** 2 for f in good) / weight if good else 0.0
        growth.append(mean if mean > GROWS else 0.0)
    fits = [one.fit(rates[:, axis], used, tuple(growth)) for axis, one in enumerate(commanded)]
    return tuple(fit if fit is not None and fit.unexplained < POORLY else None for fit in fits)


def _thrust(series: Series, t: Array, accel: Array, used: np.ndarray) -> Fitted | None:
    throttle = series.commands(t, None, ())
    middle = float(np.median(throttle.u))
    centred = replace(throttle, u=throttle.u - middle)
    force = -accel[:, 2] - float(np.median(-accel[used, 2]))
    fit = centred.fit(force, used, (0.0,))
    return fit if fit is not None and fit.unexplained < POORLY else None


def _camera(flight: ProbeFlight, t: Array, rates: Array, camera: Camera) -> tuple[float | None, ...]:
    """Return time shift, slope and tilt (deg) that best align the camera's rotations with the gyro's."""
    turns = flight.series.turns
    if len(turns) < 30 or not flight.known.all():
        return None, None, None
    spans, seen = np.array([row[:2] for row in turns]), np.array([row[2] for row in turns])
    inside = (spans[:, 0] > t[0] + 0.1) & (spans[:, 1] < t[-1] - 0.1)
    spans, seen = spans[inside], seen[inside]

    def felt(shift: float) -> Array:
        return turned(t, rates * flight.signs, spans + shift)

    shift = min(SHIFTS_S, key=lambda shift: float(np.abs(felt(shift) - seen).sum()))
    x = felt(shift)
    # A tilt beyond the nominal one mixes roll and yaw: seen = x + tilt (e_y cross x).
    lever = np.column_stack([x[:, 2], np.zeros(len(x)), -x[:, 0]])
    residual = seen - x
    kept = np.linalg.norm(residual, axis=1) < 4 * float(np.median(np.linalg.norm(residual, axis=1))) + 1e-3
    power = float((lever[kept] ** 2).sum())
    turn = float((lever[kept] * residual[kept]).sum()) / power if power > 1e-3 else None
    slope = float((x[kept] * seen[kept]).sum() / (x[kept] ** 2).sum())
    tilt = None if turn is None else camera.tilt_deg - math.degrees(turn)
    return float(shift), slope, tilt


def _sign(reported: Array, true: Array, least: float) -> float | None:
    """Return the sign of the correlation of two signals (N,); None if they hardly vary, or are uncorrelated."""
    a, b = reported - reported.mean(), true - true.mean()
    if b.std() < least or a.std() < least / 3:
        return None
    agreement = float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b))
    return math.copysign(1.0, agreement) if abs(agreement) > TELLING else None


def _known(signs: Sequence[float | None], known: Sequence[object]) -> MeasuredSigns:
    return [sign if other is not None else None for sign, other in zip(signs, known, strict=True)]


def _attitude(series: Series, t: Array, true: Array, gyro: MeasuredSigns) -> dict[str, MeasuredSigns]:
    """Compare ATTITUDE with the attitude integrated from gravity at rest and the gyro."""
    rows = [row for row in series.attitude if t[0] <= row[0] <= t[-1]]
    if len(rows) < 50:
        return {}
    q, euler = from_euler(*series.rest.tilt, 0.0), []
    for k in range(len(t)):
        q = normalised(product(q, exp((t[k] - t[k - 1]) * 0.5 * (true[k] + true[k - 1])))) if k else q
        euler.append(to_euler(q))
    at = np.array([row[0] for row in rows])
    reported, rates = (np.array([row[k] for row in rows]) for k in (1, 2))
    flown, real = np.unwrap(np.array(euler), axis=0), np.unwrap(reported, axis=0)
    angles = [_sign(real[:, i], np.interp(at, t, flown[:, i]), MOVED_RAD) for i in range(3)]
    turning = [_sign(rates[:, i], np.interp(at, t, true[:, i]), MOVED_RAD_S) for i in range(3)]
    whole = (None, gyro[1], None) if None in gyro else gyro
    return {"euler": _known(angles, whole), "euler_rates": _known(turning, gyro)}


def _odometry(series: Series, t: Array, true: Array, gyro: MeasuredSigns) -> dict[str, MeasuredSigns]:
    """Return the signs of the quaternion under which it rotates as the gyro, and the signs of its rates."""
    rows = [row for row in series.odometry if t[0] <= row[0] <= t[-1]]
    if len(rows) < 50 or None in gyro:
        return {}
    at = np.array([row[0] for row in rows])
    w = np.column_stack([np.interp(at, t, column) for column in true.T])
    rates = [_sign(np.array([row[2][i] for row in rows]), w[:, i], MOVED_RAD_S) for i in range(3)]
    steps = 0.5 * (w[1:] + w[:-1]) * np.diff(at)[:, None]

    def misfit(flips: tuple[float, ...]) -> float:
        qs = [row[1] * np.array([1.0, *flips]) for row in rows]
        turned = np.array([log(normalised(product(conjugate(a), b))) for a, b in pairwise(qs)])
        return float(((turned - steps) ** 2).sum() / max(float((steps**2).sum()), 1e-9))

    flips = min(choices((1.0, -1.0), repeat=3), key=misfit)
    return {"odometry_q": (1.0, *flips), "odometry_rates": rates} if misfit(flips) < POORLY else {}


GAIN, GROWTH = 0.05, 0.02  # tolerances: relative; s/rad
HOVER, DELAY_S, LAG = 0.05, 0.008, 0.25  # tolerances: relative, absolute, relative
SLOPE, TILT_DEG, SHIFT_S = 0.1, 1.5, 0.008  # tolerances: relative, deg, s


def flight_checks(
    flight: ProbeFlight, profile: Profile, vehicle: Vehicle, so_far: Profile
) -> tuple[list[Check], Profile]:
    """Return the checks of a flight, none if it hardly left the ground, and the profile `so_far` with what was measured."""
    series = flight.series
    begin, end = series.marks.get("flight", (0.0, 0.0))
    t, accel, rates = series.between(begin, min(end, series.imu[-1][0] if series.imu else 0.0))
    if len(t) < 100:
        return [], so_far
    rates = rates - series.rest.gyro
    repeated = (np.diff(accel, axis=0) == 0).all(axis=1) & (np.diff(rates, axis=0) == 0).all(axis=1)
    fresh = np.concatenate([[True], ~repeated])
    true = rates[fresh] * flight.signs
    gyro = [sign if known else None for sign, known in zip(flight.signs.tolist(), flight.known, strict=True)]
    found: dict[str, MeasuredSigns] = {"gyro": gyro, "euler": UNDECIDED, "euler_rates": UNDECIDED}
    found |= _attitude(series, t[fresh], true, gyro) | _odometry(series, t[fresh], true, gyro)
    result, signs = Comparison(profile, so_far), so_far.signs
    for field, measured in found.items():
        result.checks.append(_signs(f"signs of {SIGNS[field]}", getattr(profile.signs, field), measured))
        pairs = zip(measured, getattr(signs, field), strict=True)
        filled: Any = tuple(float(mine if sign is None else sign) for sign, mine in pairs)
        signs = replace(signs, **{field: filled})
    result.found = replace(so_far, signs=signs)
    fits = _rates(series, t, rates, fresh)
    legacy, rad_s = (_gain_of(fits, gyro, k) for k in range(len(KINDS)))
    for mask, field, gain in (LEGACY, "rates", legacy), (RAD_S, "rates_rad_s", rad_s):
        expected = getattr(profile, field)
        verdict = CheckVerdict.UNKNOWN if gain is None else judged(_agree(expected, gain))
        result.checks.append(Check(f"rates by mask {mask}", _gain(expected), _gain(gain), verdict))
        if verdict is CheckVerdict.DIFFERS:
            result.adopt(field, gain)
    nearer = _oddness(rad_s) + 0.03 < _oddness(legacy) if legacy or rad_s else None
    result.flag(f"rates nearer to rad/s by mask {RAD_S}", "rates_rad_s_bit", nearer)
    hz = float(fresh.mean()) * so_far.imu_hz
    result.number("IMU samples that differ, Hz", "imu_fresh_hz", hz, 0.1 * profile.imu_fresh_hz)
    shift, slope, tilt = _camera(flight, t[fresh], rates[fresh], vehicle.camera)
    result.checks += [
        number("camera rotation over gyro rotation", 1.0, slope, SLOPE),
        number("camera tilt, deg", vehicle.camera.tilt_deg, tilt, TILT_DEG),
    ]
    exposed = None if shift is None else max(0.0, profile.video_latency_s - shift)
    result.number("exposure to complete image, s", "video_latency_s", exposed, SHIFT_S)
    return [*result.checks, *_vehicle(flight.hover, fits, _thrust(series, t, accel, fresh), vehicle)], result.found


def _gain_of(fits: Sequence[Fitted | None], gyro: MeasuredSigns, kind: int) -> RateGain | None:
    """Return the rate gain of one of KINDS, gyro on the wire over command; None where an axis is missing."""
    known = [fit for fit in fits if fit is not None and abs(fit.gain[kind]) >= 0.1]
    if len(known) < len(fits) or None in gyro:
        return None
    values = np.array([fit.gain[kind] for fit in known]) * np.array(gyro, float)
    return RateGain(as_vector(np.sign(values)), as_vector(np.abs(values)), max(fit.growth[kind] for fit in known))


def _vehicle(
    flown: float | None, rates: Sequence[Fitted | None], thrust: Fitted | None, vehicle: Vehicle
) -> list[Check]:
    """Compare parameters of the vehicle's file; `identify-vehicle` measures them more accurately."""
    hover = vehicle.throttle.throttle(GRAVITY)
    delays = [fit.delay_s for fit in rates if fit is not None]
    delay = sum(delays) / len(delays) if delays else None
    checks = [
        number("hover throttle", hover, flown, HOVER * hover),
        number("command delay, s", vehicle.command_delay_s, delay, DELAY_S),
    ]
    for name, lag, fit in zip(("roll", "pitch", "yaw"), vehicle.rate_lag_s, rates, strict=True):
        checks.append(number(f"{name} lag, s", lag, fit.lag_s if fit else None, LAG * lag))
    return [*checks, number("thrust lag, s", vehicle.thrust_lag_s, thrust.lag_s if thrust else None, 0.01)]


def _signs(name: str, expected: Sequence[float], measured: MeasuredSigns) -> Check:
    text = " ".join("?" if sign is None else f"{sign:+.0f}"[0] for sign in measured)
    wrong = any(sign is not None and sign != mine for sign, mine in zip(measured, expected, strict=True))
    verdict = CheckVerdict.DIFFERS if wrong else CheckVerdict.UNKNOWN if None in measured else CheckVerdict.PASS
    return Check(name, " ".join(f"{sign:+.0f}"[0] for sign in expected), text, verdict)


def _agree(expected: RateGain, measured: RateGain) -> bool:
    near = all(abs(a / b - 1) < GAIN for a, b in zip(measured.gain, expected.gain, strict=True))
    return near and measured.sign == expected.sign and abs(measured.growth_s - expected.growth_s) < GROWTH


def _gain(gain: RateGain | None) -> str:
    if gain is None:
        return "-"
    parts = " ".join(f"{s * g:+.3g}" for s, g in zip(gain.sign, gain.gain, strict=True))
    return parts + (f", grows {gain.growth_s:.3f}" if gain.growth_s else "")


def _oddness(gain: RateGain | None) -> float:
    """Return how far rates on the wire are from rad/s; infinite where they were not measured."""
    return max(abs(math.log(g)) for g in gain.gain) + gain.growth_s if gain else math.inf
