"""Compile all Numba functions in advance, so that later programs find them cached: a minute of one core in a new checkout."""

import numpy as np

import gate_racer.race.session  # noqa: F401  with perception and estimation
from gate_racer.common.compiled import warm_up
from gate_racer.link.profile import load_profile
from gate_racer.sim.physics.batch import Batch
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.plants import natural
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle

TRACK, PROFILE = "vq1", "dcl"
VEHICLES = ("dcl", "swift")  # one of each model


def main() -> None:
    """Compile what has a signature, and run one step of each plant, which compiles its functions."""
    warm_up()
    track = load_track(TRACK)
    for name in VEHICLES:
        vehicle = load_vehicle(name)
        Simulator(as_believed(track, vehicle), load_profile(PROFILE), seed=0)
        Batch(vehicle, natural(vehicle), 1, Colliders(track)).step(np.zeros((1, 3)), np.zeros(1), 1 / 120)


if __name__ == "__main__":
    main()
