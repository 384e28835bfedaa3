"""`bootcamp --grade`: judge programs over seeds, with a table for the terminal and a page for the browser."""

import base64
import contextlib
import csv
import html
import io
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from hashlib import sha256
from multiprocessing.connection import Connection
from pathlib import Path
from pickle import UnpicklingError
from typing import cast

import cv2

from gate_racer.bootcamp.api import Report
from gate_racer.bootcamp.cell import LOAD_S, MEMORY_BYTES, Cell, Desk, Failed, confine, process_context, unpacked
from gate_racer.bootcamp.crew import PATIENCE_S
from gate_racer.bootcamp.display import jpeg_of, landing_image
from gate_racer.bootcamp.drone import Drone
from gate_racer.bootcamp.judge import Judgement, ProgramEnd, Score
from gate_racer.bootcamp.mistakes import hint_lines, imported
from gate_racer.bootcamp.program import error_line
from gate_racer.bootcamp.scenario import Scenario
from gate_racer.bootcamp.stages import Answer, Player, SoloStep, fly_alone
from gate_racer.common.errors import UserError
from gate_racer.common.files import read_text, write_file
from gate_racer.common.process import Worker, leave, no_survivors
from gate_racer.sim.view.texture import Image

GRACE_S = 60.0  # s over all limits after which an examiner itself is taken to hang (chosen)
SHOT_PX = 320  # px, width of a landing image on the page
LINES_MAX = 5  # lines of a program's output kept of each flight
ANSWER_BYTES = 1 << 20  # greatest size of an answer


@dataclass(frozen=True)
class Limits:
    step_s: float = PATIENCE_S  # of one answer
    flight_s: float = 300.0  # of all answers together
    memory_bytes: int = MEMORY_BYTES  # of the program's process


@dataclass(frozen=True)
class Exam:
    program: Path
    seed: int
    scenario: Scenario | None  # None if the program cannot be loaded
    problem: str = ""  # why it cannot

    @property
    def key(self) -> str:
        """Digest of all that the flight depends on: the program, the modules beside it that it imports, and the scenario."""
        files = [self.program, *imported(self.program)]
        whole = repr((self.program, [file.read_bytes() for file in files], self.scenario))
        return sha256(whole.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Grade:
    verdict: Judgement
    warning: str = ""  # the last one
    image: bytes = b""  # JPEG of the landing
    output: tuple[str, ...] = ()  # first lines that the program has printed
    lasting: bool = True  # whether another flight would give the same: not after a limit of time or memory


class CellPlayer:
    """Program in a process of its own that answers reports."""

    def __init__(self, exam: Exam, scenario: Scenario, limits: Limits):
        """Load the program. Raises UserError if it cannot be loaded."""
        self._limits, self._left_s, self.lasting = limits, limits.flight_s, True
        self.output = list[str]()
        memory = limits.memory_bytes
        self._cell = Cell(exam.program, _play, scenario, name="player", tell=self._keep, memory_bytes=memory)
        with contextlib.suppress(EOFError, OSError):
            self._cell.pipe.recv_bytes()  # it has started
        looks = self._receive(LOAD_S + limits.step_s)
        if isinstance(looks, Failed):
            self._cell.close(0.0)
            raise UserError(looks.cause)
        self.looks = looks is True

    def answer(self, report: Report, image: Image | None) -> Answer | Failed:
        began = time.monotonic()
        try:
            self._cell.pipe.send((report, image))
        except OSError:
            return Failed(self._cell.how_it_ended())
        answer = self._receive(min(self._limits.step_s, max(self._left_s, 0.0)))
        self._left_s -= time.monotonic() - began
        return answer if isinstance(answer, Answer | Failed) else Failed("the program sent what is no answer")

    def close(self) -> None:
        self._cell.close(0.0)

    def _receive(self, within_s: float) -> object:
        try:
            if self._cell.pipe.poll(within_s):
                return unpacked(self._cell.pipe.recv_bytes(ANSWER_BYTES))
        except UnpicklingError:
            return Failed("the program sent what is no answer")
        except (EOFError, OSError):
            self.lasting = False
            return Failed(self._cell.how_it_ended())
        self.lasting = False
        told = f"no answer for {within_s:.3g} s"
        if within_s < self._limits.step_s:
            told = f"over {self._limits.flight_s:g} s for all answers of a flight"
        return Failed(f"hung {self._cell.stop_hung() or 'at an unknown line'}: {told}")

    def _keep(self, line: str) -> None:
        if len(self.output) < LINES_MAX:
            self.output.append(line)


def _play(desk: Desk, path: Path, scenario: Scenario) -> None:
    player = Player(path, scenario)
    desk.answer(player.looks)
    for asked in desk:
        desk.answer(player.answer(*asked))


def examine(exam: Exam, limits: Limits, look: Callable[[SoloStep, Drone], None] = lambda step, drone: None) -> Grade:
    """Fly an exam: drone and judge in this process, the program in another. A program that cannot be loaded fails it."""
    if exam.scenario is None:
        return failed(exam.problem)
    try:
        with contextlib.closing(CellPlayer(exam, exam.scenario, limits)) as player:
            flight = fly_alone(player, exam.scenario, look)
    except UserError as error:
        return failed(str(error))
    image = b""
    if flight.end is ProgramEnd.LANDED:
        large = landing_image(exam.scenario, flight.report)
        size = SHOT_PX, SHOT_PX * large.shape[0] // large.shape[1]
        image = jpeg_of(cv2.resize(large, size, interpolation=cv2.INTER_AREA))
    return Grade(flight.verdict, flight.warning, image, tuple(player.output), player.lasting)


def failed(reason: str, lasting: bool = True) -> Grade:
    return Grade(Judgement(False, (reason,), Score()), lasting=lasting)


def grade(exams: Sequence[Exam], workers: int, limits: Limits, tell: Callable[[int, Grade], None]) -> None:
    """Fly exams in parallel; `tell` receives each exam's index and grade as it ends.

    A step or a flight over the limits, or the end of the program's process, fails an exam.
    """
    with no_survivors():
        pool = ThreadPoolExecutor(workers)
        try:
            numbers = {pool.submit(_examined, exam, limits): number for number, exam in enumerate(exams)}
            for flown in as_completed(numbers):
                tell(numbers[flown], flown.result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _examined(exam: Exam, limits: Limits) -> Grade:
    """Fly an exam in a process of its own, which the program may kill or hang."""
    examiner = Worker(_serve, exam, limits, name="grade", daemon=False, context=process_context())
    longest_s = limits.step_s + LOAD_S + GRACE_S
    try:
        while examiner.pipe.poll(longest_s):
            if (result := examiner.pipe.recv()) is not None:
                return cast(Grade, result)
        return failed(f"no answer for {longest_s:g} s", lasting=False)
    except (EOFError, OSError):
        return failed("the program ended the process that examines it", lasting=False)
    finally:
        examiner.close(0.0)


def _serve(main: Connection, exam: Exam, limits: Limits) -> None:
    """Fly an exam in the examiner's process: main receives None at every step, and then the grade."""
    confine()
    with contextlib.suppress(OSError):
        try:
            with no_survivors():
                result = examine(exam, limits, lambda step, drone: main.send(None))
        except Exception as error:  # such as a process of this one that the program has killed
            result = failed(f"not landed ({error_line(error)})", lasting=False)
        main.send(result)
    leave(0)


def row(exam: Exam, result: Grade) -> str:
    score = result.verdict.score
    told = str(result.verdict).partition(": ")[2]
    return (
        f"{exam.program.stem:<16} {exam.seed:>6} {'done' if result.verdict.done else 'NOT':>5} {score.time_s:>7.1f} s"
        f" {score.distance_m:>7.1f} m {score.commands:>6} {score.warnings:>6}  {told}"
    )


COLUMNS = (
    "program", "scenario", "seed", "verdict", "time_s", "distance_m", "commands", "warnings", "reasons", "cause",
)  # fmt: skip
APART = " | "  # between the reasons in a cell


def cells(exam: Exam, result: Grade) -> list[object]:
    """Return the cells of a row of COLUMNS."""
    verdict, score = result.verdict, result.verdict.score
    told = [*verdict.reasons, *([f"last warning: {result.warning}"] if result.warning else [])]
    scenario = exam.scenario.name if exam.scenario else ""
    return [
        exam.program, scenario, exam.seed, "done" if verdict.done else "not done", round(score.time_s, 3),
        round(score.distance_m, 3), score.commands, score.warnings, APART.join(told), verdict.cause,
    ]  # fmt: skip


class GradeBook:
    """CSV file of grades, a row for each flight as it ends. Rows of an earlier run count again if nothing has changed."""

    def __init__(self, path: Path, exams: Sequence[Exam]):
        """Keep the rows of these exams, if the file exists. Raises UserError for another file, or a read-only one."""
        self._path, self._exams, self.grades = path, exams, dict[int, Grade]()
        self._keys = [exam.key for exam in exams]  # of the files as they are flown, which may be edited meanwhile
        numbers = {key: number for number, key in enumerate(self._keys)}
        for row in csv.DictReader(io.StringIO(read_text(path))) if path.exists() else ():
            try:
                cost = float(row["time_s"]), float(row["distance_m"])
                score = Score(*cost, int(row["commands"]), int(row["warnings"]))
                reasons, number = tuple(row["reasons"].split(APART)), numbers.get(row["key"])
                if number is not None:
                    self.grades[number] = Grade(Judgement(row["verdict"] == "done", reasons, score, row["cause"]))
            except (KeyError, ValueError, TypeError, AttributeError):
                raise UserError(f"{path}: not a table of grades; remove it, or name another folder for logs") from None
        write_file(path, ",".join([*COLUMNS, "key"]) + "\n")
        for number, result in self.grades.items():
            self.add(number, result)

    def add(self, number: int, result: Grade) -> None:
        self.grades[number] = result
        with self._path.open("a", encoding="utf-8", newline="") as file:
            key = self._keys[number] if result.lasting else ""
            csv.writer(file).writerow([*cells(self._exams[number], result), key])


def programs_in(folder: Path) -> list[Path]:
    """Return the programs of a folder and its subfolders: Python files that no other file beside them imports."""
    files = [
        path for path in sorted(folder.rglob("*.py")) if not any(part.startswith((".", "__")) for part in path.parts)
    ]
    helpers = {other for path in files for other in imported(path)}
    return [path for path in files if path.absolute() not in helpers]


Graded = Mapping[Path, Sequence[tuple[Exam, Grade]]]  # by program
HEAD = f"{'program':<16} {'seed':>6} {'':>5} {'time':>9} {'distance':>9} {'cmds':>6} {'warn.':>6}"


def summary(graded: Graded) -> list[str]:
    """Return a line per program: number of seeds done, median time, and the most frequent failure."""
    lines = []
    for path, own in graded.items():
        verdicts = [result.verdict for _, result in own]
        times = [verdict.score.time_s for verdict in verdicts if verdict.done]
        median = f", median time {statistics.median(times):.1f} s" if times else ""
        failures = Counter(verdict.cause or ", ".join(verdict.reasons) for verdict in verdicts if not verdict.done)
        why = f"; {failures.most_common(1)[0][0]}" if failures else ""
        lines.append(f"{path}: {len(times)} of {len(own)} seeds done{median}{why}")
    return lines


def page(graded: Graded) -> str:
    """Return HTML with the table, times and distances over the seeds, and images of the landings."""
    from gate_racer.field.page import html_page, html_table  # slow to load

    all_graded = [one for own in graded.values() for one in own]
    figures = []
    for title, unit, value in (("Time", "s", "time_s"), ("Distance", "m", "distance_m")):
        bars = [
            {"type": "bar", "name": path.stem, "x": [str(exam.seed) for exam, _ in own],
             "y": [round(getattr(result.verdict.score, value), 2) for _, result in own]}
            for path, own in graded.items()
        ]  # fmt: skip
        axes = {"yaxis": {"title": unit}, "xaxis": {"title": "seed", "type": "category"}}
        figures.append({"title": title, "data": bars, "layout": axes})
    printed, shots = list[str](), list[str]()
    for exam, result in all_graded:
        name = f"{exam.program.stem}, seed {exam.seed}"
        printed += [html.escape(f"{name}: {line}") for line in result.output]
        if result.image:
            data, label = base64.b64encode(result.image).decode(), html.escape(f"{name}: {result.verdict}")
            image = f'<img src="data:image/jpeg;base64,{data}" alt="{label}">'
            shots.append(f"<figure>{image}<figcaption>{label}</figcaption></figure>")
    lines = [*summary(graded), *hint_lines(list(graded))]
    above = "<h1>Grades</h1>" + "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    output = f"<h2>Output of the programs</h2><pre>{'<br>'.join(printed)}</pre>" if printed else ""
    table = html_table(COLUMNS, [cells(*one) for one in all_graded])
    return html_page("grades", above + table, figures, f"{output}<h2>Landings</h2>{''.join(shots)}")
