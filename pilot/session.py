"""`Session`: what is to be flown, what the pilot believes of it, and where its traces go."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from estimation.registry import make_estimator
from link.msp.preflight import PreflightFile
from link.msp.profile import BetaflightProfile
from link.profile import Profile
from link.rflysim.vision import Vision
from mpc.make import make_controller
from mpc.policy.policy import Policy
from mpc.solvers.solver import AUTO
from perception.association import Associator
from pilot.guidance.manoeuvres import Manoeuvres
from pilot.guidance.rivals import StartGrid
from pilot.make import Racer, make_exciter, make_learned, make_racer
from pilot.preflight import Preflight
from pilot.records.flight_log import LIMIT_MB, SCHEMAS, FlightLog
from pilot.records.view import LiveView
from pilot.replanning.handover import Replanning
from pilot.replanning.planners import AtOnce, PlannerProcess, RestPlanner
from planner.options import PlanOptions
from planner.plan import Plan
from planner.replanning import Rest
from sim.worlds.distribution import described, save
from sim.worlds.world import World
from tracks.track import Track
from vehicle.vehicle import Vehicle

Address = tuple[str, int]


@dataclass(frozen=True)
class Session:
    """What is to be flown, and where its traces go."""

    track: Track
    vehicle_name: str
    vehicle: Vehicle
    profile: Profile
    plan: Plan | None  # None: the track is the simulator's alone, see `pilot.exploring`, or a policy flies
    laps: int
    seed: int
    log_folder: Path
    timeout_s: float
    look: str
    camera: str
    detector: str
    estimator: str
    pose: bool
    controller: str
    msp: BetaflightProfile | None = None  # the flight controller behind the profile, if it speaks MSP
    preflight: tuple[Path, PreflightFile] | None = None  # what the aircraft must not contradict, and where that stands
    shadow: bool = False  # a person flies
    sitl: Path | None = None  # Betaflight's own program, the flight controller of the embedded simulator
    vision: Vision | None = None  # of RflySim, in place of the video stream
    check: bool = True  # whether contradictions before the start refuse it
    manoeuvres: Manoeuvres | None = None  # to be flown instead of a plan
    view: Address | None = None  # where the flight is shown live
    world: World | None = None  # of a simulator of our own; the rest of the session is what the pilot believes
    solver: str = AUTO
    command: str = "rates"  # or attitude
    log_limit_mb: float = LIMIT_MB
    json: Path | None = None  # where the result is written
    retry: bool = True  # whether a missed gate is flown again
    grid: StartGrid | None = None  # of a race of several
    policy: Policy | None = None  # flies in the place of plan and controller
    replan: PlanOptions | None = None  # the plan's own, by which it is made again in flight; None: it stays as it is

    def pilot(self, planner: RestPlanner | None = None) -> Racer:
        """A pilot on the pad; without a planner its plan stays as it is. Raises UserError without a usable solver."""
        associator = Associator(self.track.gates, self.vehicle.camera)
        estimator = make_estimator(self.estimator, self.track.start, self.vehicle, associator.appearance)
        preflight = Preflight(self.profile, self.track) if self.check else None
        parts = self.track, self.vehicle, self.profile, estimator, associator
        if self.manoeuvres is not None:
            return make_exciter(*parts, self.manoeuvres, self.seed, self.pose, preflight)
        by_rates, lands = self.command == "rates", self.msp is not None
        if self.policy is not None:
            return make_learned(*parts, self.policy, self.laps, self.pose, preflight, by_rates, lands)
        assert self.plan is not None, "a plan, a policy or manoeuvres"
        controller = make_controller(self.controller, self.plan, self.vehicle, self.track, self.solver)
        retry, shadow, again = self.retry, self.shadow, None
        if planner is not None and self.replan is not None:
            again = Replanning(controller, self.plan, self.track, self.vehicle, self.replan, planner)
        return make_racer(
            *parts, controller, self.laps, self.pose, preflight, by_rates, retry, lands, self.grid, shadow, again
        )

    def planner(self, mode: str) -> AbstractContextManager[RestPlanner | None]:
        """Who plans again in flight: beside the loop, or in lock-step while time stands; nobody, where it is not asked for."""
        if self.replan is None or self.plan is None:
            return nullcontext()
        if "lockstep" in mode:
            return closing(AtOnce(self.vehicle))
        plan = self.plan
        first_s = float(plan.gate_times_s[0])
        x = plan.x[plan.gate_nodes[0]]
        return closing(PlannerProcess(Rest(plan, first_s, x, self.track, self.vehicle, self.replan)))

    @property
    def described_world(self) -> dict[str, Any] | None:
        """For log and result; None of a simulator elsewhere."""
        return described(self.world) if self.world is not None else None

    def save_world(self, log: Path) -> None:
        """Write the world beside a log, where it is known and not as believed."""
        if self.world is not None and not self.world.nominal:
            save(log.with_suffix(".world.yaml"), self.world)

    def open_log(self, mode: str, tell: Callable[[str], None]) -> FlightLog:
        """A new log, and the live view of it. Raises UserError when either cannot be had."""
        view = LiveView(self.view, SCHEMAS, self.track, self.plan) if self.view is not None else None
        return FlightLog(self.log_path(), view, self.log_limit_mb, "lockstep" in mode, tell)

    def log_path(self) -> Path:
        """A new file, named by track, time and seed."""
        stem = f"{self.track.name}-{time.strftime('%Y%m%d-%H%M%S')}-seed{self.seed}"
        path, number = self.log_folder / f"{stem}.mcap", 1
        while path.exists():
            number += 1
            path = self.log_folder / f"{stem}-{number}.mcap"
        return path
