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
    from field.improve import improve, told  # slow to load

    better = improve(track, vehicle, arguments.log, arguments.plans, plan.laps)
    print(told(better))
    return better.track, better.vehicle, better.plan


def parser() -> argparse.ArgumentParser:
    arguments = pilots.parser()
    arguments.add_argument(
        "--improve",
        action="store_true",
        help="update vehicle, map and reserve from the logs of the last runs, and print the reasons",
    )
    return arguments


def run(arguments: argparse.Namespace) -> int:
    return cli.run(arguments, improved if arguments.improve else None)


def main() -> None:
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
