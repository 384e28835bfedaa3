"""Builders of pilots on the pad, one for each kind of guidance."""

from dataclasses import dataclass

from gate_racer.common.parts import PATIENCE_S
from gate_racer.estimation.estimator import MapEstimator, Mapper
from gate_racer.estimation.landmarks import LandmarkEstimator
from gate_racer.estimation.registry import DEFAULT, make_estimator
from gate_racer.estimation.rivals import ReceivedRivals, SeenRivals
from gate_racer.link.profile import Profile
from gate_racer.model.rims import GateAppearance
from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.registry import free_controller
from gate_racer.perception.association import Associator
from gate_racer.pilot.guidance.evasion import FrameEvasion
from gate_racer.pilot.guidance.exciter import Excitation, Exciter, Manoeuvres
from gate_racer.pilot.guidance.explorer import OPEN, Explorer, Room
from gate_racer.pilot.guidance.plan_follower import GateFollower, PlanFollower
from gate_racer.pilot.guidance.protocol import FlightGuidance, GateObserver
from gate_racer.pilot.guidance.recovery import GateRetries
from gate_racer.pilot.guidance.rivals import Known, PassingRoom, RivalWatch, StartGrid
from gate_racer.pilot.guidance.velocity import Landing
from gate_racer.pilot.handshake import Handshake, Preflight
from gate_racer.pilot.pilot import Pilot
from gate_racer.pilot.replanning import Replanning
from gate_racer.tracks.gate import has_slot
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle

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
        look = associator.appearance
        made = make_estimator(estimator, track.start, vehicle, look, patience_s=patience_s)
        return cls(track, vehicle, profile, made, GateObserver(associator, track.gates))


@dataclass(frozen=True)
class FlightOptions:
    """How a pilot flies."""

    laps: int = 1
    pose: bool = False  # use position and velocity where they are told
    preflight: Preflight | None = None  # see `Handshake`
    by_rates: bool = True  # command body rates instead of attitudes
    retry: bool = True  # fly missed gates again
    lands: bool = False  # land after the end of the flight
    grid: StartGrid | None = None  # place in a race of several; rivals are given way to where they are known
    shadow: bool = False  # a person flies: no gate is flown again, and nothing is learned from commands not sent
    replanning: Replanning | None = None  # replaces the plan in flight where that saves time
    patience_s: float = PATIENCE_S  # s, longest step of a user's class


def build_racer(
    models: PilotModels, controller: PlanController, options: FlightOptions = FlightOptions()
) -> RacingPilot:
    """Return a pilot that flies the controller's plan."""
    period_s = 1 / models.profile.command_hz
    guidance = plan_follower(models.track, models.vehicle, controller, period_s, options, models.observer)
    return _pilot(models, guidance, options)


def plan_follower(
    track: Track,
    vehicle: Vehicle,
    controller: PlanController,
    period_s: float,
    options: FlightOptions,
    observer: GateObserver,
) -> PlanFollower:
    """Return the guidance along the controller's plan, commanding every period_s (s)."""
    slots = has_slot(track.gates, vehicle.contact_radius_m)  # no second try has the run-up for one
    grid, again = options.grid, options.retry and not options.shadow and not slots
    retries = GateRetries(track, track.course(options.laps), controller, vehicle, searches=again)
    if options.shadow:
        controller.set_passive()
    watch, radius_m = None, vehicle.half_diagonal
    if grid is not None and grid.known is not Known.UNKNOWN:
        seen = grid.known is Known.SEEN
        tracker = SeenRivals(vehicle.camera, vehicle.body_m) if seen else ReceivedRivals(grid.place)
        watch = RivalWatch(grid, radius_m, PassingRoom(track, radius_m), tracker)
    evasion = FrameEvasion(controller, vehicle, vehicle.contact_radius_m, track.bounds) if again else None
    flown = track, options.laps, controller, observer, vehicle.contact_radius_m, period_s
    return PlanFollower(*flown, retries, evasion, watch, options.replanning)


def build_free(models: PilotModels, controller: str, options: FlightOptions = FlightOptions()) -> RacingPilot:
    """Return a pilot that flies without a plan. Raises UserError as `free_controller`."""
    given = models.track, models.vehicle, controller, models.profile.command_hz, options, models.observer
    return _pilot(models, gate_follower(*given), options)


def gate_follower(
    track: Track,
    vehicle: Vehicle,
    controller: str,
    command_hz: float,
    options: FlightOptions,
    observer: GateObserver,
) -> GateFollower:
    """Return the guidance from gate to gate by a controller that needs no plan. Raises UserError as `free_controller`."""
    made = free_controller(controller, track, vehicle, command_hz, options.patience_s)
    return GateFollower(track, options.laps, made, observer)


def build_exciter(
    models: PilotModels, manoeuvres: Manoeuvres, seed: int, options: FlightOptions = FlightOptions()
) -> RacingPilot:
    """Return a pilot that flies manoeuvres within the bounds of the track; the seed draws their order."""
    excitation = Excitation(models.vehicle, models.track.start, models.track.bounds, manoeuvres, seed)
    return _pilot(models, Exciter(excitation, models.observer), options)


def _pilot(models: PilotModels, guidance: FlightGuidance[MapEstimator], options: FlightOptions) -> RacingPilot:
    """Return a pilot on the pad."""
    lands = options.lands and not options.shadow
    landing = Landing(models.vehicle, models.track.bounds.high_m[2]) if lands else None
    handshake = Handshake(models.profile, options.preflight)
    given = models.profile, models.vehicle, options.pose, options.by_rates, landing, options.shadow
    return Pilot(handshake, models.estimator, guidance, *given)


def build_explorer(
    vehicle: Vehicle,
    profile: Profile,
    opening_m: float,
    manoeuvres: Manoeuvres | None = None,
    seed: int = 0,
    preflight: Preflight | None = None,
    room: Room = OPEN,
) -> tuple[Pilot[Mapper], Explorer]:
    """Create a pilot that explores, and its guidance, which is given the size of the gates but no course.

    Args:
        manoeuvres: flown before the first gate; the seed draws their order.
        preflight: see `Handshake`.
        room: walls, ceiling and floor to keep away from.
    """
    guidance = Explorer(vehicle, profile.race is not None, manoeuvres, seed, room)
    estimator: Mapper = LandmarkEstimator(vehicle.camera, opening_m, GateAppearance())
    return Pilot(Handshake(profile, preflight), estimator, guidance, profile, vehicle), guidance
