"""`plan-track`: plans, each flown once on the vehicle's own plant where that is more than the plan's model."""

import argparse

from gate_racer.common.command import main_of
from gate_racer.planner import cli
from gate_racer.planner.cli import parser
from gate_racer.race.trial import fly_trial

__all__ = ["main", "parser", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Plan as the command line requests, and return the exit code."""
    return cli.run(arguments, fly_trial)


main = main_of(parser, run)
