"""Work that can take its process with it."""

import os
from dataclasses import dataclass

import numpy as np

from gate_racer.race.campaign.case import Case, Flown, Outcome


@dataclass(frozen=True)
class Place:
    """Stub of a `PreparedCourse`."""

    deadly: int  # seed whose every attempt kills its process
    gates_s: tuple[float, ...] = (1.0,)


def work(case: Case, place: Place) -> Flown:
    if case.seed == place.deadly:
        os._exit(1)
    return Flown(Outcome("finished", race_s=float(case.seed)), np.empty((0, 5)))
