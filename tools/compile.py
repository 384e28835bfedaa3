"""Compiles what Numba compiles at its first use, so that whatever follows finds it: a minute of one core in a new checkout."""

import pilot.cli  # noqa: F401  in the order of a flight: where machine code is kept depends on who comes first
from link.profile import load_profile
from sim.simulator import Simulator
from sim.worlds.world import as_believed
from tracks.track import load_track
from vehicle.vehicle import load_vehicle

TRACK, PROFILE = "vq1", "dcl"
VEHICLES = ("dcl", "swift")  # one of each model


def main() -> None:
    for name in VEHICLES:
        Simulator(as_believed(load_track(TRACK), load_vehicle(name)), load_profile(PROFILE), seed=0)


if __name__ == "__main__":
    main()
