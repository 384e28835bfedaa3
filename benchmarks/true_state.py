"""Controllers and plants on the true state, without camera and IMU: solve times, robustness to a vehicle that differs, speed.

python benchmarks/true_state.py timing|robustness|plants

Robustness as in Sun et al. (T-RO 2022, table V) and Song et al. (Science Robotics 2023): races from starts scattered around the
pad in worlds with another delay, thrust or drag, and with gusts. Their plans keep OPTIONS.margin_m between body and edges, so
that a margin of 0.25 m is possible for the smallest body.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.benchmarks.tables import Result, conclude, script
from gate_racer.common.errors import exit_code
from gate_racer.mpc.control import Source
from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.names import CONTROLLERS
from gate_racer.mpc.problem import Problem, Solver, load_settings
from gate_racer.mpc.solvers.acados import AcadosSolver
from gate_racer.mpc.solvers.portable import CasadiSolver
from gate_racer.pilot.flight import set_point
from gate_racer.pilot.records.result import rms
from gate_racer.planner.plan import Plan
from gate_racer.planner.planning import find_or_make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.sim.environment.racing import RacingEnvironment
from gate_racer.sim.physics.batch import Batch
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.plant import make_plant
from gate_racer.sim.physics.registry import SETTINGS, natural
from gate_racer.sim.referee import Referee, RunStatus
from gate_racer.sim.worlds.forces import forces_of
from gate_racer.sim.worlds.world import AS_BELIEVED, AirDeviation, Deviations, PlantDeviation, World, as_believed
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import as_vector
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

PHYSICS_HZ, COMMAND_TICKS = 120.0, 2  # Hz, and ticks between commands: 60 Hz, as on the link
SCATTER_M = 0.25  # m, bound of the start's uniform offset on both horizontal axes
OVERDUE = 1.5  # time limit over the plan's time
HORIZONS = (10, 20, 40)  # steps
BACK_ENDS: dict[str, Callable[[Problem, Vehicle], Solver]] = {"acados": AcadosSolver, "casadi": CasadiSolver}
OPTIONS = PlanOptions(margin_m=0.25)
FIRST_SEED = 5000  # first seed of starts and gusts; not used in tuning
RACES = (("vq1", "dcl"), ("vq2", "dcl"), ("splits_swift", "swift"), ("splits_swift", "kolibri"))
# Deviations, and the command delay of both model and plant, s; None: the vehicle's.
CASES: dict[str, tuple[Deviations, float | None]] = {
    "as believed": (AS_BELIEVED, None),
    "delay 0 ms": (AS_BELIEVED, 0.0),
    "delay 60 ms": (AS_BELIEVED, 0.06),
    "20 ms unknown": (Deviations(plant=PlantDeviation(command_delay_s=0.02)), None),
    "thrust -15 %": (Deviations(plant=PlantDeviation(thrust_scale=0.85)), None),
    "thrust +15 %": (Deviations(plant=PlantDeviation(thrust_scale=1.15)), None),
    "drag x0.5": (Deviations(plant=PlantDeviation(drag_scale=0.5)), None),
    "drag x1.5": (Deviations(plant=PlantDeviation(drag_scale=1.5)), None),
    "drag x2": (Deviations(plant=PlantDeviation(drag_scale=2.0)), None),
    "mass -10 %": (Deviations(plant=PlantDeviation(thrust_scale=1 / 0.9, drag_scale=1 / 0.9)), None),
    "mass +10 %": (Deviations(plant=PlantDeviation(thrust_scale=1 / 1.1, drag_scale=1 / 1.1)), None),
    "gusts 2 m/s": (Deviations(air=AirDeviation(gust_m_s=2.0)), None),
}
PLANTS = (("rates", "dcl", 1), ("grey-box", "kolibri", 3), ("grey-box", "swift", 3))  # law, vehicle, setting
SIZES = (1, 100, 1000, 10_000)  # vehicles in a batch
POLICY_HZ = 100  # Hz, rate of learned policies, of which a step is one command


@dataclass
class TrueStateFlight:
    status: RunStatus
    cause: str
    time_s: float
    margins_m: list[float]
    errors_m: list[float] = field(default_factory=list)  # distance from the plan, at each command
    step_s: list[float] = field(default_factory=list)  # controller, from state to command
    tick_s: list[float] = field(default_factory=list)  # including the preparation of the next step
    solve_s: list[float] = field(default_factory=list)  # time inside the solver
    fallbacks: int = 0

    @property
    def finished(self) -> bool:
        return self.status is RunStatus.FINISHED

    @property
    def margin_m(self) -> float:
        """Least gate margin, m; NaN if no gate was passed."""
        return min(self.margins_m, default=float("nan"))


def fly(
    controller: PlanController,
    plan: Plan,
    world: World,
    vehicle: Vehicle,
    seed: int,
    scatter: bool = True,
    by_rates: bool = True,
    patience: float = OVERDUE,
) -> TrueStateFlight:
    """Fly one race. `vehicle`: the controller's model; `by_rates`: body-rate instead of attitude commands.

    The race ends as a timeout after `patience` times the plan's time.
    """
    rng = np.random.default_rng(seed)
    track, flown = world.track, world.vehicle
    start, limit_s = track.start, patience * plan.total_time
    if scatter:
        dx, dy = rng.uniform(-SCATTER_M, SCATTER_M, 2)
        start = replace(start, position_m=as_vector(start.p_wb + [dx, dy, 0.0]))
    plant = make_plant(flown, start, natural(flown), Colliders(track), forces_of(world, seed))
    referee = Referee(track, plan.laps, limit_s)
    plant.armed = True
    referee.go(0.0)
    flight = TrueStateFlight(RunStatus.RUNNING, "", limit_s, [])
    count, dt = 0, COMMAND_TICKS / PHYSICS_HZ
    while not referee.race.over:
        t = count / PHYSICS_HZ
        if count % COMMAND_TICKS == 0:
            begin = time.perf_counter()
            control = controller.step(t, plant.truth.x, dt)
            flight.step_s.append(control.step_s)
            controller.prepare()
            flight.tick_s.append(time.perf_counter() - begin)
            flight.solve_s.append(control.solve_s)
            flight.fallbacks += control.source is not Source.SOLVED
            flight.errors_m.append(controller.reference.distance(control.theta, plant.truth.p_wb))
            plant.command(t, set_point(control, vehicle, by_rates))
        count += 1
        contacts = plant.advance(count / PHYSICS_HZ)
        referee.watch(plant.truth, contacts)
    race = referee.race
    flight.status, flight.cause, flight.margins_m = race.status, race.cause, race.gate_margins_m
    if flight.finished:
        flight.time_s = race.gate_times_s[-1]
    return flight


def race(problem: Problem, solver: Solver, plan: Plan, world: World, vehicle: Vehicle, seed: int) -> TrueStateFlight:
    """Fly a plan with the true state given; `vehicle` is the controller's model."""
    controller = PlanController(plan, vehicle, problem, solver, world.track.course(plan.laps))
    return fly(controller, plan, world, vehicle, seed)


def timing(plans: Path, starts: int) -> Result:
    """Return the times of every formulation, horizon and back-end on VQ1."""
    track, vehicle, rows = load_track("vq1"), load_vehicle("dcl"), []
    plan, world = find_or_make_plan(plans, track, vehicle, OPTIONS, None), as_believed(track, vehicle)
    for name, steps, back_end in product(CONTROLLERS, HORIZONS, BACK_ENDS):
        settings = load_settings(name)
        problem = Problem(replace(settings, horizon=replace(settings.horizon, steps=steps)))
        solver = BACK_ENDS[back_end](problem, vehicle)
        flights = [race(problem, solver, plan, world, vehicle, FIRST_SEED + k) for k in range(starts)]
        solve, step, tick = (
            1e3 * np.concatenate([getattr(flight, key) for flight in flights])
            for key in ("solve_s", "step_s", "tick_s")
        )
        row: dict[str, Any] = {"controller": name, "solver": back_end, "N": steps, "feedback ms": np.median(solve)}
        row |= {"state to command ms": np.median(step), "tick ms": np.median(tick)}
        rows.append(row | {"tick ms p99": np.percentile(tick, 99), "tick ms max": tick.max()})
    return Result.of("Times of the controllers, medians, one core", rows, "as believed", f"{starts} from {FIRST_SEED}")


def robustness(plans: Path, starts: int) -> Result:
    """Return the races of every controller in every case."""
    rows = []
    for (course, name), case in product(RACES, CASES):
        track, nominal, (off, delay_s) = load_track(course), load_vehicle(name), CASES[case]
        plan = find_or_make_plan(plans, track, nominal, OPTIONS, None)
        vehicle = nominal if delay_s is None else replace(nominal, command_delay_s=delay_s)
        world = World.of("true state", off, track, vehicle)
        for controller in CONTROLLERS:
            problem = Problem(load_settings(controller))
            solver = AcadosSolver(problem, vehicle)
            flights = [race(problem, solver, plan, world, vehicle, FIRST_SEED + k) for k in range(starts)]
            done = [flight for flight in flights if flight.finished]
            row: dict[str, Any] = {"course": course, "vehicle": name, "case": case, "controller": controller}
            row |= {"finished": len(done), "of": starts}
            planned_s = plan.passage_times_s(track)[-1]
            row["time over plan"] = np.mean([one.time_s for one in done]) / planned_s if done else None
            row["least margin m"] = min((one.margin_m for one in done), default=None)
            rows.append(row | {"off the plan rms m": np.mean([rms(np.array(one.errors_m)) for one in flights])})
    return Result.of("Races on the true state from scattered starts", rows, "", f"{starts} from {FIRST_SEED}")


def plants(plans: Path, starts: int) -> Result:
    """Return vehicle steps of 10 ms per second on one core: batches spread over VQ1, and a learning environment."""
    track, rows = load_track("vq1"), []
    for law, name, setting in PLANTS:
        vehicle = load_vehicle(name)
        rows.append({"model": law, "vehicle": name} | {f"{n}": _batch_rate(track, vehicle, setting, n) for n in SIZES})
        rows[-1]["environment 1000"] = _environment_rate(track, vehicle, 1000)
    return Result.of("Vehicle steps of 10 ms per second on one core, by size of the batch", rows)


def _batch_rate(track: Track, vehicle: Vehicle, setting: int, n: int) -> int:
    rng, batch = np.random.default_rng(0), Batch(vehicle, SETTINGS[setting], n, Colliders(track))
    batch.x[:, :3] = rng.uniform(track.bounds.low_m, track.bounds.high_m, (n, 3))
    omega, throttle = rng.normal(0, 1, (n, 3)), vehicle.throttle.throttle(GRAVITY) * rng.uniform(0.9, 1.1, n)
    kept = batch.state.copy()

    def step() -> None:
        batch.state[:] = kept
        batch.step(omega, throttle, 1 / POLICY_HZ)

    return round(n / _least_s(step, max(2, 2000 // n)))


def _environment_rate(track: Track, vehicle: Vehicle, n: int) -> int:
    environment = RacingEnvironment(vehicle, track, n, np.random.default_rng(0))
    environment.reset()
    action = np.tile([2 * GRAVITY / vehicle.thrust_max - 1, 0.0, 0.0, 0.0], (n, 1))
    return round(n / _least_s(lambda: environment.step(action), 12))


def _least_s(step: Callable[[], object], calls: int, rounds: int = 7) -> float:
    """Return the least mean CPU time of a call over several rounds, s: the least disturbed by other processes."""
    step()
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(calls):
            step()
        times.append((time.process_time() - begin) / calls)
    return min(times)


def main() -> None:
    parser = script(__doc__)
    parser.add_argument("what", choices=("timing", "robustness", "plants"))
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--plans", type=Path, default=Path("plans/benchmark"))
    a = parser.parse_args()
    conclude(a.json, {"timing": timing, "robustness": robustness, "plants": plants}[a.what](a.plans, a.starts))


if __name__ == "__main__":
    sys.exit(exit_code(main))
