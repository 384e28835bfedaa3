"""Race one client in lock-step: `python -m tests.peer --own 14560 --client 14550 --video 5600 --wire builds --out truth.json`."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.peer.course import FEET, PAD, Gate, Referee
from tests.peer.craft import FITS, Body, Craft
from tests.peer.eye import Eye
from tests.peer.station import WIRES, Station

arguments = argparse.ArgumentParser(description=__doc__)
for port in ("own", "client", "video"):
    arguments.add_argument(f"--{port}", type=int, required=True)
arguments.add_argument("--wire", choices=WIRES, default="letter")
arguments.add_argument("--fit", choices=FITS, default="logs")
arguments.add_argument("--seed", type=int, default=0)
arguments.add_argument("--gates", type=int, default=len(FEET), help="the race ends after so many")
arguments.add_argument("--images-hz", type=float, help="fewer cost less")
arguments.add_argument("--out", type=Path, required=True)
asked = arguments.parse_args()

rng = np.random.default_rng(asked.seed)
gates = [Gate(foot) for foot in FEET]
craft = Craft.draw(rng, asked.fit)
referee = Referee(gates[: asked.gates], craft.radius)
wire = WIRES[asked.wire] if asked.images_hz is None else replace(WIRES[asked.wire], video=asked.images_hz)
station = Station(Body(craft, *PAD), Eye(gates, PAD[0]), referee, wire, rng, asked.own, asked.client, asked.video)
verdict = station.run()
truth = {"verdict": verdict, "times_s": referee.times, "margins_m": referee.margins, "false_start": station.false_start}
asked.out.write_text(json.dumps(truth))
