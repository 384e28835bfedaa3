"""Interface of the back-ends: prepare a problem between two commands, solve it when the state is known."""

from dataclasses import dataclass
from typing import Protocol

from gate_racer.vehicle.rotation import Array


@dataclass(frozen=True)
class Solution:
    """One solution: states and inputs along the horizon, and the solver's status."""

    x: Array  # (N + 1, NX)
    u: Array  # (N, NU)
    status: int  # 0 for success
    solve_s: float  # s, time of the feedback phase, from the state to the solution
    fault: str = ""  # why there is none, where a status does not say so


class Solver(Protocol):
    """Real-time-iteration back-end of a `Problem`."""

    def start(self, x: Array, u: Array) -> None:
        """Set the initial guess: states x (N + 1, NX) and inputs u (N, NU)."""

    def prepare(self, parameters: Array) -> None:
        """Linearise the problem with stage parameters (N + 1, NP), before the state is known."""

    def solve(self, x0: Array) -> Solution:
        """Solve for the state x0 (NX,); failures are reported in the status."""
