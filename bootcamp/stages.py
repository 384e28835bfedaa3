"""Work of each process of the ring, and the whole flight in one process.

The ring: simulation, detection, geolocation, decision and back; and a display beside it, fed by a mailbox, which cannot
delay the others. Every worker ends at the sentinel, and then reports its counters. A flight in one process, for grades
and figures, draws images on demand only: drawing and detecting cost three times as much as flying.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from gate_racer.bootcamp.api import Box, Command, Location, Report, Status, Unreadable
from gate_racer.bootcamp.display import BrowserView, Screen, compose, landing_image, screenshot
from gate_racer.bootcamp.drone import OVER, Drone
from gate_racer.bootcamp.edges import Desk
from gate_racer.bootcamp.floor import GroundCamera
from gate_racer.bootcamp.judge import Judge, Judgement, ProgramEnd
from gate_racer.bootcamp.program import error_line, load_program
from gate_racer.bootcamp.scenario import Scenario
from gate_racer.common.images import Film
from gate_racer.sim.view.texture import Image

HOLD_S = 2.0  # s for which a film shows its last frame (chosen)


@dataclass(frozen=True)
class Job:
    """Description of one flight, complete for every worker."""

    program: Path
    scenario: Scenario
    realtime: bool
    browser: str  # host:port of the live view, or ""
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
    from gate_racer.bootcamp.drone import Drone  # the other workers start sooner without the simulator
    from gate_racer.bootcamp.record import FlightRecord

    scenario = job.scenario
    record = FlightRecord(log_of(job.stem), scenario)
    drone, camera = Drone(scenario), GroundCamera(scenario)
    report, due = drone.report(), time.monotonic()
    desk.put(Packet(report, camera.frame(drone.p_wb, report)))
    desk.tell(report)
    while True:
        due += scenario.world.step_s
        command = desk.get(max(0.0, due - time.monotonic()) if job.realtime else None)
        if command is None:
            break
        if job.realtime:
            desk.counters["steps without a command"] += command is desk.nothing
            time.sleep(max(0.0, due - time.monotonic()))
        with desk.busy():
            taken = None if command is desk.nothing else command
            report = drone.step(taken)
            image = camera.frame(drone.p_wb, report)
            record.step(taken, report, drone.digest(), image)
            desk.counters["steps"] += 1
        desk.put(Packet(report, image))
        desk.tell(report)
        if report.status in (Status.LANDED, Status.CRASHED) or report.step >= scenario.world.steps_max:
            break
    record.close()
    desk.until_sentinel(command)


def detection(job: Job, desk: Desk) -> None:
    """Detect pads by the program's own detector, or the built-in one."""
    program = load_program(job.program)

    def detect(packet: Packet) -> None:
        packet.boxes, malformed = program.boxes(packet.image)
        desk.counters["boxes"] += len(packet.boxes)
        desk.counters["malformed boxes"] += malformed

    _each(desk, detect)


def geolocation(job: Job, desk: Desk) -> None:
    """Locate boxes on the ground, given the drone's pose at the image: by the program's own function, or the built-in one."""
    program = load_program(job.program)

    def place(packet: Packet) -> None:
        packet.pads, lost = program.places(packet.boxes, packet.report)
        desk.counters["boxes off the ground"] += lost

    _each(desk, place)


def decision(job: Job, desk: Desk) -> None:
    """Decide one command per step. In real time, reports older than the effect of the last command are skipped."""
    program, sent = load_program(job.program), 0
    while (packet := desk.get(None)) is not None:
        if packet.report.taken < sent:
            desk.counters["reports passed over"] += 1
            continue
        with desk.busy():
            command = program.command(packet.report, packet.pads)
        desk.put(command)
        sent += 1
    desk.counters["commands"] = sent


def display(job: Job, desk: Desk) -> None:
    """Show each packet; save the last frame as a screenshot, after a landing with a view from above."""
    packet, trail = None, list[Location]()
    screens: list[Screen] = [Film(job.stem.with_name(job.stem.name + ".webm"), job.scenario.world.step_s)]
    screens += [BrowserView(job.browser, job.stem.name)] if job.browser else []
    try:
        while (coming := desk.get(None)) is not None:
            with desk.busy():
                packet = coming
                trail.append(packet.report.position)
                _show(screens, job.scenario, packet, packet.image, trail, packet.report.step)
                desk.counters["frames"] += 1
        if packet is not None:
            image = packet.image
            if packet.report.status is Status.LANDED:
                image = landing_image(job.scenario, packet.report)
            last = packet.report.step + round(HOLD_S / job.scenario.world.step_s)
            frame = _show(screens, job.scenario, packet, image, trail, last)
            screenshot(job.stem.with_name(job.stem.name + ".png"), frame)
    finally:
        for screen in screens:
            screen.close()


def _show(
    screens: list[Screen], scenario: Scenario, packet: Packet, image: Image, trail: list[Location], step: int
) -> Image:
    """Show a frame on all screens and return it."""
    boxes = packet.boxes if image is packet.image else []
    frame = compose(image, packet.report, boxes, packet.pads, trail, scenario.world.boundary_m)
    for screen in screens:
        screen.show(frame, step)
    return frame


def log_of(stem: Path) -> Path:
    """Return the path of the flight's log."""
    return stem.with_name(stem.name + ".log")


def _each(desk: Desk, work: Callable[[Any], None]) -> None:
    while (packet := desk.get(None)) is not None:
        with desk.busy():
            work(packet)
        desk.put(packet)


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
    cause: str
    verdict: Judgement
    report: Report
    warning: str  # the last one


def fly_alone(
    path: Path, scenario: Scenario, look: Callable[[SoloStep, Drone], None] = lambda step, drone: None
) -> Flight:
    """Fly a program; `look` receives each step together with its command.

    As with workers, detection, geolocation and decision each have their own globals.

    Raises:
        UserError: the program cannot be loaded.
    """
    detector, geolocator, decider = (load_program(path) for _ in range(3))
    drone, camera, judge = Drone(scenario), GroundCamera(scenario), Judge(scenario)
    report, end, cause, warning = drone.report(), ProgramEnd.TIMEOUT, "", ""
    looks = decider.looks

    def step_of(report: Report) -> SoloStep:
        return SoloStep(report, partial(camera.frame, drone.p_wb, report))

    judge.see(report)
    while report.status not in OVER and report.step < scenario.world.steps_max:
        step = step_of(report)
        try:
            if looks:
                step.boxes, _ = detector.boxes(step.image)
                step.pads, _ = geolocator.places(step.boxes, report)
            step.command = decider.command(report, step.pads)
        except BaseException as error:  # a program may well call exit()
            if isinstance(error, KeyboardInterrupt):
                raise
            end, cause = ProgramEnd.WORKER_ERROR, error_line(error)
            break
        look(step, drone)
        report = drone.step(step.command)
        warning = report.warning or warning
        judge.see(report)
    if not cause:
        end = {Status.LANDED: ProgramEnd.LANDED, Status.CRASHED: ProgramEnd.CRASHED}.get(report.status, end)
        cause = report.warning if end is ProgramEnd.CRASHED else f"not landed after {report.step} steps"
    look(step_of(report), drone)
    return Flight(end, cause, judge.verdict(end, cause), report, warning)
