"""Flights of `run-mpc` in lock-step with every value of its options, as its registries list them, and all pairs of values.

An axis is a list of texts of the command line, one of which each flight has; an empty text leaves the option out. The greedy
covering array is that of Cohen et al. (AETG, IEEE TSE 1997), without its random candidates.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import Any

from gate_racer.common.config import names
from gate_racer.common.errors import UserError
from gate_racer.common.settings import keys_of, settings_of
from gate_racer.link.msp.profile import FOLDER as MSP_PROFILES
from gate_racer.link.msp.profile import BetaflightProfile, load_wire
from gate_racer.link.profile import COMMANDS
from gate_racer.link.profile import FOLDER as PROFILES
from gate_racer.mpc.problem import CONTROLLERS
from gate_racer.mpc.solvers.solver import AUTO, SOLVERS
from gate_racer.race.arguments import parser, require_consistent, require_seen, require_wire
from gate_racer.race.cli import main
from gate_racer.race.perception import CAMERAS
from gate_racer.race.settings import RunSettings
from gate_racer.tracks.track import FOLDER as TRACKS
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import FOLDER as VEHICLES

Axis = Sequence[str]
Combination = tuple[str, ...]  # one text of each axis
GOVERNED = ("--profile", "--laps", "--pose", "controller.command")  # options that contradict each other or the course
# Another kind of flight, output, or plans that would be refused: no option of a race in lock-step.
APART = {"live", "lockstep", "shadow", "explore", "rivals", "quiet", "i_have_read", "uncertified"}
LIMIT_S = 600.0  # s, longest flight in lock-step, its plan included, on a loaded machine (chosen)
LOADED = multiprocessing.get_context("forkserver")
LOADED.set_forkserver_preload(["gate_racer.race.campaign.options", "gate_racer.race.session"])  # else 2 s a flight


@dataclass(frozen=True)
class Axes:
    """Options of a race: the course and what it may contradict, and those that go with all others."""

    governed: list[Axis]
    free: list[Axis]

    @classmethod
    def of(cls, courses: Axis | None = None) -> "Axes":
        """Return all options of `run-mpc` on these courses, names or files; by default on all that are shipped."""
        actions = [action for action in parser()._actions if action.option_strings and action.dest not in APART]
        values: dict[str, Iterable[str]] = {
            "--vehicle": names(VEHICLES),
            "--profile": (*names(PROFILES), *names(MSP_PROFILES)),
            "--controller": CONTROLLERS,
            "--camera": CAMERAS,
            "--laps": ("1", "2"),
        }
        values |= {action.option_strings[0]: map(str, action.choices) for action in actions if action.choices}
        texts = {option: [f"{option} {value}" for value in known] for option, known in values.items()}
        flags = (action for action in actions if isinstance(action, argparse._StoreTrueAction))
        texts |= {action.option_strings[0]: ["", action.option_strings[0]] for action in flags}
        values = {"controller.command": (AUTO, *COMMANDS), "controller.solver": SOLVERS}
        texts |= {name: [f"--set {name}={value}" for value in known] for name, known in values.items()}
        switches = (name for name, default, _ in keys_of(RunSettings()) if default is True)
        texts |= {name: ["", f"--set {name}=false"] for name in switches}
        return cls(
            [courses or names(TRACKS), *(texts[option] for option in GOVERNED)],
            [known for option, known in texts.items() if option not in GOVERNED],
        )


def named(text: str) -> tuple[str, str]:
    """Return name and value of an option on the command line, or of a setting; the value of a flag is empty."""
    name, _, value = text.removeprefix("--set ").replace("=", " ").partition(" ")
    return name, value


@cache
def refusal(texts: Combination) -> str:
    """Return why `run-mpc` refuses these options before it plans; empty if it does not."""
    arguments = parser().parse_args([*" ".join(texts).split(), "--lockstep"])
    try:
        require_consistent(arguments)
        wire = load_wire(arguments.profile)
        command = settings_of(arguments, RunSettings).controller.command
        require_wire(arguments, wire if isinstance(wire, BetaflightProfile) else None, command)
        track = load_track(arguments.what)
        track.course(arguments.laps)
        require_seen(arguments, track)
    except UserError as error:
        return str(error)
    return ""


def covering(axes: Axes, strength: int = 2) -> list[Combination]:
    """Return few combinations in which each value, pair or `strength` values of different axes is that is not refused."""
    columns = [*axes.governed, *axes.free]
    heads = [head for head in product(*axes.governed) if not refusal(head)]
    missing = dict.fromkeys(  # in order, which a set has not
        chosen
        for places in combinations(range(len(columns)), strength)
        for chosen in product(*([(k, text) for text in columns[k]] for k in places))
        if any(_agrees(head, chosen) for head in heads)
    )

    def gain(row: Combination) -> int:
        return sum(chosen in missing for chosen in combinations(enumerate(row), strength))

    rows = []
    while missing:
        first = next(iter(missing))
        row = max((head for head in heads if _agrees(head, first)), key=gain)
        for column in columns[len(row) :]:
            row = max(((*row, text) for text in column if _agrees((*row, text), first)), key=gain)
        rows.append(row)
        for chosen in combinations(enumerate(row), strength):
            missing.pop(chosen, None)
    return rows


def _agrees(row: Combination, chosen: tuple[tuple[int, str], ...]) -> bool:
    """Return whether a combination, or its first axes, has the chosen texts where it has these axes at all."""
    return all(k >= len(row) or row[k] == text for k, text in chosen)


@dataclass(frozen=True)
class Ending:
    """How a flight ended: finished, lost, refused in one line, or broken, which is a defect."""

    kind: str
    cause: str
    gates: int = 0
    of: int = 0
    time_s: float | None = None
    planned_s: float | None = None
    margin_m: float | None = None


def fly(texts: Combination, plans: Path, seed: int = 0, limit_s: float = LIMIT_S) -> Ending:
    """Fly `run-mpc` with these options in lock-step, in a process of its own. Plans are kept in the folder `plans`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result, errors = folder / "result.json", folder / "stderr"
        written = ["--plans", str(plans), "--seed", str(seed), "--log", name, "--json", str(result)]
        words = ["run-mpc", *" ".join(texts).split(), "--lockstep", *written]
        process = LOADED.Process(target=_command, args=(words, errors))
        process.start()
        process.join(limit_s)
        if process.exitcode is None:
            process.kill()
            return Ending("broken", f"no end within {limit_s:g} s")
        outcome = json.loads(result.read_text(encoding="utf-8")) if result.exists() else None
        return ended(process.exitcode, errors.read_text(encoding="utf-8"), outcome)


def _command(words: list[str], errors: Path) -> None:
    """Run `run-mpc` in a new process, with its stderr in a file and without its stdout."""
    for file, stream in ((Path(os.devnull), sys.stdout), (errors, sys.stderr)):
        with file.open("w") as target:
            os.dup2(target.fileno(), stream.fileno())
    sys.argv = words
    main()


def ended(code: int, stderr: str, result: dict[str, Any] | None) -> Ending:
    """Return how a command ended that wrote this result, if any."""
    errors = [line for line in stderr.splitlines() if line.startswith("error: ")]
    if "Traceback" in stderr or (result is None and (code != 2 or len(errors) != 1)):
        return Ending("broken", (stderr.strip() or f"exit code {code}").splitlines()[-1])
    if result is None:
        return Ending("refused", errors[0].removeprefix("error: "))
    figures = [
        result[name] for name in ("gates_passed", "gates_total", "race_time_s", "planned_time_s", "min_margin_m")
    ]
    return Ending("finished" if code == 0 else "lost", result["cause"], *figures)
