"""Case: one flight of a campaign, named by its inputs and its seed, and its outcome."""

import hashlib
from dataclasses import dataclass, field, replace

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
        laps = f"{self.laps}laps" if self.laps > 1 else "1lap"
        parts = (self.track, self.vehicle, laps, self.setting, self.controller, self.estimator, self.world)
        more = (f"plan:{self.plan}" if self.plan else "", f"residual:{self.residual}" if self.residual else "")
        return "/".join((*parts, *filter(None, more), f"seed{self.seed}"))

    @property
    def course(self) -> str:
        """Track, vehicle and number of laps as text."""
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
        """Whether the race was finished."""
        return self.status == "finished"

    @property
    def share(self) -> float:
        """Fraction of the course completed."""
        return len(self.gate_s) / self.gates_total if self.gates_total else 0.0


@dataclass(frozen=True)
class Flown:
    """Outcome and true path (M, 5): time since GO (s), position (m, world NED), speed (m/s)."""

    outcome: Outcome
    path: Array
