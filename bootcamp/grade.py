"""`bootcamp --grade`: judge programs over seeds, with a table for the terminal and a page for the browser."""

import base64
import html
import multiprocessing
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import cv2

from gate_racer.bootcamp.display import landing_image
from gate_racer.bootcamp.drone import Drone
from gate_racer.bootcamp.judge import Judgement, ProgramEnd, Score
from gate_racer.bootcamp.program import confine, error_line, hint_lines
from gate_racer.bootcamp.scenario import Scenario
from gate_racer.bootcamp.stages import SoloStep, fly_alone
from gate_racer.common.errors import UserError
from gate_racer.common.process import Worker

PATIENCE_S = 120.0  # s for one step, enough for an import on a fully loaded machine
SHOT_PX = 320  # px, width of a landing image on the page


@dataclass(frozen=True)
class Exam:
    """One program and one seed."""

    program: Path
    scenario: Scenario


@dataclass(frozen=True)
class Grade:
    """Result of an exam."""

    verdict: Judgement
    warning: str = ""  # the last one
    image: bytes = b""  # JPEG of the landing


def examine(exam: Exam, look: Callable[[SoloStep, Drone], None] = lambda step, drone: None) -> Grade:
    """Fly an exam in this process. A program that cannot be loaded fails it."""
    try:
        flight = fly_alone(exam.program, exam.scenario, look)
    except UserError as error:
        return _failed(str(error))
    if flight.end is not ProgramEnd.LANDED:
        return Grade(flight.verdict, flight.warning)
    image = landing_image(exam.scenario, flight.report)
    image = cv2.resize(image, (SHOT_PX, SHOT_PX * image.shape[0] // image.shape[1]), interpolation=cv2.INTER_AREA)
    return Grade(flight.verdict, flight.warning, cv2.imencode(".jpg", image)[1].tobytes())


def _failed(reason: str) -> Grade:
    return Grade(Judgement(False, (reason,), Score()))


class _Examiner(Worker):
    def __init__(self) -> None:
        # Shared: monotonic time (s) at which the current step began; 0 while loading.
        self.light = multiprocessing.get_context("spawn").RawValue("d", 0.0)
        self.exam = -1  # index of the current exam; -1: none
        self.program: Path | None = None  # the only one that it runs: no side effects on another's grade
        super().__init__(_serve, self.light, name="grade")


def grade(exams: Sequence[Exam], workers: int, patience_s: float, tell: Callable[[int, Grade], None]) -> list[Grade]:
    """Return all grades, in the order of the exams. A step over `patience_s` (s), or the end of the process, fails an exam.

    Args:
        tell: receives each exam's index and grade as it ends.
    """
    grades: dict[int, Grade] = {}
    waiting, crew = deque(range(len(exams))), list[_Examiner]()

    def over(worker: _Examiner, result: Grade) -> None:
        grades[worker.exam] = result
        tell(worker.exam, result)
        worker.exam = -1

    try:
        while len(grades) < len(exams):
            for worker in [w for w in crew if waiting and w.exam < 0 and w.program != exams[waiting[0]].program]:
                worker.close(0.0)
                crew.remove(worker)
            while waiting and len(crew) < workers:
                crew.append(_Examiner())
            for worker in crew:
                if waiting and worker.exam < 0 and worker.program in (None, exams[waiting[0]].program):
                    worker.exam, worker.light.value = waiting.popleft(), 0.0
                    worker.program = exams[worker.exam].program
                    worker.pipe.send(exams[worker.exam])
            busy = [worker for worker in crew if worker.exam >= 0]
            ready = wait([worker.pipe for worker in busy], 0.5)
            for worker in busy:
                if worker.pipe in ready:
                    try:
                        over(worker, worker.pipe.recv())
                    except (EOFError, OSError):
                        worker.process.join()
                        over(worker, _failed(f"the program ended its process (exit code {worker.process.exitcode})"))
                        crew.remove(worker)
                elif worker.light.value and time.monotonic() - worker.light.value > patience_s:
                    worker.process.kill()
                    over(worker, _failed(f"no answer for {patience_s:g} s: a function may never return"))
                    crew.remove(worker)
    finally:
        for worker in crew:
            worker.close(0.0)
    return [grades[number] for number in range(len(exams))]


def _serve(line: Connection, light: Any) -> None:
    def look(step: SoloStep | None = None, drone: Drone | None = None) -> None:
        light.value = time.monotonic()

    confine()
    while True:
        try:
            exam = line.recv()
            look()
            line.send(examine(exam, look))
        except EOFError:
            return
        except Exception as error:
            line.send(_failed(error_line(error)))


def row(exam: Exam, result: Grade) -> str:
    """Return a line for the terminal."""
    score = result.verdict.score
    return (
        f"{exam.program.stem:<16} {exam.scenario.seed:>6} {'done' if result.verdict.done else 'NOT':>5} {score.time_s:>7.1f} s"
        f" {score.distance_m:>7.1f} m {score.commands:>6} {score.warnings:>6}  {', '.join(result.verdict.reasons)}"
    )


HEADS = ["program", "scenario", "seed", "verdict", "time\xa0[s]", "distance\xa0[m]", "commands", "warnings", "reasons"]
HEAD = f"{'program':<16} {'seed':>6} {'':>5} {'time':>9} {'distance':>9} {'cmds':>6} {'warn.':>6}"


def summary(exams: Sequence[Exam], grades: Sequence[Grade]) -> list[str]:
    """Return a line per program: number of seeds done, and median time."""
    lines = []
    for path in dict.fromkeys(exam.program for exam in exams):
        own = [result.verdict for exam, result in zip(exams, grades, strict=True) if exam.program == path]
        times = [verdict.score.time_s for verdict in own if verdict.done]
        median = f", median time {statistics.median(times):.1f} s" if times else ""
        lines.append(f"{path}: {len(times)} of {len(own)} seeds done{median}")
    return lines


def page(exams: Sequence[Exam], grades: Sequence[Grade]) -> str:
    """Return HTML with the table, times and distances over the seeds, and images of the landings."""
    from gate_racer.field.page import html_page, html_table  # slow to load

    rows, shots, figures = list[list[object]](), list[str](), list[dict[str, Any]]()
    for exam, result in zip(exams, grades, strict=True):
        verdict, score = result.verdict, result.verdict.score
        rows.append([
            exam.program.stem, exam.scenario.name, exam.scenario.seed, "done" if verdict.done else "not done",
            f"{score.time_s:.1f}", f"{score.distance_m:.1f}", score.commands, score.warnings,
            ", ".join([*verdict.reasons, *([f"last warning: {result.warning}"] if result.warning else [])]),
        ])  # fmt: skip
        if result.image:
            data = base64.b64encode(result.image).decode()
            label = html.escape(f"{exam.program.stem}, seed {exam.scenario.seed}: {verdict}")
            shots.append(
                f'<figure><img src="data:image/jpeg;base64,{data}" alt="{label}"><figcaption>{label}</figcaption></figure>'
            )
    for what, unit, value in (("Time", "s", "time_s"), ("Distance", "m", "distance_m")):
        data_ = [_bars(path, exams, grades, value) for path in dict.fromkeys(exam.program for exam in exams)]
        axes = {"yaxis": {"title": unit}, "xaxis": {"title": "seed", "type": "category"}}
        figures.append({"title": what, "data": data_, "layout": axes})
    lines_above = [*summary(exams, grades), *hint_lines(list(dict.fromkeys(exam.program for exam in exams)))]
    above = "<h1>Grades</h1>" + "".join(f"<p>{html.escape(line)}</p>" for line in lines_above)
    return html_page("grades", above + html_table(HEADS, rows), figures, f"<h2>Landings</h2>{''.join(shots)}")


def _bars(path: Path, exams: Sequence[Exam], grades: Sequence[Grade], value: str) -> dict[str, Any]:
    own = [(exam, result) for exam, result in zip(exams, grades, strict=True) if exam.program == path]
    return {
        "type": "bar",
        "name": path.stem,
        "x": [str(exam.scenario.seed) for exam, _ in own],
        "y": [round(getattr(result.verdict.score, value), 2) for _, result in own],
    }
