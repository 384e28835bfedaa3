"""`run-mpc`: fly a track, by default in the built-in simulator."""

import argparse
from collections.abc import Mapping

from gate_racer.common.command import settings_parser
from gate_racer.common.errors import say
from gate_racer.race.settings import RACE, RunSettings

WORK = "gate_racer.race.run_mpc"


def parser() -> argparse.ArgumentParser:
    about = "Fly a track by camera and IMU, in the built-in simulator unless --live is given."
    return flight_parser("run-mpc", about, RACE, "track (name or YAML file) or plan (default: vq1)")


def flight_parser(
    prog: str, about: str, options: Mapping[str, Mapping[str, str]], what: str
) -> argparse.ArgumentParser:
    """Return the command line of a command that flies `what`."""
    arguments = settings_parser(prog, about, RunSettings(), options, "the result")
    arguments.add_argument("what", nargs="?", default="vq1", help=what)
    return arguments


def run(arguments: argparse.Namespace) -> int:
    from gate_racer.race.request import race  # slow to load, as are solver and renderer after its cheap checks

    session = race(arguments)
    from gate_racer.pilot.live import exit_code_of
    from gate_racer.pilot.records.result import table
    from gate_racer.race.session import fly

    result = fly(session, lambda result: say(table(result)))
    return 0 if result.status == "finished" else exit_code_of(result.cause) or 1
