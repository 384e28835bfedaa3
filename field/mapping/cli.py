"""Command line of `map-track`."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from gate_racer.common.command import settings_parser
from gate_racer.common.errors import UserError
from gate_racer.common.settings import key
from gate_racer.perception.registry import DETECTORS, TAUGHT
from gate_racer.tracks.track import VADR_FRAME, GateFrame

WORK = "gate_racer.field.mapping.run"
OPTIONS = {"course": {"--gates": "gates"}, "records": {"--out": "out"}}


@dataclass(frozen=True)
class MappingSettings:
    gates: int | None = key(None, "number of gates", "N", least=1)
    opening_m: float = key(VADR_FRAME.opening_m, "side length of the openings, m")
    outer_m: float = key(VADR_FRAME.outer_m, "outer side length of the frames, m")
    depth_m: float = key(VADR_FRAME.depth_m, "depth of the frames, m")
    start: str = key("0,0,0", "X,Y,Z[,YAW] of the pad, m and deg; without yaw as received")
    vehicle: str = key("dcl", "vehicle with the camera and IMU of the logs")
    detector: str = key(
        "", "detect gates in the images again; else the logged ones", choices=("", *DETECTORS), suffix=TAUGHT, part=True
    )
    out: Path | None = key(None, "track file to write, e.g. tracks/found.yaml", "FILE", ending=".yaml")

    @property
    def frame(self) -> GateFrame:
        """The frame of all gates. Raises UserError for sizes that do not fit."""
        if not 0 < self.opening_m < self.outer_m or self.depth_m < 0:
            raise UserError("opening_m must be positive and smaller than outer_m, and depth_m not negative")
        return GateFrame(self.opening_m, self.outer_m, self.depth_m)


def parser() -> argparse.ArgumentParser:
    about = "Map the gates passed in recorded flights; the first flight determines their order."
    result = "the gates with their covariances, and the estimated parameters of camera and IMU"
    arguments = settings_parser("map-track", about, MappingSettings(), OPTIONS, result, file=False)
    logs = "logs of run-mpc (MCAP, preferably of explore) or TII-RATM, all from the same pad"
    arguments.add_argument("log", nargs="+", type=Path, help=logs)
    return arguments
