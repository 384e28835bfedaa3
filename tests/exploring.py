"""An exploration in lock-step, for tests of whatever comes after it."""

from pathlib import Path

from link.profile import Profile
from pilot.explorer import Explorer, make_explorer
from pilot.flight_log import FlightLog
from pilot.lockstep import fly_lockstep, open_eye
from pilot.manoeuvres import Manoeuvres
from pilot.recorder import Recorder
from pilot.result import Verdict
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
) -> tuple[Explorer, Verdict, Path]:
    """The explorer, the referee's verdict and the log; `flown` is the true vehicle, if another than it is told."""
    pilot = make_explorer(vehicle, profile, track.gates[0].opening_m, wanted, seed)
    log = FlightLog(folder / f"{track.name}.mcap")
    world = as_believed(track, flown or vehicle)
    eye = open_eye("projected", "race", world, vehicle.camera, profile, seed)
    _, verdict = fly_lockstep(pilot, world, profile, eye, seed, 1, Recorder(log), lambda pilot: None)
    log.close()
    return pilot, verdict, log.path
