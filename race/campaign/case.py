"""Case: one flight of a campaign, named by its inputs and its seed, its outcome, and the file to which outcomes are committed."""

import contextlib
import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from gate_racer.common.config import from_dict
from gate_racer.common.errors import UserError
from gate_racer.common.files import reading
from gate_racer.sim.worlds.world import NOMINAL
from gate_racer.vehicle.rotation import Array


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs of one flight; with its `PreparedCourse` they determine it."""

    track: str
    vehicle: str
    laps: int
    setting: str
    controller: str
    estimator: str
    seed: int
    world: str = NOMINAL  # see `choice.asked_world`
    plan: str = ""  # plan options other than the defaults, see `choice.plan_options`
    residual: str = ""  # name of a residual file, for the plant's acceleration and for the errors of noisy settings
    content: str = ""  # digest of what the names stand for, see `digest`

    @property
    def id(self) -> str:
        """Unique key of the case in the campaign; a stored case of other content is another flight."""
        laps = f"{self.laps}lap{'s' if self.laps > 1 else ''}"
        parts = (self.track, self.vehicle, laps, self.setting, self.controller, self.estimator, self.world)
        more = (f"plan:{self.plan}" if self.plan else "", f"residual:{self.residual}" if self.residual else "")
        return "/".join((*parts, *filter(None, more), f"seed{self.seed}"))

    @property
    def course(self) -> str:
        return f"{self.track}, {self.vehicle}, {self.laps} lap{'s' if self.laps > 1 else ''}"

    @property
    def configuration(self) -> "Case":
        """The case without seed and content: equal for flights that differ in these only."""
        return replace(self, seed=0, content="")

    @property
    def flown_by(self) -> str:
        """Controller, estimator and options as text, for the rows of a table."""
        more = f", plan {self.plan}" if self.plan else ""
        more += f", residual {self.residual}" if self.residual else ""
        return f"{self.controller}, state {self.estimator}{more}"


def digest(*contents: object) -> str:
    """Return a digest, 16 hex digits, of inputs by their representation."""
    return hashlib.sha256(repr(contents).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Outcome:
    """Figures of a flight. Times in s, lengths in m; None: unknown."""

    status: str  # the referee's status, or "failed": could not be flown
    cause: str = ""  # reason given by the component that ended the flight
    rule: str = ""  # rule of `flight.why` that explains the end
    gates_total: int = 0
    planned_s: float | None = None
    bound_s: float | None = None
    race_s: float | None = None
    lap_s: list[float] = field(default_factory=list)  # complete laps, the first from GO
    gate_s: list[float] = field(default_factory=list)  # since GO
    planned_gate_s: list[float] = field(default_factory=list)
    margin_m: list[float] = field(default_factory=list)  # vehicle's centre to each gate's nearest edge
    tracking_m: float | None = None  # rms distance from the plan
    estimate_m: float | None = None  # rms position error of the estimate
    # Error of the position relative to each visible gate passed, at its plane.
    at_gates_m: list[float] = field(default_factory=list)
    # Crossing point of each gate's plane, right and down of the opening's centre, in the axes of the true gate.
    crossing_m: list[tuple[float, float]] = field(default_factory=list)
    # Error of the estimated crossing, NaN: unknown.
    misjudged_m: list[tuple[float, float]] = field(default_factory=list)
    nees: float | None = None  # mean NEES of position, velocity and attitude; 9 for a consistent filter
    solve_p50_ms: float | None = None
    solve_p99_ms: float | None = None
    fallbacks: int = 0
    frames: int = 0
    sightings: int = 0
    rejected: int = 0
    flown_s: float = 0.0  # simulated time
    cpu_s: float = 0.0

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def share(self) -> float:
        """Fraction of the course completed."""
        return len(self.gate_s) / self.gates_total if self.gates_total else 0.0


@dataclass(frozen=True)
class Row:
    """Case, outcome and true path (M, 5): time since GO (s), position (m, world NED), speed (m/s)."""

    case: Case
    outcome: Outcome
    path: Array = field(default_factory=lambda: np.empty((0, 5)))


FILE = "campaign.sqlite"
PATH_BYTES = 16 << 20  # bytes, largest uncompressed true path; 20 per sample, 2.4 MB for ten minutes at 200 Hz
SCHEMA = """
create table if not exists about (key text primary key, value text not null);
create table if not exists cases (
  id text primary key, case_json text not null, status text not null, outcome_json text not null, path blob not null
);
"""


class Store:
    """Store of a campaign's outcomes. Only the main process writes."""

    def __init__(self, path: Path):
        """Open or create the file. Raises UserError when it is not a campaign."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=30.0)
            self._db.executescript(SCHEMA)
        except (sqlite3.Error, OSError) as error:
            raise UserError(f"{path}: cannot be opened as a campaign ({error})") from None

    @classmethod
    def existing(cls, path: Path) -> "Store":
        """Open an existing campaign by its file or folder. Raises UserError when there is none."""
        path = path / FILE if path.is_dir() else path
        if not path.is_file():
            raise UserError(f"{path}: no such campaign; race-bench --out FOLDER flies one")
        return cls(path)

    def about(self) -> dict[str, str]:
        """Return the campaign's commit, machine and other metadata."""
        with self._reading():
            return dict(self._db.execute("select key, value from about"))

    def require(self, about: dict[str, str], must: str) -> None:
        """Store the campaign's metadata. Raises UserError when it was begun with another value of the key `must`."""
        before = self.about().get(must)
        if before not in (None, about[must]):
            raise UserError(f"{self.path}: holds results of {must} {before}, not {about[must]}; choose another --out")
        with self._writing():
            self._db.executemany("insert or replace into about values (?, ?)", about.items())

    def done(self) -> dict[tuple[str, str], str]:
        """Return the status of all stored cases by id and content."""
        with self._reading():
            found = self._db.execute("select id, json_extract(case_json, '$.content'), status from cases")
            return {(name, content or ""): status for name, content, status in found}

    def add(self, row: Row) -> None:
        path = zlib.compress(row.path.astype(np.float32).tobytes())
        texts = (row.case.id, json.dumps(asdict(row.case)), row.outcome.status, json.dumps(asdict(row.outcome)))
        with self._writing():
            self._db.execute("insert or replace into cases values (?, ?, ?, ?, ?)", (*texts, path))

    def rows(self) -> list[Row]:
        """Return all rows in the order of their ids."""
        rows = list[Row]()
        with self._reading():
            for case, outcome, path in self._db.execute("select case_json, outcome_json, path from cases order by id"):
                unpack = zlib.decompressobj()
                points = np.frombuffer(unpack.decompress(path, PATH_BYTES), np.float32).astype(float).reshape(-1, 5)
                if unpack.unconsumed_tail:
                    raise ValueError(f"a flight path exceeds {PATH_BYTES >> 20} MB")
                of_case = from_dict(json.loads(case), Case, f"{self.path}: case")
                rows.append(Row(of_case, from_dict(json.loads(outcome), Outcome, f"{self.path}: outcome"), points))
        return rows

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Convert errors of damaged data to UserError, as `common.files.reading` does."""
        with reading(self.path, "a damaged campaign"):
            try:
                yield
            except (sqlite3.Error, zlib.error) as error:
                raise UserError(f"{self.path}: a damaged campaign ({error})") from None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Commit what is written within. Raises UserError where it cannot be, as on a full disk."""
        try:
            with self._db:
                yield
        except sqlite3.Error as error:
            raise UserError(f"{self.path}: cannot be written ({error}); run again to go on") from None

    def close(self) -> None:
        self._db.close()
