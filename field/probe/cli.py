"""Command line of `probe-link`."""

import argparse
from dataclasses import dataclass, field
from pathlib import Path

from gate_racer.common.command import settings_parser
from gate_racer.common.settings import key
from gate_racer.link.options import LinkSettings

WORK = "gate_racer.field.probe.run"
AUTO = "auto"
OPTIONS = {"records": {"--out": "out"}}


@dataclass(frozen=True)
class ProbedLinkSettings(LinkSettings):
    profile: str = key(AUTO, "profile to compare with; `auto` is the nearest known", "NAME")


@dataclass(frozen=True)
class ProbeSettings:
    link: ProbedLinkSettings = field(default_factory=ProbedLinkSettings)
    vehicle: str = key("dcl", "vehicle with which the motion is compared")
    seconds: float = key(5.0, "duration of the measurement at rest, s", least=1, most=600)
    fly: bool = key(True, "measure in a short flight too; else at rest only, motors off")
    out: Path | None = key(None, "write the measured profile to this file (YAML)", "FILE", ending=".yaml")


def parser() -> argparse.ArgumentParser:
    about = "Measure a simulator at rest and in a short probe flight, and report the differences from a wire profile."
    return settings_parser("probe-link", about, ProbeSettings(), OPTIONS, "the checks", file=False)
