"""Fuzzing of the planner: each random course must be refused, or certified and flown on the true state without contact.

python benchmarks/fuzz_plans.py --courses 200
"""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gate_racer.benchmarks.true_state import fly
from gate_racer.mpc.make import make_controller
from gate_racer.planner.models import MODELS
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.plan import Plan
from gate_racer.planner.planning import make_plan
from gate_racer.sim.physics.contact import Colliders, body_of
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Obstacle, Start, Track
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

PLACES_M = (8.0, 16.0)  # m, distance between consecutive gates
CONTROLLERS = ("mpcc", "tracking")  # that fly the certified plans


@dataclass(frozen=True)
class FuzzResult:
    """Result for one course."""

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


def main() -> None:
    """Plan and test random courses, and write the results."""
    parser = argparse.ArgumentParser(description="Random courses: refused, or certified and flown without contact.")
    parser.add_argument("--courses", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first course")
    parser.add_argument("--see", type=float, default=0.0, help="share of each leg over which the next gate is in view")
    parser.add_argument("--vehicle", default="dcl")
    parser.add_argument("--model", choices=MODELS, default="rates")
    parser.add_argument("--out", type=Path, default=Path("logs"))
    a = parser.parse_args()
    vehicle, outcomes = load_vehicle(a.vehicle), list[FuzzResult]()
    options = PlanOptions(see=a.see, model=a.model, guesses=1)
    for seed in range(a.first, a.first + a.courses):
        one = attempt(seed, vehicle, options)
        outcomes.append(one)
        print(f"{seed:5d} {one.plan_s:6.1f} s  {one.answer[:110]}  {one.contradicted}", flush=True)
    certified = [one for one in outcomes if one.answer == "certified"]
    wrong = [one for one in certified if one.contradicted]
    print(
        f"{len(outcomes)} courses: {len(certified)} certified, {len(wrong)} of them with an overlap or a failed flight"
    )
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "fuzz_plans.json").write_text(json.dumps([asdict(one) for one in outcomes], indent=2))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
