"""How long a search may take: CPU time of the process that solves, which no load of the machine changes.

Every solve ends by its own number of iterations. The time limit stands behind that, since an iteration on an ill-conditioned
matrix may take a hundred times as long as another. It ends the whole search, with one line: so a faster machine may find a plan
where a slower one finds none, but never another plan.
"""

import time
from dataclasses import dataclass
from math import inf

from vehicle.errors import UserError


class OutOfTimeError(UserError):
    """No plan within the time that it may take."""


@dataclass(frozen=True)
class Deadline:
    """Ends a search after `limit_s` of CPU time, by the process's own clock."""

    limit_s: float
    until_s: float  # of `time.process_time`

    @staticmethod
    def after(limit_s: float, left_s: float | None = None) -> "Deadline":
        """Begins now, in this process; `left_s` of the limit are left where another one has spent some."""
        return Deadline(limit_s, time.process_time() + (limit_s if left_s is None else left_s))

    @property
    def left_s(self) -> float:
        """Raises OutOfTimeError where none is left."""
        left = self.until_s - time.process_time()
        if left <= 0:
            raise self.error()
        return left

    def error(self) -> OutOfTimeError:
        return OutOfTimeError(
            f"no plan within {self.limit_s:g} s of CPU time; a gate may be next to impossible: --limit gives more time"
        )


ENDLESS = Deadline(inf, inf)
