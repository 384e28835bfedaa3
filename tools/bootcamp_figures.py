"""Draw docs/NAME.png, such as bootcamp/2_go or bootcamp, or all: python -m tools.bootcamp_figures [NAME ...]

The figures are of flights of the solutions and of `pads.py`.
"""

import sys
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from gate_racer.bootcamp.api import Location, Status
from gate_racer.bootcamp.display import compose, ground_map, landing_image, screenshot
from gate_racer.bootcamp.drone import Drone
from gate_racer.bootcamp.program import load_program
from gate_racer.bootcamp.scenario import KINEMATIC, SIMULATED, load_world, make_scenario
from gate_racer.bootcamp.stages import Player, SoloStep, fly_alone
from gate_racer.sim.view.texture import Image

ROOT = Path(__file__).parent.parent
SEED = 7  # seed of all figures (chosen)
FIGURES = {f"bootcamp/{path.stem}": path for path in sorted(ROOT.glob("examples/solutions/*.py"))}
FIGURES["bootcamp"] = ROOT / "examples/pads.py"
SEEING = ("3_detect", "4_locate", "6_lost", "pads")  # drawn at a detection of a pad, the others at MOST of the flight
OF_LOGIC = ("2_go", "6_lost", "7_route")  # flown without inertia, to save time
MOST = 0.7  # -, share of the flight at which a figure is drawn (chosen)
EVERY = 5  # steps between the images kept


def figure(path: Path) -> Image:
    """Return the display at a characteristic moment of a flight, and, of a lesson, the map of its whole path beside it."""
    world = replace(load_world(), drone=KINEMATIC if path.stem in OF_LOGIC else SIMULATED)
    scenario, kept, trail = make_scenario(load_program(path).scenario, SEED, world), list[SoloStep](), list[Location]()

    def look(step: SoloStep, drone: Drone) -> None:
        trail.append(step.report.position)
        if step.report.step % EVERY == 0:
            kept.append(step)

    flight = fly_alone(Player(path, scenario), scenario, look)
    lesson = path.stem != "pads"
    seen = [step for step in kept if path.stem in SEEING and step.pads and (lesson or step.report.reached)]
    step = seen[0] if seen else kept[round(MOST * (len(kept) - 1))]
    known, report = trail[: step.report.step + 1], step.report
    frame = compose(step.image, report, step.boxes, step.pads, known, scenario.world.boundary_m)
    if not lesson:
        return frame
    landed = replace(flight.report, route=scenario.route)  # all places, visited or not
    right_half = ground_map(len(frame), landed, trail, scenario.world.boundary_m)
    if flight.report.status is Status.LANDED and not scenario.gates and not scenario.route:
        right_half = landing_image(scenario, flight.report)
        right_half = cv2.resize(right_half, (right_half.shape[1] * len(frame) // len(right_half), len(frame)))
    return np.hstack([frame, right_half])


if __name__ == "__main__":
    for name in sys.argv[1:] or FIGURES:
        screenshot(ROOT / f"docs/{name}.png", figure(FIGURES[name]))
        print(f"wrote docs/{name}.png", flush=True)
