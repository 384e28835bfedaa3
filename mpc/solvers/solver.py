"""What every back-end does: prepare a problem between two commands, solve it when the state is known."""

from dataclasses import dataclass
from typing import Protocol

from vehicle.rotation import Array

AUTO, SOLVERS = "auto", ("auto", "acados", "casadi")


@dataclass(frozen=True)
class Solve:
    """One solution: states and inputs along the horizon, and how it ended (0 = success)."""

    x: Array  # (N + 1, NX)
    u: Array  # (N, NU)
    status: int
    solve_s: float  # from the state to the solution


class Solver(Protocol):
    """A back-end: acados, or anything that solves the same problem."""

    def start(self, x: Array, u: Array) -> None: ...
    def prepare(self, parameters: Array) -> None: ...
    def solve(self, x0: Array) -> Solve: ...
