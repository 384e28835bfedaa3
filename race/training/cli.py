"""Command line of `train-policy`."""

import argparse
from dataclasses import dataclass, field
from pathlib import Path

from gate_racer.common.command import settings_parser
from gate_racer.common.settings import key
from gate_racer.sim.environment.racing import Randomisation

WORK = "gate_racer.race.training.run"
OPTIONS = {"training": {"--vehicle": "vehicle"}, "records": {"--out": "out"}}


@dataclass(frozen=True)
class TrainingSettings:
    vehicle: str = key("swift", "name or YAML file of the vehicle")
    out: Path = key(
        Path("policy.onnx"), "policy; its checkpoint (.pt) and curves (.png) lie beside it", "FILE.onnx", ending=".onnx"
    )
    origin: str | None = key(
        None, "begin with the networks of this policy or checkpoint, of any course and vehicle", "NAME or FILE.pt"
    )
    resume: bool = key(False, "continue the interrupted training of the same command")
    steps: float = key(1e8, "steps of all vehicles together; the paper's number takes an hour of an idle core", least=1)
    seed: int = key(0, "seed of the training", least=0)
    profile: str = key("spec", "wire profile, which sets the rate of commands")
    vehicles: int = key(256, "vehicles simulated in parallel", least=2)
    settings: tuple[str, ...] = key(
        (),
        "Swift's settings whose plants are flown in equal shares; else that of the residual, else 1",
        choices=("1", "3"),
    )
    residual: Path | None = key(
        None,
        "file of fit-residuals or make-errors, to finetune with: accelerations of the plant, errors of the observation",
    )
    randomisation: Randomisation = field(default_factory=Randomisation)


def parser() -> argparse.ArgumentParser:
    about = "Learn a policy that flies a course in place of plan and controller."
    arguments = settings_parser("train-policy", about, TrainingSettings(), OPTIONS, "the curves")
    arguments.add_argument("track", help="name or YAML file of the track")
    return arguments
