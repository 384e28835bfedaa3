"""`gate-racer board`: a fixed set of seeded races in several levels, flown by configurations that are then compared.

Its JSON holds every flight, the digests of what was flown, and a SHA-256 over all of it, by which an edited file is refused.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gate_racer.common.command import remark, write_json
from gate_racer.common.config import from_dict, load
from gate_racer.common.errors import UserError
from gate_racer.common.files import read_json, write_file
from gate_racer.common.settings import settings_of
from gate_racer.race.campaign.campaign import campaign, commit
from gate_racer.race.campaign.case import digest
from gate_racer.race.campaign.choice import Choice
from gate_racer.race.campaign.cli import BoardSettings
from gate_racer.race.campaign.compare import Entry, as_csv, as_markdown, entries_of
from gate_racer.race.campaign.tables import cells, write_report
from gate_racer.sim.physics.registry import PLANTS, missing, version_of
from gate_racer.sim.worlds.distribution import load_worlds
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle


@dataclass(frozen=True)
class Level:
    """Setting and world of `race-bench`, under one name."""

    name: str
    setting: str
    world: str


@dataclass(frozen=True)
class Levels:
    vehicle: str
    tracks: tuple[str, ...]
    levels: tuple[Level, ...]

    def chosen(self, names: Sequence[str]) -> list[Level]:
        """Return the levels of these names, or all that can be flown here. Raises UserError for an unknown name."""
        known = {level.name: level for level in self.levels}
        if unknown := [name for name in names if name not in known]:
            raise UserError(f"levels {unknown[0]}: unknown; known: {', '.join(known)}")
        if names:
            return [known[name] for name in dict.fromkeys(names)]
        absent = {level.setting: missing(level.setting) for level in self.levels if level.setting in PLANTS}
        for setting, why in absent.items():
            if why:
                remark(f"level {setting} is left out: {why}")
        return [level for level in self.levels if not absent.get(level.setting)]


@dataclass(frozen=True)
class Board:
    """Standings, and digests of courses, vehicle and worlds."""

    contents: dict[str, str]
    rows: tuple[Entry, ...]
    sha256: str = ""  # of both

    def signed(self) -> "Board":
        told = json.dumps([self.contents, [asdict(row) for row in self.rows]], sort_keys=True)
        return replace(self, sha256=hashlib.sha256(told.encode()).hexdigest())

    @classmethod
    def load(cls, path: Path) -> "Board":
        """Return a stored board. Raises UserError for one that was edited."""
        board = from_dict(read_json(path), cls, str(path))
        if board != board.signed():
            raise UserError(f"{path}: was changed after it was written: its SHA-256 is another; fly the board again")
        return board

    def with_rows_of(self, path: Path) -> "Board":
        """Return it with another board's rows in front. Raises UserError where these were flown on something else."""
        other = Board.load(path)
        both = self.contents.keys() & other.contents.keys()
        if differs := sorted(name for name in both if self.contents[name] != other.contents[name]):
            raise UserError(f"{path}: was flown with another {differs[0]}; its rows cannot be compared")
        return replace(self, contents=other.contents | self.contents, rows=other.rows + self.rows)


def run(arguments: Any) -> int:
    """Fly, print the standings and write them. Returns the exit code, 1 if a flight failed."""
    settings = settings_of(arguments, BoardSettings)
    known = load(Path(__file__).with_suffix(".yaml"), Levels)
    levels = known.chosen(settings.levels)
    axes = {name: getattr(settings, name) for name in ("controllers", "estimators", "plans", "seeds", "first_seed")}
    of_all = Choice(vehicles=(known.vehicle,), **axes)
    choices = [replace(of_all, settings=(level.setting,), worlds=(level.world,)) for level in levels]
    contents = {f"track {name}": load_track(name).hash for name in known.tracks}
    contents |= {f"vehicle {known.vehicle}": load_vehicle(known.vehicle).hash}
    contents |= {f"world {level.world}": digest(load_worlds(level.world)) for level in levels}
    contents |= {f"level {level.name}": digest(level, version_of(level.setting)) for level in levels}
    board = Board(contents, ())
    for path in settings.beside:
        board = board.with_rows_of(Path(path))  # raises before any flight
    revision = commit()
    folder = settings.out or Path("logs") / f"board-{revision}"
    store, rows = campaign(known.tracks, choices, folder, settings.workers, settings.retry)
    named = {(level.setting, level.world): level.name for level in levels}
    entries = entries_of(rows, revision, lambda case: named[case.setting, case.world])
    board = replace(board, rows=board.rows + entries).signed()
    write_json(folder / "board.json", board)
    write_json(arguments.json, board)
    write_file(folder / "board.csv", as_csv(board.rows))
    write_report(folder, store.about(), rows, cells(rows), board.rows)
    print(as_markdown(board.rows), end="")
    remark(f"written: {folder}/board.json, board.csv, report.html")
    return 1 if any(row.outcome.status == "failed" for row in rows) else 0
