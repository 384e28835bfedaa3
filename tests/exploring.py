"""Flights in lock-step by projected camera, for tests of whatever comes after them."""

from pathlib import Path

from gate_racer.estimation.estimator import Mapper
from gate_racer.link.profile import Profile
from gate_racer.pilot.guidance.exciter import Manoeuvres
from gate_racer.pilot.guidance.explorer import Explorer
from gate_racer.pilot.pilot import Pilot, build_explorer
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import Verdict
from gate_racer.race.lockstep import Entry, fly_lockstep, open_perception
from gate_racer.race.settings import BuiltInSettings, ControllerSettings, PilotLinkSettings, RecordSettings, RunSettings
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle


def lockstep(folder: Path, controller: str = "tracking", seed: int = 0) -> RunSettings:
    """Return the settings of such a flight, whose log is written to a folder."""
    return RunSettings(
        controller=ControllerSettings(controller),
        link=PilotLinkSettings(lockstep=True),
        record=RecordSettings(folder),
        world=BuiltInSettings(seed=seed, camera="projected"),
    )


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
    pilot, explorer = build_explorer(vehicle, profile, track.gates[0].opening_m, wanted, seed)
    log = FlightLog(folder / f"{track.name}.mcap")
    world = as_believed(track, flown or vehicle)
    eye = open_perception("projected", "race", world, vehicle.camera, profile, seed)
    _, verdict = fly_lockstep(Entry(pilot, eye, Recorder(log)), world, profile, seed)
    log.close()
    return pilot, explorer, verdict, log.path
