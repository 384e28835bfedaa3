"""The embedded simulator as a program that waits to be killed. It prints the simulator's process."""

import os
import time
from pathlib import Path

from gate_racer.race.lockstep import EmbeddedSimulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle

if __name__ == "__main__":
    world = as_believed(load_track("vq1"), load_vehicle("dcl"))
    with EmbeddedSimulator(world, {}, (9, 9)):
        (child,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        print(child, flush=True)
        time.sleep(600)
