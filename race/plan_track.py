"""Command line of `plan-track`."""

import argparse
from dataclasses import dataclass, fields
from pathlib import Path

from gate_racer.common.command import settings_parser
from gate_racer.common.settings import key
from gate_racer.planner.task import PlanOptions

WORK = "gate_racer.race.planning"
OPTIONS = {
    "plan": {
        "--vehicle": "vehicle",
        "--laps": "laps",
        "--reserve": "reserve",
        "--margin": "margin_m",
        "--see": "see",
    },
    "records": {"--out": "out"},
}


@dataclass(frozen=True)
class PlanSettings(PlanOptions):
    vehicle: str = key("dcl", "name or YAML file", "NAME")
    problem: Path | None = key(
        None,
        "YAML file of a planning problem, of ours, CPC or TOGT, in place of a track, with its *quad*.yaml beside it",
    )
    warm: Path | None = key(None, "plan of a similar course, from which the search starts")
    import_csv: Path | None = key(None, "trajectory of CPC, TOGT or Agilicious to certify, instead of planning")
    check: bool = key(True, "fly the plan on the vehicle's own plant before it is written")
    out: Path = key(Path("plans"), "folder for CSV, JSON and PNG", "FOLDER")

    @property
    def options(self) -> PlanOptions:
        return PlanOptions(**{one.name: getattr(self, one.name) for one in fields(PlanOptions)})


def parser() -> argparse.ArgumentParser:
    about = "Compute a time-optimal, certified trajectory through the gates of a track."
    arguments = settings_parser("plan-track", about, PlanSettings(), OPTIONS, "the certificate")
    arguments.add_argument("track", nargs="?", help="name or YAML file of the track, such as vq1")
    return arguments
