"""`race-bench lsy LEVEL`: the levels of the open leaderboard lsy_drone_racing, in crazyflow."""

import argparse
import os
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import numpy as np

from gate_racer.common.command import markdown_table, remark, write_json
from gate_racer.common.errors import UserError
from gate_racer.race.campaign.cli import OFFICIAL
from gate_racer.race.lsy.flyer import Flyer
from gate_racer.race.lsy.level import Arena, draw, rules
from gate_racer.race.lsy.model import Solver
from gate_racer.sim.physics.registry import missing

FINISHED = "finished"


@dataclass(frozen=True)
class Result:
    seed: int
    status: str  # "finished", "contact", "left the arena" or "timeout"
    time_s: float  # as the leaderboard counts, to the control step before the end
    gates: int
    clearance_m: float  # least distance of the body to frames, stands and poles


def run(arguments: argparse.Namespace) -> int:
    """Fly, print the table and write the JSON file. Raises UserError: crazyflow is missing."""
    if arguments.seeds < 1:
        raise UserError(f"--seeds {arguments.seeds}: must be at least 1")
    if why := missing("crazyflow"):
        raise UserError(why)
    seeds = list(range(arguments.seeds))
    workers = min(os.cpu_count() or 1, len(seeds))
    os.environ["SCIPY_ARRAY_API"] = "1"  # which crazyflow asks for before SciPy is loaded: in new processes
    jobs = [(arguments.level, seeds[i::workers]) for i in range(workers)]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        results = sorted((r for part in pool.map(fly, *zip(*jobs, strict=True)) for r in part), key=lambda r: r.seed)
    print(table(arguments.level, results))
    about = {"level": arguments.level, "in": "crazyflow", **summary(results)}
    write_json(arguments.json, about | {"flights": results})
    return 0


def summary(results: list[Result]) -> dict[str, float | None]:
    """Return completion, times and clearance of the finished, and the leaderboard's score: the first 20 flights."""
    done = [r for r in results if r.status == FINISHED]
    official = [r.time_s for r in results[:OFFICIAL] if r.status == FINISHED]
    return {
        "completion": len(done) / len(results),
        "mean_s": float(np.mean([r.time_s for r in done])) if done else None,
        "worst_s": max((r.time_s for r in done), default=None),
        "clearance_m": min((r.clearance_m for r in done), default=None),
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


def fly(level: int, seeds: list[int]) -> list[Result]:
    """Fly races of a level."""
    warnings.simplefilter("ignore")  # of crazyflow's dependencies; the process is for this alone
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
