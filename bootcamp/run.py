"""Command `bootcamp`: fly and judge a learner's program, grade several over seeds, replay a log, or generate a course."""

import argparse
import contextlib
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from gate_racer.bootcamp.api import Report
from gate_racer.bootcamp.cell import scenario_of
from gate_racer.bootcamp.cli import CLASS_SEEDS, GATES, SEEDS, BootcampSettings
from gate_racer.bootcamp.crew import Crew
from gate_racer.bootcamp.display import OPEN_S, BrowserView
from gate_racer.bootcamp.floor import make_floor
from gate_racer.bootcamp.grade import HEAD, Exam, Grade, GradeBook, Limits, grade, page, programs_in, row, summary
from gate_racer.bootcamp.judge import ProgramEnd
from gate_racer.bootcamp.mistakes import hint_lines
from gate_racer.bootcamp.scenario import Arena, Scenario, generate_track, make_scenario, write_track
from gate_racer.bootcamp.stages import Job, replay
from gate_racer.common.command import complain, remark, write_json
from gate_racer.common.errors import UserError, say
from gate_racer.common.files import require_output, write_file
from gate_racer.common.process import no_survivors
from gate_racer.common.settings import settings_of

GRADE = Path("grade")  # word before the folder of a class


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code. Raises UserError for settings that are invalid or exclude each other."""
    settings, programs, json = settings_of(arguments, BootcampSettings), arguments.program, arguments.json
    if sum(map(bool, (programs, settings.replay, settings.generate))) != 1:
        raise UserError(
            "give exactly one of a program, --replay and --set generate=..., e.g. bootcamp examples/waypoint.py --seed 7"
        )
    if settings.replay is not None:
        steps = replay(settings.replay)
        print(f"{settings.replay}: {steps} steps, bit-identical")
        write_json(json, {"log": settings.replay, "steps": steps})
        return 0
    if settings.generate:
        return _generate(settings, json)
    world = settings.world.arena()
    if programs[0] == GRADE and not GRADE.is_file():
        programs = programs[1:]
        if len(programs) != 1 or not programs[0].is_dir():
            raise UserError("grade: give a folder of programs, e.g. bootcamp grade programs/")
    if len(programs) == 1 and programs[0].is_dir():
        if not (found := programs_in(programs[0])):
            raise UserError(f"{programs[0]}: holds no programs (*.py)")
        return _grade(settings, found, world, json, _named(programs[0]))
    if settings.grade is not None:
        return _grade(settings, programs, world, json, "")
    if len(programs) > 1:
        raise UserError("give one program; several are flown with --grade")
    for line in hint_lines(programs):  # before the program runs
        remark(line)
    with no_survivors():
        own = scenario_of(programs[0])
    seed = time.time_ns() % 2**32 if settings.seed is None else settings.seed
    scenario = make_scenario(settings.scenario or own, seed, world)
    if world.map:
        make_floor(scenario)  # raises for a tile that is missing or no image
    if settings.race and scenario.course is None:
        raise UserError(f"race: the scenario {scenario.name} has no gates: use --set scenario=gates")
    stem = settings.logs / f"{programs[0].stem}-{time.strftime('%Y%m%d-%H%M%S')}-seed{seed}"
    job = Job(programs[0], scenario, settings.realtime, bool(settings.browser), stem)
    served = (
        contextlib.closing(BrowserView(settings.browser, job.file(".webm")))
        if job.browser
        else contextlib.nullcontext()
    )
    with served as view:
        print(f"seed {seed}: {scenario.name}, log {job.file('.log')}", flush=True)
        if view is not None:
            remark(f"open {view.url} in a browser: the flight then begins, and is repeated until you close the page")
            view.opened.wait(OPEN_S)
        code = fly(job, json, view)
        if view is not None:
            with contextlib.suppress(KeyboardInterrupt):
                view.play(scenario.world.step_s)
    return _race(scenario, settings.logs) if code == 0 and settings.race else code


def fly(job: Job, json_file: Path | None = None, view: BrowserView | None = None) -> int:
    """Fly a job, shown by `view`, and write its report in any case; return the exit code, 0 if the goal was reached."""
    try:
        job.stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{job.stem.parent}: cannot be created ({error.strerror})") from None
    with no_survivors():
        crew = Crew(job, printed=lambda name, line: remark(f"{name}: {line}"), view=view)
        warnings = crew.judge.warnings

        def tell(report: Report) -> None:
            """Print the first warning of each kind: others differ from it by numbers only."""
            if warnings[report.warning] == 1:
                remark(f"step {report.step}: warning: {report.warning}")

        try:
            crew.fly(tell)
        finally:
            for warning, count in warnings.items():
                if count > 1:
                    remark(f"{count} warnings in all such as: {warning}")
            _tell_result(job, crew, json_file)
    if crew.outcome.traceback:
        complain(crew.outcome.traceback.rstrip())
    if crew.outcome.end is ProgramEnd.ABORTED:
        return 130
    return 0 if crew.verdict().done else 1


def _tell_result(job: Job, crew: Crew, json_file: Path | None) -> None:
    verdict, outcome, path = crew.verdict(), crew.outcome, job.file(".json")
    last, scenario = outcome.report, job.scenario
    told = vars(outcome) | vars(verdict) | {"cause": outcome.cause, "why": verdict.cause}
    told |= {
        "mistakes": {text.replace("{}", str(count)): count for text, count in outcome.mistakes.items()},
        "seed": scenario.seed,
        "scenario": scenario.name,
        "program": job.program,
        "mode": "realtime" if job.realtime else "lockstep",
        "waypoint": scenario.waypoint,
        "pads": scenario.pads,
        "nearest_pad_m": min((pad.distance(last.position) for pad in scenario.pads), default=None) if last else None,
        "version": version("gate-racer"),
    }
    for wanted in (path, json_file):
        write_json(wanted, told)
    end = f"{outcome.end}{f' ({outcome.cause})' if outcome.cause else ''}"
    if last is None:
        say(f"{end}: before the first step\nreport {path}")
        return
    score = verdict.score
    cost = f"{last.step} steps, {score.time_s:.1f} s, {score.distance_m:.1f} m"
    say(f"{end}: {cost}, {score.warnings} of {score.commands} commands ignored\n{verdict}\nreport {path}")


def _grade(settings: BootcampSettings, programs: list[Path], world: Arena, json: Path | None, class_: str) -> int:
    """Grade programs, those of a class unless `class_` is empty, over seeds; return 0 if all reached the goal."""
    first, count = settings.seed or 0, settings.grade or (CLASS_SEEDS if class_ else SEEDS)
    for line in hint_lines(programs):
        remark(line)

    def scenarios(path: Path) -> list[Scenario] | UserError:
        try:
            name = settings.scenario or scenario_of(path)
            return [make_scenario(name, first + k, world) for k in range(count)]
        except UserError as error:
            return error

    with no_survivors(), ThreadPoolExecutor(os.cpu_count()) as pool:
        drawn = list(pool.map(scenarios, programs))
    exams = list[Exam]()
    for path, those in zip(programs, drawn, strict=True):
        if isinstance(those, UserError):
            if len(programs) == 1:
                raise those
            exams.append(Exam(path, first, None, str(those)))
        else:
            exams += [Exam(path, scenario.seed, scenario) for scenario in those]
    if world.map and (flown := next((exam.scenario for exam in exams if exam.scenario), None)):
        make_floor(flown)
    out = settings.logs / f"grades-{class_ or time.strftime('%Y%m%d-%H%M%S')}.html"
    require_output(out, *programs)
    book = GradeBook(out.with_suffix(".csv"), exams)
    grades = book.grades
    if grades:
        remark(f"{len(grades)} of {len(exams)} flights are in {out.with_suffix('.csv')}; delete it to repeat them")
    left = [number for number in range(len(exams)) if number not in grades]
    (remark if class_ else say)(HEAD)

    def tell(number: int, result: Grade) -> None:
        book.add(left[number], result)
        (remark if class_ else say)(row(exams[left[number]], result))

    limits = Limits(flight_s=settings.time_limit_s, memory_bytes=settings.memory_limit_mb << 20)
    grade([exams[number] for number in left], os.cpu_count() or 1, limits, tell)
    graded = dict[Path, list[tuple[Exam, Grade]]]()
    for number, exam in enumerate(exams):
        graded.setdefault(exam.program, []).append((exam, grades[number]))
    write_file(out, page(graded))
    say("\n".join([*summary(graded), f"page {out}, table {out.with_suffix('.csv')}"]))
    results = [{"program": e.program, "seed": e.seed, **asdict(grades[k].verdict)} for k, e in enumerate(exams)]
    write_json(json, {"page": out, "grades": results})
    return 0 if all(result.verdict.done for result in grades.values()) else 1


def _named(folder: Path) -> str:
    """Return a name for a class: its folder's, with those above it up to the working directory."""
    path, here = folder.resolve(), Path.cwd()
    return "-".join(path.relative_to(here).parts) if here in path.parents else path.name


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
