"""From an unknown simulator to a fast plan: probe, explore, map, excite, identify, plan, race.

    python examples/unknown_simulator.py --seed 7

Vehicle and course are drawn from the seed and told to the simulator alone, which speaks the profile `dcl`, traps and all.
Probing takes place in real time, every other flight in lock-step. At the end stands what was found beside what is true.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from bootcamp.generate import generate_track, write_track
from field.files import write_vehicle
from link.profile import load_profile
from planner.options import PlanOptions
from planner.planning import make_plan
from tracks.track import load_track
from vehicle.vehicle import Vehicle, load_vehicle

PROFILE = "dcl"


def draw_vehicle(seed: int) -> Vehicle:
    """Like `dcl`, with another thrust curve, other drag, delay and lags."""
    dcl, rng = load_vehicle("dcl"), np.random.default_rng(seed)
    scale, bend = rng.uniform(0.85, 1.15), rng.uniform(0.9, 1.1)
    points = zip(dcl.throttle.command, dcl.throttle.thrust_m_s2, strict=True)
    x, y, z = rng.uniform(0.02, 0.06, 3)
    return replace(
        dcl,
        name=f"drawn-{seed}",
        throttle=replace(dcl.throttle, thrust_m_s2=tuple(scale * c * max(u, 1e-9) ** (bend - 1) for u, c in points)),
        drag_quadratic_1_m=rng.uniform(0.035, 0.065),
        rate_lag_s=(x, y, z),
        thrust_lag_s=rng.uniform(0.02, 0.05),
        command_delay_s=rng.uniform(0.03, 0.06),
    )


def run(*command: object, may_differ: bool = False) -> None:
    """A command; one that compares ends with 1 where something differs."""
    print("\n$", *command, flush=True)
    code = subprocess.run([str(part) for part in command]).returncode
    if code != 0 and not (may_differ and code == 1):
        sys.exit(code)


class Simulator:
    """`race-sim` in a process of its own."""

    def __init__(self, course: Path, vehicle: Path, seed: int, *arguments: str):
        told = ["--track", str(course), "--vehicle", str(vehicle), "--seed", str(seed), "--profile", PROFILE]
        self._process = subprocess.Popen(["race-sim", *told, *arguments])

    def __enter__(self) -> None:
        time.sleep(0.0)

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="The whole way with a vehicle and a course that nobody was told of.")
    parser.add_argument("--seed", type=int, default=7, help="of vehicle and course (default: 7)")
    parser.add_argument("--gates", type=int, default=4, help="of the course (default: 4)")
    parser.add_argument("--out", type=Path, default=Path("logs"), help="folder of all that is made (default: logs)")
    told = parser.parse_args()
    seed, out = told.seed, told.out / f"unknown-{told.seed}"
    true = draw_vehicle(seed)
    course, drawn = write_track(generate_track(seed, told.gates), out), out / "drawn.yaml"
    write_vehicle(drawn, true)
    wire, track, vehicle = out / "wire.yaml", out / f"found-{seed}.yaml", out / "mine.yaml"
    explored, raced = out / "explored.json", out / "raced.json"

    with Simulator(course, drawn, seed):
        run("probe-link", "--seconds", 6, "--out", wire, may_differ=True)

    flown = ["--live", "--lockstep", "--profile", wire, "--log", out]
    with Simulator(course, drawn, seed, "--lockstep", "--once"):
        run("run-mpc", "--explore", *flown, "--json", explored)
    run("map-track", json.loads(explored.read_text())["log"], "--gates", told.gates, "--out", track)
    with Simulator(course, drawn, seed, "--lockstep", "--once"):
        run("run-mpc", track, "--excite", *flown)
    excited = max(out.glob(f"{track.stem}-*.mcap"), key=lambda path: path.stat().st_mtime)
    run("identify-vehicle", excited, "--name", "mine", "--out", vehicle)
    run("plan-track", track, "--vehicle", vehicle, "--out", out)
    with Simulator(course, drawn, seed + 1, "--lockstep", "--once"):
        run("run-mpc", track, "--vehicle", vehicle, "--plans", out, *flown, "--json", raced, may_differ=True)
    compare(out, true, course, wire, track, vehicle, raced)


def compare(out: Path, true: Vehicle, course: Path, wire: Path, track: Path, vehicle: Path, raced: Path) -> None:
    """What was found beside what is true, and the race beside the plan of somebody who knows both."""
    found, profile, dcl = load_vehicle(str(vehicle)), load_profile(str(wire)), load_profile(PROFILE)
    outcome, real = json.loads(raced.read_text()), load_track(course)
    thrust = [found.throttle.thrust(u) / true.throttle.thrust(u) - 1 for u in np.linspace(0.15, 1.0, 18)]
    drag = found.drag_quadratic_1_m / true.drag_quadratic_1_m - 1
    gains = np.abs(np.array(profile.rates_rad_s.gain) / dcl.rates_rad_s.gain - 1)
    # The map counts from its own pad: distances between gates do not care.
    legs = [
        np.linalg.norm(np.diff([gate.p_wg for gate in one.gates], axis=0), axis=1) for one in (load_track(track), real)
    ]
    plan, _ = make_plan(real, true, PlanOptions())
    print(
        f"\nsigns found: gyro {profile.signs.gyro == dcl.signs.gyro}, rates {profile.rates_rad_s.sign == dcl.rates_rad_s.sign}"
    )
    print(f"rate gains within {max(gains):.1%}, thrust within {max(map(abs, thrust)):.1%}, drag within {abs(drag):.1%}")
    print(f"legs between gates within {float(np.abs(legs[0] - legs[1]).max()):.2f} m")
    print(f"{outcome['status']}: flown {outcome['race_time_s']} s, planned {outcome['planned_time_s']:.2f} s,")
    print(f"planned by somebody who knows vehicle and course {plan.total_time:.2f} s; all is in {out}")
    sys.exit(outcome["status"] != "finished")


if __name__ == "__main__":
    main()
