"""From a coarse mesh to a fine one: solve, split the intervals that need it, solve again from there.

Time-optimal inputs jump, and a jump inside an interval costs time; between jumps long intervals are exact enough. So only
intervals beside a change of the inputs, with a visible integration error, or that stray between their nodes are halved.
Measured on the 7-gate Split-S with rotor thrusts: 7.391 s in 2 CPU s, where a uniform mesh needs steps of 10 ms and 11 CPU s
for the same.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.course import Leg, intervals, view_window, ways
from planner.model import Model, P, Q, V, W
from planner.options import PlanOptions
from planner.problem import Duals, Outcome, Point, Problem
from vehicle.rotation import Array

NODE_S = 0.07  # s, first spacing
NODES_LEAST = 8  # from one gate to the next
EDGE_S = 1e-3  # nearer to an end of the view's window no leg is cut
LEVELS = 6  # meshes, the first included; the last gains 0.002 % of time
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


def _from_nearby(distance: float) -> dict:
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
WARM = _from_nearby(1e-4) | {"ipopt.tol": COARSE_TOLERANCE}  # from a plan of a similar course; it halves the time


@dataclass(frozen=True)
class Stage:
    """The optimum on a mesh: per leg, the fractions of its duration that its intervals take."""

    level: int
    mesh: list[Array]
    outcome: Outcome
    iterations: int  # of this mesh and all before

    @property
    def total_time(self) -> float:
        """s."""
        return float(self.outcome.point.durations.sum())


Progress = Callable[[int, float], None] | None


def first_mesh(course: list[Leg], durations: Array, options: PlanOptions) -> list[Array]:
    """Even intervals on legs of these guessed durations (L,), with a node at each end of the window of the view."""
    mesh = []
    for parts in ways(course):
        ends = np.cumsum(durations[parts])
        spacing = min(NODE_S, ends[-1] / NODES_LEAST)
        edges = ends[-1] * np.array(view_window(options) if options.see > 0 else ())
        for T, begin in zip(durations[parts], ends - durations[parts], strict=True):
            cuts = (edges[(edges > begin + EDGE_S) & (edges < begin + T - EDGE_S)] - begin) / T
            shares = np.concatenate([[0.0], cuts, [1.0]])
            counts = np.maximum(np.diff(np.round(shares * np.ceil(T / spacing))), 1).astype(int)
            mesh.append(np.repeat(np.diff(shares) / counts, counts))
    return mesh


def first_stage(problem: Problem, mesh: list[Array], point: Point, settings: dict, progress: Progress) -> Stage:
    """The optimum on the first mesh, from a guess on it."""
    outcome = problem.solve(mesh, point, settings, progress)
    return Stage(1, mesh, outcome, outcome.iterations)


def refined(problem: Problem, stage: Stage, levels: int, progress: Progress) -> Stage:
    """The optimum on the mesh of that level; the last level of all is solved to the full tolerance."""
    while stage.level < levels:
        strays = problem.strays(stage.mesh, stage.outcome.point)
        finer, point = _halved(problem.model, stage.mesh, stage.outcome.point, strays)
        done = not strays.any() and len(point.u[0]) < GROWTH * len(strays)
        last = done or stage.level + 1 == LEVELS
        distance, tolerance = (FINE, TOLERANCE) if last else (problem.model.nearby, COARSE_TOLERANCE)
        outcome = problem.solve(finer, point, _from_nearby(distance) | {"ipopt.tol": tolerance}, progress)
        done = done and not _inexact(problem.model, finer, outcome.point, STILL_EXACT).any()
        stage = Stage(LEVELS if done else stage.level + 1, finer, outcome, stage.iterations + outcome.iterations)
    return stage


def _halved(chosen: Model, mesh: list[Array], point: Point, split: Array) -> tuple[list[Array], Point]:
    """The mesh with the intervals of `split` (N,) halved and others that need it, and the same trajectory on it."""
    jump = (np.abs(np.diff(point.u, axis=1)) > chosen.jump * (chosen.u_high - chosen.u_low)[:, None]).any(axis=0)
    split = split | np.append(jump, False) | np.append(False, jump)
    split = split | _inexact(chosen, mesh, point, 1.0)
    middle = 0.5 * (point.x[:, :-1] + point.x[:, 1:])
    middle[Q] /= np.linalg.norm(middle[Q], axis=0)
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


def _inexact(chosen: Model, mesh: list[Array], point: Point, factor: float) -> np.ndarray:
    """(N,) whether an interval's integration error exceeds so many times what is halved."""
    dt = intervals(mesh, point.durations)
    coarse = chosen.integrate(point.x[:, :-1], point.u, dt, chosen.substeps)
    error = np.abs(chosen.integrate(point.x[:, :-1], point.u, dt, 4 * chosen.substeps) - coarse)
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
    return Duals(costate, duals.x[:, ends] * share, duals.u[:, ends] * share, duals.durations, duals.windows)
