"""Plans beside published ones, by number of gates, and of random courses, which are refused, or certified and flown.

python benchmarks/planner.py published --problems FOLDER     the common planning problems, with published results
python benchmarks/planner.py scaling                         winding courses of 7 to 200 gates
python benchmarks/planner.py fuzz --courses 200              random courses: a certified plan must be flown without contact
"""

import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.benchmarks.tables import Result, conclude, script
from gate_racer.benchmarks.true_state import fly
from gate_racer.common.errors import UserError, exit_code
from gate_racer.mpc.registry import make_controller
from gate_racer.planner.certificate.certificate import certify
from gate_racer.planner.course import resolve
from gate_racer.planner.imported import read_problem
from gate_racer.planner.plan import Plan
from gate_racer.planner.planning import make_plan
from gate_racer.planner.search import plans
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.sim.physics.contact import Colliders, body_of
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Obstacle, Start, Track
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

PEERS = ("CPC", "TOGT AOS", "AOS + refine", "Fast-fly")  # the last integrates by Euler steps: not feasible
MARKS: dict[str, tuple[float | None, ...]] = {  # trajectory time and CPU time of each peer as published, s
    "uzh3": (4.058, 63.7, 4.197, 0.42, 4.0453, 17.8, 4.068, 1.7),
    "uzh7": (7.392, 168, 7.607, 1.64, 7.3915, 29.1, 7.412, 5.6),
    "uzh19": (18.550, 649, 17.944, 6.6, 17.6309, 99.2, 17.648, 13.1),
    "fastfly7": (None, None, 8.605, 1.19, 8.2794, 15.8, 8.278, 3.2),
}
GATES = (7, 19, 57, 200)  # of the courses for scaling
PLACES_M = (8.0, 16.0)  # m, distance between consecutive gates of a fuzzed course
CONTROLLERS = ("mpcc", "tracking")  # that fly its certified plan


def measure(track: Track, vehicle: Vehicle, options: PlanOptions) -> dict[str, Any]:
    """Return time of the certified plan, and CPU time of the solution, set-up included, s."""
    begin, task = sum(os.times()[:4]), Task(track, vehicle, options)
    plan, effort = next(plans(resolve(task)))
    cpu_s = sum(os.times()[:4]) - begin  # of this process and its finished children
    certificate = certify(plan, task, effort)
    time_s = certificate.total_time_s if certificate.ok else None
    return {"course": track.name, "gates": len(track.gates), "time s": time_s, "CPU s": cpu_s}


def winding(gates: int, seed: int) -> Track:
    """Draw a course of `gates` gates, 8 to 14 m apart, with turns of up to 50 degrees between consecutive ones."""
    rng = np.random.default_rng(seed)
    p, heading, result = np.zeros(3), 0.0, []
    for _ in range(gates):
        heading += rng.uniform(-50, 50)
        step = rng.uniform(8, 14)
        p = p + [step * np.cos(np.radians(heading)), step * np.sin(np.radians(heading)), rng.uniform(-2, 2)]
        result.append(Gate((p[0], p[1], p[2]), heading, 0.0, 1.5, 2.7, 0.26))
    bounds = Bounds((-5e3, -5e3, -5e3), (5e3, 5e3, 5e3))
    return Track(f"winding{gates}", Start((0.0, 0.0, 0.0), 0.0), bounds, tuple(result), False, None)


@dataclass(frozen=True)
class FuzzResult:
    seed: int
    gates: int
    answer: str  # "certified", or why there is no plan
    plan_s: float  # CPU time of planning
    contradicted: str = ""  # fault found in a certified plan


def random_track(seed: int) -> Track:
    """Draw a course of two to six gates, some of any heading, in line, stacked, passed twice, or behind an obstacle."""
    rng = np.random.default_rng(seed)
    p, heading, gates = np.array([0.0, 0.0, -2.0]), 0.0, list[Gate]()
    while len(gates) < rng.integers(2, 6):
        kind = rng.choice(["way", "way", "way", "any", "line", "stacked", "again"])
        yaw = heading = heading + rng.uniform(-60, 60)
        step = rng.uniform(*PLACES_M)
        p = p + [step * np.cos(np.radians(heading)), step * np.sin(np.radians(heading)), rng.uniform(-1.5, 1.5)]
        p[2] = np.clip(p[2], -6.0, -1.5)
        if kind == "any":
            yaw = rng.uniform(-180, 180)
        gates.append(_gate(p, yaw))
        if kind == "line":
            p = p + 5.0 * np.array([np.cos(np.radians(heading)), np.sin(np.radians(heading)), 0.0])
            gates.append(_gate(p, yaw))
        elif kind == "stacked":
            gates.append(_gate(p - [0.0, 0.0, 2.7], yaw + 180.0))
            heading += 180.0
        elif kind == "again" and len(gates) > 1:
            gates.append(gates[rng.integers(len(gates) - 1)])
            p = gates[-1].p_wg.copy()
    obstacles = []
    if rng.random() < 0.4:
        a, b = gates[0].p_wg, gates[1].p_wg
        middle, half = (a + b) / 2 + rng.normal(0, 1.5, 3), rng.uniform(0.2, 1.5, 3)
        obstacles.append(Obstacle(tuple((middle - half).tolist()), tuple((middle + half).tolist())))
    places = np.array([gate.p_wg for gate in gates] + [np.zeros(3)])
    low, high = places.min(0) - 12.0, places.max(0) + 12.0
    bounds = Bounds(tuple(low.tolist()), (float(high[0]), float(high[1]), 0.5))
    return Track(f"fuzz{seed}", Start((0.0, 0.0, 0.0), 0.0), bounds, tuple(gates), False, None, "", tuple(obstacles))


def _gate(p: np.ndarray, yaw_deg: float) -> Gate:
    x, y, z = (round(float(value), 3) for value in p)
    return Gate((x, y, z), round(float((yaw_deg + 180) % 360 - 180), 1), 0.0, 1.5, 2.7, 0.26)


def struck(plan: Plan, track: Track, vehicle: Vehicle) -> str:
    """Return the first overlap of the body's box with the simulator's solids along the plan; empty for none."""
    solids, body = Colliders(track), body_of(vehicle)
    _, x, _ = plan.dense(vehicle, 20)
    for state in x:
        if hit := solids.touched(body, state[:3], state[3:7]):
            return f"the plan's body overlaps {hit[0][0]} {hit[0][1]}"
    return ""


def attempt(seed: int, vehicle: Vehicle, options: PlanOptions) -> FuzzResult:
    """Plan one random course, and test a certified plan for overlap and by flights."""
    track, begin = random_track(seed), time.process_time()
    try:
        plan, certificate = make_plan(track, vehicle, options)
    except UserError as error:
        return FuzzResult(seed, len(track.gates), str(error), time.process_time() - begin)
    spent = time.process_time() - begin
    if not certificate.ok:
        return FuzzResult(seed, len(track.gates), certificate.status, spent)
    faults = [struck(plan, track, vehicle)]
    for name in CONTROLLERS:
        controller = make_controller(name, plan, vehicle, track)
        flight = fly(controller, plan, as_believed(track, vehicle), vehicle, seed, scatter=False)
        faults.append("" if flight.finished else f"{name}: {flight.status} {flight.cause}")
    return FuzzResult(seed, len(track.gates), "certified", spent, "; ".join(filter(None, faults)))


def published(folder: Path) -> Result:
    heads = [f"{peer} {figure}" for peer in PEERS for figure in ("time s", "CPU s")]
    rows = [
        measure(*read_problem(folder / f"{name}.yaml")) | dict(zip(heads, MARKS[name], strict=True)) for name in MARKS
    ]
    return Result.of("Published planning problems, ours and as published", rows, digits=4)


def scaling() -> Result:
    rows = [measure(winding(count, 1), load_vehicle("dcl"), PlanOptions()) for count in GATES]
    return Result.of("Winding courses, with the next gate in view", rows)


def fuzz(first: int, courses: int, vehicle: Vehicle, options: PlanOptions) -> tuple[Result, bool]:
    """Return the result, and whether a certified plan was contradicted."""
    outcomes = [attempt(seed, vehicle, options) for seed in range(first, first + courses)]
    title = "Random courses that are not certified, or whose certificate a flight contradicts"
    rows = [asdict(one) for one in outcomes if one.answer != "certified" or one.contradicted]
    print(f"{sum(one.answer == 'certified' for one in outcomes)} of {courses} courses are certified")
    result = Result.of(title, rows, "as believed", f"{first} to {first + courses - 1}")
    return result, any(one.contradicted for one in outcomes)


def main() -> int:
    parser = script(__doc__)
    parser.add_argument("what", choices=("published", "scaling", "fuzz"))
    parser.add_argument("--problems", type=Path, default=Path("problems"), help="folder of published planning problems")
    parser.add_argument("--courses", type=int, default=12, help="number of random courses")
    parser.add_argument("--first", type=int, default=0, help="seed of the first of them")
    parser.add_argument("--see", type=float, default=0.0, help="as of plan-track, of fuzzed plans")
    a, wrong = parser.parse_args(), False
    if a.what == "fuzz":
        result, wrong = fuzz(a.first, a.courses, load_vehicle("dcl"), PlanOptions(see=a.see, guesses=1))
    else:
        result = published(a.problems) if a.what == "published" else scaling()
    conclude(a.json, result)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(exit_code(main))
