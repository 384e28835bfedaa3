"""Command line of `detect-gates`."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from gate_racer.common.command import settings_parser
from gate_racer.common.settings import key
from gate_racer.perception.registry import CLASSICAL, DETECTORS, TAUGHT

WORK = "gate_racer.pilot.gates_in_images"
OPTIONS = {"detection": {"--detector": "detector"}}


@dataclass(frozen=True)
class DetectionSettings:
    detector: str = key(
        CLASSICAL, "detector, or FILE.onnx of train-detector", "NAME", choices=DETECTORS, suffix=TAUGHT, part=True
    )
    vehicle: str = key("dcl", "name or YAML file of the vehicle whose camera took the images")
    track: str = key("vq1", "name or YAML file; its gate size gives distances, its frame shape the initial guess")
    draw: Path | None = key(None, "folder for annotated images", "FOLDER")


def parser() -> argparse.ArgumentParser:
    about = "Detect gates in images, folders of images or flight logs."
    arguments = settings_parser("detect-gates", about, DetectionSettings(), OPTIONS, "the detections", file=False)
    arguments.add_argument("what", nargs="+", type=Path, help="images (jpg, png), folders of them, or logs (mcap)")
    return arguments
