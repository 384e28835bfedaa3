"""Work that notes where it was done, and that can take its process with it."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gate_racer.race.campaign.case import Case, Flown, Outcome


@dataclass(frozen=True)
class Place:
    """Stub of a `PreparedCourse`."""

    folder: Path
    deadly: int | None = None  # seed whose every attempt kills its process
    gates_s: tuple[float, ...] = (1.0,)


def job(seed: int, place: Place) -> tuple[Case, Place]:
    return Case("vq1", "dcl", 1, "projected", "tracking", "drift", seed), place


def note(case: Case, place: Place) -> Flown:
    with (place.folder / "noted").open("a") as file:
        file.write(f"{case.seed}\n")
    if case.seed == place.deadly:
        os._exit(1)
    return Flown(Outcome("finished", race_s=float(case.seed)), np.empty((0, 5)))
