"""Speed of the plants on one core, alone, in a batch, in the simulator and in an environment: python benchmarks/plant.py"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gate_racer.link.messages import Arm, AttitudeTarget
from gate_racer.link.profile import load_profile
from gate_racer.sim.environment.racing import RacingEnvironment
from gate_racer.sim.physics.batch import Batch
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.setting import SETTINGS, make_plant, natural
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

HZ = 120  # tick rate
CONTROL_HZ = 100  # Hz, rate of learned policies
LEVEL = (1.0, 0.0, 0.0, 0.0)


def best_us(step: Callable[[], object], calls: int, rounds: int = 7) -> float:
    """Return the least mean CPU time of a call over several rounds, us: the least disturbed by other processes."""
    step()
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(calls):
            step()
        times.append((time.process_time() - begin) / calls)
    return min(times) * 1e6


def hover(vehicle: Vehicle) -> AttitudeTarget:
    """Return the command that holds the vehicle level at hover thrust."""
    return AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), vehicle.throttle.throttle(GRAVITY), by_rates=False)


def simulator_us(track: Track, vehicle: Vehicle) -> float:
    """Return the time of one `Simulator.tick` in flight, with commands at 60 Hz and without images, us."""
    simulator = Simulator(as_believed(track, vehicle), load_profile("spec"), seed=0)
    simulator.command(Arm(True))
    target = hover(vehicle)
    climb = AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), vehicle.throttle.throttle(1.3 * GRAVITY), by_rates=False)
    for tick in range(HZ // 2):
        if tick % 2 == 0:
            simulator.command(climb)
        simulator.tick()

    def step() -> None:
        if simulator.count % 2 == 0:
            simulator.command(target)
        simulator.tick()

    return best_us(step, 60)


def plant_us(track: Track, vehicle: Vehicle) -> float:
    """Return the time of one tick of the plant alone, us."""
    plant = make_plant(vehicle, track.start, natural(vehicle), Colliders(track))
    plant.place(track.gates[0].p_wg, np.array(LEVEL), np.zeros(3))
    plant.command(0.0, hover(vehicle))
    return best_us(lambda: plant.advance(plant.t + 1 / HZ), 60)


def batch_us(track: Track, vehicle: Vehicle, setting: int, n: int) -> float:
    """Return the time of one tick per vehicle of a batch, us."""
    batch = Batch(vehicle, SETTINGS[setting], n, Colliders(track))
    batch.x[:, :3] = track.gates[0].p_wg
    omega, throttle = np.zeros((n, 3)), np.full(n, vehicle.throttle.throttle(GRAVITY))
    return best_us(lambda: batch.step(omega, throttle, 1 / HZ), 12) / n


def steps_per_s(track: Track, vehicle: Vehicle, setting: int, n: int) -> float:
    """Return vehicle steps of 10 ms per second on one core, for a batch spread over the course with different commands."""
    rng, batch = np.random.default_rng(0), Batch(vehicle, SETTINGS[setting], n, Colliders(track))
    batch.x[:, :3] = rng.uniform(track.bounds.low_m, track.bounds.high_m, (n, 3))
    omega, throttle = rng.normal(0, 1, (n, 3)), vehicle.throttle.throttle(GRAVITY) * rng.uniform(0.9, 1.1, n)
    kept = batch.state.copy()

    def step() -> None:
        batch.state[:] = kept
        batch.step(omega, throttle, 1 / CONTROL_HZ)

    return n / best_us(step, max(2, 2000 // n)) * 1e6


def print_throughput(track: Track, sizes: list[int]) -> list[dict[str, float | str]]:
    """Print a line per model and vehicle, and return the rows."""
    print(f"\nsteps of 10 ms per second and core\n{'law':10s} {'vehicle':8s}" + "".join(f"{n:>12d}" for n in sizes))
    rows: list[dict[str, float | str]] = []
    for law, name, setting in (("rates", "dcl", 1), ("grey-box", "kolibri", 3), ("grey-box", "swift", 3)):
        vehicle = load_vehicle(name)
        each = {str(n): steps_per_s(track, vehicle, setting, n) for n in sizes}
        print(f"{law:10s} {name:8s}" + "".join(f"{rate:12.0f}" for rate in each.values()))
        rows.append({"law": law, "vehicle": name, **each})
    return rows


def environment_us(track: Track, vehicle: Vehicle, n: int) -> float:
    """Return the time of one step of 10 ms per vehicle of a learning environment, with observation and reward, us."""
    environment = RacingEnvironment(vehicle, track, n, np.random.default_rng(0))
    environment.reset()
    action = np.tile([2 * GRAVITY / vehicle.thrust_max - 1, 0.0, 0.0, 0.0], (n, 1))
    return best_us(lambda: environment.step(action), 12) / n


def main() -> None:
    """Print the speed of the plants, and write it with `--json`."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--track", default="tracks/vq2.yaml", help="track whose solids are tested for collision")
    arguments.add_argument("--batch", type=int, default=1000, help="number of vehicles in a batch")
    arguments.add_argument("--json", type=Path, help="output file")
    arguments.add_argument("--sizes", type=int, nargs="+", default=[1, 100, 1000, 10000], help="batch sizes to compare")
    options = arguments.parse_args()
    track, rows = load_track(options.track), []
    heads = f"{'vehicle':8s} {'tick us':>8s} {'plant us':>9s} {'batch us':>9s} {'plant ticks/s/core':>19s}"
    print(f"{heads} {'rates batch us':>15s} {'environment us':>15s} {'steps/s/core':>13s}")
    for name in ("dcl", "kolibri", "swift"):
        vehicle = load_vehicle(name)
        one = batch_us(track, vehicle, 3 if vehicle.grey_box else 1, options.batch)
        row = {"vehicle": name, "tick_us": simulator_us(track, vehicle), "plant_us": plant_us(track, vehicle)}
        simple, learnt = batch_us(track, vehicle, 1, options.batch), environment_us(track, vehicle, options.batch)
        row |= {"batch_us": one, "plant_ticks_per_s": 1e6 / one}
        row |= {"rates_batch_us": simple, "environment_us": learnt, "environment_steps_per_s": 1e6 / learnt}
        rows.append(row)
        figures = f"{row['tick_us']:8.1f} {row['plant_us']:9.1f} {one:9.2f} {1e6 / one:19.0f}"
        print(f"{name:8s} {figures} {simple:15.2f} {learnt:15.2f} {1e6 / learnt:13.0f}")
    throughput = print_throughput(track, options.sizes)
    if options.json:
        options.json.write_text(
            json.dumps({"plants": rows, "throughput": throughput}, indent=2) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
