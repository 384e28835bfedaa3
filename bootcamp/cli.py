"""Command `bootcamp`: fly and judge a learner's program, grade several over seeds, replay a log, or generate a course."""

import argparse
import os
import re
import sys
import time
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gate_racer.bootcamp.api import Report
from gate_racer.bootcamp.crew import Crew, ProgramOutcome
from gate_racer.bootcamp.display import ADDRESS, BrowserView, Window
from gate_racer.bootcamp.floor import make_floor
from gate_racer.bootcamp.generate import generate_track, write_track
from gate_racer.bootcamp.judge import Judge, Judgement, ProgramEnd
from gate_racer.bootcamp.program import hint_lines, scenario_of
from gate_racer.bootcamp.scenario import Scenario, make_scenario
from gate_racer.bootcamp.stages import Job, log_of
from gate_racer.bootcamp.world import DRONES, FILE, MOST, PX_MAX, STEP_MIN_S, Arena, load_world
from gate_racer.common.command import add_common, complain, perform, remark, write_json
from gate_racer.common.errors import UserError, say
from gate_racer.common.files import require_output, write_file
from gate_racer.vehicle.camera import Camera

GATES = 6  # of a generated course
EXIT = {ProgramEnd.ABORTED: 130}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the `bootcamp` command."""
    arguments = argparse.ArgumentParser(
        prog="bootcamp", description="Fly a program that returns one command per step, and judge the flight."
    )
    add = arguments.add_argument
    add("program", nargs="?", type=Path, help="Python file with decide(report, pads)")
    add("--scenario", help="name of the scenario (default: the program's SCENARIO)")
    add("--seed", type=int, help="random seed (default: from the clock; grades start at 0)")
    add(
        "--grade",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="fly programs over seeds; write a table and a page in --logs",
    )
    add("--seeds", type=int, default=20, help="with --grade: number of seeds (default: 20)")
    add("--world", type=Path, default=FILE, metavar="YAML", help="world file, like bootcamp/world.yaml")
    add("--step", type=float, metavar="S", help="length of a step, a whole number of 1/120 s (default: the world's)")
    add("--drone", choices=DRONES, help="kinematic: full speed or standstill, without inertia (default: the world's)")
    add(
        "--camera",
        metavar="WxH",
        help="image size for the same field of view, such as 1200x900 (default: the world's)",
    )
    add(
        "--map", type=Path, metavar="FOLDER", help="folder with tiles of the ground: X_Y.png, default.png, boundary.png"
    )
    add("--realtime", action="store_true", help="step in real time (default: lock-step)")
    add("--window", action="store_true", help="show the flight in a window as well")
    add(
        "--browser",
        nargs="?",
        const=ADDRESS,
        default="",
        metavar="HOST:PORT",
        help=f"show the flight in a browser (default address: {ADDRESS})",
    )
    add(
        "--race",
        action="store_true",
        help="if the flight passes a course of gates, plan the course and fly it with run-mpc",
    )
    add("--logs", type=Path, default=Path("logs"), help="folder for logs and films (default: logs)")
    add("--replay", type=Path, metavar="LOG", help="repeat the flight of a log and compare it bit by bit")
    add("--generate", metavar="seed=N[,gates=N]", help=f"write a random track (default: {GATES} gates) and exit")
    add_common(arguments, "the result")
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code. Raises UserError for options that are invalid or exclude each other."""
    tasks = [arguments.program, arguments.grade, arguments.replay, arguments.generate]
    if sum(task is not None for task in tasks) != 1:
        raise UserError(
            "give exactly one of a program, --grade, --replay and --generate, e.g. bootcamp examples/waypoint.py --seed 7"
        )
    if arguments.replay is not None:
        from gate_racer.bootcamp.record import (
            replay,  # imports the simulator, which every worker would load with this module
        )

        steps = replay(arguments.replay)
        print(f"{arguments.replay}: {steps} steps, bit-identical")
        write_json(arguments.json, {"log": arguments.replay, "steps": steps})
        return 0
    if arguments.generate is not None:
        return _generate(arguments)
    world = world_of(arguments)
    if arguments.grade is not None:
        return _grade(arguments, world)
    for line in hint_lines([arguments.program]):  # before the program runs
        remark(line)
    own = scenario_of(arguments.program)
    seed = time.time_ns() % 2**32 if arguments.seed is None else arguments.seed
    scenario = make_scenario(arguments.scenario or own, seed, world)
    _require_map(scenario)
    if arguments.race and scenario.course is None:
        raise UserError(f"--race: the scenario {scenario.name} has no gates: use --scenario gates")
    if arguments.window:
        Window("bootcamp").close()
    if arguments.browser:
        BrowserView(arguments.browser, "").close()
    stem = arguments.logs / f"{arguments.program.stem}-{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}"
    job = Job(arguments.program, scenario, arguments.realtime, arguments.window, arguments.browser, stem)
    print(f"seed {seed}: {scenario.name}, log {log_of(stem)}", flush=True)
    if arguments.browser:
        remark(f"live view: http://{arguments.browser}/")
    code = fly(job, arguments.json)
    return _race(scenario, arguments.logs) if code == 0 and arguments.race else code


def world_of(arguments: argparse.Namespace) -> Arena:
    """Return the world file with the changes of the command line.

    Raises:
        UserError: an option is out of range or malformed.
    """
    world = load_world(arguments.world)
    changes: dict[str, Any] = {}
    if arguments.step is not None:
        if not STEP_MIN_S - 1e-9 <= arguments.step <= MOST["step_s"]:
            raise UserError(f"--step {arguments.step:g}: must lie between 1/120 and 1 s")
        changes["step_s"] = arguments.step
    if arguments.drone is not None:
        changes["drone"] = arguments.drone
    if arguments.map is not None:
        if not arguments.map.is_dir():
            raise UserError(f"--map {arguments.map}: is not a folder")
        changes["map"] = str(arguments.map)
    if arguments.camera is not None:
        width, _, height = arguments.camera.partition("x")
        if not all(side.isascii() and side.isdigit() and 16 <= int(side[:9]) <= PX_MAX for side in (width, height)):
            raise UserError(
                f"--camera {arguments.camera}: expected WIDTHxHEIGHT in px, such as 1200x900, at most {PX_MAX}"
            )
        changes["camera"] = _resized(world.camera, int(width), int(height))
    return replace(world, **changes)


def _require_map(scenario: Scenario) -> None:
    """Check the map before the flight.

    Raises:
        UserError: a tile is missing or is not an image.
    """
    if scenario.world.map:
        make_floor(scenario)


def _resized(camera: Camera, width: int, height: int) -> Camera:
    """Return a camera with another image size that shows the same ground from left to right."""
    scale = width / camera.width_px
    fx, fy = camera.fx_px * scale, camera.fy_px * scale
    cx, cy = (width - 1) / 2, (height - 1) / 2
    return replace(camera, width_px=width, height_px=height, fx_px=fx, fy_px=fy, cx_px=cx, cy_px=cy)


def fly(job: Job, json_file: Path | None = None) -> int:
    """Fly a job and write its report in any case, to `json_file` too; return the exit code, 0 if the goal was reached."""
    try:
        job.stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--logs {job.stem.parent}: cannot be created ({error.strerror})") from None
    crew, judge = Crew(job), Judge(job.scenario)

    def tell(report: Report) -> None:
        judge.see(report)
        if report.warning:
            remark(f"step {report.step}: warning: {report.warning}")

    try:
        crew.fly(tell)
    finally:
        verdict = judge.verdict(crew.outcome.end, crew.outcome.cause)
        result = report(job, crew.outcome, verdict)
        path = job.stem.with_name(job.stem.name + ".json")
        for wanted in (path, json_file):
            write_json(wanted, result)
        say(told_of(crew.outcome, verdict, path))
    if crew.outcome.traceback:
        complain(crew.outcome.traceback.rstrip())
    return EXIT.get(crew.outcome.end, 0 if verdict.done else 1)


def report(job: Job, outcome: ProgramOutcome, verdict: Judgement) -> dict[str, Any]:
    """Return the result of a flight, for JSON."""
    last, scenario = outcome.report, job.scenario
    nearest = min((pad.distance(last.position) for pad in scenario.pads), default=None) if last else None
    return {
        "seed": scenario.seed,
        "scenario": scenario.name,
        "program": str(job.program),
        "mode": "realtime" if job.realtime else "lockstep",
        "end": outcome.end,
        "cause": outcome.cause,
        "done": verdict.done,
        "reasons": verdict.reasons,
        "score": asdict(verdict.score),
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


def told_of(outcome: ProgramOutcome, verdict: Judgement, path: Path) -> str:
    """Return a summary of three lines for the terminal."""
    cause = f" ({outcome.cause})" if outcome.cause else ""
    if outcome.report is None:
        return f"{outcome.end}{cause}: before the first step\nreport {path}"
    score, last = verdict.score, outcome.report
    cost = f"{last.step} steps, {score.time_s:.1f} s, {score.distance_m:.1f} m"
    cost += f", {score.warnings} of {score.commands} commands ignored"
    return f"{outcome.end}{cause}: {cost}\n{verdict}\nreport {path}"


def _grade(arguments: argparse.Namespace, world: Arena) -> int:
    """Grade programs over seeds; return 0 if every program reached the goal for every seed."""
    if arguments.seeds < 1:
        raise UserError(f"--seeds {arguments.seeds}: must be at least 1")
    from gate_racer.bootcamp.grade import (  # imports the simulator
        HEAD,
        PATIENCE_S,
        Exam,
        Grade,
        grade,
        page,
        row,
        summary,
    )

    first, exams = arguments.seed or 0, list[Exam]()
    for line in hint_lines(arguments.grade):
        remark(line)
    for path in arguments.grade:
        name = scenario_of(path) if arguments.scenario is None else arguments.scenario
        exams += [Exam(path, make_scenario(name, first + k, world)) for k in range(arguments.seeds)]
    _require_map(exams[0].scenario)
    out = arguments.logs / f"grades-{time.strftime('%Y%m%d-%H%M%S')}.html"
    require_output(out, *arguments.grade)
    say(HEAD)

    def tell(number: int, result: Grade) -> None:
        say(row(exams[number], result))

    grades = grade(exams, min(os.cpu_count() or 1, len(exams)), PATIENCE_S, tell)
    write_file(out, page(exams, grades))
    say("\n".join([*summary(exams, grades), f"page {out}"]))
    results = [
        {"program": e.program, "seed": e.scenario.seed, **asdict(g.verdict)} for e, g in zip(exams, grades, strict=True)
    ]
    write_json(arguments.json, {"page": out, "grades": results})
    return 0 if all(result.verdict.done for result in grades) else 1


def _race(scenario: Scenario, folder: Path) -> int:
    """Plan and fly the same course by the racing stack; return its exit code."""
    from gate_racer.race import run_mpc

    assert scenario.course is not None
    track, plans = write_track(scenario.course, folder), folder / "plans"
    flags = ["--lockstep", "--camera", "projected", "--set", f"plan.folder={plans}", "--log", str(folder)]
    remark(f"flying the same course with the racing stack: run-mpc {track} {' '.join(flags)}")
    return run_mpc.run(run_mpc.parser().parse_args([str(track), *flags]))


def _generate(arguments: argparse.Namespace) -> int:
    text: str = arguments.generate
    form = re.fullmatch(r"seed=([0-9]+)(?:,gates=([0-9]+))?", text)
    if form is None:
        raise UserError(f"--generate {text}: expected seed=N or seed=N,gates=N, e.g. seed=7")
    seed, count = int(form[1]), int(form[2] or GATES)
    track = generate_track(seed, count)
    path = write_track(track, arguments.logs)
    print(f"seed {seed}: {len(track.gates)} gates, {path}")
    write_json(arguments.json, {"seed": seed, "gates": len(track.gates), "track": path})
    return 0


def main() -> None:
    """Run the `bootcamp` command and exit."""
    sys.exit(perform(parser(), run))


if __name__ == "__main__":
    main()
