"""`race-bench lsy LEVEL`: the levels of the open leaderboard lsy_drone_racing, in crazyflow or in its own environment."""

import argparse
import importlib.util
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context

import numpy as np

from gate_racer.common.command import markdown_table, write_json
from gate_racer.common.errors import UserError
from gate_racer.race.campaign.cli import OFFICIAL

FINISHED = "finished"


@dataclass(frozen=True)
class Result:
    """One flight."""

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
    """Fly, print the table and write the JSON file.

    Raises:
        UserError: crazyflow is missing, or the folder is no checkout.
    """
    if arguments.seeds < 1:
        raise UserError(f"--seeds {arguments.seeds}: must be at least 1")
    if why := missing():
        raise UserError(why)
    seeds = list(range(arguments.seeds))
    workers = min(os.cpu_count() or 1, len(seeds)) if arguments.checkout is None else 1
    from gate_racer.race.lsy.flights import fly  # here, since the other commands do without SciPy

    os.environ["SCIPY_ARRAY_API"] = "1"  # which crazyflow asks for before SciPy is loaded: in new processes
    jobs = [(arguments.level, seeds[i::workers], arguments.checkout) for i in range(workers)]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        results = sorted((r for part in pool.map(fly, *zip(*jobs, strict=True)) for r in part), key=lambda r: r.seed)
    about = summary(results)
    print(table(arguments.level, results))
    where = str(arguments.checkout) if arguments.checkout else "crazyflow"
    write_json(
        arguments.json, {"level": arguments.level, "in": where, **about, "flights": [asdict(r) for r in results]}
    )
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
    s = summary(results)

    def shown(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    cells = [str(level), f"{s['completion']:.0%} of {len(results)}", shown(s["mean_s"], ".3f")]
    cells += [shown(s["worst_s"], ".2f"), shown(s["score_s"], ".3f"), shown(s["clearance_m"], ".3f")]
    head = ["level", "finished", "mean s", "worst s", "score s", "least clearance m"]
    lost = [r for r in results if r.status != FINISHED]
    said = [f"seed {r.seed}: {r.status} at {r.time_s:.2f} s after {r.gates} gates" for r in lost]
    return "\n".join([markdown_table(head, [cells]).rstrip(), *said])
