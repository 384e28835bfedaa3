"""A learner's program: a Python file with `decide(report, pads)`, and if it likes `detect(image)` and `SCENARIO`."""

import runpy
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bootcamp.api import Box, Command, Go, Location, Report, Unreadable
from bootcamp.ground import Image
from bootcamp.pads import detect_pads
from vehicle.errors import UserError

TEXT_MAX = 80  # of what is shown of an unreadable command


@dataclass(frozen=True)
class Program:
    """Its functions."""

    decide: Callable[[Report, Sequence[Location]], Any]
    detect: Callable[[Image], Any]
    scenario: str

    def command(self, report: Report, pads: Sequence[Location]) -> Command | Unreadable:
        """Asks for the next command. Raises whatever the program raises."""
        said = self.decide(report, pads)
        if isinstance(said, Go):
            numbers = (said.north, said.east)
            if any(isinstance(n, bool) or not isinstance(n, int | float | np.number) for n in numbers):
                return Unreadable(repr(said)[:TEXT_MAX])
            return Go(float(said.north), float(said.east))
        return said if isinstance(said, Command) else Unreadable(repr(said)[:TEXT_MAX])

    def boxes(self, image: Image) -> tuple[list[Box], int]:
        """What it detects, and how much of its answer was no box of four finite numbers in the right order."""
        said = self.detect(image)
        answers = list(said) if isinstance(said, list | tuple) else [said]
        boxes = [box for answer in answers if (box := _box(answer)) is not None]
        return boxes, len(answers) - len(boxes)


def _box(answer: Any) -> Box | None:
    try:
        box = Box(*(float(edge) for edge in answer))
    except (TypeError, ValueError):
        return None
    return box if np.isfinite(box).all() and box.left <= box.right and box.top <= box.bottom else None


def load_program(path: Path) -> Program:
    """Runs the file once.

    Raises:
        UserError: no such file, an error in it, or no function `decide`.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such program, see examples/")
    try:
        names = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else 1
        raise UserError(f"{path}:{line}: {type(error).__name__}: {error}") from None
    decide, detect = names.get("decide"), names.get("detect", detect_pads)
    if not callable(decide):
        raise UserError(f"{path}: has no function decide(report, pads), see examples/waypoint.py")
    if not callable(detect):
        raise UserError(f"{path}: detect must be a function detect(image)")
    return Program(decide, detect, str(names.get("SCENARIO", "waypoint")))
