"""`excite`: fly identification manoeuvres within the bounds of a track, and write a log for `identify-vehicle`."""

import argparse

from gate_racer.common.command import write_json
from gate_racer.common.errors import say
from gate_racer.race.run_mpc import flight_parser
from gate_racer.race.settings import SURVEY

WORK = "gate_racer.race.excite"


def parser() -> argparse.ArgumentParser:
    about = "Fly manoeuvres within the bounds of a track, and write a log for identify-vehicle."
    return flight_parser("excite", about, SURVEY, "track (name or YAML file, default: vq1)")


def run(arguments: argparse.Namespace) -> int:
    from gate_racer.race.request import survey  # slow to load, as are solver and renderer after its cheap checks

    session = survey(arguments, lambda settings: settings.excite.manoeuvres)
    from gate_racer.pilot.live import exit_code_of
    from gate_racer.race.session import excite

    log, why = excite(session)
    say(f"{why or 'all manoeuvres were flown'}; log {log}; next: identify-vehicle {log}")
    write_json(arguments.json, {"flown": not why, "cause": why, "log": log})
    return (exit_code_of(why) or 1) if why else 0
