"""Builders of pilots on the pad, one for each kind of guidance."""

from dataclasses import dataclass

from gate_racer.common.parts import PATIENCE_S
from gate_racer.estimation.estimator import MapEstimator, Mapper
from gate_racer.estimation.landmarks import LandmarkEstimator
from gate_racer.estimation.registry import DEFAULT, make_estimator
from gate_racer.link.profile import Profile
from gate_racer.model.rims import GateAppearance
from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.registry import free_controller
from gate_racer.perception.association import Associator
from gate_racer.pilot.flight import FlightOptions
from gate_racer.pilot.guidance.exciter import Excitation, Exciter, Manoeuvres
from gate_racer.pilot.guidance.explorer import OPEN, Explorer, Room
from gate_racer.pilot.guidance.plan_follower import GateFollower, PlanFollower
from gate_racer.pilot.guidance.protocol import FlightGuidance, GateObserver
from gate_racer.pilot.guidance.velocity import Landing
from gate_racer.pilot.handshake import Handshake, Preflight
from gate_racer.pilot.pilot import Pilot
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
