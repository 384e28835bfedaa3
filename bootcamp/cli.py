"""Command line of `bootcamp`."""

import argparse
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from gate_racer.bootcamp.scenario import DRONES, FILE, PX_MAX, Arena, load_world
from gate_racer.common.command import settings_parser
from gate_racer.common.errors import UserError
from gate_racer.common.settings import key

WORK = "gate_racer.bootcamp.run"
PORT = 8766  # default TCP port of the page in a browser (chosen)
ADDRESS = f"127.0.0.1:{PORT}"
GATES = 6  # of a generated course
SEEDS, CLASS_SEEDS = 20, 3  # of a grade, and of a class's
OPTIONS = {
    "flight": {"--seed": "seed", "--browser": "browser"},
    "other tasks": {"--grade": "grade", "--replay": "replay"},
}


@dataclass(frozen=True)
class ArenaSettings:
    file: Path | None = key(None, "world file; else bootcamp/world.yaml")
    step_s: float | None = key(None, "length of a step, a whole number of 1/120 s; else the world's")
    drone: str = key("", f"{' or '.join(DRONES)} (full speed or standstill, without inertia); else the world's")
    camera: str = key("", "WIDTHxHEIGHT of images of the same ground, such as 1200x900; else the world's")
    map: Path | None = key(None, "folder with tiles of the ground: X_Y.png, default.png, boundary.png")

    def __post_init__(self) -> None:
        if self.map is not None and not self.map.is_dir():
            raise ValueError(f"map {self.map}: is not a folder")
        if self.camera and not re.fullmatch(r"\d{2,4}x\d{2,4}", self.camera, re.ASCII):
            raise ValueError(f"camera {self.camera}: expected WIDTHxHEIGHT in px, such as 1200x900, at most {PX_MAX}")

    def arena(self) -> Arena:
        """Return the world file with the changes. Raises UserError for a malformed one, or changes beyond its limits."""
        world = load_world(self.file or FILE)
        camera, drone = world.camera, self.drone or world.drone
        if self.camera:
            width, height = map(int, self.camera.split("x"))
            scale = width / camera.width_px  # as wide on the ground as before
            wide = camera.zoomed(scale)
            camera = replace(wide, width_px=width, height_px=height, cx_px=(width - 1) / 2, cy_px=(height - 1) / 2)
        step_s = world.step_s if self.step_s is None else self.step_s
        try:
            return replace(world, step_s=step_s, drone=drone, camera=camera, map=str(self.map or world.map))
        except ValueError as error:
            raise UserError(f"world: {error}") from None


@dataclass(frozen=True)
class BootcampSettings:
    scenario: str = key("", "name of the scenario; else the program's SCENARIO")
    seed: int | None = key(None, "random seed; else from the clock, and grades start at 0", "N")
    realtime: bool = key(False, "step in real time; else in lock-step")
    browser: str = key(
        "", f"show the flight in a browser, at {ADDRESS} if no address is given", "HOST:PORT", const=ADDRESS
    )
    race: bool = key(False, "if the flight passes a course of gates, plan the course and fly it with run-mpc")
    grade: int | None = key(
        None,
        f"fly the programs over so many seeds, {SEEDS} if none is given; write a table and a page",
        "SEEDS",
        const=SEEDS,
        least=1,
    )
    time_limit_s: float = key(300.0, "grade: greatest time of a program's answers in one flight, s", least=1)
    memory_limit_mb: int = key(4096, "grade: memory of a program's process, MiB", least=256)
    replay: Path | None = key(None, "repeat the flight of a log and compare it bit by bit", "LOG")
    generate: str = key("", f"write a random track (of {GATES} gates) and exit", "seed=N[,gates=N]")
    logs: Path = key(Path("logs"), "folder for logs and films")
    world: ArenaSettings = field(default_factory=ArenaSettings)


def parser() -> argparse.ArgumentParser:
    about = "Fly a program that returns one command per step, and judge the flight."
    arguments = settings_parser("bootcamp", about, BootcampSettings(), OPTIONS, "the result", file=False)
    programs = "Python file with decide(report, pads); or `grade FOLDER`: grade all programs in a folder"
    arguments.add_argument("program", nargs="*", type=Path, help=programs)
    return arguments
