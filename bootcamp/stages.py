"""Work of each process of the ring, and the whole flight in one process.

The ring: simulation, detection, geolocation, decision and back; and a display beside it, which cannot delay the others.
Every worker ends at the sentinel, and then reports its counters. A flight in one process, for grades
and figures, draws images on demand only: drawing and detecting cost three times as much as flying.

All messages go through main: a worker asks for an item, and main passes on the bytes of another worker's, unread, so that a
process that is killed or hangs in the middle of an item holds up no other. No bytes are the sentinel: nothing follows.
"""

import contextlib
import io
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gate_racer.bootcamp.api import Box, Command, Location, Report, Status, Unreadable
from gate_racer.bootcamp.display import compose, jpeg_of, landing_image, screenshot
from gate_racer.bootcamp.drone import Drone
from gate_racer.bootcamp.floor import GroundCamera
from gate_racer.bootcamp.judge import Judge, Judgement, ProgramEnd
from gate_racer.bootcamp.mistakes import UNSEEN, box_mistakes, place_mistakes, sees_pad
from gate_racer.bootcamp.program import Program, error_in_flight, load_program, traceback_text
from gate_racer.bootcamp.record import FlightRecord
from gate_racer.bootcamp.scenario import Scenario
from gate_racer.common.images import Film
from gate_racer.sim.view.texture import Image

# First bytes of what main receives; other messages are pickles, which begin with 0x80.
ASK, BUSY, ITEM = b"a", b"b", b"i"
SENTINEL = b""  # what a worker receives last
ROOM = __package__
MESSAGES = {  # names of the types in messages, by module
    f"{ROOM}.api": {"Box", "CourseGate", "Go", "Halt", "Land", "Location", "Null", "Report", "Status", "Unreadable"},
    f"{ROOM}.stages": {"Answer", "CounterReport", "Failed", "Frame", "Packet", "Step"},
    "gate_racer.vehicle.camera": {"Camera"},
    "gate_racer.vehicle.lens": {"Lens"},
}
ARRAYS = {"_reconstruct", "_frombuffer", "ndarray", "dtype", "scalar"}  # names in numpy of which arrays are made


class _Reader(pickle.Unpickler):
    """Unpickler that makes the messages' types and arrays only: a learner's process may send anything."""

    def find_class(self, module: str, name: str) -> Any:
        if name in MESSAGES.get(module, ()) or (module.split(".")[0] == "numpy" and name in ARRAYS):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no type of a message")


def receive(pipe: Connection, most_bytes: int | None = None) -> Any:
    """Return the next message of a pipe, which is at most `most_bytes` long.

    Raises:
        EOFError, OSError: the other end is closed.
        pickle.UnpicklingError: it is no message.
    """
    return unpacked(pipe.recv_bytes(most_bytes))


def unpacked(data: bytes) -> Any:
    """Return the message in these bytes. Raises UnpicklingError if they are none."""
    try:
        return _Reader(io.BytesIO(data)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:
        raise pickle.UnpicklingError(f"no message ({type(error).__name__})") from None


def counts(told: object) -> Counter[str]:
    """Return the counters in a message of a learner's process, which may be anything."""
    items = told.items() if isinstance(told, dict) else ()
    return Counter({text: count for text, count in items if isinstance(text, str) and isinstance(count, int)})


@dataclass(frozen=True)
class Step:
    """Message to main: a step of the flight."""

    report: Report
    command: Command | Unreadable | None


@dataclass(frozen=True)
class Frame:
    """Message to main: an image of the display, for browsers."""

    jpeg: bytes


@dataclass(frozen=True)
class Failed:
    """Message to main: an uncaught exception."""

    cause: str  # one line
    traceback: str


@dataclass(frozen=True)
class CounterReport:
    """Last message to main: the worker's counters."""

    counters: dict[str, int]
    mistakes: dict[str, int]  # in boxes and places, by a text with {} for their number


NOTHING: Any = object()  # what `get` returns after its timeout


@dataclass
class Desk:
    """Connection of one worker to main, in the worker's process."""

    main: Connection
    counters: Counter[str] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)
    asked: bool = False  # an item was asked for and has not come

    def get(self, timeout_s: float | None = None) -> Any:
        """Return the next item; None at the sentinel or without main, NOTHING after timeout_s."""
        try:
            if not self.asked:
                self.main.send_bytes(ASK)
                self.asked = True
            if not self.main.poll(timeout_s):
                return NOTHING
            data, self.asked = self.main.recv_bytes(), False
            return None if data == SENTINEL else unpacked(data[len(ITEM) :])
        except (EOFError, OSError, pickle.UnpicklingError):
            return None

    def __iter__(self) -> Iterator[Any]:
        """Yield the items up to the sentinel."""
        while (item := self.get()) is not None:
            yield item

    def put(self, item: Any) -> None:
        """Send an item for the next workers to main. Raises OSError without main."""
        self.main.send_bytes(ITEM + pickle.dumps(item))

    def tell(self, news: Any) -> None:
        """Send a message to main, if it still runs."""
        with contextlib.suppress(OSError):
            self.main.send(news)

    def busy(self) -> None:
        """Tell main that the worker is busy until it asks for an item."""
        with contextlib.suppress(OSError):
            self.main.send_bytes(BUSY)

    def leave(self) -> None:
        """Report the counters."""
        self.tell(CounterReport(dict(self.counters), dict(+self.mistakes)))


HOLD_S = 2.0  # s for which a film shows its last frame (chosen)


@dataclass(frozen=True)
class Job:
    """Description of one flight, complete for every worker."""

    program: Path
    scenario: Scenario
    realtime: bool
    browser: bool  # whether images are wanted for browsers
    stem: Path  # common stem of all files of the flight


@dataclass(slots=True)
class Packet:
    """Item passed round the ring; each stage adds its result."""

    report: Report
    image: Image
    boxes: list[Box] = field(default_factory=list)
    pads: list[Location] = field(default_factory=list)


def simulation(job: Job, desk: Desk) -> None:
    """Fly the drone. In lock-step time waits for each command; in real time a step proceeds without a late one."""
    scenario = job.scenario
    record = FlightRecord(log_of(job.stem), scenario)
    drone, camera, judge = Drone(scenario), GroundCamera(scenario), Judge(scenario)
    report, due = drone.report(), time.monotonic()
    desk.put(Packet(report, camera.frame(drone.p_wb, report)))
    desk.tell(Step(report, None))
    judge.see(report)
    while True:
        due += scenario.world.step_s
        command = desk.get(max(0.0, due - time.monotonic()) if job.realtime else None)
        if command is None:
            break
        if job.realtime:
            desk.counters["steps without a command"] += command is NOTHING
            time.sleep(max(0.0, due - time.monotonic()))
        taken = None if command is NOTHING else command
        report = drone.step(taken)
        image = camera.frame(drone.p_wb, report)
        record.step(taken, report, drone.digest(), image)
        desk.counters["steps"] += 1
        desk.put(Packet(report, image))
        desk.tell(Step(report, taken))
        judge.see(report, taken)
        if judge.end is not None:
            break
    record.close()


def detection(job: Job, desk: Desk) -> None:
    """Detect pads by the program's own detector, or the built-in one."""
    program = _loaded(job, desk)
    for packet in desk:
        packet.boxes = detected(program, packet.image, packet.report, job.scenario, desk.mistakes)
        desk.counters["boxes"] += len(packet.boxes)
        desk.put(packet)


def geolocation(job: Job, desk: Desk) -> None:
    """Locate boxes on the ground, given the drone's pose at the image: by the program's own function, or the built-in one."""
    program = _loaded(job, desk)
    for packet in desk:
        packet.pads = located(program, packet.boxes, packet.report, job.scenario, desk.mistakes)
        desk.put(packet)


def detected(program: Program, image: Image, report: Report, scenario: Scenario, mistakes: Counter[str]) -> list[Box]:
    """Return a program's boxes in an image, and count the mistakes in them by what they are."""
    boxes, dropped = program.boxes(image)
    for reason, count in dropped.items():
        mistakes[f"boxes: {{}} dropped: {reason}"] += count
    if program.own_detect:
        for box in boxes:
            found = box_mistakes(box, report, scenario.pads, scenario.world.pad_m)
            mistakes.update(f"boxes: {{}} are {mistake}" for mistake in found)
        if not boxes and not dropped and report.has_image and sees_pad(report, scenario.pads, scenario.world.pad_m):
            mistakes[UNSEEN] += 1
    return boxes


def located(
    program: Program, boxes: list[Box], report: Report, scenario: Scenario, mistakes: Counter[str]
) -> list[Location]:
    """Return a program's places of boxes on the ground, and count the mistakes in them by what they are."""
    places, dropped = program.places(boxes, report)
    for reason, count in dropped.items():
        mistakes[f"places: {{}} dropped: {reason}"] += count
    for place in places if program.own_locate else ():
        found = place_mistakes(place, report, scenario.pads)
        mistakes.update(f"places: {{}} are {mistake}" for mistake in found)
    return places


def decision(job: Job, desk: Desk) -> None:
    """Decide one command per step. In real time, reports older than the effect of the last command are skipped."""
    program, sent = _loaded(job, desk), 0
    for packet in desk:
        if packet.report.taken < sent:
            desk.counters["reports passed over"] += 1
            continue
        desk.put(program.command(packet.report, packet.pads))
        sent += 1
    desk.counters["commands"] = sent


def display(job: Job, desk: Desk) -> None:
    """Show each packet; save the last frame as a screenshot, after a landing with a view from above."""
    packet: Packet | None = None
    trail, scenario = list[Location](), job.scenario
    film = Film(job.stem.with_name(job.stem.name + ".webm"), scenario.world.step_s)

    def show(packet: Packet, image: Image, step: int) -> Image:
        boxes = packet.boxes if image is packet.image else []
        frame = compose(image, packet.report, boxes, packet.pads, trail, scenario.world.boundary_m)
        film.show(frame, step)
        if job.browser:
            desk.tell(Frame(jpeg_of(frame)))
        return frame

    try:
        for packet in desk:
            trail.append(packet.report.position)
            show(packet, packet.image, packet.report.step)
            desk.counters["frames"] += 1
        if packet is not None:
            landed = packet.report.status is Status.LANDED
            image = landing_image(scenario, packet.report) if landed else packet.image
            frame = show(packet, image, packet.report.step + round(HOLD_S / scenario.world.step_s))
            screenshot(job.stem.with_name(job.stem.name + ".png"), frame)
    finally:
        film.close()


def log_of(stem: Path) -> Path:
    """Return the path of the flight's log."""
    return stem.with_name(stem.name + ".log")


def _loaded(job: Job, desk: Desk) -> Program:
    """Load the program, which may never end."""
    desk.busy()
    return load_program(job.program)


STAGES: dict[str, Callable[[Job, Desk], None]] = {  # in order of start and shutdown
    stage.__name__: stage for stage in (simulation, detection, geolocation, decision, display)
}


@dataclass
class SoloStep:
    """Record of one step of a flight."""

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
    """Result of a flight."""

    end: ProgramEnd
    verdict: Judgement
    report: Report
    warning: str  # the last one


class Answer(NamedTuple):
    """Answer of a program to a report."""

    boxes: list[Box]  # empty if the program does not use images
    pads: list[Location]
    command: Command | Unreadable


class Player:
    """Program that answers reports. As with workers, detection, geolocation and decision each have their own globals."""

    def __init__(self, path: Path, scenario: Scenario):
        """Load the program. Raises UserError if it cannot be loaded."""
        self._detector, self._geolocator, self._decider = (load_program(path) for _ in range(3))
        self._path, self._scenario, self.mistakes = path, scenario, Counter[str]()
        self.looks = self._decider.looks

    def answer(self, report: Report, image: Image | None) -> Answer | Failed:
        """Return the answer to a report, or what the program raises; `image` only if the program `looks`."""
        boxes, pads = list[Box](), list[Location]()
        try:
            if image is not None:
                boxes = detected(self._detector, image, report, self._scenario, self.mistakes)
                pads = located(self._geolocator, boxes, report, self._scenario, self.mistakes)
            return Answer(boxes, pads, self._decider.command(report, pads))
        except BaseException as error:  # a program may well call exit()
            return Failed(error_in_flight(error, self._path), traceback_text(error))

    def found(self) -> Counter[str]:
        """Return the number of each mistake in boxes and places."""
        return self.mistakes


class Answering(Protocol):
    """What answers reports: a program in this process or in another."""

    looks: bool

    def answer(self, report: Report, image: Image | None) -> Answer | Failed: ...
    def found(self) -> Counter[str]: ...


def fly_alone(
    player: Answering, scenario: Scenario, look: Callable[[SoloStep, Drone], None] = lambda step, drone: None
) -> Flight:
    """Fly a program; `look` receives each step together with its command."""
    drone, judge = Drone(scenario), Judge(scenario)
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
        step.boxes, step.pads, step.command = answer
        look(step, drone)
        report = drone.step(step.command)
        warning = report.warning or warning
        judge.see(report, step.command)
    look(step_of(report), drone)
    return Flight(over[0], judge.verdict(*over, player.found()), report, warning)
