"""`run-mpc` with `--improve`: track, vehicle and plan improved by the field tools from earlier flights."""

import argparse
import sys
from typing import TYPE_CHECKING

from gate_racer.common.command import perform
from gate_racer.race import arguments as pilots

if TYPE_CHECKING:
    from gate_racer.planner.plan import Plan
    from gate_racer.tracks.track import Track
    from gate_racer.vehicle.vehicle import Vehicle


def improved(
    track: "Track", vehicle: "Vehicle", plan: "Plan", arguments: argparse.Namespace
) -> tuple["Track", "Vehicle", "Plan"]:
    """Return track, vehicle and plan improved from the last runs' logs."""
    from gate_racer.field.improve import improve, summary  # slow to load

    better = improve(track, vehicle, arguments.log, arguments.plans, plan.laps)
    print(summary(better))
    return better.track, better.vehicle, better.plan


def parser() -> argparse.ArgumentParser:
    """Return the command line of `run-mpc`."""
    arguments = pilots.parser()
    arguments.add_argument(
        "--improve",
        action="store_true",
        help="update vehicle, map and reserve from the logs of the last runs, and print the reasons",
    )
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Fly as the command line requests, with improvements if requested, and return the exit code."""
    from gate_racer.race import cli  # slow to load

    return cli.run(arguments, improved if arguments.improve else None)


def main() -> None:
    """Run `run-mpc` and exit with its code."""
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
