"""A case: one flight of a campaign, named by its inputs and its seed, and what came of it."""

from dataclasses import dataclass, field

from sim.worlds.world import NOMINAL
from vehicle.rotation import Array


@dataclass(frozen=True, slots=True)
class Case:
    """One flight. With its `Course` it says all that there is to fly."""

    track: str
    vehicle: str
    laps: int
    setting: str
    controller: str
    estimator: str
    seed: int
    world: str = NOMINAL  # see `worlds.asked`
    plan: str = ""  # what it asks for other than `PlanOptions` does, see `choice.plan_options`
    residual: str = ""  # name of a residual file: what flies has its acceleration too, and a noisy setting its errors

    @property
    def id(self) -> str:
        laps = f"{self.laps}laps" if self.laps > 1 else "1lap"
        parts = (self.track, self.vehicle, laps, self.setting, self.controller, self.estimator, self.world)
        more = (f"plan:{self.plan}" if self.plan else "", f"residual:{self.residual}" if self.residual else "")
        return "/".join((*parts, *filter(None, more), f"seed{self.seed}"))


@dataclass(frozen=True)
class Outcome:
    """The figures of a flight. Times in s, lengths in m; None: not known."""

    status: str  # as the referee's, or "failed": could not be flown
    cause: str = ""  # in the words of whoever ended it
    rule: str = ""  # which rule of `flight.why` explains the end
    gates_total: int = 0
    planned_s: float | None = None
    bound_s: float | None = None
    race_s: float | None = None
    lap_s: list[float] = field(default_factory=list)  # complete laps; the first from GO
    gate_s: list[float] = field(default_factory=list)  # since GO
    planned_gate_s: list[float] = field(default_factory=list)
    margin_m: list[float] = field(default_factory=list)  # from the centre to the closest point of each gate passed
    tracking_m: float | None = None  # rms
    estimate_m: float | None = None  # rms
    # Error of the position to each gate passed, at its plane; to a trigger that nothing shows there is none.
    at_gates_m: list[float] = field(default_factory=list)
    # Where each gate's plane was crossed: right and down of the opening's centre, in the axes of the gate as it stands.
    crossing_m: list[tuple[float, float]] = field(default_factory=list)
    misjudged_m: list[tuple[float, float]] = field(
        default_factory=list
    )  # of that, position error to the gate, NaN: unknown
    nees: float | None = (
        None  # mean, of position, velocity and attitude: 9 for a filter that knows what it does not know
    )
    solve_p50_ms: float | None = None
    solve_p99_ms: float | None = None
    fallbacks: int = 0
    frames: int = 0
    sightings: int = 0
    rejected: int = 0
    flown_s: float = 0.0  # simulated
    cpu_s: float = 0.0

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def share(self) -> float:
        """Of the course, completed."""
        return len(self.gate_s) / self.gates_total if self.gates_total else 0.0


@dataclass(frozen=True)
class Flown:
    """Outcome and true path: (M, 5) time since GO, position in world NED, speed."""

    outcome: Outcome
    path: Array
