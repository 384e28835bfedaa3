"""Lock-step flights of one gate as a program. Each prints how many functions have machine code, at GO and at the end."""

import gc
import sys
from dataclasses import replace
from pathlib import Path

from gate_racer.common.compiled import CompiledFunction
from gate_racer.link.profile import load_profile
from gate_racer.mpc.registry import make_controller
from gate_racer.pilot.flight import FlightOptions
from gate_racer.pilot.pilot import PilotModels, build_racer
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.planner.plan import read_plan
from gate_racer.race.campaign.flight import NoLog
from gate_racer.race.lockstep import Entry, fly_lockstep, open_perception
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle


def code() -> dict[str, int]:
    """Compiled signatures of each function that has been needed."""
    declared = [one for one in gc.get_objects() if isinstance(one, CompiledFunction)]
    return {f"{f.__module__}.{f.__name__}": len(f.dispatcher.signatures) for f in declared if "dispatcher" in vars(f)}


def main(folder: Path, estimator: str, camera: str) -> None:
    """Fly the course of a folder with its plan."""
    track, vehicle = load_track(folder / "hop.yaml"), load_vehicle("dcl")
    profile = replace(load_profile("spec"), video_hz=10.0)
    controller = make_controller("tracking", read_plan(folder / "hop.csv"), vehicle, track)
    pilot = build_racer(PilotModels.of(track, vehicle, profile, estimator), controller, FlightOptions())
    world, at_go = as_believed(track, vehicle), {}
    eye = open_perception(camera, "race", world, vehicle.camera, profile, 0)

    def status(pilot) -> None:
        if pilot.go_t is not None and not at_go:
            at_go.update(code())

    _, verdict = fly_lockstep(Entry(pilot, eye, Recorder(NoLog()), status), world, profile, 0)
    grown = {name: count for name, count in code().items() if at_go.get(name) != count}
    print(verdict.status, len(at_go), grown)


if __name__ == "__main__":
    for flight in sys.argv[2:]:
        main(Path(sys.argv[1]), *flight.split(","))
