"""Flights of `run-mpc` in lock-step with every value of its options, as its registries list them, and all pairs of values.

An axis is a list of texts `KEY=VALUE`, one of which each flight has; an empty text leaves the key at its default. The greedy
covering array is that of Cohen et al. (AETG, IEEE TSE 1997), without its random candidates.
"""

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

from gate_racer.common.command import main
from gate_racer.common.config import names
from gate_racer.common.errors import UserError
from gate_racer.common.settings import keys_of, settings_of
from gate_racer.link.msp.profile import FOLDER as MSP_PROFILES
from gate_racer.link.msp.profile import BetaflightProfile, load_wire
from gate_racer.link.profile import FOLDER as PROFILES
from gate_racer.mpc.names import CONTROLLERS
from gate_racer.race.request import require_seen, require_wire
from gate_racer.race.run_mpc import parser
from gate_racer.race.settings import RunSettings
from gate_racer.tracks.track import FOLDER as TRACKS
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import FOLDER as VEHICLES

Axis = Sequence[str]
Combination = tuple[str, ...]  # one text of each axis
# What contradicts each other or the course.
GOVERNED = "link.profile", "laps", "perception.pose", "controller.command"
# Another kind of flight, plans that would be refused, or runs before: no key of one race in lock-step.
APART = {"link.live", "link.lockstep", "link.shadow", "race.rivals", "plan.uncertified", "plan.improve"}
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
        values: dict[str, Iterable[Any]] = {
            "vehicle": names(VEHICLES),
            "link.profile": (*names(PROFILES), *names(MSP_PROFILES)),
            "controller.name": CONTROLLERS,
            "laps": (1, 2),
        }
        keys = [one for one in keys_of(RunSettings()) if one.name not in APART]
        values |= {one.name: one.about.choices for one in keys if one.about.choices}
        texts = {name: [f"{name}={value}" for value in known] for name, known in values.items()}
        switches = [one for one in keys if isinstance(one.default, bool)]
        texts |= {one.name: ["", f"{one.name}={str(not one.default).lower()}"] for one in switches}
        return cls(
            [courses or names(TRACKS), *(texts[name] for name in GOVERNED)],
            [known for name, known in texts.items() if name not in GOVERNED],
        )


def named(text: str) -> tuple[str, str]:
    """Return key and value of a text."""
    name, _, value = text.partition("=")
    return name, value


def words_of(texts: Combination) -> list[str]:
    """Return the words of the command line of a combination, whose first text is the course."""
    what, *keys = texts
    return [what, "--lockstep", *(["--set", *filter(None, keys)] if any(keys) else [])]


_parser, _track = cache(parser), cache(load_track)


@cache
def refusal(texts: Combination) -> str:
    """Return why `run-mpc` refuses these options before it plans; empty if it does not."""
    settings = settings_of(_parser().parse_args(words_of(texts)), RunSettings)
    try:
        settings.require_consistent()
        wire, track = _wire(settings.link.profile), _track(texts[0])
        require_wire(settings, wire)
        track.course(settings.laps)
        require_seen(settings, track)
    except UserError as error:
        return str(error)
    return ""


@cache
def _wire(name: str) -> BetaflightProfile | None:
    wire = load_wire(name)
    return wire if isinstance(wire, BetaflightProfile) else None


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
        written = ["--seed", str(seed), "--log", name, "--json", str(result)]
        words = ["run-mpc", *words_of((*texts, f"plan.folder={plans}")), *written]
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
    main("gate_racer.race.run_mpc")


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
