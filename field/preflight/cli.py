"""Command line of `preflight`."""

import argparse
from dataclasses import dataclass, field
from pathlib import Path

from gate_racer.common.command import settings_parser
from gate_racer.common.settings import key
from gate_racer.link.options import ConsentSettings

WORK = "gate_racer.field.preflight.run"
OPTIONS = {"aircraft": {"--profile": "profile"}, "checks": {"--out": "out"}}


@dataclass(frozen=True)
class PreflightSettings:
    link: ConsentSettings = field(default_factory=ConsentSettings)
    profile: str = key("betaflight", "MSP profile: name or YAML file", "NAME")
    vehicle: str = key("archer", "name or YAML file", "NAME")
    seconds: float = key(3.0, "duration of each measurement, s", least=1, most=600)
    rehearse: bool = key(False, "propellers off: also rehearse the hand-over with the pilot, stick by stick")
    limit_s: float = key(120.0, "time limit of the rehearsal, s", positive=True)
    out: Path | None = key(None, "file to write for run-mpc if nothing differs (YAML)", "FILE", ending=".yaml")
    own_profile: Path | None = key(None, "write the profile with the rates as read to this file (YAML)", ending=".yaml")


def parser() -> argparse.ArgumentParser:
    about = "Read a Betaflight at rest, compare it with profile and vehicle, and write a file for run-mpc."
    result = "the values read and the checks"
    arguments = settings_parser("preflight", about, PreflightSettings(), OPTIONS, result, file=False)
    arguments.add_argument("where", metavar="WHERE", help="serial port or tcp:HOST:PORT, see docs/betaflight.md")
    return arguments
