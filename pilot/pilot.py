"""The pilot: a pure state machine from timed messages to commands, without socket, thread or clock.

wait_link -> calibrate -> wait_go -> arm (`Handshake`) -> launch -> race -> finished (`FlightGuidance`), or aborted from anywhere.
`GuidedFlight` is the one way from a state to a command, for `Pilot` and for `Racer`; it asks for no message, link or clock.
"""

from collections import deque
from collections.abc import Collection
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from gate_racer.common.compiled import warm_up
from gate_racer.common.parts import PATIENCE_S
from gate_racer.estimation.estimator import AHEAD_S, Estimator, MapEstimator, Mapper, State
from gate_racer.estimation.landmarks import LandmarkEstimator
from gate_racer.estimation.localisation import FROM_PAD
from gate_racer.estimation.registry import DEFAULT, make_estimator
from gate_racer.link.messages import Attitude, Command, HumanSticks, Imu, LocalPosition, Odometry, RivalState, Telemetry
from gate_racer.link.profile import Profile
from gate_racer.model.imu import StandingImu
from gate_racer.model.reprojection import GateSighting
from gate_racer.model.rims import GateAppearance
from gate_racer.mpc.control import Control, Source
from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.registry import free_controller
from gate_racer.perception.association import Associator
from gate_racer.perception.roi import SearchWindow
from gate_racer.pilot.flight import (
    USUAL,
    CommandRecord,
    DetectedImage,
    End,
    EndReason,
    FlightCounters,
    FlightOptions,
    Phase,
    set_point,
)
from gate_racer.pilot.guidance.exciter import Excitation, Exciter, Manoeuvres
from gate_racer.pilot.guidance.explorer import OPEN, Explorer, Room
from gate_racer.pilot.guidance.plan_follower import GateFollower, PlanFollower
from gate_racer.pilot.guidance.protocol import FlightGuidance, GateObserver
from gate_racer.pilot.guidance.velocity import Landing
from gate_racer.pilot.handshake import Handshake, Preflight
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import matrix
from gate_racer.vehicle.vehicle import Vehicle

AIRBORNE_M_S, AIRBORNE_M = 0.5, 0.3  # m/s, estimated speed, or m from the pad, at which the launch has succeeded
LAUNCH_LIMIT_S = 3.0  # s from the first command to take-off
LEVEL_LIMIT_S = 2.0  # s of flight without any solution

E = TypeVar("E", bound=Estimator)


class GuidedFlight(Generic[E]):
    """Flight of one guidance. For each command call `judge`, until there is an end, then `command`."""

    def __init__(
        self, guidance: FlightGuidance[E], period_s: float, limit_s: float, ignored: Collection[EndReason] = frozenset()
    ):
        """Create it on the pad: period_s (s) between commands, at most limit_s (s) since GO; `ignored` reasons do not end it."""
        self.guidance, self.counters = guidance, FlightCounters()
        self.end: End | None = None
        self.end_t = 0.0  # s
        self._period_s, self._limit_s, self._ignored = period_s, limit_s, ignored
        self.rest()

    def rest(self) -> None:
        self.airborne = False
        self.launch: State | None = None  # state at the first command
        self._level_since: float | None = None

    def judge(self, state: State, t: float, go_t: float, estimator: E) -> None:
        """Update launch, progress and limits from the state at t (s); GO was at go_t (s)."""
        self.launch = self.launch or state
        if not self.airborne:
            moved = state.p_wb - self.launch.p_wb
            self.airborne = bool(np.linalg.norm(state.v_w) > AIRBORNE_M_S or np.linalg.norm(moved) > AIRBORNE_M)
            if not self.airborne and t - self.launch.t > LAUNCH_LIMIT_S:
                cause = f"the vehicle did not move within {LAUNCH_LIMIT_S:g} s of the first command"
                self.conclude(End(EndReason.NOT_AIRBORNE, cause), state.t)
        self.conclude(self.guidance.judge(state, t, go_t, estimator), state.t)
        if t - go_t > self._limit_s:
            self.conclude(End(EndReason.TIME_LIMIT, f"no finish within {self._limit_s:g} s"), state.t)

    def command(self, state: State, t: float, dt: float, estimator: E) -> Control:
        control = self.guidance.step(state, t, dt, estimator)
        self.count(control, t)
        return control

    def count(self, control: Control, t: float) -> None:
        """Count a command at t (s), and end a flight that has had no solution for too long."""
        self.counters.fallbacks += control.source is not Source.SOLVED
        self.counters.late += control.step_s > self._period_s
        if control.reason:
            reasons = self.counters.fallback_reasons
            reasons[control.reason] = reasons.get(control.reason, 0) + 1
        if control.source is not Source.LEVEL:
            self._level_since = None
        elif self._level_since is None:
            self._level_since = t
        elif t - self._level_since > LEVEL_LIMIT_S:
            cause = f"no solution for {LEVEL_LIMIT_S:g} s (solver status {control.status})"
            self.conclude(End(EndReason.NO_SOLUTION, cause), t)

    def conclude(self, end: End | None, t: float) -> None:
        """Record the first end, at t (s), unless it is ignored."""
        if end is not None and self.end is None and end.reason not in self._ignored:
            self.end, self.end_t = self.guidance.conclude(end), t


COAST_S = 0.5  # s flown past the last gate, so that the simulator registers the finish too
STOP_S = 5.0  # s, longest flight on to the plan's stop before a landing
GAP_S = 0.05  # s without IMU data, bridged by the model: three samples at 76 Hz
# Ends after which the pilot is not in control.
HANDS_OFF = EndReason.NO_LINK, EndReason.DISARMED, EndReason.LEFT_OFFBOARD
# Ends of the automatic flyer only: a person in control flies on.
AUTOMATIC_ONLY = EndReason.NOT_AIRBORNE, EndReason.NO_SOLUTION, EndReason.PLAN_OVERRUN, EndReason.BLIND
EARLY = 8  # images buffered until the IMU sample after their exposure


class Pilot(Generic[E]):
    """Racing pilot. Pass every message to `receive`; after each `Imu`, call `act` for commands."""

    def __init__(
        self,
        handshake: Handshake,
        estimator: E,
        guidance: FlightGuidance[E],
        profile: Profile,
        vehicle: Vehicle,
        options: FlightOptions = USUAL,
        landing: Landing | None = None,
    ):
        """Create a pilot on the pad, with all that it calls compiled.

        `landing` is flown after the end of the flight while this pilot is in control; None: the motors stop in the air.
        """
        warm_up()
        self.handshake, self.estimator, self.guidance = handshake, estimator, guidance
        self.pose, self._by_rates, self._shadow = options.pose, options.by_rates, options.shadow
        self._period_s, self._vehicle, self._landing = 1 / profile.command_hz, vehicle, landing
        self._attitudes = profile.attitude_hz > 0.0  # whether they are used, if sent
        ignored = AUTOMATIC_ONLY if options.shadow else ()
        self._flight = GuidedFlight(guidance, self._period_s, profile.run_limit_s, ignored)
        self.counters = self._flight.counters
        self.last_command: CommandRecord | None = None
        self.last_sightings: list[GateSighting] = []
        self._on_pad = deepcopy(estimator)  # copy that has received nothing yet
        self._await_link()

    def _await_link(self) -> None:
        self._flight.rest()
        self._next_command = -np.inf
        self._from_pad: deque[DetectedImage] = deque(maxlen=FROM_PAD)  # newest images before GO
        self._early: deque[DetectedImage] = deque(maxlen=EARLY)  # images exposed after the newest IMU sample
        self._clock_sigma = 0.0  # s, standard deviation of the image clock passed to the estimator
        self._standing = StandingImu()

    def forget_link(self) -> None:
        """Reset for a new link if GO has not passed: another simulator may follow, with its own clock and race."""
        if self.go_t is None and not self.over:
            self.estimator = deepcopy(self._on_pad)
            self.handshake.forget()
            self._await_link()

    @property
    def end(self) -> End | None:
        return self._flight.end

    @property
    def phase(self) -> Phase:
        if self.end is not None:
            return Phase.FINISHED if self.end.reason is EndReason.FINISHED else Phase.ABORTED
        return Phase.RACE if self._flight.airborne and self.handshake.phase is Phase.LAUNCH else self.handshake.phase

    @property
    def go_t(self) -> float | None:
        """Time of GO, s, or start of the flight if there is no race."""
        return self.handshake.go_t

    @property
    def cause(self) -> str:
        """Human-readable reason for the end; empty before the end and after a plain finish."""
        return self.end.cause if self.end is not None else ""

    @property
    def over(self) -> bool:
        """Whether nothing is left to do: aborted, or finished and flown past the last gate, and landed if requested."""
        if self.end is None or self._coasts:
            return False
        if self._landing is None or not self._flight.airborne or self.end.reason in HANDS_OFF:
            return True
        return self._landing.done or self.handshake.end is not None

    @property
    def _coasts(self) -> bool:
        """Whether the vehicle, finished, still flies on: for others to register the finish, or to where a landing begins.

        Time stands still where the simulator has ended.
        """
        since = self.estimator.t - self._flight.end_t
        onwards = since <= COAST_S if self._landing is None else since <= STOP_S and not self.guidance.rests
        return self.phase is Phase.FINISHED and onwards and self.handshake.end is None

    @property
    def _lands(self) -> bool:
        return self._landing is not None and self.end is not None and not self._coasts

    def receive(self, message: Telemetry | DetectedImage) -> None:
        if isinstance(message, Attitude) and not self._attitudes:
            return
        self.handshake.receive(message, self.estimator.t, self._flight.airborne)
        self._conclude(self.handshake.end)
        if isinstance(message, Imu):
            self._receive_imu(message)
        elif isinstance(message, Attitude):
            self.estimator.attitude(message)
        elif isinstance(message, LocalPosition | Odometry):
            if isinstance(message, Odometry):
                self.estimator.odometry(message)
            if self.pose:
                v_w = message.v_w if isinstance(message, LocalPosition) else matrix(message.q_wb) @ message.v_b
                self.estimator.position(message.t, np.array(message.p_wb), np.array(v_w))
        elif isinstance(message, DetectedImage):
            self._receive_image(message)
        elif isinstance(message, RivalState):
            self.guidance.process_rival(message)
        elif isinstance(message, HumanSticks):
            u = np.array([*message.omega, self._vehicle.throttle.thrust(message.throttle)])
            self.guidance.process_human_input(message.t, u)
        if self.phase is Phase.RACE and not isinstance(message, DetectedImage):
            self._conclude(self.guidance.receive(message))

    def abort(self, reason: EndReason, cause: str) -> None:
        """End the flight, unless it has ended; the guidance decides the resulting end."""
        if self.end is None:
            self._conclude(End(reason, cause))

    def act(self, now: float = -np.inf) -> list[Command]:
        """Return the commands due. `now` (s): present time, where the newest IMU sample is known to be older."""
        t = max(self.estimator.t, now)
        if self.end is None:
            grounded = self.go_t is None
            commands = self.handshake.advance(t)
            self._conclude(self.handshake.end)
            if grounded and self.go_t is not None:
                self.estimator.release()
                self.guidance.end_of_rest(self._from_pad, self.estimator)
            if self.handshake.phase is not Phase.LAUNCH:
                self._flight.launch = None
            if commands:
                return commands
        flying = self.phase in (Phase.LAUNCH, Phase.RACE) if self.end is None else not self.over
        return self._fly(t) if flying else []

    def prepare(self) -> None:
        """Prepare the next command before its state is known; call after commands have been sent."""
        if self.last_command is not None and not self.over:
            self.guidance.prepare()

    def window(self) -> SearchWindow:
        last = self.last_command if self.phase is Phase.RACE else None
        return self.guidance.window(None if last is None or last.state.lost else last.state)

    def _receive_imu(self, sample: Imu) -> None:
        if self.go_t is not None and self._vehicle.imu.accel_loss_m_s2:
            v_b = self.last_command.state.v_b if self.last_command is not None else (0.0, 0.0, 0.0)
            sample = replace(sample, accel=self._vehicle.steadied(sample.accel, v_b))
        missing = self._standing.stands(sample) and self._flight.airborne and self.end is None
        if (missing or sample.t - self.estimator.t > GAP_S) and self.last_command is not None:
            self.estimator.coast(self.guidance.bridge(self.estimator.state(), sample.t))
        measured = not missing or sample.t - self.estimator.t > GAP_S
        if measured and self.estimator.imu(sample) and self.handshake.disturbed(sample):
            self.estimator.restart_rest()
        if self._landing is not None:
            self._landing.receive(sample)
        while self._early and self._early[0].t <= self.estimator.t:
            self._see(self._early.popleft())

    def _receive_image(self, image: DetectedImage) -> None:
        self.counters.frames += 1
        self.last_sightings = []
        if image.clock_sigma > self._clock_sigma:
            self._clock_sigma = image.clock_sigma
            self.estimator.inflate_image_delay(self._clock_sigma)
        if image.t > self.estimator.t + AHEAD_S:
            self._early.append(image)
        else:
            self._see(image)

    def _see(self, image: DetectedImage) -> None:
        if self.phase not in (Phase.LAUNCH, Phase.RACE):
            if self.end is None:
                self._from_pad.append(image)
            return
        found = self.guidance.see(image, self.estimator)
        self.last_sightings = found.sightings
        self.counters.sightings += found.recognised
        self.counters.rejected += found.unexplained

    def _fly(self, t: float) -> list[Command]:
        period = self._period_s
        if self._next_command - t > period + 1e-6:  # the simulator stood still while commands were predicted
            self._next_command = t
        resting = self._flight.launch is None and not self.guidance.ready(self.handshake.rested_s(t))
        if t < self._next_command - 1e-6 or resting:
            return self.handshake.keep_alive(t) if resting else []
        state = self.estimator.state()
        # Late telemetry must not cause a burst of commands: the schedule restarts after a gap.
        due = self._next_command if t - self._next_command < period else t
        self._next_command = due + period
        self.counters.lost += state.lost
        if self.end is None:
            assert self.go_t is not None
            self._flight.judge(state, t, self.go_t, self.estimator)
        if self.over or (self._shadow and not self._flight.airborne):
            return []  # a person takes off at any time, and the pad's normal force would be learned as thrust
        left_s = self._next_command - t
        if self._landing is not None and self._lands:
            control = self._landing.step(state, t, left_s)
            self._flight.count(control, t)
        else:
            control = self._flight.command(state, t, left_s, self.estimator)
        target = set_point(control, self._vehicle, self._by_rates)
        self.last_command = CommandRecord(state, control, target, self._lands)
        return [target]

    def _conclude(self, end: End | None) -> None:
        self._flight.conclude(end, self.estimator.t)


AnyPilot = Pilot[Any]  # any guidance and estimator


RacingPilot = Pilot[MapEstimator]


@dataclass(frozen=True)
class PilotModels:
    """A pilot's models of the race, and the estimator and the observer of the gates that they begin with."""

    track: Track
    vehicle: Vehicle
    profile: Profile
    estimator: MapEstimator
    observer: GateObserver

    @classmethod
    def of(
        cls, track: Track, vehicle: Vehicle, profile: Profile, estimator: str = DEFAULT, patience_s: float = PATIENCE_S
    ) -> "PilotModels":
        """Return the models with an estimator at rest on the pad. Raises UserError as `make_estimator`."""
        associator = Associator(track.gates, vehicle.camera)
        made = make_estimator(estimator, track.start, vehicle, associator.appearance, patience_s=patience_s)
        return cls(track, vehicle, profile, made, GateObserver(associator, track.gates))


def build_racer(models: PilotModels, controller: PlanController, options: FlightOptions) -> RacingPilot:
    period_s = 1 / models.profile.command_hz
    guidance = PlanFollower(models.track, models.vehicle, controller, period_s, options, models.observer)
    return _pilot(models, guidance, options)


def build_free(models: PilotModels, controller: str, options: FlightOptions) -> RacingPilot:
    """Return a pilot that flies without a plan. Raises UserError as `free_controller`."""
    track, command_hz = models.track, models.profile.command_hz
    made = free_controller(controller, track, models.vehicle, command_hz, options.patience_s)
    return _pilot(models, GateFollower(track, options.laps, made, models.observer), options)


def build_exciter(models: PilotModels, manoeuvres: Manoeuvres, seed: int, options: FlightOptions) -> RacingPilot:
    """Return a pilot that flies manoeuvres within the bounds of the track; the seed draws their order."""
    excitation = Excitation(models.vehicle, models.track.start, models.track.bounds, manoeuvres, seed)
    return _pilot(models, Exciter(excitation, models.observer), options)


def _pilot(models: PilotModels, guidance: FlightGuidance[MapEstimator], options: FlightOptions) -> RacingPilot:
    lands = options.lands and not options.shadow
    landing = Landing(models.vehicle, models.track.bounds.high_m[2]) if lands else None
    handshake = Handshake(models.profile, options.preflight)
    return Pilot(handshake, models.estimator, guidance, models.profile, models.vehicle, options, landing)


def build_explorer(
    vehicle: Vehicle,
    profile: Profile,
    opening_m: float,
    manoeuvres: Manoeuvres | None = None,
    seed: int = 0,
    preflight: Preflight | None = None,
    room: Room = OPEN,
) -> tuple[Pilot[Mapper], Explorer]:
    """Create a pilot that explores, and its guidance (see `Explorer`), which is given the size of the gates but no course."""
    guidance = Explorer(vehicle, profile.race is not None, manoeuvres, seed, room)
    estimator: Mapper = LandmarkEstimator(vehicle.camera, opening_m, GateAppearance())
    return Pilot(Handshake(profile, preflight), estimator, guidance, profile, vehicle), guidance
