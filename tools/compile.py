"""Compile all Numba functions in advance, so that later programs find them cached: a minute of one core in a new checkout."""

import numpy as np

import pilot.cli  # noqa: F401  perception and estimation compile at import
from link.profile import load_profile
from sim.physics.batch import Batch
from sim.physics.contact import Colliders
from sim.physics.setting import natural
from sim.simulator import Simulator
from sim.worlds.world import as_believed
from tracks.track import load_track
from vehicle.vehicle import load_vehicle

TRACK, PROFILE = "vq1", "dcl"
VEHICLES = ("dcl", "swift")  # one of each model


def main() -> None:
    """Run one step of each plant, which compiles its functions."""
    track = load_track(TRACK)
    for name in VEHICLES:
        vehicle = load_vehicle(name)
        Simulator(as_believed(track, vehicle), load_profile(PROFILE), seed=0)
        Batch(vehicle, natural(vehicle), 1, Colliders(track)).step(np.zeros((1, 3)), np.zeros(1), 1 / 120)


if __name__ == "__main__":
    main()
