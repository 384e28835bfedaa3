"""Tune a controller's weights: python -m tools.tune_mpc tracking [--budget 150] [--seed 0]

CMA-ES (Hansen, 2016) on the logarithms of the weights, by races on the true state. Courses, vehicles and model errors are drawn
from seeds, none of the project's tracks is among them, and every generation flies others, against overfitting. Old and new
weights are then compared on held-out courses.

Score of a race: relative excess of time over the plan's, plus SHORT times the shortfall of the least margin from MARGIN_M; CRASH
for a race that ends early.
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import cma
import numpy as np

from gate_racer.benchmarks.true_state import race as fly
from gate_racer.common.errors import UserError
from gate_racer.mpc.names import CONTROLLERS
from gate_racer.mpc.problem import FOLDER, Problem, Settings, load_settings
from gate_racer.mpc.solvers.acados import AcadosSolver
from gate_racer.planner.plan import Plan
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.sim.worlds.world import AirDeviation, Deviations, PlantDeviation, World
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle
from tools.training.frames import random_track

VEHICLES = ("dcl", "kolibri", "swift")
LONGEST_M, GATES = 180.0, 6  # greatest length and number of gates of a course, for races of a few seconds
MARGIN_M, SHORT = 0.3, 2.0  # m, least margin without penalty, and penalty per metre below it (chosen)
CRASH = 1.0  # score of a race that ends early (chosen)
SPREAD, HELD_OUT = 0.4, 10_000  # standard deviation of the first generation's logarithms; first held-out seed
FIXED = ("velocity", "gate_visibility")  # weights that are not tuned
FRACTIONS = ("headroom", "thrust_share")  # settings tuned in addition, limited to 1


@dataclass(frozen=True)
class TuningRace:
    """Race drawn from one seed."""

    seed: int
    track: Track
    vehicle: Vehicle  # the controller's model
    plan: Plan
    world: World


@cache
def race(seed: int) -> TuningRace | None:
    """Draw a race from a seed; None if the course is too long or has no certified plan."""
    rng = np.random.default_rng(seed)
    whole = random_track(rng)
    track = replace(whole, gates=whole.gates[:GATES])
    vehicle = load_vehicle(str(rng.choice(VEHICLES)))
    thrust, drag, mass = rng.uniform(0.85, 1.1), float(np.exp(rng.uniform(-0.7, 0.7))), rng.uniform(0.93, 1.07)
    air, delay_s = AirDeviation(gust_m_s=rng.uniform(0.0, 2.0)), rng.uniform(0.0, 0.02)
    plant = PlantDeviation(thrust_scale=thrust / mass, drag_scale=drag / mass, command_delay_s=delay_s)
    off = Deviations(plant, air=air)
    path = np.array([track.start.position_m, *(gate.p_wg for gate in track.gates)])
    if np.linalg.norm(np.diff(path, axis=0), axis=1).sum() > LONGEST_M:
        return None
    try:
        plan, certificate = make_plan(track, vehicle, PlanOptions(guesses=1, margin_m=rng.uniform(0.1, 0.25)))
    except UserError:
        return None
    return TuningRace(seed, track, vehicle, plan, World.of("drawn", off, track, vehicle)) if certificate.ok else None


def races(first: int, count: int) -> Iterator[TuningRace]:
    """Yield `count` flyable races, from seed `first` on."""
    while count:
        found = race(first)
        if found is not None:
            yield found
            count -= 1
        first += 1


def score(settings: Settings, flown: list[TuningRace]) -> float:
    """Return the mean score over races; less is better."""
    problem, total = Problem(settings), 0.0
    for one in flown:
        flight = fly(problem, AcadosSolver(problem, one.vehicle), one.plan, one.world, one.vehicle, one.seed)
        if flight.finished:
            slower = flight.time_s / one.plan.passage_times_s(one.track)[-1] - 1
            total += slower + SHORT * max(MARGIN_M - flight.margin_m, 0.0)
        else:
            total += CRASH
    return total / len(flown)


def tuned(settings: Settings) -> list[str]:
    """Return the names of the tuned parameters."""
    return [k for k, v in vars(settings.weights).items() if v and k not in FIXED] + list(FRACTIONS)


def with_values(settings: Settings, logs: np.ndarray) -> Settings:
    """Return settings with old values multiplied by factors, given by their logarithms."""
    values = {}
    for name, log in zip(tuned(settings), logs, strict=True):
        if name in FRACTIONS:
            values[name] = min(float(getattr(settings, name) * np.exp(0.25 * log)), 1.0)
        else:
            values[name] = float(getattr(settings.weights, name) * np.exp(log))
    fractions = {name: values.pop(name) for name in FRACTIONS}
    return replace(settings, weights=replace(settings.weights, **values), **fractions)


def tune(settings: Settings, budget: int, count: int, seed: int) -> Settings:
    """Return the optimised settings after about `budget` scores of `count` races each."""
    names = tuned(settings)
    search = cma.CMAEvolutionStrategy(np.zeros(len(names)), SPREAD, {"seed": seed + 1, "verbose": -9})
    first = 1000 * seed
    while search.result.evaluations < budget:
        flown = list(races(first, count))
        first = flown[-1].seed + 1
        asked = search.ask()
        scores = [score(with_values(settings, logs), flown) for logs in asked]
        search.tell(asked, scores)
        mean = with_values(settings, search.mean)
        found = {k: getattr(mean if k in FRACTIONS else mean.weights, k) for k in names}
        text = "  ".join(f"{name} {value:.3g}" for name, value in found.items())
        print(f"{search.result.evaluations:4d}  {min(scores):.3f} to {max(scores):.3f}  {text}", flush=True)
    return with_values(settings, search.mean)  # scores are noisy: the mean of the search is better than its best sample


def write(path: Path, settings: Settings, note: str) -> None:
    """Write the file with new values, its comments kept and a note on top."""
    text = re.sub(r"\A(#.*\n)*", "", path.read_text(encoding="utf-8"))
    for name in tuned(settings):
        value = getattr(settings if name in FRACTIONS else settings.weights, name)
        text = re.sub(rf"^(\s*{name}:) *\S+( *#.*)?$", rf"\1 {value:.3g}\2", text, flags=re.MULTILINE)
    path.write_text(f"# {note}\n{text}", encoding="utf-8")


def main() -> None:
    """Tune, compare on held-out races, and write the settings if they are better."""
    parser = argparse.ArgumentParser(description="Tune the weights of a controller over seeds.")
    parser.add_argument("controller", choices=CONTROLLERS)
    parser.add_argument("--budget", type=int, default=150, help="number of score evaluations")
    parser.add_argument("--races", type=int, default=8, help="races per score")
    parser.add_argument("--held-out", type=int, default=30, help="races on which old and new weights are compared")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="do not write the settings")
    a = parser.parse_args()
    old = load_settings(a.controller)
    new = tune(old, a.budget, a.races, a.seed)
    held_out = list(races(HELD_OUT, a.held_out))
    before, after = score(old, held_out), score(new, held_out)
    print(f"score on {a.held_out} held-out races: {before:.4f} before, {after:.4f} after")
    if after < before and not a.dry:
        note = f"python -m tools.tune_mpc {a.controller} --budget {a.budget} --races {a.races} --seed {a.seed}:"
        note += f" {before:.4f} -> {after:.4f} on {a.held_out} held-out races"
        write(FOLDER / f"{a.controller}.yaml", new, note)


if __name__ == "__main__":
    main()
