"""Command line of `identify-vehicle`."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from gate_racer.common.command import settings_parser
from gate_racer.common.settings import key

WORK = "gate_racer.field.identify.run"
OPTIONS = {"records": {"--out": "out"}}


@dataclass(frozen=True)
class IdentificationSettings:
    base: str = key("dcl", "vehicle that supplies all other parameters")
    linear_drag: bool = key(False, "also fit drag proportional to speed, even where the motion is explained without")
    out: Path = key(Path("identified.yaml"), "file to write, whose name the vehicle gets", "NAME.yaml", ending=".yaml")


def parser() -> argparse.ArgumentParser:
    about, result = (
        "Fit thrust curve, drag, delay and lags to flight logs.",
        "the fitted parameters, with 95 % half widths",
    )
    arguments = settings_parser("identify-vehicle", about, IdentificationSettings(), OPTIONS, result, file=False)
    logs = "MCAP, CSV (t, throttle, v_z, ...), .ulg, .bbl, .tlog, .bin, ROS bags"
    arguments.add_argument("logs", nargs="+", type=Path, help=logs)
    return arguments
