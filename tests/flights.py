"""Flights in lock-step by projected camera, without a log: what a pilot makes of a plan in a world."""

from dataclasses import replace

from gate_racer.link.profile import Profile, load_profile
from gate_racer.mpc.registry import make_controller
from gate_racer.pilot.flight import FlightOptions
from gate_racer.pilot.pilot import PilotModels, RacingPilot, build_racer
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import Verdict
from gate_racer.planner.plan import Plan
from gate_racer.race.campaign.flight import NoLog
from gate_racer.race.lockstep import Entry, LockstepPerception, fly_lockstep, open_perception
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle

SPEC, DCL = load_profile("spec"), load_profile("dcl")


def deviating(vehicle: Vehicle, thrust: float = 1.0, drag: float = 1.0) -> Vehicle:
    """The vehicle with so many times its thrust and quadratic drag."""
    curve = replace(vehicle.throttle, thrust_m_s2=tuple(thrust * c for c in vehicle.throttle.thrust_m_s2))
    return replace(vehicle, throttle=curve, drag_quadratic_1_m=drag * vehicle.drag_quadratic_1_m)


def eye_of(world: World, vehicle: Vehicle, profile: Profile, seed: int) -> LockstepPerception:
    return open_perception("projected", "race", world, vehicle.camera, profile, seed)


def racer_of(
    track: Track, vehicle: Vehicle, plan: Plan, profile: Profile, name: str = "mpcc", **options
) -> RacingPilot:
    controller = make_controller(name, plan, vehicle, track)
    return build_racer(PilotModels.of(track, vehicle, profile), controller, FlightOptions(**options))


def flown_by(pilot: RacingPilot, world: World, vehicle: Vehicle, profile: Profile, seed: int, *status) -> Verdict:
    """The referee's verdict."""
    entry = Entry(pilot, eye_of(world, vehicle, profile, seed), Recorder(NoLog()), *status)
    return fly_lockstep(entry, world, profile, seed)[1]
