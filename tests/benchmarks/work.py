"""Work that can take its process with it."""

import os
from dataclasses import dataclass

from gate_racer.race.campaign.case import Case, Outcome, Row


@dataclass(frozen=True)
class Place:
    """Stub of a `PreparedCourse`."""

    deadly: int  # seed whose every attempt kills its process
    gates_s: tuple[float, ...] = (1.0,)


def work(case: Case, place: Place) -> Row:
    if case.seed == place.deadly:
        os._exit(1)
    return Row(case, Outcome("finished", race_s=float(case.seed)))
