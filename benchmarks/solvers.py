"""Comparison of solvers on the planner's problem: IPOPT with its linear solvers, and FATROP, which factorises stage by stage.

FATROP (Vanroye et al., IROS 2023) requires the order s_0, u_0, s_1, u_1, ... and, per stage, the dynamics gap before the
stage's constraints. A leg's duration is therefore a state here, constant within the leg, and the leg's last interval has the
next duration as an input. All solvers start from the planner's first guess, on the first mesh and on one of half its spacing.
Weights on changes of inputs are left out: they are not a sum over stages.

python benchmarks/solvers.py --problems ../shared/data/planner_problem
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path

import casadi as ca
import numpy as np

from gate_racer.benchmarks.planner import winding
from gate_racer.planner.course.course import BLIND, Course, resolve
from gate_racer.planner.models import Model, P, Q, V, W
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.peers import read_problem
from gate_racer.planner.problem.bounds import LIFT_OFF_S, LONGEST, SHORTEST
from gate_racer.planner.problem.compiled import compiled
from gate_racer.planner.problem.mesh import NODE_S, Mesh, intervals
from gate_racer.planner.problem.point_mass import solve_point_mass
from gate_racer.planner.problem.problem import Point, step
from gate_racer.planner.problem.view import view
from gate_racer.planner.problem.windows import leg_ends
from gate_racer.planner.search.guess import first_guess, guesses
from gate_racer.planner.search.refinement import FIRST, TOLERANCE
from gate_racer.planner.task import Task
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import flat
from gate_racer.vehicle.rotation import Array, rotate
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

PUBLISHED = ("uzh3", "uzh7", "uzh19")
IPOPT = FIRST | {"ipopt.tol": TOLERANCE}
SOLVERS = {
    "ipopt mumps": ("ipopt", IPOPT),
    "ipopt spral": ("ipopt", IPOPT | {"ipopt.linear_solver": "spral"}),
    "fatrop": ("fatrop", {"fatrop.tol": TOLERANCE, "fatrop.max_iter": 600, "fatrop.print_level": 0}),
}


@dataclass(frozen=True)
class SolverCase:
    """Course for one vehicle on one mesh, with the planner's first guess."""

    course: Course
    mesh: Mesh
    start: Point
    x0: Array  # (NX,)


class Stages:
    """Problem in stages: w alternates s_k = (x_k, T_k) and u_k, g has the gap s_{k+1} - f_k before the stage's constraints."""

    def __init__(self, case: SolverCase):
        chosen, mesh = case.course.task.model, case.mesh
        nodes = [len(fractions) for fractions in mesh]
        n, nx = sum(nodes), chosen.x.size
        ends = np.cumsum(nodes)  # stage at which each leg's gate is passed
        leg = np.repeat(np.arange(len(mesh)), nodes)
        last = np.isin(np.arange(n) + 1, ends[:-1])  # intervals with the next leg's duration as an extra input
        self.nx, self.nu = [nx + 1] * (n + 1), [*(chosen.u.size + last).tolist(), 0]
        sizes = np.cumsum([0] + [size for stage in zip(self.nx, self.nu, strict=True) for size in stage])
        w = ca.MX.sym("w", int(sizes[-1]))
        parts = ca.vertsplit(w, sizes.tolist())
        s, u = parts[::2], parts[1::2]
        S, U = ca.horzcat(*s), ca.horzcat(*(part[: chosen.u.size] for part in u[:-1]))
        dt = S[nx, :-1] * np.concatenate(mesh)[None]
        reached, one_step = S[:nx, :-1], _step(chosen).map(n)
        for _ in range(chosen.substeps):
            reached = one_step(reached, U, dt / chosen.substeps)
        reached = ca.horzsplit(reached)
        held: list[list] = [[] for _ in range(n + 1)]  # (expressions, low, high) of each stage
        held[0].append(([s[0][:nx]], case.x0, case.x0))
        for k, expression, low, high in self._passages(case, ends, s):
            held[k].append((expression, low, high))
        g, lbg, ubg, self.ng = [], [], [], []
        for k, rows in enumerate(held):
            self.ng.append(sum(len(low) for _, low, _ in rows))
            if k < n:
                gap = [s[k + 1][:nx] - reached[k], s[k + 1][nx] - (u[k][-1] if last[k] else s[k][nx])]
                rows.insert(0, (gap, np.zeros(nx + 1), np.zeros(nx + 1)))
            for expressions, low, high in rows:
                g += expressions
                lbg.append(low)
                ubg.append(high)
        cost = ca.sum2(dt) + ca.sum2(ca.DM(chosen.weight_level).T @ U**2 * dt)
        self.nlp = {"x": w, "f": cost, "g": ca.veccat(*g)}
        self.bounds = {"lbg": np.concatenate(lbg), "ubg": np.concatenate(ubg)}
        self._variables(case, leg, last)

    def _passages(self, case: SolverCase, ends: Array, s: list) -> Iterator[tuple[int, list, Array, Array]]:
        """Yield (stage, expressions, low, high) of the gate windows and of the visibility constraints."""
        first, task = 0, case.course.task
        for leg, fractions, end in zip(case.course.legs, case.mesh, ends, strict=True):
            x = s[end]
            for rows in leg_ends([leg], x[P], x[V], ca.vertcat(x[Q][1:3], x[W]), task):
                yield int(end), [rows.expression], np.asarray(rows.low), np.asarray(rows.high)
            done = np.cumsum(fractions)
            if task.options.see > 0 and leg.gate is not None and leg.gate.visible:
                for node in np.flatnonzero((done > 1 - BLIND - task.options.see) & (done <= 1 - BLIND)):
                    k = int(first + node + 1)
                    q = ca.vertsplit(s[k][Q])
                    R_wb = ca.horzcat(*(ca.vertcat(*rotate(q, axis)) for axis in np.eye(3)))
                    yield k, view(task.vehicle.camera, leg.target, s[k][P], R_wb), np.zeros(4), np.full(4, np.inf)
            first = int(end)

    def _variables(self, case: SolverCase, leg: Array, last: Array) -> None:
        """Set guess and bounds, as in the planner's problem."""
        chosen, T, space = case.course.task.model, case.start.durations, case.course.space
        high = chosen.x_high.copy()
        high[Q] = 1.1
        t = np.append(0.0, np.cumsum(intervals(case.mesh, T)))
        parts: list[tuple[Array, Array, Array]] = []  # guess, low, high
        for k, i in enumerate(np.append(leg, leg[-1])):
            early, p0 = t[k] < LIFT_OFF_S, case.x0[P]
            low_k, high_k = np.append(-high, SHORTEST * T[i]), np.append(high, LONGEST * T[i])
            low_k[P] = np.minimum(space.low, p0) if early else space.low
            high_k[P] = np.maximum(space.high, p0) if early else space.high
            if k == 0:
                low_k[:-1], high_k[:-1] = -np.inf, np.inf  # given by an equation
            parts.append((np.append(case.start.x[:, k], T[i]), low_k, high_k))
            if k < len(leg):
                then = T[i + 1 : i + 2] if last[k] else T[:0]
                bounds = np.append(chosen.u_low, SHORTEST * then), np.append(chosen.u_high, LONGEST * then)
                parts.append((np.append(case.start.u[:, k], then), *bounds))
        self.x0, lbx, ubx = (np.concatenate(part) for part in zip(*parts, strict=True))
        self.bounds |= {"lbx": lbx, "ubx": ubx}

    def solve(self, solver: str, settings: dict) -> dict:
        """Solve with one solver; return times (s), iterations, objective and success."""
        quiet: dict = {"print_time": 0}
        if solver == "ipopt":
            quiet |= {"ipopt.print_level": 0, "ipopt.sb": "yes"}
        else:
            quiet |= {"structure_detection": "manual", "N": len(self.ng) - 1}
            quiet |= {"nx": self.nx, "nu": self.nu, "ng": self.ng}
            quiet["equality"] = (self.bounds["lbg"] == self.bounds["ubg"]).tolist()
        begin = time.process_time()
        function = ca.nlpsol("stages", solver, self.nlp, quiet | settings)
        built = time.process_time()
        result = function(x0=self.x0, **self.bounds)
        done, stats = time.process_time(), function.stats()
        derivatives = sum(value for name, value in stats.items() if name.startswith("t_proc_nlp_"))
        return {
            "build_s": built - begin,
            "cpu_s": done - begin,
            "derivatives_s": derivatives,
            "iterations": int(stats["iter_count"]),
            "objective": float(result["f"]),
            "success": bool(stats["success"]),
        }


def _step(model: Model) -> ca.Function:
    """Return a compiled Runge-Kutta step with the derivatives that CasADi needs to differentiate its callers."""
    *given, facts, end = step(model)
    end = ca.substitute(end, facts, ca.DM(flat(model.parameters)))
    function = ca.Function(f"step_{model.name}", given, [end])
    adjoint = function.reverse(1)
    return compiled(function, function.jacobian(), adjoint, adjoint.jacobian())[0]


def prepare(track: Track, vehicle: Vehicle, options: PlanOptions) -> Iterator[SolverCase]:
    """Yield the case on the planner's first mesh and on one of half its spacing."""
    task = Task(track, vehicle, options)
    course = resolve(task)
    point_mass, guess = solve_point_mass(course), guesses(options.gates_in_view)[0]
    assert task.x0 is not None
    for spacing in (NODE_S, NODE_S / 2):
        mesh = [np.full(n, 1 / n) for n in (max(8, ceil(guess.slack * T / spacing)) for T in point_mass.durations)]
        yield SolverCase(course, mesh, first_guess(course, point_mass, mesh, guess), task.x0)


def main() -> None:
    """Compare the solvers, and write the results."""
    parser = argparse.ArgumentParser(description="CPU time and iterations of solvers on the planner's problem.")
    parser.add_argument("--problems", type=Path, help="folder of published planning problems")
    parser.add_argument("--gates", type=int, nargs="*", default=(7, 57))
    parser.add_argument("--out", type=Path, default=Path("logs"))
    a = parser.parse_args()
    tasks = [read_problem(a.problems / f"{name}.yaml") for name in PUBLISHED] if a.problems else []
    tasks += [(winding(n, 1), load_vehicle("dcl"), PlanOptions()) for n in a.gates]
    rows = []
    print(f"{'problem':10s} nodes  {'solver':12s} {'CPU s':>7s} {'build':>6s} {'deriv.':>6s} {'iter':>5s} objective")
    for case in (case for one in tasks for case in prepare(*one)):
        nodes, stages = sum(map(len, case.mesh)), Stages(case)
        for name, (solver, settings) in SOLVERS.items():
            about = {"problem": case.course.task.track.name, "nodes": nodes, "solver": name}
            rows.append({**about, **stages.solve(solver, settings)})
            row = rows[-1]
            times = f"{row['cpu_s']:7.2f} {row['build_s']:6.2f} {row['derivatives_s']:6.2f} {row['iterations']:5d}"
            end = f"{row['objective']:9.5f}{'' if row['success'] else '  failed'}"
            print(f"{row['problem']:10s} {nodes:5d}  {name:12s} {times} {end}", flush=True)
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "solvers.json").write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
