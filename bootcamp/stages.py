"""Work of each process of the ring, the whole flight in one process, and the log, which `replay` flies again.

The ring: simulation, detection, geolocation, decision and back; and a display beside it, which cannot delay the others.
Each worker answers the items that it is sent, up to the sentinel. A flight in one process, for grades and figures, draws images
on demand only: drawing and detecting cost three times as much as flying.

The log is JSON lines: the seed, then each step's command and a hash of the state. Python's floats survive it bit by bit.
"""

import json
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gate_racer.bootcamp.api import Box, Command, Go, Halt, Land, Location, Null, Report, Status, Unreadable
from gate_racer.bootcamp.cell import Desk, Failed, counts
from gate_racer.bootcamp.display import compose, jpeg_of, landing_image, screenshot
from gate_racer.bootcamp.drone import Drone
from gate_racer.bootcamp.floor import GroundCamera
from gate_racer.bootcamp.judge import Judge, Judgement, ProgramEnd
from gate_racer.bootcamp.mistakes import UNSEEN, box_mistakes, place_mistakes, sees_pad
from gate_racer.bootcamp.program import Program, error_in_flight, load_program, traceback_text
from gate_racer.bootcamp.scenario import Arena, Scenario, make_scenario
from gate_racer.common.config import from_dict
from gate_racer.common.errors import UserError
from gate_racer.common.files import CAUSES, read_text
from gate_racer.common.images import Film
from gate_racer.sim.view.texture import Image

HOLD_S = 2.0  # s for which a film shows its last frame (chosen)


@dataclass(frozen=True)
class Job:
    """Description of one flight, complete for every worker."""

    program: Path
    scenario: Scenario
    realtime: bool
    browser: bool  # whether images are wanted for browsers
    stem: Path  # common stem of all files of the flight

    def file(self, suffix: str) -> Path:
        return self.stem.with_name(self.stem.name + suffix)


@dataclass(slots=True)
class Packet:
    """Item passed round the ring; each stage adds its result."""

    report: Report
    image: Image
    command: Command | Unreadable | None = None  # carried out in the report's step
    boxes: list[Box] = field(default_factory=list)
    pads: list[Location] = field(default_factory=list)


def simulation(desk: Desk, program: Path, job: Job) -> None:
    """Fly the drone, one step for each command, or for None if there is none in time."""
    record = FlightRecord(job.file(".log"), job.scenario)
    drone, camera = Drone(job.scenario), GroundCamera(job.scenario)
    report = drone.report()
    desk.answer(Packet(report, camera.frame(drone.p_wb, report)))
    for command in desk:
        report = drone.step(command)
        packet = Packet(report, camera.frame(drone.p_wb, report), command)
        record.step(command, report, drone.digest(), packet.image)
        desk.counters["steps"] += 1
        desk.counters["steps without a command"] += command is None
        desk.answer(packet)
    record.close()


def detection(desk: Desk, program: Path, job: Job) -> None:
    """Detect pads by the program's own detector, or the built-in one."""
    loaded = load_program(program)
    desk.answer()
    for packet in desk:
        packet.boxes = detected(loaded, packet.image, packet.report, job.scenario, desk.mistakes)
        desk.counters["boxes"] += len(packet.boxes)
        desk.answer(packet)


def geolocation(desk: Desk, program: Path, job: Job) -> None:
    """Locate boxes on the ground, given the drone's pose at the image: by the program's own function, or the built-in one."""
    loaded = load_program(program)
    desk.answer()
    for packet in desk:
        packet.pads = located(loaded, packet.boxes, packet.report, job.scenario, desk.mistakes)
        desk.answer(packet)


def detected(program: Program, image: Image, report: Report, scenario: Scenario, mistakes: Counter[str]) -> list[Box]:
    """Return a program's boxes in an image, and count the mistakes in them by what they are."""
    before = mistakes.total()
    boxes = program.boxes(image, mistakes)
    if program.own_detect:
        for box in boxes:
            found = box_mistakes(box, report, scenario.pads, scenario.world.pad_m)
            mistakes.update(f"boxes: {{}} are {mistake}" for mistake in found)
        none = not boxes and mistakes.total() == before
        mistakes[UNSEEN] += none and report.has_image and sees_pad(report, scenario.pads, scenario.world.pad_m)
    return boxes


def located(
    program: Program, boxes: list[Box], report: Report, scenario: Scenario, mistakes: Counter[str]
) -> list[Location]:
    """Return a program's places of boxes on the ground, and count the mistakes in them by what they are."""
    places = program.places(boxes, report, mistakes)
    for place in places if program.own_locate else ():
        mistakes.update(f"places: {{}} are {mistake}" for mistake in place_mistakes(place, report, scenario.pads))
    return places


def decision(desk: Desk, program: Path, job: Job) -> None:
    """Decide one command per step. In real time, reports older than the effect of the last command are skipped."""
    loaded, sent = load_program(program), 0
    desk.answer()
    for packet in desk:
        if packet.report.taken < sent:
            desk.counters["reports passed over"] += 1
            desk.answer()
            continue
        desk.answer(loaded.command(packet.report, packet.pads))
        sent += 1
    desk.counters["commands"] = sent


def display(desk: Desk, program: Path, job: Job) -> None:
    """Show each packet, as JPEG if browsers want it; save the last frame, after a landing with a view from above."""
    packet: Packet | None = None
    trail, scenario = list[Location](), job.scenario
    film = Film(job.file(".webm"), scenario.world.step_s)

    def show(packet: Packet, image: Image, boxes: list[Box], step: int) -> Image:
        frame = compose(image, packet.report, boxes, packet.pads, trail, scenario.world.boundary_m)
        film.show(frame, step)
        desk.answer(jpeg_of(frame) if job.browser else None)
        return frame

    try:
        desk.answer()
        for packet in desk:
            trail.append(packet.report.position)
            frame = show(packet, packet.image, packet.boxes, packet.report.step)
            desk.counters["frames"] += 1
        if packet is not None:
            image, boxes = packet.image, packet.boxes
            if packet.report.status is Status.LANDED:
                image, boxes = landing_image(scenario, packet.report), []
            frame = show(packet, image, boxes, packet.report.step + round(HOLD_S / scenario.world.step_s))
            screenshot(job.file(".png"), frame)
    finally:
        film.close()


STAGES: dict[str, Callable[[Desk, Path, Job], None]] = {  # in order of start and shutdown
    stage.__name__: stage for stage in (simulation, detection, geolocation, decision, display)
}


COMMANDS: dict[str, type[Command | Unreadable]] = {kind.__name__: kind for kind in (Null, Go, Halt, Land, Unreadable)}


class FlightRecord:
    """Writer of the log, line by line, so that nothing is lost if the process dies."""

    def __init__(self, path: Path, scenario: Scenario):
        """Open the log and write its head. Raises UserError if the file cannot be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8", buffering=1)
        except OSError as error:
            raise UserError(f"log {path}: cannot be written ({error.strerror})") from None
        self._write(seed=scenario.seed, scenario=scenario.name, world=asdict(scenario.world))

    def step(self, command: Command | Unreadable | None, report: Report, digest: str, image: Image) -> None:
        recorded = None if command is None else [type(command).__name__, asdict(command)]
        crc = zlib.crc32(image.data)
        self._write(step=report.step, command=recorded, digest=digest, image=crc, warning=report.warning)

    def _write(self, **fields: Any) -> None:
        self._file.write(json.dumps(fields) + "\n")

    def close(self) -> None:
        self._file.close()


def replay(path: Path) -> int:
    """Repeat a log's flight; return the number of steps, all bit-identical.
    Raises UserError for a malformed log, or a step that differs."""
    lines = read_text(path).splitlines()
    if not lines:
        raise UserError(f"{path}: empty, expected a line with the seed")
    number = 1
    try:
        head = json.loads(lines[0])
        world = from_dict(head["world"], Arena, f"{path}:1: world")
        scenario = make_scenario(head["scenario"], head["seed"], world)
        drone, camera = Drone(scenario), GroundCamera(scenario)
        for number, line in enumerate(lines[1:], start=2):
            entry = json.loads(line)
            recorded = entry["command"]
            report = drone.step(None if recorded is None else COMMANDS[recorded[0]](**recorded[1]))
            image = camera.frame(drone.p_wb, report)
            if (drone.digest(), zlib.crc32(image.data)) != (entry["digest"], entry["image"]):
                raise UserError(f"{path}:{number}: step {report.step} differs: {report.status} at {report.position}")
    except CAUSES as error:
        raise UserError(f"{path}:{number}: not a line of a flight log ({type(error).__name__}: {error})") from None
    return len(lines) - 1


@dataclass
class SoloStep:
    report: Report
    draw: Callable[[], Image]
    boxes: list[Box] = field(default_factory=list)  # empty if the program does not use images
    pads: list[Location] = field(default_factory=list)
    command: Command | Unreadable | None = None  # answer to the report; None at the end

    @cached_property
    def image(self) -> Image:
        """Camera image (H, W, 3) BGR, drawn on first access."""
        return self.draw()


@dataclass(frozen=True)
class Flight:
    end: ProgramEnd
    verdict: Judgement
    report: Report
    warning: str  # the last one


class Answer(NamedTuple):
    """Answer of a program to a report."""

    boxes: list[Box]  # empty if the program does not use images
    pads: list[Location]
    command: Command | Unreadable
    mistakes: dict[str, int]  # in boxes and places, by a text with {} for their number


class Player:
    """Program that answers reports. As with workers, detection, geolocation and decision each have their own globals."""

    def __init__(self, path: Path, scenario: Scenario):
        """Load the program. Raises UserError if it cannot be loaded."""
        self._detector, self._geolocator, self._decider = (load_program(path) for _ in range(3))
        self._path, self._scenario, self.looks = path, scenario, self._decider.looks

    def answer(self, report: Report, image: Image | None) -> Answer | Failed:
        """Return the answer to a report, or what the program raises; `image` only if the program `looks`."""
        boxes, pads, mistakes = list[Box](), list[Location](), Counter[str]()
        try:
            if image is not None:
                boxes = detected(self._detector, image, report, self._scenario, mistakes)
                pads = located(self._geolocator, boxes, report, self._scenario, mistakes)
            return Answer(boxes, pads, self._decider.command(report, pads), dict(+mistakes))
        except BaseException as error:  # a program may well call exit()
            return Failed(error_in_flight(error, self._path), traceback_text(error))


class Answering(Protocol):
    """What answers reports: a program in this process or in another."""

    looks: bool

    def answer(self, report: Report, image: Image | None) -> Answer | Failed: ...


def fly_alone(
    player: Answering, scenario: Scenario, look: Callable[[SoloStep, Drone], None] = lambda step, drone: None
) -> Flight:
    """Fly a program; `look` receives each step together with its command."""
    drone, judge, mistakes = Drone(scenario), Judge(scenario), Counter[str]()
    report, warning, camera = drone.report(), "", cache(partial(GroundCamera, scenario))

    def step_of(report: Report) -> SoloStep:
        p_wb = drone.p_wb
        return SoloStep(report, lambda: camera().frame(p_wb, report))

    judge.see(report)
    while (over := judge.end) is None:
        step = step_of(report)
        answer = player.answer(report, step.image if player.looks else None)
        if isinstance(answer, Failed):
            over = ProgramEnd.WORKER_ERROR, answer.cause
            break
        step.boxes, step.pads, step.command, found = answer
        mistakes += counts(found)
        look(step, drone)
        report = drone.step(step.command)
        warning = report.warning or warning
        judge.see(report, step.command)
    look(step_of(report), drone)
    return Flight(over[0], judge.verdict(*over, mistakes), report, warning)
