"""Command line of `train-detector`."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from gate_racer.common.command import settings_parser
from gate_racer.common.settings import key

WORK = "gate_racer.perception.training.run"
OPTIONS = {"records": {"--out": "out"}}


@dataclass(frozen=True)
class TeachingSettings:
    out: Path = key(Path("gates.onnx"), "network; card (.yaml) and sheet (.png) beside", "FILE.onnx", ending=".onnx")
    steps: int = key(6000, "steps of the training; the default takes 20 to 30 minutes on two cores", least=1)
    batch: int = key(8, "samples of a step; a GPU takes more at once", least=1)
    seed: int = key(1, "seed of the training", least=0)


def parser() -> argparse.ArgumentParser:
    about, result = "Teach a gate detector from labelled photographs.", "the figures of the held-out images"
    arguments = settings_parser("train-detector", about, TeachingSettings(), OPTIONS, result, file=False)
    folder = "images, and labels as corners in CSV, COCO keypoints, YOLO-pose or CVAT XML"
    arguments.add_argument("folder", type=Path, help=folder)
    return arguments
