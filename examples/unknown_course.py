"""From an unknown course to a race in four commands: explore, map, plan, race; each flight in a simulator of its own.

    python examples/unknown_course.py --seed 7

The course is drawn from the seed and told to the simulator alone, which speaks the profile `dcl`, traps and all.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from bootcamp.generate import generate_track, write_track

PROFILE = ["--profile", "dcl", "--lockstep"]


def run(*command: object) -> None:
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True)


def fly(course: Path, seed: int, *arguments: object) -> None:
    """One flight of `run-mpc` in a simulator that alone knows the course."""
    simulator = subprocess.Popen(["race-sim", "--track", course, "--seed", str(seed), "--once", *PROFILE])
    try:
        run("run-mpc", *arguments, "--live", *PROFILE)
    finally:
        simulator.terminate()
        simulator.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Explores, maps, plans and races a course that only the simulator knows."
    )
    parser.add_argument("--seed", type=int, default=7, help="of the course (default: 7)")
    parser.add_argument("--gates", type=int, default=4, help="of the course (default: 4)")
    parser.add_argument("--out", type=Path, default=Path("logs"), help="folder of all that is made (default: logs)")
    told = parser.parse_args()
    out: Path = told.out
    found, explored = out / f"found-{told.seed}.yaml", out / "explored.json"
    course = write_track(generate_track(told.seed, told.gates), out)

    fly(course, told.seed, "--explore", "--log", out, "--json", explored)
    log = json.loads(explored.read_text())["log"]
    run("map-track", log, "--gates", told.gates, "--out", found)
    run("plan-track", found, "--out", out)
    fly(course, told.seed + 1, found, "--plans", out, "--log", out, "--json", out / "raced.json")
    raced = json.loads((out / "raced.json").read_text())
    print(f"{raced['status']}: planned {raced['planned_time_s']:.2f} s, flown {raced['race_time_s']:.2f} s")
    sys.exit(raced["status"] != "finished")


if __name__ == "__main__":
    main()
