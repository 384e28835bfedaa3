"""Exploration of unknown courses: gates found, and errors of the resulting map against the truth.

python benchmarks/exploration.py vq1 vq2 logs/generated-*.yaml --profiles dcl spec --worlds as_believed unknown:100

`bootcamp --set generate=seed=7,gates=9` draws courses. In lock-step, with projected corners. A map is compared in the pad's frame
after the best rotation about the vertical, since north is unobservable. The logs are kept.
"""

import math
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.benchmarks.tables import Result, conclude, script
from gate_racer.common.errors import UserError, exit_code
from gate_racer.field.mapping.bundle import MappedGate, map_gates, passed_in_order
from gate_racer.field.mapping.flight import read_flight
from gate_racer.link.profile import Profile, load_profile
from gate_racer.model.rims import GateAppearance
from gate_racer.pilot.guidance.exciter import parse_manoeuvres
from gate_racer.pilot.guidance.explorer import ExplorerStage
from gate_racer.pilot.pilot import build_explorer
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.race.lockstep import Entry, fly_lockstep, open_perception
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import GateFrame, Track, load_track
from gate_racer.vehicle.rotation import Array, from_euler, matrix
from gate_racer.vehicle.statistics import mahalanobis2
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

WITHIN_M, WITHIN_SHARE = 0.10, 0.001  # tolerance of a gate's position: m, plus a fraction of its distance from the pad
NOTHING = ("mapped", "gates within", "worst gate m", "at m", "scale error %", "NEES per dof")  # figures of a map


def explore(
    track: Track, vehicle: Vehicle, profile: Profile, world: World, seed: int, excite: str, folder: Path
) -> tuple[dict[str, Any], Path]:
    """Fly until the explorer is done; return the result and the path of the log."""
    manoeuvres = parse_manoeuvres(excite) if excite else None
    pilot, explorer = build_explorer(vehicle, profile, track.gates[0].opening_m, manoeuvres, seed)
    log = FlightLog(folder / f"{track.name}-{profile.name}-{world.name.replace(':', '-')}-{seed}.mcap")
    perception = open_perception("projected", "race", world, vehicle.camera, profile, seed)
    with closing(log):
        _, verdict = fly_lockstep(Entry(pilot, perception, Recorder(log)), world, profile, seed)
    touched = verdict.status == "crashed" and explorer.stage is not ExplorerStage.LAND  # a landing touches the ground
    flown = {
        "course": track.name, "profile": profile.name, "world": world.name, "passed": len(verdict.gate_times_s),
        "of": sum(gate.visible for gate in track.gates), "least margin m": min(verdict.gate_margins_m, default=None),
        "time s": pilot.estimator.t - pilot.go_t if pilot.go_t is not None else None,
        "end": verdict.cause if touched else pilot.cause,
    }  # fmt: skip
    return flown, log.path


def mapped(log: Path, vehicle: Vehicle, world: World, track: Track) -> dict[str, Any]:
    """Return the errors of the map from a log; empty figures where there is no map."""
    first = track.gates[0]
    frame = GateFrame(first.opening_m, first.outer_m, first.depth_m)
    try:
        found = map_gates([read_flight(log, None)], vehicle, frame, GateAppearance())
        gates = passed_in_order(found, frame)
        return compared(gates, world.track) if gates else dict.fromkeys(NOTHING)
    except UserError as error:
        print(f"{log}: no map: {error}", file=sys.stderr)
        return dict.fromkeys(NOTHING)


def compared(gates: Sequence[MappedGate], true: Track) -> dict[str, Any]:
    """Compare mapped gates with the nearest true ones. Raises UserError where two are nearest to the same."""
    p = np.array([gate.p_w for gate in gates])
    places = np.array([gate.p_wg - true.start.p_wb for gate in true.gates])
    turn = np.eye(3)
    for _ in range(3):  # alternate between association and heading
        near = places[_matched(p @ turn.T, places)]
        x, y = (p[:, :2] * near[:, :2]).sum(), (p[:, 0] * near[:, 1] - p[:, 1] * near[:, 0]).sum()
        turn = matrix(from_euler(0.0, 0.0, math.atan2(y, x)))  # about the vertical through the pad
        k = _matched(p @ turn.T, places)
    off, place = p @ turn.T - places[k], places[k]
    off_m, away_m = np.linalg.norm(off, axis=1), np.linalg.norm(place, axis=1)
    worst = int(off_m.argmax())
    nees = [_nees(d, at, turn @ gate.cov[:3, :3] @ turn.T) for d, at, gate in zip(off, place, gates, strict=True)]
    scale = float((p @ turn.T * place).sum() / (place**2).sum() - 1)
    within = int((off_m < WITHIN_M + WITHIN_SHARE * away_m).sum())
    figures = (len(gates), within, off_m[worst], away_m[worst], 100 * scale, np.mean(nees) / 2)
    return dict(zip(NOTHING, figures, strict=True))


def _nees(off: Array, place: Array, cov: Array) -> float:
    """Return the NEES of an error (3,) m in the vertical plane through pad and gate: the rotation has removed the rest."""
    away = place * [1.0, 1.0, 0.0] / np.linalg.norm(place[:2])
    plane = np.array([away, [0.0, 0.0, 1.0]])
    return mahalanobis2(plane @ off, plane @ cov @ plane.T)


def _matched(p: Array, places: Array) -> list[int]:
    """Return the index of the nearest place for each point (N, 3). Raises UserError where two share one."""
    k = [int(np.linalg.norm(places - one, axis=1).argmin()) for one in p]
    if len(set(k)) < len(k):
        raise UserError("two mapped gates are nearest to the same true gate")
    return k


def main() -> None:
    parser = script(__doc__)
    parser.add_argument("tracks", nargs="+", help="names or files; by the world unknown:N with seeds N, N + 1, ...")
    parser.add_argument("--vehicle", default="dcl")
    parser.add_argument("--profiles", nargs="+", default=["dcl"])
    parser.add_argument("--worlds", nargs="+", default=["as_believed"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--excite", default="", help="excitation manoeuvres before the first gate")
    parser.add_argument("--out", type=Path, default=Path("logs/exploration"), help="folder of the logs")
    a = parser.parse_args()
    vehicle, rows = load_vehicle(a.vehicle), []
    a.out.mkdir(parents=True, exist_ok=True)
    for (i, name), named, profile in product(enumerate(a.tracks), a.worlds, a.profiles):
        track, (file, *seed) = load_track(name), named.split(":")
        world = resolve(f"{file}:{int(seed[0]) + i}" if seed else file, track, vehicle)
        flown, log = explore(track, vehicle, load_profile(profile), world, a.seed + i, a.excite, a.out)
        rows.append(flown | mapped(log, vehicle, world, track))
        print(*rows[-1].values(), flush=True)
    conclude(a.json, Result.of("Explored courses and their maps", rows, ", ".join(a.worlds), f"from {a.seed}"))


if __name__ == "__main__":
    sys.exit(exit_code(main))
