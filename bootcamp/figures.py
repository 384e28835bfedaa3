"""`python -m gate_racer.bootcamp.figures [NAME ...]`: draw docs/bootcamp/NAME.png, all lessons by default, and
docs/bootcamp.png (NAME overview), from flights of the solutions."""

import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from gate_racer.bootcamp.api import Location, Status
from gate_racer.bootcamp.display import compose, ground_map, landing_image, screenshot
from gate_racer.bootcamp.drone import Drone
from gate_racer.bootcamp.program import load_program
from gate_racer.bootcamp.scenario import KINEMATIC, SIMULATED, Scenario, load_world, make_scenario
from gate_racer.bootcamp.stages import Player, SoloStep, fly_alone
from gate_racer.common.errors import UserError, exit_code
from gate_racer.sim.view.texture import Image

ROOT = Path(__file__).parent.parent
SEED = 7  # seed of all figures (chosen)
SEEING = ("3_detect", "4_locate", "6_lost")  # drawn at the first detection of a pad, the others at MOST of the flight
OF_LOGIC = ("2_go", "6_lost", "7_route")  # flown without inertia, to save time
OVERVIEW = "overview"
MOST = 0.7  # -, share of the flight at which a figure is drawn (chosen)
EVERY = 5  # steps between the images kept


def lesson_figure(path: Path, when_seen: bool) -> Image:
    """Return the display at a characteristic moment of a flight, and beside it the map of its whole path."""
    world = replace(load_world(), drone=KINEMATIC if path.stem in OF_LOGIC else SIMULATED)
    scenario, kept, trail = make_scenario(load_program(path).scenario, SEED, world), list[SoloStep](), list[Location]()

    def look(step: SoloStep, drone: Drone) -> None:
        trail.append(step.report.position)
        if step.report.step % EVERY == 0:
            kept.append(step)

    flight = fly_alone(Player(path, scenario), scenario, look)
    seen = [step for step in kept if step.pads]
    step = seen[0] if when_seen and seen else kept[round(MOST * (len(kept) - 1))]
    known, report = trail[: step.report.step + 1], step.report
    frame = compose(step.image, report, step.boxes, step.pads, known, scenario.world.boundary_m)
    landed = replace(flight.report, route=scenario.route)  # all places, visited or not
    right_half = ground_map(len(frame), landed, trail, scenario.world.boundary_m)
    if flight.report.status is Status.LANDED and not scenario.gates and not scenario.route:
        right_half = landing_image(scenario, flight.report)
        right_half = cv2.resize(right_half, (right_half.shape[1] * len(frame) // len(right_half), len(frame)))
    return np.hstack([frame, right_half])


def overview(scenario: Scenario, path: Path) -> Image:
    """Return the figure of the README: a flight above its waypoint, with detected pads."""
    frames, trail = list[Image](), list[Location]()

    def look(step: SoloStep, drone: Drone) -> None:
        trail.append(step.report.position)
        if step.report.reached and step.pads and not frames:
            frames.append(compose(step.image, step.report, step.boxes, step.pads, trail, scenario.world.boundary_m))

    fly_alone(Player(path, scenario), scenario, look)
    return frames[0]


def run(names: list[str]) -> int:
    """Write the figures named, or all of them; return the exit code."""
    lessons = {path.stem: path for path in sorted(ROOT.glob("examples/solutions/*.py"))}
    for name in names or [*lessons, OVERVIEW]:
        if name == OVERVIEW:
            path = ROOT / "docs/bootcamp.png"
            image = overview(make_scenario("pads", SEED), ROOT / "examples/pads.py")
        elif name in lessons:
            path, image = ROOT / f"docs/bootcamp/{name}.png", lesson_figure(lessons[name], name in SEEING)
        else:
            raise UserError(f"no figure {name!r}; known: {', '.join([*lessons, OVERVIEW])}")
        screenshot(path, image)
        print(f"wrote {path}", flush=True)
    return 0


def main() -> None:
    """Write the figures of the lessons."""
    sys.exit(exit_code(lambda: run(sys.argv[1:])))


if __name__ == "__main__":
    main()
