"""`Racer`: the pilot without a link, for a loop of one's own: a state in, a command out, by the flight that `run-mpc` flies."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from gate_racer.common.compiled import warm_up
from gate_racer.common.errors import UserError
from gate_racer.common.parts import PATIENCE_S
from gate_racer.estimation.estimator import MapEstimator, State
from gate_racer.mpc.control import Control
from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.names import AUTO
from gate_racer.mpc.registry import free_controller, make_controller, needs_plan
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection
from gate_racer.pilot.flight import DetectedImage, End, FlightCounters, FlightOptions, Passages
from gate_racer.pilot.guidance.plan_follower import GateFollower, PlanFollower
from gate_racer.pilot.guidance.protocol import GateObserver
from gate_racer.pilot.pilot import GuidedFlight
from gate_racer.planner.plan import Plan, PlanError
from gate_racer.planner.planning import make_plan
from gate_racer.planner.replanning import Remainder, replan
from gate_racer.planner.task import PlanOptions
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Rotors, Vehicle


@dataclass(frozen=True)
class RacerOptions:
    """How a `Racer` flies.

    Examples:
        >>> from gate_racer import RacerOptions
        >>> RacerOptions(command_hz=50.0).controller
        'auto'
    """

    laps: int = 1  # of a given plan, if there is one
    command_hz: float = 60.0  # Hz, rate at which `Racer.step` is called
    controller: str = AUTO  # as `run-mpc --controller`: name, YAML file, learned policy, or class of one's own
    solver: str = AUTO
    plan: PlanOptions = field(default_factory=PlanOptions)  # for the plan unless one is given, and for those in flight
    retry: bool = True  # fly missed gates again
    replan: bool = True  # plan anew when gates or obstacles turn out elsewhere; else lead the line to the gates only
    limit_s: float = np.inf  # s, longest flight
    patience_s: float = PATIENCE_S  # s, longest step of a class of one's own


@dataclass(frozen=True, slots=True)
class RacerCommand:
    """Command of a `Racer` in three forms; body FRD, world NED."""

    t: float  # s
    control: Control  # with its source and diagnostics
    rotor_thrusts_n: Array | None  # (4,) N, in the order of the vehicle's rotors; None for a vehicle without `rotors`

    @property
    def q_wb(self) -> Array:
        """Attitude (4,), wxyz, for a proportional attitude loop with the vehicle's `attitude_gain_1_s`."""
        return self.control.q_wb

    @property
    def omega_b(self) -> Array:
        return self.control.u[:3]

    @property
    def thrust_m_s2(self) -> float:
        """Thrust over mass along -z of the body, m/s^2."""
        return float(self.control.u[3])


class ToldMap(MapEstimator):
    """The defaults of `MapEstimator`, for a flight by told states: no gate is off the map as far as anybody knows."""


TOLD = ToldMap()  # type: ignore[abstract]


class Racer:
    """Pilot of one race. Call `step` once per command period; it owns no socket, thread or clock, and never raises.

    Examples:
        >>> from gate_racer import Racer, State
        >>> racer = Racer(track, vehicle, plan=plan)
        >>> command = racer.step(0.0, State(0.0, track.start.p_wb, track.start.q_wb))
        >>> command.omega_b.shape, command.thrust_m_s2 > 9.81, racer.passages.times_s
        ((3,), True, [])
    """

    def __init__(
        self,
        track: Track,
        vehicle: Vehicle,
        options: RacerOptions = RacerOptions(),
        plan: Plan | None = None,
        estimator: MapEstimator | None = None,
    ):
        """Plan the track unless a plan of it is given.

        Args:
            estimator: filter whose state is flown, if none is told, and which knows where gates stand off the map. The caller
                passes it each `Imu`, and images to `see`.

        Raises:
            UserError: the course cannot be flown, a plan of another track or vehicle, no such controller, or no usable solver.
        """
        warm_up()
        if plan is not None:
            plan.require(track, vehicle)
            options = replace(options, laps=plan.laps)
        self._track, self._vehicle, self._options = track, vehicle, options
        self._estimator = estimator or TOLD
        self.plan = plan or self._planned(None) if needs_plan(options.controller) else None
        self._flight = self._begun()
        self._go_t: float | None = None
        self._t = 0.0  # s, of the last command
        self._images = 0

    def step(self, t: float, state: State | None = None) -> RacerCommand:
        """Return the command at t (s), from a told state at t or before, or the estimator's; the first call is GO.

        A time that is not finite is taken for one command period after the last.
        """
        flight, estimator = self._flight, self._estimator
        t = t if math.isfinite(t) else self._t + 1 / self._options.command_hz
        self._t = t
        if self._go_t is None:
            self._go_t = t
            estimator.release()
        state = state or estimator.state()
        if flight.end is None:
            flight.judge(state, t, self._go_t, estimator)
        control = flight.command(state, t, 1 / self._options.command_hz, estimator)
        rotors = self._vehicle.rotors
        thrusts_n = rotor_thrusts(self._vehicle, rotors, control.u, state.omega_b) if rotors is not None else None
        return RacerCommand(t, control, thrusts_n)

    def see(self, t: float, detections: list[Detection]) -> None:
        """Correct the estimator by the gates detected in an image that was exposed at t (s)."""
        self._images += 1
        self._flight.guidance.see(DetectedImage(t, self._images, detections), self._estimator)

    def prepare(self) -> None:
        """Prepare the next command, if there is time before its state is known; optional."""
        self._flight.guidance.prepare()

    def update(self, track: Track) -> str:
        """Race on where gates or obstacles turn out elsewhere; call it between two steps.

        The rest of the course is planned again from where the last command leads. Without a new plan, and the reason is returned
        then, the line is led to the gates as they stand, past obstacles as they stood. Raises UserError for other gates.
        """
        if [gate.is_ball for gate in track.gates] != [gate.is_ball for gate in self._track.gates]:
            raise UserError(f"{track.name}: has {len(track.gates)} gates, not those of {self._track.name}")
        if not np.isfinite([gate.centre_m for gate in track.gates]).all():
            raise UserError(f"{track.name}: the centre of a gate is not finite")
        self._track, guidance = track, self._guidance
        if self._go_t is None:
            self.plan = self._planned(self.plan) if self.plan is not None else None
            self._flight = self._begun()
            return ""
        why = "not asked for"
        if self._options.replan and isinstance(guidance, PlanFollower) and self.plan is not None:
            why = self._replanned(guidance, self.plan)
        if why:
            guidance.retarget(track)
        return why

    @property
    def end(self) -> End | None:
        """End of the flight by the racer's own judgement; it commands on, beyond the plan's end. None before."""
        return self._flight.end

    @property
    def passages(self) -> Passages:
        """Gates passed so far, with times since GO and margins."""
        return self._flight.guidance.passages

    @property
    def counters(self) -> FlightCounters:
        """Counts of fall-backs and late commands."""
        return self._flight.counters

    def _planned(self, warm: Plan | None) -> Plan:
        options = replace(self._options.plan, laps=self._options.laps)
        plan, certificate = make_plan(self._track, self._vehicle, options, warm=warm)
        if not certificate.ok:
            raise PlanError(f"{self._track.name}: no certified plan ({certificate.verdict})")
        return plan

    def _begun(self) -> GuidedFlight[MapEstimator]:
        options, track, vehicle = self._options, self._track, self._vehicle
        name, patience_s = options.controller, options.patience_s
        if self.plan is not None:
            controller = make_controller(name, self.plan, vehicle, track, options.solver, patience_s)
            self._guidance: PlanFollower | GateFollower = self._along(controller)
        else:
            free = free_controller(name, track, vehicle, options.command_hz, patience_s)
            self._guidance = GateFollower(track, options.laps, free, self._observer)
        return GuidedFlight(self._guidance, 1 / options.command_hz, options.limit_s)

    def _along(self, controller: PlanController) -> PlanFollower:
        how = FlightOptions(laps=self._options.laps, retry=self._options.retry)
        period_s = 1 / self._options.command_hz
        return PlanFollower(self._track, self._vehicle, controller, period_s, how, self._observer)

    @property
    def _observer(self) -> GateObserver:
        return GateObserver(Associator(self._track.gates, self._vehicle.camera), self._track.gates)

    def _replanned(self, before: PlanFollower, plan: Plan) -> str:
        """Plan the rest of the course and continue by it; return why not, or ""."""
        controller, options = before.controller, replace(self._options.plan, laps=self._options.laps)
        x = controller.expected(controller.due_t, 0.0)
        if x is None:
            return "no solution to plan on from"
        found = replan(Remainder(plan, controller.theta, x, self._track, self._vehicle, options))
        if not found.ok:
            return found.status
        self.plan = found.plan
        controller.follow(found.plan, self._vehicle, controller.theta, self._track.course(options.laps))
        guidance = self._along(controller)
        guidance.continue_from(before)
        self._guidance = self._flight.guidance = guidance
        return ""


def rotor_thrusts(vehicle: Vehicle, rotors: Rotors, u: Array, omega_b: Array) -> Array:
    """Return the rotor thrusts (4,) N, within their range, by which body rates omega_b (3,) follow an input u (4,).

    J d(omega)/dt = J (u - omega) / lag + omega x J omega, with the vehicle's rate lags; see `vehicle.dynamics.rotors`.
    """
    J = np.array(rotors.inertia_kg_m2)
    torque = J * (u[:3] - omega_b) / np.array(vehicle.rate_lag_s) + np.cross(omega_b, J * omega_b)
    x_m, y_m, torque_m = (np.array(arms) for arms in (rotors.x_m, rotors.y_m, rotors.torque_m))
    mixer = np.array([np.ones(4), -y_m, x_m, torque_m])
    thrusts = np.linalg.solve(mixer, np.array([rotors.mass_kg * u[3], *torque]))
    return np.asarray(np.clip(thrusts, 0.0, rotors.thrust_max_n))
