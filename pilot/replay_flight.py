"""Command line of `replay-flight`."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from gate_racer.common.command import settings_parser
from gate_racer.common.settings import key
from gate_racer.estimation.registry import DEFAULT, ESTIMATORS
from gate_racer.perception.registry import CLASSICAL, DETECTORS, TAUGHT

WORK = "gate_racer.pilot.replay"
LOGGED = "logged"  # detections recorded in flight, instead of a detector
DETECTOR = f"gate detector, or {LOGGED} for the detections in the log; else {CLASSICAL}, without images {LOGGED}"
OPTIONS = {"records": {"--out": "out"}}


@dataclass(frozen=True)
class ReplaySettings:
    estimator: str = key(DEFAULT, "state estimator", choices=tuple(ESTIMATORS), part=True)
    detector: str = key("", DETECTOR, choices=("", *DETECTORS, LOGGED), suffix=TAUGHT, part=True)
    track: str = key("", "name or YAML file; else the log's")
    vehicle: str = key("", "name or YAML file; else the log's")
    out: Path | None = key(None, "path without suffix for PNG and JSON; else beside the log", "PATH")
    tum: bool = key(False, "also write estimate and truth as OUT.tum and OUT-truth.tum, as evo and others read them")


def parser() -> argparse.ArgumentParser:
    about = "Repeat perception and estimation on a log, and compare them with the estimate in flight and the truth."
    result = "the errors of both estimates"
    arguments = settings_parser("replay-flight", about, ReplaySettings(), OPTIONS, result, file=False)
    log = "flight log (.mcap) of run-mpc, .ulg, .bbl, .tlog, .bin, or a folder of TII-RATM, EuRoC or UZH-FPV"
    arguments.add_argument("log", type=Path, help=log)
    return arguments
