"""Learns what odometry and model get wrong from a flight log with truth: python tools/fit_residuals.py logs/flight.mcap

The results are what `ObservationModel.load` and `ResidualAcceleration.load` (sim/physics/residual.py) read.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from link.record_reader import Record, read_records
from sim.physics.residual import SAMPLES, ObservationModel, ResidualAcceleration, lacking
from vehicle.errors import UserError, exit_code
from vehicle.files import reading
from vehicle.rotation import Array, between, conjugate, log, product
from vehicle.vehicle import load_vehicle


def read(path: Path) -> dict[str, list[Record]]:
    """The records of the channels truth, state and command. Raises UserError when one is missing."""
    records: dict[str, list[Record]] = {"truth": [], "state": [], "command": []}
    for topic, record in read_records(path, only=[f"/{name}" for name in records]):
        records[topic.strip("/")].append(record)
    for name, found in records.items():
        if len(found) < 2:
            raise UserError(f"{path}: no {name} in this log; fly in the built-in simulator to have it")
    return records


def odometry_errors(truth: list[Record], state: list[Record]) -> tuple[Array, Array]:
    """True states (N, 10) p, q, v and errors (N, 9) of the estimate, both at the times of the estimate."""
    t = np.array([r["t"] for r in truth])
    x, errors = [], []
    for seen in state:
        if not t[0] <= seen["t"] <= t[-1]:
            continue
        i = min(int(np.searchsorted(t, seen["t"], side="right")) - 1, len(t) - 2)
        s, a, b = (seen["t"] - t[i]) / (t[i + 1] - t[i]), truth[i], truth[i + 1]
        p, v = ((1 - s) * np.array(a[k]) + s * np.array(b[k]) for k in "pv")
        x.append([*p, *between(a["q"], b["q"], s), *v])
        errors.append([*(seen["p"] - p), *(seen["v"] - v), *log(product(seen["q"], conjugate(x[-1][3:7])))])
    return np.array(x), np.array(errors)


def run(arguments: argparse.Namespace) -> int:
    vehicle, records = load_vehicle(arguments.vehicle), read(arguments.log)
    with reading(arguments.log):
        x, errors = odometry_errors(records["truth"], records["state"])
    ObservationModel.fit(x, errors, arguments.samples).save(arguments.observation)
    rms = np.sqrt((errors**2).reshape(-1, 3, 3).sum(axis=2).mean(axis=0))
    print(f"{len(x)} states; errors rms: position {rms[0]:.3f} m, velocity {rms[1]:.3f} m/s, attitude {rms[2]:.4f} rad")

    t = np.array([r["t"] for r in records["truth"]])
    x = np.array([[*r["p"], *r["q"], *r["v"]] for r in records["truth"]])
    held = np.searchsorted([r["t"] for r in records["command"]], t, side="right") - 1
    c = np.array([vehicle.throttle.thrust(records["command"][i]["throttle"]) if i >= 0 else 0.0 for i in held])
    accel = lacking(t, x, c, vehicle)
    ResidualAcceleration(x, c, accel).save(arguments.acceleration)
    print(f"{len(x)} accelerations; rms that the `rates` model of {vehicle.name} lacks: {rms_norm(accel):.2f} m/s^2")
    print(f"written: {arguments.observation}, {arguments.acceleration}")
    return 0


def rms_norm(vectors: Array) -> float:
    return float(np.sqrt((vectors**2).sum(axis=1).mean()))


def main() -> None:
    arguments = argparse.ArgumentParser(description="Learns what odometry and model get wrong from a flight log.")
    arguments.add_argument("log", type=Path, help="flight log with truth (.mcap)")
    arguments.add_argument("--vehicle", default="dcl", help="name or YAML file of what flew (default: dcl)")
    arguments.add_argument("--observation", type=Path, default=Path("observation.npz"), help="written here")
    arguments.add_argument("--acceleration", type=Path, default=Path("acceleration.npz"), help="written here")
    arguments.add_argument("--samples", type=int, default=SAMPLES, help="states that the Gaussian processes use")
    sys.exit(exit_code(lambda: run(arguments.parse_args())))


if __name__ == "__main__":
    main()
