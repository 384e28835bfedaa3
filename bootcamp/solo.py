"""Whole flight in one process, without workers or films, for grades and for figures of the documentation.

Images are drawn on demand only: drawing and detecting cost three times as much as flying.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from gate_racer.bootcamp.api import Box, Command, Location, Report, Status, Unreadable
from gate_racer.bootcamp.drone import OVER, Drone
from gate_racer.bootcamp.ground import GroundCamera
from gate_racer.bootcamp.judge import Judge, Judgement, ProgramEnd
from gate_racer.bootcamp.program import error_line, load_program
from gate_racer.bootcamp.scenario import Scenario
from gate_racer.sim.view.texture import Image


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
