"""What each worker does with what comes to it. A ring: simulation, detection, geolocation, decision and back; and a display
beside it, fed by a mailbox, which can slow nothing down.

Every worker ends at the sentinel, and tells its counters when it does.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bootcamp.api import Box, Location, Report, Status
from bootcamp.desk import Desk
from bootcamp.display import Film, Window, compose, screenshot
from bootcamp.ground import GroundCamera, Image, locate
from bootcamp.program import load_program
from bootcamp.scenario import load_world, make_scenario


@dataclass(frozen=True)
class Job:
    """One flight; all that a worker needs to know."""

    program: Path
    scenario: str
    seed: int
    realtime: bool
    window: bool
    stem: Path  # of all files that the flight leaves


@dataclass(slots=True)
class Packet:
    """What goes round, and grows on its way."""

    report: Report
    image: Image
    boxes: list[Box] = field(default_factory=list)
    pads: list[Location] = field(default_factory=list)


def simulation(job: Job, desk: Desk) -> None:
    """In lock-step time stands until a command has come; in real time a step without one is flown without."""
    from bootcamp.drone import Drone  # the simulator stays out of the other workers, which start sooner without it
    from bootcamp.record import FlightRecord

    scenario = make_scenario(job.scenario, job.seed)
    record = FlightRecord(log_of(job.stem), job.scenario, job.seed)
    drone, camera = Drone(scenario), GroundCamera(scenario)
    report, due = drone.report(), time.monotonic()
    desk.put(Packet(report, camera.image(drone.p_wb, report.q_wb)))
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
            image = camera.image(drone.p_wb, report.q_wb)
            record.step(taken, report, drone.digest(), image)
            desk.counters["steps"] += 1
        desk.put(Packet(report, image))
        desk.tell(report)
        if report.status in (Status.LANDED, Status.CRASHED) or report.step >= scenario.world.steps_max:
            break
    record.close()
    desk.until_sentinel(command)


def detection(job: Job, desk: Desk) -> None:
    """The program's own detector, or ours."""
    program = load_program(job.program)

    def detect(packet: Packet) -> None:
        packet.boxes, malformed = program.boxes(packet.image)
        desk.counters["boxes"] += len(packet.boxes)
        desk.counters["malformed boxes"] += malformed

    _each(desk, detect)


def geolocation(job: Job, desk: Desk) -> None:
    """Boxes to places on the ground, by the drone's pose at the time of the picture."""
    camera = load_world().camera

    def place(packet: Packet) -> None:
        report = packet.report
        found = [locate(box, report.height, report.position, report.q_wb, camera) for box in packet.boxes]
        packet.pads = [pad for pad in found if pad is not None]
        desk.counters["boxes off the ground"] += len(found) - len(packet.pads)

    _each(desk, place)


def decision(job: Job, desk: Desk) -> None:
    """One command per step. In real time a report older than the last command's effect is passed over."""
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
    """Shows what comes; the last frame stays as a screenshot."""
    world, frame, trail = load_world(), None, list[Location]()
    screen = Window(job.stem.name) if job.window else Film(job.stem.with_name(job.stem.name + ".mp4"), world.step_s)
    try:
        while (packet := desk.get(None)) is not None:
            with desk.busy():
                trail.append(packet.report.position)
                frame = compose(packet.image, packet.report, packet.boxes, packet.pads, trail, world.boundary_m)
                screen.show(frame, packet.report.step)
                desk.counters["frames"] += 1
    finally:
        screen.close()
        if frame is not None:
            screenshot(job.stem.with_name(job.stem.name + ".png"), frame)


def log_of(stem: Path) -> Path:
    """The flight's log."""
    return stem.with_name(stem.name + ".log")


def _each(desk: Desk, work: Callable[[Any], None]) -> None:
    while (packet := desk.get(None)) is not None:
        with desk.busy():
            work(packet)
        desk.put(packet)


STAGES: dict[str, Callable[[Job, Desk], None]] = {  # START to END
    stage.__name__: stage for stage in (simulation, detection, geolocation, decision, display)
}
