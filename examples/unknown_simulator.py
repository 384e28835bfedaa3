"""From an unknown simulator to a fast plan in six commands: probe, explore, map, identify, plan, race.

    python examples/unknown_simulator.py --seed 7

Vehicle and course are drawn from the seed and known to the simulator alone, as is its wire profile: `dcl`, unless another is
requested. All flights are in lock-step over UDP. At the end the estimates are compared with the truth, also in `compared.json`.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gate_racer.bootcamp.scenario import generate_track, write_track
from gate_racer.field.files import write_vehicle
from gate_racer.link.profile import load_profile
from gate_racer.planner.plan import read_plan
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import from_euler, matrix
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

MANOEUVRES = "0.15,0.15,0.265,0.4,0.6,0.8,1,1,roll,pitch,yaw,speed"
CAREFUL = "--reserve", "0.75"  # a quarter of the thrust, for all that a first flight has to make up for
COMMAND = sys.executable, "-m", "gate_racer"  # of this environment, activated or not
HOST, PORTS = "127.0.0.1", (14550, 14560, 5600)  # of the client, of the simulator, and of the images


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


@dataclass(frozen=True)
class Afternoon:
    """Inputs of the commands, and the folder of their results."""

    seed: int
    gates: int
    out: Path
    profile: str
    plant: str  # of the simulator; empty for that of the vehicle
    ports: tuple[int, int, int]

    @property
    def course(self) -> Path:
        return self.out / f"generated-{self.seed}.yaml"

    def run(self, *command: object, may_differ: bool = False) -> None:
        """A command; one that compares ends with 1 where something differs."""
        print("\n$", *command, flush=True)
        code = subprocess.run([*COMMAND, *map(str, command)]).returncode
        if code != 0 and not (may_differ and code == 1):
            sys.exit(code)

    def with_simulator(self, more_seed: int, *command: object, may_differ: bool = False) -> None:
        """A command against a simulator of its own, the only one who knows course and vehicle."""
        own, simulator, video = (f"{HOST}:{port}" for port in self.ports)
        told = ["--track", self.course, "--vehicle", self.out / "drawn.yaml", "--seed", self.seed + more_seed]
        wire = f"link.bind={simulator}", f"link.client={own}", f"link.video={video}"
        wire += (f"plant={self.plant}",) if self.plant else ()
        words = "race-sim", *told, "--profile", self.profile, "--lockstep", "--set", "once=true", *wire
        process = subprocess.Popen([*COMMAND, *map(str, words)], stdout=subprocess.PIPE, text=True)
        try:
            print(process.stdout.readline(), end="", flush=True)  # its sockets are open
            keys = "link.lockstep=true", f"link.listen={own}", f"link.video={video}"
            self.run(*command, *(word for key in keys for word in ("--set", key)), may_differ=may_differ)
        finally:
            process.terminate()
            print(process.communicate()[0], end="", flush=True)

    def spend(self) -> None:
        """All commands in turn."""
        out, wire, track, vehicle = self.out, *(self.out / f"{name}.yaml" for name in ("wire", "found", "mine"))
        self.with_simulator(0, "probe-link", "--set", "seconds=2", "--out", wire, may_differ=True)
        flown = ["--live", "--profile", wire, "--json", out / "flown.json"]
        keys = f"explore.excite={MANOEUVRES}", f"record.log={out}"
        self.with_simulator(1, "explore", *flown, "--set", *keys)
        log = json.loads((out / "flown.json").read_text())["log"]
        self.run("map-track", log, "--gates", self.gates, "--out", track)
        self.run("identify-vehicle", log, "--out", vehicle)
        self.run("plan-track", track, "--vehicle", vehicle, "--out", out, *CAREFUL)
        flown[-1] = out / "raced.json"
        keys = f"plan.folder={out}", f"record.log={out}"
        self.with_simulator(2, "run-mpc", track, "--vehicle", vehicle, "--set", *keys, *flown, may_differ=True)

    def compared(self) -> dict[str, object]:
        """Compare the estimates with the truth, and the race with a plan for the true vehicle and course."""
        true, found = load_vehicle(str(self.out / "drawn.yaml")), load_vehicle(str(self.out / "mine.yaml"))
        wire, spoken = load_profile(str(self.out / "wire.yaml")), load_profile(self.profile)
        track, real = load_track(self.out / "found.yaml"), load_track(self.course)
        raced = json.loads((self.out / "raced.json").read_text())
        R = matrix(from_euler(0.0, 0.0, np.radians(real.start.yaw_deg - track.start.yaw_deg)))
        pairs = list(zip(track.gates, real.gates, strict=True))
        off = [R @ (a.p_wg - track.start.p_wb) - (b.p_wg - real.start.p_wb) for a, b in pairs]
        turned = [(a.yaw_deg - track.start.yaw_deg) - (b.yaw_deg - real.start.yaw_deg) for a, b in pairs]
        thrusts = [found.throttle.thrust(u) / true.throttle.thrust(u) for u in np.linspace(0.15, 1, 18)]
        return {
            "signs": asdict(wire.signs) == asdict(spoken.signs) and wire.rates_rad_s.sign == spoken.rates_rad_s.sign,
            "rate_gain": float(np.abs(np.array(wire.rates_rad_s.gain) / spoken.rates_rad_s.gain - 1).max()),
            "thrust": float(np.abs(np.array(thrusts) - 1).max()),
            "drag": abs(found.drag_quadratic_1_m / true.drag_quadratic_1_m - 1),
            "gates_m": float(np.linalg.norm(off, axis=1).max()),
            "gates_deg": float(np.abs((np.array(turned) + 180) % 360 - 180).max()),
            "status": raced["status"],
            "planned_s": raced["planned_time_s"],
            "known_s": read_plan(self.out / f"generated-{self.seed}-drawn-{self.seed}.csv").total_time,
            "flown_s": raced["race_time_s"],
            "margin_m": min(raced["gate_margins_m"], default=None),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="From an unknown vehicle and course to a race.")
    parser.add_argument("--seed", type=int, default=7, help="of vehicle and course (default: 7)")
    parser.add_argument("--gates", type=int, default=4, help="of the course (default: 4)")
    parser.add_argument("--out", type=Path, default=Path("logs"), help="folder of all that is made (default: logs)")
    parser.add_argument("--profile", default="dcl", help="which the simulator speaks, by name or file (default: dcl)")
    parser.add_argument(
        "--plant", default="", help="what flies, such as rotorpy or crazyflow (default: the drawn vehicle)"
    )
    parser.add_argument("--ports", type=int, nargs=3, default=PORTS, help="of client, simulator and images")
    asked = parser.parse_args()
    out = asked.out / f"unknown-{asked.seed}"
    afternoon = Afternoon(asked.seed, asked.gates, out, asked.profile, asked.plant, tuple(asked.ports))
    write_track(generate_track(asked.seed, asked.gates), out)
    write_vehicle(out / "drawn.yaml", draw_vehicle(asked.seed))
    known = [afternoon.course, "--vehicle", afternoon.out / "drawn.yaml", "--out", afternoon.out, *CAREFUL]
    knower = subprocess.Popen([*COMMAND, "plan-track", *map(str, known)], stdout=subprocess.DEVNULL)
    try:
        afternoon.spend()
    finally:
        knower.wait()
    compared = afternoon.compared()
    told = json.dumps(compared, indent=2)
    (afternoon.out / "compared.json").write_text(told + "\n")
    print(f"\nestimates over the truth, and the race beside a plan by the truth: {told}\nall is in {afternoon.out}")
    sys.exit(compared["status"] != "finished")


if __name__ == "__main__":
    main()
