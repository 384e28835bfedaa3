"""`probe-link --set link.msp=WHERE`: read a flight controller over MSP at rest, compare it with a profile, and measure its line.

Nothing is configured or armed. Neutral sticks are sent for a while, since they share the line; only after the flight
controller has reported that it is disarmed and that the override is off.
"""

import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gate_racer.common.command import remark, write_json
from gate_racer.field.files import write_yaml
from gate_racer.field.probe.check import Check, CheckVerdict, number, same, table
from gate_racer.link.msp.line import LinkFigures, MspLine
from gate_racer.link.msp.messages import ApiVersion, BoardInfo, Code, Message, RawImu, RcTuning
from gate_racer.link.msp.ports import Port
from gate_racer.link.msp.preflight import firmware_of, rates_of, request, require_safe
from gate_racer.link.msp.profile import AxisRates, BetaflightProfile, RateCurves
from gate_racer.link.msp.sticks import imu
from gate_racer.vehicle.dynamics import GRAVITY

DEFAULT = "betaflight"
FIRMWARE = "BTFL 4.4"  # version for which the messages are implemented
GRAVITY_M_S2, TURN_DEG_S = 0.6, 3.0  # tolerances at rest
AXES = "roll", "pitch", "yaw"


@dataclass(frozen=True)
class Identity:
    """Identity and rate curves of a flight controller."""

    firmware: str
    board: str
    api: str
    rates: RateCurves | None  # None: not available, or of an unknown kind


def probe_msp(port: Port, profile: BetaflightProfile, seconds: float, json: Path | None, out: Path | None) -> int:
    """Print the result and close the port; return 1 if it differs from the profile. Raises UserError: no reply, or armed.

    Args:
        seconds: s, duration of each measurement of the line.
        json: file for the result.
        out: file for the profile as measured.
    """
    try:
        line = MspLine(port, profile, stick_hz=0.0)
        found = identify(line)
        require_safe(line, profile)
        alone, received = sustain(port, profile, 0.0, seconds)
        beside, _ = sustain(port, profile, profile.stick_hz, seconds)
    finally:
        port.close()
    checks = [*compare(found, profile), *at_rest(received, profile)]
    print(f"{found.firmware}, MSP {found.api}, board {found.board}; against profile {profile.name}:")
    print(table(checks))
    print(f"line without sticks: {described(alone)}")
    print(f"line with {profile.stick_hz:g} Hz of sticks: {described(beside)}")
    write_json(json, {"profile": profile.name, "found": found, "checks": checks, "alone": alone, "beside": beside})
    if out is not None:
        source = f"{found.firmware} on {found.board}, rates as read; all other values are those of {profile.name}."
        own = replace(profile, name=out.stem, source=source, rates=found.rates or profile.rates)
        write_yaml(out, asdict(own))
        remark(f"wrote {out}")
    return 1 if any(check.verdict is CheckVerdict.DIFFERS for check in checks) else 0


def identify(line: MspLine) -> Identity:
    """Read the identity. Raises LinkError without a reply."""
    firmware, api = firmware_of(line), request(line, Code.API_VERSION)
    board, tuning = request(line, Code.BOARD_INFO), request(line, Code.RC_TUNING)
    return Identity(
        firmware,
        (board.target or board.board) if isinstance(board, BoardInfo) else "-",
        f"{api.major}.{api.minor}" if isinstance(api, ApiVersion) else "-",
        rates_of(tuning) if isinstance(tuning, RcTuning) else None,
    )


def sustain(
    port: Port, profile: BetaflightProfile, stick_hz: float, seconds: float
) -> tuple[LinkFigures, dict[type[Message], list[Message]]]:
    """Measure the line with neutral sticks at stick_hz; return its figures, and the messages by type."""
    line, received = MspLine(port, profile, stick_hz), defaultdict[type[Message], list[Message]](list)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for _, message in line.exchange(left):
            received[type(message)].append(message)
    return line.scheduler.figures, received


def compare(found: Identity, profile: BetaflightProfile) -> list[Check]:
    """Compare the identity with the profile."""
    return [firmware_check(found.firmware), *rate_checks(profile.rates, found.rates)]


def firmware_check(found: str) -> Check:
    """Check the firmware: another version is unknown, since its messages were not verified."""
    known = CheckVerdict.PASS if found.startswith(FIRMWARE) else CheckVerdict.UNKNOWN
    return Check("firmware", f"{FIRMWARE}.x", found, known)


def rate_checks(expected: RateCurves, found: RateCurves | None) -> list[Check]:
    """Compare kind and parameters of the curves; None: not available, or of an unknown kind."""
    if found is None:
        return [Check("rate curves", expected.kind, "unknown", CheckVerdict.DIFFERS)]
    pairs = zip(AXES, expected.axes, found.axes, strict=True)
    return [
        same("rate curves", expected.kind, found.kind),
        *(same(f"rates of {axis}", _rates(ours), _rates(own)) for axis, ours, own in pairs),
    ]


def _rates(one: AxisRates) -> str:
    return f"{one.rc_rate}/{one.rate}/{one.expo}/{one.limit_deg_s}"


def at_rest(received: dict[type[Message], list[Message]], profile: BetaflightProfile) -> list[Check]:
    """Check gravity and rotation of a level aircraft at rest, by the means of the samples."""
    samples = [imu(profile, raw, 0.0) for raw in received.get(RawImu, []) if isinstance(raw, RawImu)]
    if not samples:
        return [number("specific force down, m/s^2", -GRAVITY, None, GRAVITY_M_S2)]
    down = float(np.mean([sample.accel[2] for sample in samples]))
    turn = float(np.abs(np.degrees(np.mean([sample.gyro for sample in samples], axis=0))).max())
    return [
        number("specific force down, m/s^2", -GRAVITY, down, GRAVITY_M_S2),
        number("turn, deg/s", 0.0, turn, TURN_DEG_S),
    ]


def described(figures: LinkFigures) -> str:
    """Return the figures as one line."""
    mean, p95 = 1e3 * figures.interval_mean_s, 1e3 * figures.interval_p95_s
    return f"{figures.answers} replies, interval {mean:.1f} ms, p95 {p95:.1f} ms, {figures.timeouts} timeouts"
