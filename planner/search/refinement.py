"""From a coarse mesh to a fine one: solve, split the intervals that need it, solve again from there.

Time-optimal inputs jump, and a jump inside an interval costs time; between jumps long intervals are exact enough. So only
intervals beside a change of the inputs, with a visible integration error, or that stray between their nodes are halved.
Measured on the 7-gate Split-S with rotor thrusts: 7.391 s in 2 CPU s, where a uniform mesh needs steps of 10 ms and 11 CPU s
for the same.
"""

from dataclasses import dataclass

import numpy as np

from planner.models import Model, P, V, W
from planner.problem.mesh import Mesh, intervals
from planner.problem.nlp import Progress
from planner.problem.problem import Solved, TimeOptimalProblem
from planner.problem.terms import Duals, Point
from vehicle.rotation import Array

LEVELS = 6  # meshes, the first included; the last gains 0.002 % of time
MENDED = 2  # more of them, where the path of the last still strays between its nodes: of 200 gates one does
DEFECT_M, DEFECT_M_S, DEFECT_RAD_S = 3e-6, 3e-4, 8e-3  # of one interval: it is halved
COARSE_TOLERANCE, TOLERANCE = 1e-3, 1e-6  # of IPOPT; until the last mesh only the places of the jumps matter
STILL_EXACT = 2.0  # times that, a defect of the last mesh may be: a jump has moved into an interval that was not halved
GROWTH = 1.1  # a mesh that grows by less is the last: one more would be nearly the same again
# The barrier stays adaptive throughout: back in monotone mode, iterations grow with the number of gates.
FIRST = {
    "ipopt.max_iter": 300,
    "ipopt.mu_strategy": "adaptive",
    "ipopt.adaptive_mu_globalization": "never-monotone-mode",
    "ipopt.tol": COARSE_TOLERANCE,
}


def from_nearby(distance: float) -> dict:
    """Options for a start that is near the solution: a small barrier at once, and no push away from active bounds."""
    pushes = ("bound_push", "bound_frac", "slack_bound_push", "slack_bound_frac", "mult_bound_push")
    return {
        "ipopt.max_iter": 600,
        "ipopt.mu_strategy": "monotone",
        "ipopt.mu_init": distance,
        "ipopt.warm_start_init_point": "yes",
        **{f"ipopt.warm_start_{push}": distance for push in pushes},
    }


FINE = 3e-6  # that distance from the solution on the mesh before, multipliers included, to the one on the last
LAST = from_nearby(FINE) | {"ipopt.tol": TOLERANCE}
WARM = from_nearby(1e-4) | {"ipopt.tol": COARSE_TOLERANCE}  # from a plan of a similar course; it halves the time


@dataclass(frozen=True)
class Optimum:
    """The solution on a mesh, good or not."""

    level: int  # 1 on the first mesh, `LEVELS` on the last
    mesh: Mesh
    solved: Solved
    iterations: int  # of this mesh and all before

    @property
    def total_time(self) -> float:
        """s."""
        return float(self.solved.point.durations.sum())


def coarse(problem: TimeOptimalProblem, mesh: Mesh, point: Point, settings: dict, progress: Progress) -> Optimum:
    """The optimum on the first mesh, from a guess on it."""
    solved = problem.solve(mesh, point, settings, progress)
    return Optimum(1, mesh, solved, solved.iterations)


def refined(problem: TimeOptimalProblem, optimum: Optimum, levels: int, progress: Progress) -> Optimum:
    """The optimum on the mesh of that level; the last level of all is solved to the full tolerance."""
    model = problem.model
    while optimum.level < levels:
        strays = problem.strays(optimum.mesh, optimum.solved.point)
        finer, point = _halved(model, optimum.mesh, optimum.solved.point, strays)
        done = not strays.any() and len(point.u[0]) < GROWTH * len(strays)
        last = done or optimum.level + 1 == LEVELS
        settings = LAST if last else from_nearby(model.nearby) | {"ipopt.tol": COARSE_TOLERANCE}
        solved = problem.solve(finer, point, settings, progress)
        done = done and not _inexact(model, finer, solved.point, STILL_EXACT).any()
        optimum = Optimum(LEVELS if done else optimum.level + 1, finer, solved, optimum.iterations + solved.iterations)
    return _mended(problem, optimum, progress) if levels == LEVELS else optimum


def _mended(problem: TimeOptimalProblem, optimum: Optimum, progress: Progress) -> Optimum:
    """The optimum with the last mesh halved where its path strays between its nodes."""
    for _ in range(MENDED):
        strays = problem.strays(optimum.mesh, optimum.solved.point)
        if not (optimum.solved.success and strays.any()):
            break
        finer, point = _halved(problem.model, optimum.mesh, optimum.solved.point, strays)
        solved = problem.solve(finer, point, LAST, progress)
        optimum = Optimum(LEVELS, finer, solved, optimum.iterations + solved.iterations)
    return optimum


def _halved(model: Model, mesh: Mesh, point: Point, split: Array) -> tuple[Mesh, Point]:
    """The mesh with the intervals of `split` (N,) halved and others that need it, and the same trajectory on it."""
    jump = (np.abs(np.diff(point.u, axis=1)) > model.jump * (model.u_high - model.u_low)[:, None]).any(axis=0)
    split = split | np.append(jump, False) | np.append(False, jump)
    split = split | _inexact(model, mesh, point, 1.0)
    middle = model.integrate(point.x[:, :-1], point.u, intervals(mesh, point.durations) / 2, model.substeps)
    parts = np.where(split, 2, 1)
    # Every interval ends in its node; a split one has its middle before that.
    ends = np.repeat(np.arange(len(parts)), parts)
    is_end = np.append(ends[1:] != ends[:-1], True)
    x = np.where(is_end, point.x[:, 1:][:, ends], middle[:, ends])
    finer, first = [], 0
    for fractions in mesh:
        count = parts[first : first + len(fractions)]
        finer.append(np.repeat(fractions / count, count))
        first += len(fractions)
    return finer, Point(
        np.column_stack([point.x[:, 0], x]), point.u[:, ends], point.durations, _shared(point, ends, is_end)
    )


def _inexact(model: Model, mesh: Mesh, point: Point, factor: float) -> np.ndarray:
    """(N,) whether an interval's integration error exceeds so many times what is halved."""
    dt = intervals(mesh, point.durations)
    coarse = model.integrate(point.x[:, :-1], point.u, dt, model.substeps)
    error = np.abs(model.integrate(point.x[:, :-1], point.u, dt, 4 * model.substeps) - coarse)
    most = ((P, DEFECT_M), (V, DEFECT_M_S), (W, DEFECT_RAD_S))
    return np.any([error[part].max(axis=0) > factor * defect for part, defect in most], axis=0)


def _shared(point: Point, ends: np.ndarray, is_end: np.ndarray) -> Duals | None:
    """The multipliers on the halved mesh: costates are continuous, those of the inputs' bounds belong to half the time."""
    duals = point.duals
    if duals is None:
        return None
    before = np.column_stack([duals.costate[:, 0], duals.costate[:, :-1]])
    costate = np.where(is_end, duals.costate[:, ends], 0.5 * (before + duals.costate)[:, ends])
    share = 1 / np.bincount(ends)[ends]
    return Duals(costate, duals.x[:, ends] * share, duals.u[:, ends] * share, duals.durations, duals.mesh_free)
