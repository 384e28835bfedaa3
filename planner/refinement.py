"""From a coarse mesh to a fine one: solve, split the intervals that need it, solve again from there.

Time-optimal inputs jump, and a jump inside an interval costs time; between jumps long intervals are exact enough. So only
intervals beside a change of the inputs, or with a visible integration error, are halved. Measured on the 7-gate Split-S with
rotor thrusts: 7.391 s in 2 CPU s, where a uniform mesh needs steps of 10 ms and 11 CPU s for the same.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import numpy as np

from planner.course import intervals, legs
from planner.guess import SLACK, first_guess
from planner.model import Model, P, Q, V, model, rest
from planner.options import PlanOptions
from planner.point_mass import solve_point_mass
from planner.problem import Duals, Point, Problem
from tracks.track import Track
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

NODE_S = 0.07  # s, first spacing
LEVELS = 6  # meshes, the first included; the last gains 0.002 % of time
DEFECT_M, DEFECT_M_S = 3e-6, 3e-4  # of one interval: it is halved
COARSE_TOLERANCE, TOLERANCE = 1e-3, 1e-6  # of IPOPT; until the last mesh only the places of the jumps matter
COARSE = {"ipopt.max_iter": 600, "ipopt.mu_strategy": "adaptive", "ipopt.tol": COARSE_TOLERANCE}
# The solution of the mesh before is near, multipliers included: a small barrier at once, and no push away from active bounds.
NEAR = 3e-6
FINE = {
    "ipopt.max_iter": 600,
    "ipopt.mu_strategy": "monotone",
    "ipopt.mu_init": NEAR,
    "ipopt.warm_start_init_point": "yes",
    "ipopt.warm_start_bound_push": NEAR,
    "ipopt.warm_start_bound_frac": NEAR,
    "ipopt.warm_start_slack_bound_push": NEAR,
    "ipopt.warm_start_slack_bound_frac": NEAR,
    "ipopt.warm_start_mult_bound_push": NEAR,
}


@dataclass(frozen=True)
class Solution:
    """What the optimiser returned, good or not."""

    t: Array  # (N + 1,) s
    x: Array  # (NX, N + 1)
    u: Array  # (NU, N), held over each interval
    gate_nodes: list[int]  # the last node of each leg
    model: str
    status: str
    success: bool
    iterations: int
    build_s: float
    solve_s: float
    point_mass_s: float


def solve(
    track: Track, vehicle: Vehicle, options: PlanOptions, progress: Callable[[int, float], None] | None = None
) -> Solution:
    """Plans the flight from the pad to the last gate (or to rest at the track's end point).

    Args:
        progress: called with the iteration's number and the time of flight so far, s.

    Raises:
        UserError: the course contradicts the vehicle, or not even a point mass can fly it.
    """
    begin = time.perf_counter()
    course = legs(track, vehicle, options)
    point_mass = solve_point_mass(track, vehicle, course, options)
    chosen = model(vehicle, options)
    mesh = [np.full(n, 1 / n) for n in (max(8, ceil(SLACK * T / NODE_S)) for T in point_mass.durations)]
    point = Point(*first_guess(chosen, track.start, point_mass, mesh, forward=options.see > 0))
    problem = Problem(track, vehicle, options, chosen, course, rest(chosen, track.start.p_wb, track.start.q_wb))
    ready = time.perf_counter()
    outcome = problem.solve(mesh, point, COARSE, progress)
    iterations = outcome.iterations
    for level in range(1, LEVELS):
        finer, point = _halved(chosen, mesh, outcome.point)
        last = level == LEVELS - 1 or len(point.u[0]) == len(outcome.point.u[0])
        mesh = finer
        outcome = problem.solve(mesh, point, FINE | {"ipopt.tol": TOLERANCE if last else COARSE_TOLERANCE}, progress)
        iterations += outcome.iterations
        if last:
            break
    point = outcome.point
    done = time.perf_counter()
    dt = intervals(mesh, point.durations)
    return Solution(
        t=np.concatenate([[0.0], np.cumsum(dt)]),
        x=point.x,
        u=point.u,
        gate_nodes=np.cumsum([len(fractions) for fractions in mesh]).tolist(),
        model=chosen.name,
        status=outcome.status,
        success=outcome.success,
        iterations=iterations,
        build_s=ready - begin,
        solve_s=done - ready,
        point_mass_s=point_mass.total_time,
    )


def _halved(chosen: Model, mesh: list[Array], point: Point) -> tuple[list[Array], Point]:
    """The mesh with the intervals halved that need it, and the same trajectory on it."""
    dt = intervals(mesh, point.durations)
    jump = (np.abs(np.diff(point.u, axis=1)) > chosen.jump * (chosen.u_high - chosen.u_low)[:, None]).any(axis=0)
    split = np.append(jump, False) | np.append(False, jump)
    coarse = chosen.integrate(point.x[:, :-1], point.u, dt, chosen.substeps)
    error = np.abs(chosen.integrate(point.x[:, :-1], point.u, dt, 4 * chosen.substeps) - coarse)
    split |= (error[P].max(axis=0) > DEFECT_M) | (error[V].max(axis=0) > DEFECT_M_S)
    middle = 0.5 * (point.x[:, :-1] + point.x[:, 1:])
    middle[Q] /= np.linalg.norm(middle[Q], axis=0)
    parts = np.where(split, 2, 1)
    # Every interval ends in its node; a split one has its middle before that.
    ends = np.repeat(np.arange(len(dt)), parts)
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


def _shared(point: Point, ends: np.ndarray, is_end: np.ndarray) -> Duals | None:
    """The multipliers on the halved mesh: costates are continuous, those of the inputs' bounds belong to half the time."""
    duals = point.duals
    if duals is None:
        return None
    before = np.column_stack([duals.costate[:, 0], duals.costate[:, :-1]])
    costate = np.where(is_end, duals.costate[:, ends], 0.5 * (before + duals.costate)[:, ends])
    share = 1 / np.bincount(ends)[ends]
    return Duals(costate, duals.x[:, ends] * share, duals.u[:, ends] * share, duals.durations, duals.windows)
