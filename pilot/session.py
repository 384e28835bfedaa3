"""`Session`: settings of a run, the pilot's models included, and its output files."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from gate_racer.estimation.registry import make_estimator
from gate_racer.link.msp.preflight import PreflightFile
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.link.peer import Address
from gate_racer.link.profile import Profile
from gate_racer.link.rflysim.vision import Vision
from gate_racer.mpc.make import make_controller
from gate_racer.mpc.policy.policy import Policy
from gate_racer.mpc.solvers.solver import AUTO
from gate_racer.perception.association import Associator
from gate_racer.pilot.guidance.manoeuvres import Manoeuvres
from gate_racer.pilot.guidance.rivals import StartGrid
from gate_racer.pilot.make import Racer, make_exciter, make_learned, make_racer
from gate_racer.pilot.preflight import Preflight
from gate_racer.pilot.records.flight_log import LIMIT_MB, SCHEMAS, FlightLog
from gate_racer.pilot.records.view import LiveView
from gate_racer.pilot.replanning.handover import Replanning
from gate_racer.pilot.replanning.planners import InlinePlanner, PlannerProcess, RemainderPlanner
from gate_racer.planner.options import PlanOptions
from gate_racer.planner.plan import Plan
from gate_racer.planner.replanning import Remainder
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle

LOG_SUFFIX = ".mcap"


@dataclass(frozen=True)
class Session:
    """Settings of a run, and its output files."""

    track: Track
    vehicle_name: str
    vehicle: Vehicle
    profile: Profile
    plan: Plan | None  # None: only the simulator has the track (`pilot.guidance.exploration`), or a policy flies
    laps: int
    seed: int
    log: Path  # the file (.mcap), or a folder for one named by track, time and seed
    timeout_s: float
    look: str
    camera: str
    detector: str
    estimator: str
    pose: bool
    controller: str
    msp: BetaflightProfile | None = None  # flight controller behind the profile, if it speaks MSP
    preflight: tuple[Path, PreflightFile] | None = None  # file that the aircraft must not contradict, with its path
    shadow: bool = False  # a person flies
    sitl: Path | None = None  # Betaflight's own program as flight controller of the embedded simulator
    vision: Vision | None = None  # RflySim's camera, in place of the video stream
    check: bool = True  # refuse to start on a contradiction
    manoeuvres: Manoeuvres | None = None  # flown instead of a plan
    view: Address | None = None  # address of the live view
    world: World | None = None  # world of the embedded simulator; the rest of the session is the pilot's model
    solver: str = AUTO
    command: str = "rates"  # or attitude
    log_limit_mb: float = LIMIT_MB
    json: Path | None = None  # where the result is written
    retry: bool = True  # fly missed gates again
    grid: StartGrid | None = None  # start grid of a race of several
    policy: Policy | None = None  # flies in place of plan and controller
    replan: PlanOptions | None = None  # options of the plan, to replan with in flight; None: no replanning

    def pilot(self, planner: RemainderPlanner | None = None) -> Racer:
        """Create a pilot on the pad; without a planner its plan is fixed. Raises UserError without a usable solver."""
        associator = Associator(self.track.gates, self.vehicle.camera)
        estimator = make_estimator(self.estimator, self.track.start, self.vehicle, associator.appearance)
        preflight = Preflight(self.profile, self.track) if self.check else None
        parts = self.track, self.vehicle, self.profile, estimator, associator
        if self.manoeuvres is not None:
            return make_exciter(*parts, self.manoeuvres, self.seed, self.pose, preflight)
        by_rates, lands = self.command == "rates", self.msp is not None
        if self.policy is not None:
            return make_learned(*parts, self.policy, self.laps, self.pose, preflight, by_rates, lands)
        assert self.plan is not None, "a session without plan needs a policy or manoeuvres"
        controller = make_controller(self.controller, self.plan, self.vehicle, self.track, self.solver)
        replanning = None
        if planner is not None and self.replan is not None:
            replanning = Replanning(controller, self.plan, self.track, self.vehicle, self.replan, planner)
        return make_racer(
            *parts,
            controller,
            self.laps,
            self.pose,
            preflight,
            by_rates,
            self.retry,
            lands,
            self.grid,
            self.shadow,
            replanning,
        )

    def planner(self, mode: str) -> AbstractContextManager[RemainderPlanner | None]:
        """Return the planner in flight: beside the loop, or in lock-step while time stands still; None if not requested."""
        if self.replan is None or self.plan is None:
            return nullcontext()
        if "lockstep" in mode:
            return closing(InlinePlanner(self.vehicle))
        plan = self.plan
        first_s = float(plan.gate_times_s[0])
        x = plan.x[plan.gate_nodes[0]]
        return closing(PlannerProcess(Remainder(plan, first_s, x, self.track, self.vehicle, self.replan)))

    @property
    def described_world(self) -> dict[str, Any] | None:
        """World for log and result; None for an external simulator."""
        return self.world.as_dict() if self.world is not None else None

    def save_world(self, log: Path) -> None:
        """Write the world beside a log, where it is known and not nominal."""
        if self.world is not None and not self.world.nominal:
            self.world.save(log.with_suffix(".world.yaml"))

    def open_log(self, mode: str, tell: Callable[[str], None]) -> FlightLog:
        """Open a new log, and its live view if requested. Raises UserError where either cannot be opened."""
        view = LiveView(self.view, SCHEMAS, self.track, self.plan) if self.view is not None else None
        return FlightLog(self.log_path(), view, self.log_limit_mb, "lockstep" in mode, tell)

    def log_path(self) -> Path:
        """Return the path of the log, that of a new, empty file in a folder."""
        if self.log.suffix == LOG_SUFFIX:
            return self.log
        stem = f"{self.track.name}-{time.strftime('%Y%m%d-%H%M%S')}-seed{self.seed}"
        for number in count(1):
            path = self.log / f"{stem}{f'-{number}' if number > 1 else ''}{LOG_SUFFIX}"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.open("x").close()  # two flights that begin in one second have a file each
            except FileExistsError:
                continue
            except OSError:
                break  # FlightLog tells why
            return path
        return path
