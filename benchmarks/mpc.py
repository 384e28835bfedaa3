"""Timing and robustness of the controller: python benchmarks/mpc.py [--starts 50] [--only timing|robustness]

Timing: whole ticks and solver along a race, for horizons, formulations and back-ends, compared with IPOPT on the same problem.
Robustness: races on the true state from scattered starts, with a vehicle that differs from the controller's model. Their plans
keep OPTIONS.margin_m between the body and the openings' edges, so that a margin of 0.25 m is possible for the smallest body.
"""

import argparse
import json
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from time import perf_counter

import casadi as ca
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from gate_racer.benchmarks.true_state import TrueStateFlight, fly
from gate_racer.mpc.adaptation import load_adaptation
from gate_racer.mpc.controller import Controller
from gate_racer.mpc.problem.problem import Problem
from gate_racer.mpc.problem.settings import CONTROLLERS, load_settings
from gate_racer.mpc.problem.stage import NP
from gate_racer.mpc.solvers.acados import AcadosSolver
from gate_racer.mpc.solvers.portable import CasadiSolver
from gate_racer.mpc.solvers.solver import Solution, Solver
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.plan import Plan
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.sim.worlds.deviations import AS_BELIEVED, AirDeviation, Deviations, PlantDeviation
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

HORIZONS = (10, 20, 40)  # steps
BACK_ENDS = {"acados": AcadosSolver, "casadi": CasadiSolver}
OPTIONS = PlanOptions(margin_m=0.25)
FIRST_SEED = 5000  # first seed of starts and gusts; not used in tuning


# name: (deviations, command delay of both model and plant in s, or None for the vehicle's own)
def plant(**off: float) -> Deviations:
    """Return the deviations of a plant with these fields changed."""
    return Deviations(plant=PlantDeviation(**off))


CASES: dict[str, tuple[Deviations, float | None]] = {
    "as believed": (AS_BELIEVED, None),
    "delay 0 ms": (AS_BELIEVED, 0.0),
    "delay 20 ms": (AS_BELIEVED, 0.02),
    "delay 40 ms": (AS_BELIEVED, 0.04),
    "delay 60 ms": (AS_BELIEVED, 0.06),
    "20 ms unknown": (plant(command_delay_s=0.02), None),
    "thrust -15 %": (plant(thrust_scale=0.85), None),
    "thrust +15 %": (plant(thrust_scale=1.15), None),
    "drag x0.5": (plant(drag_scale=0.5), None),
    "drag x1.5": (plant(drag_scale=1.5), None),
    "drag x2": (plant(drag_scale=2.0), None),
    "mass -10 %": (plant(thrust_scale=1 / 0.9, drag_scale=1 / 0.9), None),
    "mass +10 %": (plant(thrust_scale=1 / 1.1, drag_scale=1 / 1.1), None),
    "gusts 2 m/s": (Deviations(air=AirDeviation(gust_m_s=2.0)), None),
}
RACES = (("vq1", "dcl"), ("vq2", "dcl"), ("splits_swift", "swift"), ("splits_swift", "kolibri"))


class Ipopt:
    """The same problem by multiple shooting, solved to convergence from the last solution: reference for the timing."""

    def __init__(self, problem: Problem, vehicle: Vehicle):
        s, horizon = problem.symbols, problem.settings.horizon
        n = horizon.steps
        w, w_end = problem.weights
        step = ca.Function("step", [s.x, s.u, s.p], [s.after])
        cost = ca.Function("cost", [s.x, s.u, s.p], [horizon.step_s * ca.dot(ca.DM(w) * s.y, s.y) / 2])
        end = ca.Function("end", [s.x, s.p], [ca.dot(ca.DM(w_end) * s.y_end, s.y_end) / 2])
        x, u, p = (ca.MX.sym(*a) for a in (("x", s.x.numel(), n + 1), ("u", s.u.numel(), n), ("p", NP, n + 1)))
        f = ca.sum2(cost.map(n)(x[:, :-1], u, p[:, :-1])) + end(x[:, -1], p[:, -1])
        g = x[:, 1:] - step.map(n)(x[:, :-1], u, p[:, :-1])
        nlp = {"x": ca.veccat(x, u), "f": f, "g": ca.vec(g), "p": ca.vec(p)}
        options = {"ipopt.print_level": 0, "print_time": False, "ipopt.sb": "yes", "ipopt.tol": 1e-4}
        self._solve = ca.nlpsol("nlp", "ipopt", nlp, options)
        low, high = problem.input_limits(vehicle)
        free = np.full(s.x.numel() * n, np.inf)
        self._low, self._high = np.append(-free, np.tile(low, n)), np.append(free, np.tile(high, n))

    def time_s(self, x0: np.ndarray, x: np.ndarray, u: np.ndarray, parameters: np.ndarray) -> float:
        """Return the time to solve from the guess x (N + 1, NX), u (N, NU), s."""
        guess = np.append(x.ravel(), u.ravel())
        begin = perf_counter()
        self._solve(
            x0=guess,
            p=parameters.ravel(),
            lbx=np.append(x0, self._low),
            ubx=np.append(x0, self._high),
            lbg=0.0,
            ubg=0.0,
        )
        return perf_counter() - begin


class Recording:
    """Solver wrapper that stores every n-th problem for another solver."""

    def __init__(self, inner: Solver, every: int):
        self._inner, self._every, self._count = inner, every, 0
        self.kept: list[tuple] = []
        self.start = inner.start

    def prepare(self, parameters: Array) -> None:
        """Store the stage parameters, and prepare the inner solver."""
        self._parameters = parameters.copy()
        self._inner.prepare(parameters)

    def solve(self, x0: Array) -> Solution:
        """Solve, and keep every n-th problem with its solution."""
        solution = self._inner.solve(x0)
        self._count += 1
        if self._count % self._every == 0:
            self.kept.append((x0.copy(), solution.x, solution.u, self._parameters))
        return solution


def problem_of(name: str, steps: int | None = None) -> Problem:
    """Return the problem of a controller, with another number of intervals if given."""
    settings = load_settings(name)
    if steps is not None:
        settings = replace(settings, horizon=replace(settings.horizon, steps=steps))
    return Problem(settings)


def race(
    problem: Problem, solver: Solver, plan: Plan, track: Track, vehicle: Vehicle, off: Deviations, seed: int
) -> TrueStateFlight:
    """Fly a plan with the true state given."""
    controller = Controller(plan, vehicle, problem, solver, load_adaptation(), track.course(plan.laps))
    return fly(controller, plan, World.of("mpc", off, track, vehicle), vehicle, seed)


def timing(plans: Path) -> list[dict]:
    """Return the timing of ticks on VQ1, ms."""
    track, vehicle = load_track("tracks/vq1.yaml"), load_vehicle("dcl")
    plan = find_or_make_plan(plans, track, vehicle, OPTIONS, None)
    rows = []
    print(
        f"{'ms: p50 / p99 / max':24s} {'solver':>20s} {'state to command':>20s} {'whole tick':>20s} {'CPU of it':>20s}"
        f" {'IPOPT p50':>10s}  ratio"
    )
    for name, steps in product(CONTROLLERS, HORIZONS):
        problem = problem_of(name, steps)
        for back_end, make in BACK_ENDS.items():
            solver = Recording(make(problem, vehicle), every=40)
            flights = [race(problem, solver, plan, track, vehicle, AS_BELIEVED, FIRST_SEED + k) for k in range(2)]
            keys = ("solve_s", "step_s", "tick_s", "cpu_s")
            times = {key: np.concatenate([getattr(f, key) for f in flights]) * 1e3 for key in keys}
            whole = times["tick_s"] - times["step_s"] + times["solve_s"]  # preparation and feedback phases
            if back_end == "acados":
                ipopt = Ipopt(problem, vehicle)
                slow = 1e3 * float(np.median([ipopt.time_s(*kept) for kept in solver.kept[:8]]))
            row = {
                "controller": name,
                "steps": steps,
                "back_end": back_end,
                "ipopt_ms": slow,
                "ratio": slow / np.median(whole),
            }
            row |= {key: [float(np.percentile(v, q)) for q in (50, 99, 100)] for key, v in times.items()}
            rows.append(row)
            cells = " ".join(f"{' / '.join(f'{v:.2f}' for v in row[key]):>20s}" for key in times)
            print(
                f"{name + ' N ' + str(steps) + ' ' + back_end:24s} {cells} {slow:10.1f} {row['ratio']:6.0f}", flush=True
            )
    return rows


def robustness(plans: Path, starts: int, controllers: list[str], cases: list[str]) -> list[dict]:
    """Return the results of races of every controller in every case."""
    rows = []
    print(f"{'':46s} {'finished':>8s} {'time/plan':>10s} {'worst':>7s} {'margin m':>9s} {'rmse m':>7s}")
    for track_name, vehicle_name in RACES:
        track, nominal = load_track(f"tracks/{track_name}.yaml"), load_vehicle(vehicle_name)
        plan = find_or_make_plan(plans, track, nominal, OPTIONS, None)
        for case in cases:
            off, delay_s = CASES[case]
            vehicle = nominal if delay_s is None else replace(nominal, command_delay_s=delay_s)
            for name in controllers:
                problem = problem_of(name)
                solver = AcadosSolver(problem, vehicle)
                flights = [race(problem, solver, plan, track, vehicle, off, FIRST_SEED + k) for k in range(starts)]
                done = [f for f in flights if f.finished]
                ratio = [f.time_s / plan.total_time for f in done] or [float("nan")]
                row = {
                    "track": track_name,
                    "vehicle": vehicle_name,
                    "case": case,
                    "world": asdict(off),
                    "controller": name,
                    "starts": starts,
                    "finished": len(done),
                    "time_ratio": float(np.mean(ratio)),
                    "time_ratio_max": max(ratio),
                    "margin_m": min((f.margin_m for f in done), default=float("nan")),
                    "rmse_m": float(np.mean([f.rmse_m for f in flights])),
                    "causes": sorted({f.cause for f in flights if not f.finished}),
                }
                rows.append(row)
                label = f"{track_name:12s} {vehicle_name:8s} {case:14s} {name:9s}"
                numbers = f"{row['time_ratio']:10.3f} {row['time_ratio_max']:7.3f} {row['margin_m']:9.2f} {row['rmse_m']:7.2f}"
                print(f"{label:46s} {len(done):3d} / {starts:<3d} {numbers}", flush=True)
    return rows


def draw(path: Path, rows: list[dict]) -> None:
    """Plot the fraction of finished races and the time relative to the plan, per case."""
    figure, axes = plt.subplots(2, 1, figsize=(11, 7), layout="constrained", sharex=True)
    for track, vehicle, name in dict.fromkeys((r["track"], r["vehicle"], r["controller"]) for r in rows):
        group = [r for r in rows if (r["track"], r["vehicle"], r["controller"]) == (track, vehicle, name)]
        x, style = [r["case"] for r in group], "o-" if name == "tracking" else "s--"
        axes[0].plot(
            x, [r["finished"] / r["starts"] for r in group], style, label=f"{track} {vehicle} {name}", alpha=0.7
        )
        axes[1].plot(x, [r["time_ratio"] for r in group], style, alpha=0.7)
    axes[0].set(ylabel="share of races finished")
    axes[1].set(ylabel="race time / planned time")
    axes[1].tick_params(axis="x", rotation=30)
    axes[0].legend(fontsize=7, ncols=2)
    figure.savefig(path, dpi=90)


def main() -> None:
    """Run the benchmark, and write its results."""
    parser = argparse.ArgumentParser(description="Speed and robustness of the controller.")
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--only", choices=("timing", "robustness"))
    parser.add_argument("--controllers", nargs="+", choices=CONTROLLERS, default=list(CONTROLLERS))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--plans", type=Path, default=Path("plans/benchmark"))
    parser.add_argument("--out", type=Path, default=Path("logs"))
    a = parser.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    found = {}
    if a.only != "robustness":
        found["timing"] = timing(a.plans)
    if a.only != "timing":
        found["robustness"] = robustness(a.plans, a.starts, a.controllers, a.cases)
        draw(a.out / "mpc.png", found["robustness"])
    (a.out / f"mpc{'-' + a.only if a.only else ''}.json").write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
