"""Time limit of a search, in CPU time of the solving process, independent of the machine's load.

Every solve has a limit of iterations. The time limit is a second one, since an iteration on an ill-conditioned matrix may take a
hundred times as long as another. It ends the whole search with an error, so a faster machine may find a plan where a slower one
finds none, but never a different plan.
"""

import time
from dataclasses import dataclass
from math import inf

from gate_racer.vehicle.errors import UserError


class OutOfTimeError(UserError):
    """No plan was found within the time limit."""


@dataclass(frozen=True)
class Deadline:
    """End of a search after `limit_s` of CPU time, by the process's clock."""

    limit_s: float  # s of CPU time
    until_s: float  # s, by `time.process_time`

    @staticmethod
    def after(limit_s: float, left_s: float | None = None) -> "Deadline":
        """Start a limit now, in this process; `left_s` is the remaining time if another process has used some."""
        return Deadline(limit_s, time.process_time() + (limit_s if left_s is None else left_s))

    @property
    def left_s(self) -> float:
        """Remaining CPU time, s.

        Raises:
            OutOfTimeError: none is left.
        """
        left = self.until_s - time.process_time()
        if left <= 0:
            raise self.error()
        return left

    def error(self) -> OutOfTimeError:
        """Return the error that the limit has passed."""
        return OutOfTimeError(
            f"no plan within {self.limit_s:g} s of CPU time; a gate may be nearly unreachable; --limit allows more time"
        )


ENDLESS = Deadline(inf, inf)
