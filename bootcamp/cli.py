"""Command `bootcamp`: fly and judge a learner's program, grade several over seeds, replay a log, or generate a course."""

import argparse
import os
import re
import time
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gate_racer.bootcamp.api import Report
from gate_racer.bootcamp.crew import Crew, ProgramOutcome
from gate_racer.bootcamp.display import ADDRESS, BrowserView
from gate_racer.bootcamp.floor import make_floor
from gate_racer.bootcamp.generate import generate_track, write_track
from gate_racer.bootcamp.judge import Judge, Judgement, ProgramEnd
from gate_racer.bootcamp.program import hint_lines, scenario_of
from gate_racer.bootcamp.scenario import Scenario, make_scenario
from gate_racer.bootcamp.stages import Job, log_of
from gate_racer.bootcamp.world import DRONES, FILE, MOST, PX_MAX, STEP_MIN_S, Arena, load_world
from gate_racer.common.command import add_common, complain, main_of, remark, write_json
from gate_racer.common.errors import UserError, say
from gate_racer.common.files import require_output, write_file
from gate_racer.common.settings import add_settings, key, settings_of

GATES = 6  # of a generated course
SEEDS = 20  # of a grade
EXIT = {ProgramEnd.ABORTED: 130}


OPTIONS = {
    "flight": {"--seed": "seed", "--browser": "browser"},
    "other tasks": {"--grade": "grade", "--replay": "replay"},
}
MOVED = {  # former options
    "--seeds": "--grade SEEDS, behind the programs",
    "--world": "--set world.file=YAML",
    "--window": "--browser",
}


@dataclass(frozen=True)
class ArenaSettings:
    """Settings of the world."""

    file: Path | None = key(None, "world file; else bootcamp/world.yaml")
    step_s: float | None = key(None, "length of a step, a whole number of 1/120 s; else the world's")
    drone: str = key("", f"{' or '.join(DRONES)} (full speed or standstill, without inertia); else the world's")
    camera: str = key("", "WIDTHxHEIGHT of images of the same ground, such as 1200x900; else the world's")
    map: Path | None = key(None, "folder with tiles of the ground: X_Y.png, default.png, boundary.png")

    def __post_init__(self) -> None:
        if self.step_s is not None and not STEP_MIN_S - 1e-9 <= self.step_s <= MOST["step_s"]:
            raise ValueError(f"step_s {self.step_s:g}: must lie between 1/120 and 1 s")
        if self.map is not None and not self.map.is_dir():
            raise ValueError(f"map {self.map}: is not a folder")
        width, _, height = (self.camera or "16x16").partition("x")
        if not all(side.isascii() and side.isdigit() and 16 <= int(side[:9]) <= PX_MAX for side in (width, height)):
            raise ValueError(f"camera {self.camera}: expected WIDTHxHEIGHT in px, such as 1200x900, at most {PX_MAX}")

    def arena(self) -> Arena:
        """Return the world file with the changes. Raises UserError for a missing or malformed one."""
        world = load_world(self.file or FILE)
        camera, drone = world.camera, self.drone or world.drone
        if self.camera:
            width, height = map(int, self.camera.split("x"))
            scale = width / camera.width_px  # as wide on the ground as before
            camera = replace(
                camera,
                width_px=width,
                height_px=height,
                fx_px=camera.fx_px * scale,
                fy_px=camera.fy_px * scale,
                cx_px=(width - 1) / 2,
                cy_px=(height - 1) / 2,
            )
        step_s = world.step_s if self.step_s is None else self.step_s
        return replace(world, step_s=step_s, drone=drone, camera=camera, map=str(self.map or world.map))


@dataclass(frozen=True)
class BootcampSettings:
    """Settings of `bootcamp`."""

    scenario: str = key("", "name of the scenario; else the program's SCENARIO")
    seed: int | None = key(None, "random seed; else from the clock, and grades start at 0", "N")
    realtime: bool = key(False, "step in real time; else in lock-step")
    browser: str = key(
        "", f"show the flight in a browser, at {ADDRESS} if no address is given", "HOST:PORT", const=ADDRESS
    )
    race: bool = key(False, "if the flight passes a course of gates, plan the course and fly it with run-mpc")
    grade: int | None = key(
        None,
        f"fly the programs over so many seeds, {SEEDS} if none is given; write a table and a page",
        "SEEDS",
        const=SEEDS,
        least=1,
    )
    replay: Path | None = key(None, "repeat the flight of a log and compare it bit by bit", "LOG")
    generate: str = key("", f"write a random track (of {GATES} gates) and exit", "seed=N[,gates=N]")
    logs: Path = key(Path("logs"), "folder for logs and films")
    world: ArenaSettings = field(default_factory=ArenaSettings)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the `bootcamp` command."""
    arguments = argparse.ArgumentParser(
        prog="bootcamp", description="Fly a program that returns one command per step, and judge the flight."
    )
    arguments.add_argument("program", nargs="*", type=Path, help="Python file with decide(report, pads)")
    add_settings(arguments, BootcampSettings(), OPTIONS, MOVED, file=False)
    add_common(arguments, "the result")
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code. Raises UserError for settings that are invalid or exclude each other."""
    settings, programs, json = settings_of(arguments, BootcampSettings), arguments.program, arguments.json
    if sum(map(bool, (programs, settings.replay, settings.generate))) != 1:
        raise UserError(
            "give exactly one of a program, --replay and --set generate=..., e.g. bootcamp examples/waypoint.py --seed 7"
        )
    if settings.replay is not None:
        from gate_racer.bootcamp.record import (
            replay,  # imports the simulator, which every worker would load with this module
        )

        steps = replay(settings.replay)
        print(f"{settings.replay}: {steps} steps, bit-identical")
        write_json(json, {"log": settings.replay, "steps": steps})
        return 0
    if settings.generate:
        return _generate(settings, json)
    world = settings.world.arena()
    if settings.grade is not None:
        return _grade(settings, programs, world, json)
    if len(programs) > 1:
        raise UserError("give one program; several are flown with --grade")
    for line in hint_lines(programs):  # before the program runs
        remark(line)
    own = scenario_of(programs[0])
    seed = time.time_ns() % 2**32 if settings.seed is None else settings.seed
    scenario = make_scenario(settings.scenario or own, seed, world)
    _require_map(scenario)
    if settings.race and scenario.course is None:
        raise UserError(f"race: the scenario {scenario.name} has no gates: use --set scenario=gates")
    if settings.browser:
        BrowserView(settings.browser, "").close()
    stem = settings.logs / f"{programs[0].stem}-{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}"
    job = Job(programs[0], scenario, settings.realtime, settings.browser, stem)
    print(f"seed {seed}: {scenario.name}, log {log_of(stem)}", flush=True)
    if settings.browser:
        remark(f"live view: http://{settings.browser}/")
    code = fly(job, json)
    return _race(scenario, settings.logs) if code == 0 and settings.race else code


def _require_map(scenario: Scenario) -> None:
    """Check the map before the flight.

    Raises:
        UserError: a tile is missing or is not an image.
    """
    if scenario.world.map:
        make_floor(scenario)


def fly(job: Job, json_file: Path | None = None) -> int:
    """Fly a job and write its report in any case, to `json_file` too; return the exit code, 0 if the goal was reached."""
    try:
        job.stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"logs {job.stem.parent}: cannot be created ({error.strerror})") from None
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


def _grade(settings: BootcampSettings, programs: list[Path], world: Arena, json: Path | None) -> int:
    """Grade programs over seeds; return 0 if every program reached the goal for every seed."""
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

    first, exams = settings.seed or 0, list[Exam]()
    for line in hint_lines(programs):
        remark(line)
    for path in programs:
        name = settings.scenario or scenario_of(path)
        exams += [Exam(path, make_scenario(name, first + k, world)) for k in range(settings.grade or SEEDS)]
    _require_map(exams[0].scenario)
    out = settings.logs / f"grades-{time.strftime('%Y%m%d-%H%M%S')}.html"
    require_output(out, *programs)
    say(HEAD)

    def tell(number: int, result: Grade) -> None:
        say(row(exams[number], result))

    grades = grade(exams, min(os.cpu_count() or 1, len(exams)), PATIENCE_S, tell)
    write_file(out, page(exams, grades))
    say("\n".join([*summary(exams, grades), f"page {out}"]))
    results = [
        {"program": e.program, "seed": e.scenario.seed, **asdict(g.verdict)} for e, g in zip(exams, grades, strict=True)
    ]
    write_json(json, {"page": out, "grades": results})
    return 0 if all(result.verdict.done for result in grades) else 1


def _race(scenario: Scenario, folder: Path) -> int:
    """Plan and fly the same course by the racing stack; return its exit code."""
    from gate_racer.race import run_mpc

    assert scenario.course is not None
    track, plans = write_track(scenario.course, folder), folder / "plans"
    flags = ["--lockstep", "--camera", "projected", "--set", f"plan.folder={plans}", "--log", str(folder)]
    remark(f"flying the same course with the racing stack: run-mpc {track} {' '.join(flags)}")
    return run_mpc.run(run_mpc.parser().parse_args([str(track), *flags]))


def _generate(settings: BootcampSettings, json: Path | None) -> int:
    text = settings.generate
    form = re.fullmatch(r"seed=([0-9]+)(?:,gates=([0-9]+))?", text)
    if form is None:
        raise UserError(f"generate={text}: expected seed=N or seed=N,gates=N, e.g. seed=7")
    seed, count = int(form[1]), int(form[2] or GATES)
    track = generate_track(seed, count)
    path = write_track(track, settings.logs)
    print(f"seed {seed}: {len(track.gates)} gates, {path}")
    write_json(json, {"seed": seed, "gates": len(track.gates), "track": path})
    return 0


main = main_of(parser, run)
