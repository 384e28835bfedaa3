"""`explore`: fly an unknown course by sight, and write a log for `map-track`."""

import argparse

from gate_racer.common.errors import say
from gate_racer.race.run_mpc import flight_parser
from gate_racer.race.settings import SURVEY

WORK = "gate_racer.race.explore"


def parser() -> argparse.ArgumentParser:
    about = "Explore an unknown course by sight, and write a log for map-track."
    return flight_parser("explore", about, SURVEY, "track of the built-in simulator only (default: vq1)")


def run(arguments: argparse.Namespace) -> int:
    from gate_racer.race.request import survey  # slow to load, as are solver and renderer after its cheap checks

    session = survey(arguments, lambda settings: settings.explore.excite or None)
    from gate_racer.pilot.live import exit_code_of
    from gate_racer.race.session import explore, summary

    found = explore(session)
    say(summary(found))
    return 0 if found["status"] == "explored" else exit_code_of(found["cause"]) or 1
