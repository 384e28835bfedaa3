"""`race-bench lsy LEVEL`: the levels of the open leaderboard lsy_drone_racing, in crazyflow or in its own environment."""

import argparse
import importlib.util
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import markdown_table, remark, write_json
from gate_racer.common.errors import UserError
from gate_racer.race.campaign.cli import OFFICIAL
from gate_racer.race.lsy.flyer import Flyer
from gate_racer.race.lsy.level import Arena, Observation, Places, draw, rotation, rules
from gate_racer.race.lsy.model import Solver

FINISHED = "finished"


@dataclass(frozen=True)
class Result:
    seed: int
    status: str  # "finished", "contact", "left the arena" or "timeout"
    time_s: float  # as the leaderboard counts, to the control step before the end
    gates: int
    clearance_m: float | None  # least distance of the body to frames, stands and poles; not told by the published one


def missing() -> str:
    """Return why crazyflow cannot be used here, or ""."""
    absent = [name for name in ("crazyflow", "jax", "mujoco") if importlib.util.find_spec(name) is None]
    return f"{', '.join(absent)} not installed: pip install 'gate-racer[sims]'" if absent else ""


def run(arguments: argparse.Namespace) -> int:
    """Fly, print the table and write the JSON file. Raises UserError: crazyflow is missing, or the folder is no checkout."""
    if arguments.seeds < 1:
        raise UserError(f"--seeds {arguments.seeds}: must be at least 1")
    if why := missing():
        raise UserError(why)
    seeds = list(range(arguments.seeds))
    workers = min(os.cpu_count() or 1, len(seeds)) if arguments.checkout is None else 1
    os.environ["SCIPY_ARRAY_API"] = "1"  # which crazyflow asks for before SciPy is loaded: in new processes
    jobs = [(arguments.level, seeds[i::workers], arguments.checkout) for i in range(workers)]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        results = sorted((r for part in pool.map(fly, *zip(*jobs, strict=True)) for r in part), key=lambda r: r.seed)
    print(table(arguments.level, results))
    about = {"level": arguments.level, "in": str(arguments.checkout or "crazyflow"), **summary(results)}
    write_json(arguments.json, about | {"flights": results})
    return 0


def summary(results: list[Result]) -> dict[str, float | None]:
    """Return completion, times and clearance of the finished, and the leaderboard's score: the first 20 flights."""
    done = [r for r in results if r.status == FINISHED]
    official = [r.time_s for r in results[:OFFICIAL] if r.status == FINISHED]
    gaps = [r.clearance_m for r in done if r.clearance_m is not None]
    return {
        "completion": len(done) / len(results),
        "mean_s": float(np.mean([r.time_s for r in done])) if done else None,
        "worst_s": max((r.time_s for r in done), default=None),
        "clearance_m": min(gaps, default=None),
        "score_s": float(np.mean(official)) if len(official) * 2 >= len(results[:OFFICIAL]) > 0 else None,
    }


def table(level: int, results: list[Result]) -> str:
    """Return the result as Markdown, and a line for each flight that did not finish."""
    s, names = summary(results), ("mean_s", "worst_s", "score_s", "clearance_m")
    figures = ["-" if s[name] is None else f"{s[name]:.3f}" for name in names]
    cells = [str(level), f"{s['completion']:.0%} of {len(results)}", *figures]
    head = ["level", "finished", "mean s", "worst s", "score s", "least clearance m"]
    lost = [r for r in results if r.status != FINISHED]
    said = [f"seed {r.seed}: {r.status} at {r.time_s:.2f} s after {r.gates} gates" for r in lost]
    return "\n".join([markdown_table(head, [cells]).rstrip(), *said])


def fly(level: int, seeds: list[int], checkout: Path | None) -> list[Result]:
    """Fly races of a level, in crazyflow or in a checkout of the published environment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of crazyflow's dependencies
        if checkout is None:
            return _in_arena(level, seeds)
        environment, known = _environment(level, checkout), level < rules().places_from
        return [_one_in_checkout(environment, seed, known) for seed in seeds]


def _in_arena(level: int, seeds: list[int]) -> list[Result]:
    arena, solver = Arena([draw(level, seed) for seed in seeds]), Solver()
    flyers, commands, second = [Flyer(solver=solver) for _ in seeds], np.zeros((len(seeds), 4)), 0
    while going := [i for i, referee in enumerate(arena.referees) if not referee.status]:
        observations = arena.observe()
        if observations[going[0]].t >= second:
            remark(f"level {level}, seeds {seeds[0]} to {seeds[-1]}: {second} s, {len(going)} flying")
            second += 1
        for i in going:
            commands[i] = flyers[i].step(observations[i])
        arena.step(commands)
    step_s, gates = rules().control_s, len(rules().gates)
    return [
        Result(seed, ref.status, ref.t - step_s, ref.target if ref.target >= 0 else gates, float(ref.clearance))
        for seed, ref in zip(seeds, arena.referees, strict=True)
    ]


def _environment(level: int, checkout: Path) -> Any:
    """Return the published environment of a level. Raises UserError if it cannot be loaded from there."""
    import tomllib

    sys.path.insert(0, str(checkout))
    try:
        from lsy_drone_racing.envs.drone_race import DroneRaceEnv
        from ml_collections import ConfigDict

        config = ConfigDict(tomllib.loads((checkout / "config" / f"level{level}.toml").read_text(encoding="utf-8")))
    except (ImportError, OSError) as error:
        raise UserError(f"{checkout}: no checkout of lsy_drone_racing that can be loaded ({error})") from None
    env = config.env
    given = {"disturbances": env.get("disturbances"), "randomizations": env.get("randomizations"), "seed": 0}
    given |= {"freq": env.freq, "sim_config": config.sim, "sensor_range": env.sensor_range, "track": env.track}
    return DroneRaceEnv(control_mode="attitude", **given)


def _one_in_checkout(environment: Any, seed: int, known: bool) -> Result:
    flyer, gates = Flyer(), len(rules().gates)
    told, _ = environment.reset(seed=seed)
    observation = observed(told, 0.0, known)
    passed, over = 0, False
    while not over:
        passed = observation.target
        told, _, ended, late, _ = environment.step(flyer.step(observation).astype(np.float32))
        observation, over = observed(told, observation.t + rules().control_s, known), ended or late
    done = observation.target < 0
    time_s = observation.t - rules().control_s
    remark(f"seed {seed}: {FINISHED if done else 'lost'} at {time_s:.2f} s")
    return Result(seed, FINISHED if done else "lost", time_s, gates if done else passed, None)


def observed(told: dict[str, Any], t: float, known: bool) -> Observation:
    """Return the published environment's observation as ours; quaternions there are xyzw.

    Where a level displaces no place, all are `known` from the start.
    """
    a = {name: np.asarray(value) for name, value in told.items()}
    rotations = rotation().from_quat(a["gates_quat"].astype(float)).as_matrix()
    return Observation(
        t,
        a["pos"].astype(float),
        rotation().from_quat(a["quat"].astype(float)).as_matrix(),
        a["vel"].astype(float),
        a["ang_vel"].astype(float),
        int(a["target_gate"]),
        Places(a["gates_pos"].astype(float), rotations, a["obstacles_pos"].astype(float)),
        np.logical_or(a["gates_visited"], known),
        np.logical_or(a["obstacles_visited"], known),
    )
