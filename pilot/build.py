"""Factories of pilots on the pad, one for each kind of guidance."""

from gate_racer.estimation.estimator import MapEstimator, Mapper
from gate_racer.estimation.landmarks import LandmarkEstimator
from gate_racer.estimation.rivals import ReceivedRivals, SeenRivals
from gate_racer.link.profile import Profile
from gate_racer.model.rims import GateAppearance
from gate_racer.mpc.controller import Controller
from gate_racer.mpc.policy.policy import Policy, PolicyController
from gate_racer.perception.association import Associator
from gate_racer.pilot.guidance.evasion import FrameEvasion
from gate_racer.pilot.guidance.exciter import Excitation, Exciter, Manoeuvres
from gate_racer.pilot.guidance.explorer import OPEN, Explorer, Room
from gate_racer.pilot.guidance.learned_policy import LearnedPolicy
from gate_racer.pilot.guidance.plan_follower import PlanFollower
from gate_racer.pilot.guidance.protocol import GateObserver
from gate_racer.pilot.guidance.recovery import GateRetries, NoRetries
from gate_racer.pilot.guidance.rivals import Known, PassingRoom, RivalWatch, StartGrid
from gate_racer.pilot.guidance.velocity import Landing
from gate_racer.pilot.handshake import Handshake
from gate_racer.pilot.pilot import Pilot
from gate_racer.pilot.preflight import Preflight
from gate_racer.pilot.replanning import Replanning
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle

Racer = Pilot[MapEstimator]


def make_racer(
    track: Track,
    vehicle: Vehicle,
    profile: Profile,
    estimator: MapEstimator,
    associator: Associator,
    controller: Controller,
    laps: int = 1,
    pose: bool = False,
    preflight: Preflight | None = None,
    by_rates: bool = True,
    retry: bool = True,
    lands: bool = False,
    grid: StartGrid | None = None,
    shadow: bool = False,
    replanning: Replanning | None = None,
) -> Racer:
    """Create a pilot that flies the controller's plan.

    Args:
        pose: see `Pilot`.
        preflight: see `Handshake`.
        by_rates: see `Pilot`.
        retry: fly missed gates again.
        lands: land after the end of the flight.
        grid: place in a race of several pilots; rivals are given way to where they are known.
        shadow: a person flies. No gate is flown again, and nothing is learned from commands that are not sent.
        replanning: replaces the plan in flight where that saves time.
    """
    observer, period_s = GateObserver(associator, track.gates), 1 / profile.command_hz
    course, again = track.course(laps), retry and not shadow
    retries = GateRetries(track, course, controller, vehicle) if again else NoRetries(len(course))
    if shadow:
        controller.set_passive()
    radius_m = vehicle.half_diagonal
    watch = None
    if grid is not None and grid.known is not Known.UNKNOWN:
        seen = grid.known is Known.SEEN
        tracker = SeenRivals(vehicle.camera, vehicle.body_m) if seen else ReceivedRivals(grid.place)
        watch = RivalWatch(grid, radius_m, PassingRoom(track, radius_m), tracker)
    evasion = FrameEvasion(controller, vehicle, vehicle.contact_radius_m, track.bounds) if again else None
    guidance = PlanFollower(
        track, laps, controller, observer, vehicle.contact_radius_m, period_s, retries, evasion, watch, replanning
    )
    landing = Landing(vehicle, track.bounds.high_m[2]) if lands and not shadow else None
    handshake = Handshake(profile, preflight)
    return Pilot(handshake, estimator, guidance, profile, vehicle, pose, by_rates, landing, shadow)


def make_learned(
    track: Track,
    vehicle: Vehicle,
    profile: Profile,
    estimator: MapEstimator,
    associator: Associator,
    policy: Policy,
    laps: int = 1,
    pose: bool = False,
    preflight: Preflight | None = None,
    by_rates: bool = True,
    lands: bool = False,
) -> Racer:
    """Create a pilot that flies by a learned policy, without a plan. Other arguments as in `make_racer`.

    Raises:
        UserError: the policy was trained for another vehicle or another command rate.
    """
    policy.require(vehicle, profile.command_hz)
    controller, observer = PolicyController(policy, vehicle), GateObserver(associator, track.gates)
    guidance = LearnedPolicy(track, laps, controller, observer)
    landing = Landing(vehicle, track.bounds.high_m[2]) if lands else None
    return Pilot(Handshake(profile, preflight), estimator, guidance, profile, vehicle, pose, by_rates, landing)


def make_exciter(
    track: Track,
    vehicle: Vehicle,
    profile: Profile,
    estimator: MapEstimator,
    associator: Associator,
    manoeuvres: Manoeuvres,
    seed: int,
    pose: bool = False,
    preflight: Preflight | None = None,
) -> Racer:
    """Create a pilot that flies manoeuvres within the bounds of the track; the seed draws their order."""
    excitation = Excitation(vehicle, track.start, track.bounds, manoeuvres, seed)
    guidance = Exciter(excitation, GateObserver(associator, track.gates))
    return Pilot(Handshake(profile, preflight), estimator, guidance, profile, vehicle, pose)


def make_explorer(
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
