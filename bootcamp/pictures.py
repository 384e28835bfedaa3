"""`python -m bootcamp.pictures`: draws the pictures of docs/bootcamp and docs/bootcamp.png from flights of the solutions."""

import sys
from pathlib import Path

import cv2
import numpy as np

from bootcamp.api import Status
from bootcamp.display import compose, ground_map, landing_picture
from bootcamp.drone import Drone
from bootcamp.floor import Image
from bootcamp.program import load_program
from bootcamp.scenario import Scenario, make_scenario
from bootcamp.solo import Step, fly_alone
from vehicle.errors import exit_code
from vehicle.files import write_file

ROOT = Path(__file__).parent.parent
SEED = 7
SEEING = ("3_detect", "4_locate", "6_lost")  # shown when they first see a pad, the others after most of their way
MOST = 0.7
EVERY = 5  # steps: pictures kept


def lesson_picture(path: Path, when_seen: bool) -> Image:
    """What a flight shows at its telling moment, and beside it the map of its whole way."""
    scenario, kept, trail = make_scenario(load_program(path).scenario, SEED), list[Step](), []

    def look(step: Step, drone: Drone) -> None:
        trail.append(step.report.position)
        if step.report.step % EVERY == 0:
            kept.append(step)

    flight = fly_alone(path, scenario, look)
    seen = [step for step in kept if step.pads]
    step = seen[0] if when_seen and seen else kept[round(MOST * (len(kept) - 1))]
    known, report = trail[: step.report.step + 1], step.report
    frame = compose(step.image, report, step.boxes, step.pads, known, scenario.world.boundary_m)
    way = ground_map(len(frame), flight.report, trail, scenario.world.boundary_m)
    if flight.report.status is Status.LANDED and not scenario.gates and not scenario.route:
        way = _fitted(landing_picture(scenario, flight.report), len(frame))
    return np.hstack([frame, way])


def _fitted(image: Image, height_px: int) -> Image:
    fitted: Image = cv2.resize(image, (image.shape[1] * height_px // image.shape[0], height_px))
    return fitted


def overview(scenario: Scenario, path: Path) -> Image:
    """The picture of the README: a flight above its waypoint, pads found."""
    frames: list[Image] = []
    trail = []

    def look(step: Step, drone: Drone) -> None:
        trail.append(step.report.position)
        if step.report.reached and step.pads and not frames:
            frames.append(compose(step.image, step.report, step.boxes, step.pads, trail, scenario.world.boundary_m))

    fly_alone(path, scenario, look)
    return frames[0]


def main() -> None:
    sys.exit(exit_code(run))


def run() -> int:
    """Writes all of them."""
    pictures = {
        f"bootcamp/{p.stem}.png": lesson_picture(p, p.stem in SEEING)
        for p in sorted(ROOT.glob("examples/solutions/*.py"))
    }
    pictures["bootcamp.png"] = overview(make_scenario("pads", SEED), ROOT / "examples/pads.py")
    for name, image in pictures.items():
        write_file(ROOT / "docs" / name, cv2.imencode(".png", image)[1].tobytes())
        print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    main()
