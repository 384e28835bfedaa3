"""Learns an odometry's errors from flight logs with truth: python tools/fit_residuals.py logs/*.mcap -o errors.npz

The result is what `sim.physics.residual.ObservationModel.load` reads.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from mcap.exceptions import McapError
from mcap.reader import make_reader

from sim.physics.residual import SAMPLES, ObservationModel
from vehicle.errors import UserError, exit_code
from vehicle.rotation import Array, between, conjugate, log, product


def read(path: Path) -> tuple[Array, Array]:
    """True states (N, 10) p, q, v and errors (N, 9) of the estimate, both at the times of the estimate.

    Raises UserError when the log holds no truth or no state.
    """
    records: dict[str, list[dict]] = {"/truth": [], "/state": []}
    try:
        with path.open("rb") as file:
            for _, channel, message in make_reader(file).iter_messages(topics=list(records)):
                records[channel.topic].append(json.loads(message.data))
    except (OSError, McapError) as error:
        raise UserError(f"{path}: cannot be read as a flight log ({error})") from None
    for topic, found in records.items():
        if len(found) < 2:
            raise UserError(f"{path}: no {topic[1:]} in this log; fly in the built-in simulator to have it")
    truth, state = records["/truth"], records["/state"]
    t = np.array([r["t"] for r in truth])
    x, errors = [], []
    for seen in state:
        if not t[0] <= seen["t"] <= t[-1]:
            continue
        i = min(int(np.searchsorted(t, seen["t"], side="right")) - 1, len(t) - 2)
        s, a, b = (seen["t"] - t[i]) / (t[i + 1] - t[i]), truth[i], truth[i + 1]
        p, v = ((1 - s) * np.array(a[k]) + s * np.array(b[k]) for k in "pv")
        q = between(a["q"], b["q"], s)
        x.append([*p, *q, *v])
        errors.append([*(seen["p"] - p), *(seen["v"] - v), *log(product(seen["q"], conjugate(q)))])
    return np.array(x), np.array(errors)


def run(arguments: argparse.Namespace) -> int:
    flights = [read(path) for path in arguments.logs]
    x, errors = (np.vstack(parts) for parts in zip(*flights, strict=True))
    ObservationModel.fit(x, errors, arguments.samples).save(arguments.output)
    rms = np.sqrt((errors**2).reshape(-1, 3, 3).sum(axis=2).mean(axis=0))
    print(f"{len(x)} states; errors rms: position {rms[0]:.3f} m, velocity {rms[1]:.3f} m/s, attitude {rms[2]:.4f} rad")
    print(f"written: {arguments.output}")
    return 0


def main() -> None:
    arguments = argparse.ArgumentParser(description="Learns an odometry's errors from flight logs with truth.")
    arguments.add_argument("logs", nargs="+", type=Path, help="flight logs (.mcap)")
    arguments.add_argument("-o", "--output", type=Path, default=Path("residual.npz"), help="default: residual.npz")
    arguments.add_argument("--samples", type=int, default=SAMPLES, help="states that the fit uses")
    sys.exit(exit_code(lambda: run(arguments.parse_args())))


if __name__ == "__main__":
    main()
