"""`bootcamp`: flies a learner's program, or a log again, or generates what is to be flown."""

import argparse
import json
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bootcamp.api import Report
from bootcamp.crew import Crew, ProgramEnd, ProgramOutcome
from bootcamp.display import Window
from bootcamp.generate import generate_track, write_track
from bootcamp.program import load_program
from bootcamp.scenario import Scenario, make_scenario
from bootcamp.stages import Job, log_of
from vehicle.errors import UserError, exit_code
from vehicle.files import write_file

EXIT = {ProgramEnd.LANDED: 0, ProgramEnd.ABORTED: 130}


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="bootcamp", description="Flies a program that is asked for one command per step."
    )
    arguments.add_argument("program", nargs="?", type=Path, help="Python file with decide(report, pads)")
    arguments.add_argument("--scenario", help="figure8, waypoint or pads (default: the program's SCENARIO)")
    arguments.add_argument("--seed", type=int, help="of all that is left to chance (default: drawn from the time)")
    arguments.add_argument("--realtime", action="store_true", help="steps by the wall clock (default: lock-step)")
    arguments.add_argument("--window", action="store_true", help="show the flight in a window (default: an MP4)")
    arguments.add_argument("--logs", type=Path, default=Path("logs"), help="folder of what the flight leaves")
    arguments.add_argument("--replay", type=Path, metavar="LOG", help="fly a log again and compare every bit")
    arguments.add_argument("--generate", metavar="seed=N", help="write a track of gates drawn from a seed, and end")
    arguments.add_argument("--gates", type=int, default=6, help="of the generated track (default: 6)")
    return arguments


def run(arguments: argparse.Namespace) -> int:
    tasks = [arguments.program, arguments.replay, arguments.generate]
    if sum(task is not None for task in tasks) != 1:
        raise UserError(
            "one of a program, --replay and --generate is needed, e.g. bootcamp examples/waypoint.py --seed 7"
        )
    if arguments.replay is not None:
        from bootcamp.record import replay  # brings the simulator, which every worker would load with this module

        print(f"{arguments.replay}: {replay(arguments.replay)} steps, the same to the last bit")
        return 0
    if arguments.generate is not None:
        return _generate(arguments.generate, arguments.gates, arguments.logs)
    program = load_program(arguments.program)
    seed = time.time_ns() % 2**32 if arguments.seed is None else arguments.seed
    scenario = make_scenario(arguments.scenario or program.scenario, seed)
    if arguments.window:
        Window("bootcamp").close()
    stem = arguments.logs / f"{arguments.program.stem}-{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}"
    job = Job(arguments.program, scenario.name, seed, arguments.realtime, arguments.window, stem)
    print(f"seed {seed}: {scenario.name}, log {log_of(stem)}", flush=True)
    return fly(job, scenario)


def fly(job: Job, scenario: Scenario) -> int:
    """Flies, and leaves a report whatever happens. Returns the exit code."""
    try:
        job.stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--logs {job.stem.parent}: cannot be made ({error.strerror})") from None
    crew = Crew(job)
    try:
        crew.fly(_tell)
    finally:
        result = report(job, scenario, crew.outcome)
        path = job.stem.with_name(job.stem.name + ".json")
        write_file(path, json.dumps(result, indent=2) + "\n")
        print(summary(result, path), flush=True)
    if crew.outcome.traceback:
        print(crew.outcome.traceback, end="", file=sys.stderr)
    return EXIT.get(crew.outcome.end, 1)


def report(job: Job, scenario: Scenario, outcome: ProgramOutcome) -> dict[str, Any]:
    """All that is known at the end of a flight, for JSON."""
    last = outcome.report
    nearest = min((pad.distance(last.position) for pad in scenario.pads), default=None) if last else None
    return {
        "seed": job.seed,
        "scenario": job.scenario,
        "program": str(job.program),
        "mode": "realtime" if job.realtime else "lockstep",
        "end": outcome.end,
        "cause": outcome.cause,
        "waypoint": scenario.waypoint,
        "pads": scenario.pads,
        "nearest_pad_m": nearest,
        "report": asdict(last) if last else None,
        "counters": outcome.counters,
        "drained": outcome.drained,
        "terminated": outcome.terminated,
        "traceback": outcome.traceback,
        "version": version("gate-racer"),
    }


def summary(result: dict[str, Any], path: Path) -> str:
    """Two lines for the terminal."""
    cause = f" ({result['cause']})" if result["cause"] else ""
    last, nearest = result["report"], result["nearest_pad_m"]
    if last is None:
        return f"{result['end']}{cause}: before the first step\nreport {path}"
    pad = "" if nearest is None else f", {nearest:.2f} m from the nearest pad"
    steps = f"{last['step']} steps, {last['t']:.1f} s{pad}, {last['ignored']} of {last['taken']} commands ignored"
    return f"{result['end']}{cause}: {steps}\nreport {path}"


def _tell(report: Report) -> None:
    if report.warning:
        print(f"step {report.step}: warning: {report.warning}", file=sys.stderr, flush=True)


def _generate(text: str, gates: int, folder: Path) -> int:
    name, equals, digits = text.partition("=")
    if name != "seed" or not equals or not (digits.isascii() and digits.isdigit()):
        raise UserError(f"--generate {text}: expected seed=N, e.g. seed=7")
    track = generate_track(int(digits), gates)
    path = write_track(track, folder)
    print(f"seed {int(digits)}: {len(track.gates)} gates, {path}")
    return 0


def main() -> None:
    sys.exit(exit_code(lambda: run(parser().parse_args())))


if __name__ == "__main__":
    main()
