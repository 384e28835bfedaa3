"""`preflight`: read an aircraft's configuration into a file, compare it with profile and vehicle, and refuse unsafe states.

Nothing is configured or armed. Neutral sticks are sent for a while, since they share the line; only after the flight
controller has reported that it is disarmed and that the override is off.

`rehearse=true` rehearses the hand-over, without propellers. A person arms, hands over, takes back, disarms. While handed
over each stick moves by 20 us in turn, and must appear on its own channel. The throttle stays below the value at which
motors speed up. Taking back ends the rehearsal at any time.
"""

import argparse
import enum
import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import astuple, replace

import numpy as np

from gate_racer.common.command import remark, require_outputs, write_json
from gate_racer.common.config import write
from gate_racer.common.errors import UserError, say
from gate_racer.common.settings import settings_of
from gate_racer.estimation.imu_samples import levelled
from gate_racer.field.files import DIGITS
from gate_racer.field.preflight.cli import PreflightSettings
from gate_racer.field.probe.check import Check, CheckVerdict, judged, number, same, table
from gate_racer.link.msp import preflight
from gate_racer.link.msp.client import LinkFigures, MspLine, neutral
from gate_racer.link.msp.messages import Channels, Message, ModeRange, RawAttitude, RawImu, StatusEx
from gate_racer.link.msp.ports import Port, open_port
from gate_racer.link.msp.preflight import AircraftConstants, AtRest, PreflightFile
from gate_racer.link.msp.profile import FOLDER, LOW_US, MID_US, OWN_ORDER, AuxRange, BetaflightProfile, load_betaflight
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import as_vector, to_euler
from gate_racer.vehicle.vehicle import ImuParameters, Vehicle, load_vehicle

FIRMWARE = "BTFL 4.4"  # version for which the messages are implemented
AXES = "roll", "pitch", "yaw"
SIGMAS = 3.0  # standard deviations of a bias, by the vehicle's file
ATTITUDE_RAD = math.radians(5.0)  # rad, largest angle between the reported attitude and gravity (chosen)
GRAVITY_SHARE = 0.03  # -, relative error of gravity's magnitude: accelerometers that were never calibrated (chosen)
LOUDER = 3.0  # factor on the noise in the vehicle's file, up to which it is accepted
LATE = 1.5  # factor on the interval between sticks, at the 95th percentile
FEWEST = 20  # least samples in a mean
MODES = {"arm": preflight.ARM, "angle": preflight.ANGLE, "override": preflight.OVERRIDE}


def set_up(found: AircraftConstants, profile: BetaflightProfile) -> list[Check]:
    tuning, receiver, throttle = found.tuning, found.receiver, profile.throttle
    known = CheckVerdict.PASS if found.firmware.startswith(FIRMWARE) else CheckVerdict.UNKNOWN
    checks = [
        Check("firmware", f"{FIRMWARE}.x", found.firmware, known),
        same("rate curves", profile.rates.kind, found.rates.kind if found.rates else "unknown"),
        same("throttle mid, expo", (throttle.mid, throttle.expo), (tuning.throttle_mid, tuning.throttle_expo)),
        same("throttle limit, %", 100, tuning.throttle_limit if tuning.throttle_limit_type else 100),
        same("channel map", profile.channel_map, found.channel_map[: len(profile.channel_map)]),
        same("min check, us", throttle.min_check_us, receiver.min_check_us),
        same("middle of a stick, us", MID_US, receiver.mid_us),
        same("valid pulses, us", profile.valid_us, (receiver.least_us, receiver.most_us)),
    ]
    for axis, ours, own in zip(AXES, profile.rates.axes, found.rates.axes if found.rates else (), strict=False):
        checks.append(same(f"rates of {axis}", astuple(ours), astuple(own)))
    for name, mode in MODES.items():  # a mode with several ranges, or none, differs from the profile
        ranges = ", ".join(_range(one) for one in found.modes if one.mode == mode)
        checks.append(same(f"switch: {name}", _range(getattr(profile.aux, name)), ranges or "none"))
    return checks


def _range(one: AuxRange | ModeRange) -> str:
    return f"AUX{one.channel} {one.low_us}..{one.high_us}"


def sustain(
    port: Port, profile: BetaflightProfile, stick_hz: float, seconds: float
) -> tuple[LinkFigures, list[Message]]:
    line, received = MspLine(port, profile, stick_hz), list[Message]()
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        received += [message for _, message in line.exchange(left)]
    return line.scheduler.figures, received


def described(figures: LinkFigures) -> str:
    mean, p95 = 1e3 * figures.interval_mean_s, 1e3 * figures.interval_p95_s
    return f"{figures.answers} replies, interval {mean:.1f} ms, p95 {p95:.1f} ms, {figures.timeouts} timeouts"


def rested(received: Sequence[Message], profile: BetaflightProfile) -> AtRest:
    """Return means and noise of the polled samples. Raises UserError with too few samples."""
    samples = [profile.imu(raw, 0.0) for raw in received if isinstance(raw, RawImu)]
    tilts = [to_euler(profile.attitude(raw, 0.0).q_wb)[:2] for raw in received if isinstance(raw, RawAttitude)]
    replies = min(len(samples), len(tilts))
    if replies < FEWEST:
        raise UserError(f"seconds: too short, {replies} of at least {FEWEST} replies with IMU and attitude")
    accel, gyro = (np.array([getattr(sample, name) for sample in samples]) for name in ("accel", "gyro"))
    roll, pitch = np.mean(tilts, axis=0).tolist()
    noise = float(accel.std(axis=0).max()), float(gyro.std(axis=0).max())
    return AtRest(as_vector(accel.mean(axis=0)), as_vector(gyro.mean(axis=0)), *noise, roll, pitch)


def at_rest(found: AtRest, noise: ImuParameters) -> list[Check]:
    """Compare an aircraft at rest with the vehicle: gravity, bias, noise, and consistency of attitude and accelerometer."""
    roll, pitch, _ = to_euler(levelled(np.array(found.accel_m_s2)))
    off = SIGMAS * noise.accel_bias_m_s2 + GRAVITY_SHARE * GRAVITY
    turn = max(found.gyro_rad_s, key=abs)
    return [
        number("specific force, m/s^2", GRAVITY, math.hypot(*found.accel_m_s2), off),
        same("specific force points", "up", "up" if found.accel_m_s2[2] < 0 else "down"),
        number("gyro bias, rad/s", 0.0, turn, SIGMAS * noise.gyro_bias_rad_s + 1e-3),
        _at_most("noise of accel, m/s^2", LOUDER * noise.accel_noise_m_s2, found.accel_noise_m_s2),
        _at_most("noise of gyro, rad/s", LOUDER * noise.gyro_noise_rad_s, found.gyro_noise_rad_s),
        number("roll by gravity, deg", math.degrees(roll), math.degrees(found.roll_rad), math.degrees(ATTITUDE_RAD)),
        number("pitch by gravity, deg", math.degrees(pitch), math.degrees(found.pitch_rad), math.degrees(ATTITUDE_RAD)),
    ]


def _at_most(name: str, limit: float, found: float) -> Check:
    return Check(name, f"<= {limit:.3g}", f"{found:.3g}", judged(found <= limit))


STEP_US = 20  # us, movement of a stick
SAME_US = 5  # us, tolerance of a channel: rounding
MOVE_S = 1.0  # s allowed for a movement to appear
POLL_S = 0.02  # s
NAMES = dict(zip(OWN_ORDER, ("roll", "pitch", "yaw", "throttle"), strict=True))


class RehearsalStage(enum.Enum):
    ARM = "propellers off, throttle low: arm"
    HAND_OVER = "hand over: switch the override on"
    MOVE = "handed over: the program moves one stick after the other, wait"
    TAKE_BACK = "take back: switch the override off"
    DISARM = "disarm"
    OVER = "over"


class Rehearsal:
    """State machine of the rehearsal: pass messages to `receive`, and send `sticks`. Times in s of one monotonic clock."""

    def __init__(self, profile: BetaflightProfile, begin: float):
        self._profile = profile
        self.stage, self.cause = RehearsalStage.ARM, ""
        self.checks: list[Check] = []
        self._armed = self._handed_over = False
        self._moved, self._moved_t = 0, begin  # the stick that is displaced, by its place in OWN_ORDER, and since when

    @property
    def sticks(self) -> tuple[int, ...]:
        """Sticks in the order of the receiver's map. Before the hand-over roll is already displaced, to show when sticks act."""
        rest = neutral(self._profile)
        if self.stage in (RehearsalStage.TAKE_BACK, RehearsalStage.DISARM, RehearsalStage.OVER):
            return rest
        at = self._profile.channel(OWN_ORDER[self._moved])
        return tuple(us + STEP_US * (k == at) for k, us in enumerate(rest))

    def receive(self, message: Message, t: float) -> None:
        if isinstance(message, StatusEx):
            self._armed = message.armed
        elif isinstance(message, Channels):
            self._handed_over = self._profile.aux.override.on(message.us)
        if self.stage is RehearsalStage.ARM and self._armed:
            self.stage = RehearsalStage.HAND_OVER
        if self.stage is RehearsalStage.HAND_OVER and self._handed_over and self._armed:
            self.stage, self._moved_t = RehearsalStage.MOVE, t
        if isinstance(message, Channels) and self._handed_over:
            self._watch(message, t)
        if self.stage is RehearsalStage.TAKE_BACK and not self._handed_over:
            self.stage = RehearsalStage.DISARM
        if self.stage is RehearsalStage.DISARM and not self._armed:
            self.end("")
        if self.stage in (RehearsalStage.HAND_OVER, RehearsalStage.MOVE, RehearsalStage.TAKE_BACK) and not self._armed:
            self.end(f"disarmed too early: {self.stage.value}")
        if self.stage is RehearsalStage.MOVE and not self._handed_over:
            self.end("taken back before every stick was tried")

    def _watch(self, channels: Channels, t: float) -> None:
        if channels.us[OWN_ORDER.index("T")] >= self._profile.throttle.min_check_us:
            self.end("the throttle is up: take back at once, and check the channel map", same("throttle", "low", "up"))
        if self.stage is not RehearsalStage.MOVE:
            return
        off = {
            letter: us - (LOW_US if letter == "T" else MID_US)
            for letter, us in zip(OWN_ORDER, channels.us, strict=False)
        }
        shown = [letter for letter, by in off.items() if abs(by) > SAME_US]
        letter = OWN_ORDER[self._moved]
        right = shown == [letter] and abs(off[letter] - STEP_US) <= SAME_US
        if not right and t - self._moved_t <= MOVE_S:
            return
        found, name = " and ".join(NAMES[one] for one in shown) or "none", f"{NAMES[letter]} stick appears on"
        if not right:
            cause = f"the {NAMES[letter]} stick appeared on: {found}"
            self.end(cause, Check(name, NAMES[letter], found, CheckVerdict.DIFFERS))
            return
        took_ms = f"{1e3 * (t - self._moved_t):.0f}"
        if self._moved == 0:
            self.checks.append(Check("override to effect of sticks, ms", "-", took_ms, CheckVerdict.PASS))
        self.checks.append(Check(name, NAMES[letter], f"{found}, after {took_ms} ms", CheckVerdict.PASS))
        self._moved, self._moved_t = self._moved + 1, t
        if self._moved == len(OWN_ORDER):
            self.stage = RehearsalStage.TAKE_BACK

    def end(self, cause: str, *failed: Check) -> None:
        """End the rehearsal, for a cause unless all is done; what comes later changes nothing."""
        if self.stage is not RehearsalStage.OVER:
            self.stage, self.cause = RehearsalStage.OVER, cause
            self.checks += failed


def rehearse(
    line: MspLine, profile: BetaflightProfile, limit_s: float, say: Callable[[str], None], clock: Callable[[], float]
) -> Rehearsal:
    """Stream sticks, the last ones neutral, with instructions to the person, until it is over. Raises LinkError as the line."""
    rehearsal, until, announced = Rehearsal(profile, clock()), clock() + limit_s, None
    try:
        while rehearsal.stage is not RehearsalStage.OVER:
            if rehearsal.stage is not announced:
                announced = rehearsal.stage
                say(f"{announced.value} ...")
            line.sticks = rehearsal.sticks
            for sampled, message in line.exchange(POLL_S):
                rehearsal.receive(message, sampled)
            if clock() > until:
                rehearsal.end(f"not done within {limit_s:g} s: {rehearsal.stage.value}")
    finally:
        line.rest()
    return rehearsal


def run(arguments: argparse.Namespace) -> int:
    """Run the preflight. Returns 1 if something differs, without writing a file. Raises UserError for a refusal."""
    settings = settings_of(arguments, PreflightSettings)
    outputs = settings.out, settings.own_profile, arguments.json
    require_outputs(outputs, settings.profile, FOLDER / f"{settings.profile}.yaml", settings.vehicle)
    profile, vehicle = load_betaflight(settings.profile), load_vehicle(settings.vehicle)
    with closing(open_port(arguments.where, profile.baud, settings.link.i_have_read)) as port:
        file, alone, checks = read(port, profile, vehicle, settings.seconds)
        found, against = file.constants, f"profile {profile.name}, vehicle {vehicle.name}"
        print(f"{found.firmware}, MSP {found.api}, board {found.board}; against {against}:")
        print(table(checks))
        print(f"line without sticks: {described(alone)}")
        print(f"line with {profile.stick_hz:g} Hz of sticks: {described(file.line)}")
        write_json(arguments.json, {"file": file, "alone": alone, "beside": file.line, "checks": checks})
        if settings.own_profile is not None:
            source = f"{found.firmware} on {found.board}, rates as read; all other values are those of {profile.name}."
            own = replace(profile, name=settings.own_profile.stem, source=source, rates=found.rates or profile.rates)
            write(settings.own_profile, own, DIGITS)
            remark(f"wrote {settings.own_profile}")
        if differs := sum(check.verdict is CheckVerdict.DIFFERS for check in checks):
            print(f"{differs} of {len(checks)} differ: correct the aircraft or the files; no file is written")
            return 1
        if settings.rehearse:  # only after the checks, above all that of the channel map
            line = MspLine(port, profile, profile.stick_hz)
            rehearsal = rehearse(line, profile, settings.limit_s, say, time.monotonic)
            print(table(rehearsal.checks))
            if rehearsal.cause:
                print(f"rehearsal failed: {rehearsal.cause}")
                return 1
    if settings.out is not None:
        remark(f"wrote {settings.out}, sha256 {preflight.write_preflight(settings.out, file)}")
    return 0


def read(
    port: Port, profile: BetaflightProfile, vehicle: Vehicle, seconds: float
) -> tuple[PreflightFile, LinkFigures, list[Check]]:
    """Return the contents of the file, the line's figures without sticks, and all checks. Raises UserError if refused."""
    preflight.require_alone(port)
    constants = preflight.read_steady(MspLine(port, profile, stick_hz=0.0), profile)
    alone, received = sustain(port, profile, 0.0, seconds)
    beside, _ = sustain(port, profile, profile.stick_hz, seconds)
    rest, limit_ms = rested(received, profile), 1e3 * LATE / profile.stick_hz  # a reply for each beat of the sticks
    sustained = _at_most("reply interval with sticks, p95 ms", limit_ms, 1e3 * beside.interval_p95_s)
    checks = [*set_up(constants, profile), *at_rest(rest, vehicle.imu), sustained]
    file = PreflightFile(constants, preflight.profile_named(profile), preflight.vehicle_named(vehicle), rest, beside)
    return file, alone, checks
