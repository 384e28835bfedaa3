"""Log of a flight: the seed, then each step's command and a hash of the state. `replay` repeats the flight.

JSON lines; Python's floats survive writing and reading bit by bit.
"""

import json
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from gate_racer.bootcamp.api import Command, Go, Halt, Land, Null, Report, Unreadable
from gate_racer.bootcamp.drone import Drone
from gate_racer.bootcamp.floor import GroundCamera
from gate_racer.bootcamp.scenario import Arena, Scenario, make_scenario
from gate_racer.common.config import from_dict
from gate_racer.common.errors import UserError
from gate_racer.common.files import CAUSES, read_text
from gate_racer.sim.view.texture import Image

COMMANDS: dict[str, type[Command | Unreadable]] = {kind.__name__: kind for kind in (Null, Go, Halt, Land, Unreadable)}


class FlightRecord:
    """Writer of the log, line by line, so that nothing is lost if the process dies."""

    def __init__(self, path: Path, scenario: Scenario):
        """Open the log and write its head. Raises UserError if the file cannot be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = path.open("w", encoding="utf-8", buffering=1)
        except OSError as error:
            raise UserError(f"log {path}: cannot be written ({error.strerror})") from None
        self._write(seed=scenario.seed, scenario=scenario.name, world=asdict(scenario.world))

    def step(self, command: Command | Unreadable | None, report: Report, digest: str, image: Image) -> None:
        recorded = None if command is None else [type(command).__name__, asdict(command)]
        self._write(
            step=report.step, command=recorded, digest=digest, image=zlib.crc32(image.data), warning=report.warning
        )

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
