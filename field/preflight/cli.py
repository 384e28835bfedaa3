"""`preflight`: read an aircraft's configuration into a file, compare it with profile and vehicle, and refuse unsafe states.

Nothing is configured or armed. Neutral sticks are sent for a while, since they share the line; only after the flight
controller has reported that it is disarmed and that the override is off.
"""

import argparse
import sys
import time
from pathlib import Path

from gate_racer.field.preflight.checks import at_rest, line_check, rested, set_up
from gate_racer.field.preflight.rehearsal import rehearse
from gate_racer.field.probe.betaflight import DEFAULT, described, sustain
from gate_racer.field.probe.check import Check, CheckVerdict, table
from gate_racer.link.msp.line import MspLine
from gate_racer.link.msp.ports import Port, open_port
from gate_racer.link.msp.preflight import (
    LineFigures,
    PreflightFile,
    profile_named,
    read_steady,
    require_alone,
    vehicle_named,
    write_preflight,
)
from gate_racer.link.msp.profile import FOLDER, BetaflightProfile, load_betaflight
from gate_racer.link.msp.schedule import LinkFigures
from gate_racer.link.options import add_msp_arguments
from gate_racer.vehicle.command import add_common, perform, remark, write_json
from gate_racer.vehicle.errors import UserError, say
from gate_racer.vehicle.files import require_output
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

SHORTEST_S, LONGEST_S = 1.0, 600.0


def parser() -> argparse.ArgumentParser:
    """Return the command line of `preflight`."""
    arguments = argparse.ArgumentParser(
        prog="preflight",
        description="Read a Betaflight at rest, compare it with profile and vehicle, and write a file for run-mpc --preflight.",
    )
    add_msp_arguments(arguments, "the flight controller")
    arguments.add_argument("--profile", default=DEFAULT, help=f"MSP profile, name or YAML file (default: {DEFAULT})")
    arguments.add_argument("--vehicle", default="archer", help="name or YAML file (default: archer)")
    arguments.add_argument("--seconds", type=float, default=3.0, help="duration of each measurement, s (default: 3)")
    arguments.add_argument("--out", type=Path, help="file to write for run-mpc --preflight if nothing differs (YAML)")
    arguments.add_argument(
        "--rehearse",
        action="store_true",
        help="propellers off: also rehearse the hand-over with the person at the transmitter, stick by stick",
    )
    arguments.add_argument("--limit", type=float, default=120.0, help="with --rehearse: time limit, s (default: 120)")
    add_common(arguments, "the values read and the checks")
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Run the preflight. Returns 1 if something differs, without writing a file. Raises UserError for a refusal."""
    _require_consistent(arguments)
    profile, vehicle = load_betaflight(arguments.profile), load_vehicle(arguments.vehicle)
    port = open_port(arguments.msp, profile.baud, arguments.i_have_read)
    try:
        file, alone, beside, checks = read(port, profile, vehicle, arguments.seconds)
        found, against = file.constants, f"profile {profile.name}, vehicle {vehicle.name}"
        print(f"{found.firmware}, MSP {found.api}, board {found.board}; against {against}:")
        print(table(checks))
        print(f"line without sticks: {described(alone)}")
        print(f"line with {profile.stick_hz:g} Hz of sticks: {described(beside)}")
        write_json(arguments.json, {"file": file, "alone": alone, "beside": beside, "checks": checks})
        if differs := sum(check.verdict is CheckVerdict.DIFFERS for check in checks):
            print(f"{differs} of {len(checks)} differ: correct the aircraft or the files; no file is written")
            return 1
        if arguments.rehearse and not _rehearsed(port, profile, arguments.limit):
            return 1
    finally:
        port.close()
    if arguments.out is not None:
        remark(f"wrote {arguments.out}, sha256 {write_preflight(arguments.out, file)}")
    return 0


def _require_consistent(arguments: argparse.Namespace) -> None:
    if not arguments.msp:
        raise UserError("--msp WHERE is missing, such as --msp /dev/ttyTHS1 or --msp tcp:127.0.0.1:5761")
    if not SHORTEST_S <= arguments.seconds <= LONGEST_S:
        raise UserError(f"--seconds {arguments.seconds:g}: must lie between {SHORTEST_S:g} and {LONGEST_S:g}")
    if arguments.limit <= 0:
        raise UserError(f"--limit {arguments.limit:g}: must be positive")
    if arguments.out is not None and arguments.out.suffix != ".yaml":
        raise UserError(f"--out {arguments.out}: a preflight file ends in .yaml")
    if arguments.out is not None:
        require_output(arguments.out, arguments.profile, FOLDER / f"{arguments.profile}.yaml", arguments.vehicle)


def read(
    port: Port, profile: BetaflightProfile, vehicle: Vehicle, seconds: float
) -> tuple[PreflightFile, LinkFigures, LinkFigures, list[Check]]:
    """Return the contents of the file, the line's figures alone and with sticks, and all checks. Raises UserError if refused."""
    require_alone(port)
    constants = read_steady(MspLine(port, profile, stick_hz=0.0), profile)
    alone, received = sustain(port, profile, 0.0, seconds)
    beside, _ = sustain(port, profile, profile.stick_hz, seconds)
    rest = rested([message for kind in received.values() for message in kind], profile)
    figures = LineFigures(beside.interval_mean_s, beside.interval_p95_s, beside.timeouts)
    checks = [*set_up(constants, profile), *at_rest(rest, vehicle.imu), line_check(profile, beside.interval_p95_s)]
    file = PreflightFile(constants, profile_named(profile), vehicle_named(vehicle), rest, figures)
    return file, alone, beside, checks


def _rehearsed(port: Port, profile: BetaflightProfile, limit_s: float) -> bool:
    """Return whether a rehearsal succeeded. The checks must have passed before, above all that of the channel map."""
    rehearsal = rehearse(MspLine(port, profile, profile.stick_hz), profile, limit_s, say, time.monotonic)
    print(table(rehearsal.checks))
    if rehearsal.cause:
        print(f"rehearsal failed: {rehearsal.cause}")
    return not rehearsal.cause


def main() -> None:
    """Run `preflight` and exit with its code."""
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
