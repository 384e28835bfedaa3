"""An exploration in lock-step, for tests of whatever comes after it."""

from pathlib import Path

from estimation.estimator import Mapper
from link.profile import Profile
from pilot.drivers.lockstep import fly_lockstep
from pilot.drivers.lockstep_perception import open_perception
from pilot.guidance.explorer import Explorer
from pilot.guidance.manoeuvres import Manoeuvres
from pilot.make import make_explorer
from pilot.pilot import Pilot
from pilot.records.flight_log import FlightLog
from pilot.records.recorder import Recorder
from pilot.records.result import Verdict
from sim.worlds.world import as_believed
from tracks.track import Track
from vehicle.vehicle import Vehicle


def explored(
    track: Track,
    vehicle: Vehicle,
    profile: Profile,
    seed: int,
    folder: Path,
    flown: Vehicle | None = None,
    wanted: Manoeuvres | None = None,
) -> tuple[Pilot[Mapper], Explorer, Verdict, Path]:
    """The pilot and its guidance, the referee's verdict and the log; `flown` is the true vehicle, if another than it is told."""
    pilot, explorer = make_explorer(vehicle, profile, track.gates[0].opening_m, wanted, seed)
    log = FlightLog(folder / f"{track.name}.mcap")
    world = as_believed(track, flown or vehicle)
    eye = open_perception("projected", "race", world, vehicle.camera, profile, seed)
    _, verdict = fly_lockstep(pilot, world, profile, eye, seed, 1, Recorder(log), lambda pilot: None)
    log.close()
    return pilot, explorer, verdict, log.path
