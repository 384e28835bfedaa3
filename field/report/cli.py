"""Command line of `fly-report`."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from gate_racer.common.command import settings_parser
from gate_racer.common.settings import key

WORK = "gate_racer.field.report.run"
OPTIONS = {"records": {"--out": "out"}}


@dataclass(frozen=True)
class ReportSettings:
    track: str = key("", "name or YAML file; else the log's")
    out: Path | None = key(None, "page to write; else the log's name with .html, or -compared.html", "FILE")
    film: Path | None = key(None, "also write a film: images, detections, map, estimate", "FILE.webm", ending=".webm")
    slower: float = key(1.0, "slow-motion factor of the film", least=0.1, most=20)


def parser() -> argparse.ArgumentParser:
    about = "Write one HTML page about a flight, or comparing several flights of one track with the first."
    result = "figures and findings of the flights"
    arguments = settings_parser("fly-report", about, ReportSettings(), OPTIONS, result, file=False)
    logs = "flight log (MCAP of run-mpc, or another format); further logs are compared with the first"
    arguments.add_argument("log", type=Path, nargs="+", help=logs)
    return arguments
