"""Mesh refinement: solve, halve the intervals that need it, solve again from there.

Time-optimal inputs jump, and a jump inside an interval costs time; between jumps long intervals are accurate enough. So the
intervals are halved that lie beside a jump of the inputs, exceed the integration error, or violate constraints between nodes.
On the 7-gate Split-S with rotor thrusts this gives 7.391 s in 2 CPU s; a uniform mesh needs steps of 10 ms and 11 CPU s for
the same time.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.planner.models import Model, P, V, W
from gate_racer.planner.problem.mesh import Mesh, intervals
from gate_racer.planner.problem.nlp import IterationCallback
from gate_racer.planner.problem.problem import Solved, TimeOptimalProblem
from gate_racer.planner.problem.terms import Duals, Point
from gate_racer.vehicle.rotation import Array

LEVELS = 6  # largest number of meshes, the first included; the last gains 0.002 % of time
MENDED = 2  # most further meshes for violations between the nodes of the last, which occur at about one of 200 gates
DEFECT_M, DEFECT_M_S, DEFECT_RAD_S = 3e-6, 3e-4, 8e-3  # integration error above which an interval is halved
COARSE_TOLERANCE, TOLERANCE = 1e-3, 1e-6  # IPOPT's tolerance, before and on the last mesh
STILL_EXACT = 2.0  # -, multiple of these errors allowed on the last mesh, where a jump may enter an unrefined interval
GROWTH = 1.1  # -, growth of the number of intervals below which a mesh is the last
# The barrier stays adaptive throughout: with a return to monotone mode, iterations grow with the number of gates.
FIRST = {
    "ipopt.max_iter": 300,
    "ipopt.mu_strategy": "adaptive",
    "ipopt.adaptive_mu_globalization": "never-monotone-mode",
    "ipopt.tol": COARSE_TOLERANCE,
}


def from_nearby(distance: float) -> dict:
    """Return IPOPT options for a start near the solution: a small initial barrier, and no push away from active bounds."""
    pushes = ("bound_push", "bound_frac", "slack_bound_push", "slack_bound_frac", "mult_bound_push")
    return {
        "ipopt.max_iter": 600,
        "ipopt.mu_strategy": "monotone",
        "ipopt.mu_init": distance,
        "ipopt.warm_start_init_point": "yes",
        **{f"ipopt.warm_start_{push}": distance for push in pushes},
    }


FINE = 3e-6  # initial barrier on the last mesh, from the solution on the previous mesh, multipliers included
LAST = from_nearby(FINE) | {"ipopt.tol": TOLERANCE}
WARM = from_nearby(1e-4) | {"ipopt.tol": COARSE_TOLERANCE}  # from a plan of a similar course; halves the time


@dataclass(frozen=True)
class Optimum:
    """Result of the solver on a mesh; success is in `solved`."""

    level: int  # 1 on the first mesh, `LEVELS` on the last
    mesh: Mesh
    solved: Solved
    iterations: int  # total over this and all previous meshes

    @property
    def total_time(self) -> float:
        """Flight time, s."""
        return float(self.solved.point.durations.sum())


def coarse(
    problem: TimeOptimalProblem, mesh: Mesh, point: Point, settings: dict, progress: IterationCallback
) -> Optimum:
    """Solve on the first mesh, from a guess on that mesh."""
    solved = problem.solve(mesh, point, settings, progress)
    return Optimum(1, mesh, solved, solved.iterations)


def refined(problem: TimeOptimalProblem, optimum: Optimum, levels: int, progress: IterationCallback) -> Optimum:
    """Refine an optimum up to a level; on the last level it is solved to the full tolerance."""
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


def _mended(problem: TimeOptimalProblem, optimum: Optimum, progress: IterationCallback) -> Optimum:
    """Halve the last mesh where its path violates constraints between nodes, and solve again."""
    for _ in range(MENDED):
        strays = problem.strays(optimum.mesh, optimum.solved.point)
        if not (optimum.solved.success and strays.any()):
            break
        finer, point = _halved(problem.model, optimum.mesh, optimum.solved.point, strays)
        solved = problem.solve(finer, point, LAST, progress)
        optimum = Optimum(LEVELS, finer, solved, optimum.iterations + solved.iterations)
    return optimum


def _halved(model: Model, mesh: Mesh, point: Point, split: Array) -> tuple[Mesh, Point]:
    """Halve the intervals of `split` (N,) and others that need it; returns the mesh and the same trajectory on it."""
    jump = (np.abs(np.diff(point.u, axis=1)) > model.jump * (model.u_high - model.u_low)[:, None]).any(axis=0)
    split = split | np.append(jump, False) | np.append(False, jump)
    split = split | _inexact(model, mesh, point, 1.0)
    middle = model.integrate(point.x[:, :-1], point.u, intervals(mesh, point.durations) / 2, model.substeps)
    parts = np.where(split, 2, 1)
    # Every interval ends in its old node; a split one has a new node in its middle.
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
    """Return for each interval, (N,), whether its integration error exceeds `factor` times the threshold for halving."""
    dt = intervals(mesh, point.durations)
    coarse = model.integrate(point.x[:, :-1], point.u, dt, model.substeps)
    error = np.abs(model.integrate(point.x[:, :-1], point.u, dt, 4 * model.substeps) - coarse)
    most = ((P, DEFECT_M), (V, DEFECT_M_S), (W, DEFECT_RAD_S))
    return np.any([error[part].max(axis=0) > factor * defect for part, defect in most], axis=0)


def _shared(point: Point, ends: np.ndarray, is_end: np.ndarray) -> Duals | None:
    """Map multipliers to the halved mesh: costates are interpolated, those of bounds are divided among the halves."""
    duals = point.duals
    if duals is None:
        return None
    before = np.column_stack([duals.costate[:, 0], duals.costate[:, :-1]])
    costate = np.where(is_end, duals.costate[:, ends], 0.5 * (before + duals.costate)[:, ends])
    share = 1 / np.bincount(ends)[ends]
    return Duals(costate, duals.x[:, ends] * share, duals.u[:, ends] * share, duals.durations, duals.mesh_free)
