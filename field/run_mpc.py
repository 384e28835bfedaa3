"""`run-mpc` with `--improve`: track, vehicle and plan improved by the field tools from earlier flights."""

import argparse
import sys

from pilot import arguments as pilots
from pilot import cli
from planner.plan import Plan
from tracks.track import Track
from vehicle.command import perform
from vehicle.vehicle import Vehicle


def improved(track: Track, vehicle: Vehicle, plan: Plan, arguments: argparse.Namespace) -> tuple[Track, Vehicle, Plan]:
    """Return track, vehicle and plan improved from the last runs' logs."""
    from field.improve import improve, summary  # slow to load

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
    return cli.run(arguments, improved if arguments.improve else None)


def main() -> None:
    """Run `run-mpc` and exit with its code."""
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
