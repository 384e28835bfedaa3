"""Exploration of unknown courses: gates found, and errors of the resulting map against the truth.

python benchmarks/exploration.py vq1 vq2 logs/courses/*.yaml --profiles dcl spec --worlds as_believed unknown:100

In lock-step, with projected corners. A map is compared in the pad's frame after the best rotation about the vertical, since
north is unobservable. Prints a line per flight and writes exploration.json; the logs are kept.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from gate_racer.field.mapping.bundle import MappedGate
from gate_racer.field.mapping.gates import Map, map_gates, passed_in_order
from gate_racer.field.mapping.sights import read_flight
from gate_racer.link.profile import Profile, load_profile
from gate_racer.perception.rims import GateAppearance
from gate_racer.pilot.drivers.lockstep import fly_lockstep
from gate_racer.pilot.drivers.lockstep_perception import open_perception
from gate_racer.pilot.guidance.explorer import ExplorerStage
from gate_racer.pilot.guidance.manoeuvres import parse_manoeuvres
from gate_racer.pilot.make import make_explorer
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.sim.worlds.world import World
from gate_racer.tracks.track import GateFrame, Track, load_track
from gate_racer.vehicle.errors import UserError, exit_code
from gate_racer.vehicle.files import write_file
from gate_racer.vehicle.rotation import Array, from_euler, matrix
from gate_racer.vehicle.statistics import mahalanobis2
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

WITHIN_M, WITHIN_SHARE = 0.10, 0.001  # tolerance of a gate's position: m, plus a fraction of its distance from the pad


@dataclass(frozen=True)
class Explored:
    """Result of one flight."""

    course: str
    profile: str
    world: str
    seed: int
    gates: int  # number of visible gates of the course
    passed: int  # gates passed in the course's order, by the referee
    margin_m: float  # least margin of the gates passed
    crash: str  # object hit; empty for the ground at a landing
    end: str  # reason of the end given by the explorer
    time_s: float  # since GO
    truth: "MapDeviation | None" = None  # map error of the gates flown through
    map: str = ""  # why there is no map


@dataclass(frozen=True)
class MapDeviation:
    """Errors of a map, gate by gate in the course's order."""

    off_m: list[float]
    distance_m: list[float]  # distance of each gate from the pad
    nees: list[float]  # NEES of each gate's distance from the pad and height, 2 degrees of freedom
    yaw_deg: list[float]
    scale: float  # relative error of the map's scale
    calibrated: bool  # whether camera and IMU calibration were estimated

    @property
    def excess_m(self) -> float:
        """Error of the worst gate beyond the tolerance, m."""
        return max(off - WITHIN_M - WITHIN_SHARE * far for off, far in zip(self.off_m, self.distance_m, strict=True))


def explore(
    track: Track, vehicle: Vehicle, profile: Profile, world: World, seed: int, excite: str, folder: Path
) -> tuple[Explored, Path]:
    """Fly until the explorer is done; return the result and the path of the log."""
    manoeuvres = parse_manoeuvres(excite) if excite else None
    pilot, explorer = make_explorer(vehicle, profile, track.gates[0].opening_m, manoeuvres, seed)
    label = f"{track.name}-{profile.name}-{world.name.replace(':', '-')}-{seed}"
    log = FlightLog(folder / f"{label}.mcap")
    perception = open_perception("projected", "race", world, vehicle.camera, profile, seed)
    try:
        _, verdict = fly_lockstep(pilot, world, profile, perception, seed, 1, Recorder(log), lambda pilot: None)
    finally:
        log.close()
    time_s = pilot.estimator.t - pilot.go_t if pilot.go_t is not None else math.nan
    passed, margin = len(verdict.gate_times_s), min(verdict.gate_margins_m, default=math.nan)
    flown = Explored(
        *(track.name, profile.name, world.name, seed, sum(gate.visible for gate in track.gates), passed, margin),
        verdict.cause if verdict.status == "crashed" and explorer.stage is not ExplorerStage.LAND else "",
        pilot.cause,
        time_s,
    )
    return flown, log.path


def compared(gates: Sequence[MappedGate], world: World, calibrated: bool) -> MapDeviation:
    """Compare mapped gates with the nearest true ones, each used at most once.

    Raises:
        UserError: two mapped gates match the same true one.
    """
    true = world.track
    p = np.array([gate.p_w for gate in gates])
    places = np.array([gate.p_wg - true.start.p_wb for gate in true.gates])
    turn = np.zeros((3, 3))
    for _ in range(3):  # alternate between association and heading
        turn = _turned(p, places[_matched(p if not turn.any() else p @ turn.T, places)])
        k = _matched(p @ turn.T, places)
    off = p @ turn.T - places[k]
    yaw = math.atan2(turn[1, 0], turn[0, 0])
    angles = [
        math.degrees(math.remainder(gate.yaw + yaw - math.radians(true.gates[i].yaw_deg), 2 * math.pi))
        for gate, i in zip(gates, k, strict=True)
    ]
    return MapDeviation(
        np.linalg.norm(off, axis=1).tolist(),
        np.linalg.norm(places[k], axis=1).tolist(),
        [
            _nees(d, place, turn @ gate.cov[:3, :3] @ turn.T)
            for d, place, gate in zip(off, places[k], gates, strict=True)
        ],
        angles,
        float((p @ turn.T * places[k]).sum() / (places[k] ** 2).sum() - 1),
        calibrated,
    )


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


def _turned(p: Array, places: Array) -> Array:
    """Return the rotation (3, 3) about the vertical through the pad that best aligns p (N, 3) with places (N, 3)."""
    x, y = (p[:, :2] * places[:, :2]).sum(), (p[:, 0] * places[:, 1] - p[:, 1] * places[:, 0]).sum()
    return matrix(from_euler(0.0, 0.0, math.atan2(y, x)))


def frame_of(track: Track) -> GateFrame:
    """Return the frame of the course's first gate, which the mapping is given."""
    first = track.gates[0]
    return GateFrame(first.opening_m, first.outer_m, first.depth_m)


def map_of(logs: Sequence[Path], vehicle: Vehicle, track: Track) -> tuple[Map, list[MappedGate]]:
    """Return the map from all logs together, and its gates that the first flight passed. Raises UserError without any."""
    frame = frame_of(track)
    found = map_gates([read_flight(log, None) for log in logs], vehicle, frame, GateAppearance())
    passed = passed_in_order(found, frame)
    if not passed:
        raise UserError("no gate was passed")
    return found, passed


def mapped(logs: Sequence[Path], vehicle: Vehicle, world: World, track: Track) -> tuple[MapDeviation | None, str]:
    """Return the errors of the map from all logs together, or None and the reason why there is no map."""
    try:
        found, passed = map_of(logs, vehicle, track)
        return compared(passed, world, found.calibrated), ""
    except UserError as error:
        return None, str(error)


def row(flown: Explored) -> str:
    """Return the result of a flight in one line."""
    return (
        f"{flown.course:12} {flown.profile:4} {flown.world:12} {flown.passed:2} of {flown.gates:2}, margin"
        f" {flown.margin_m:5.2f} m, {flown.time_s:5.1f} s, {flown.crash or flown.end}; {map_text(flown.truth, flown.map)}"
    )


def map_text(found: MapDeviation | None, why: str) -> str:
    """Return the errors of a map in one line, or why there is none."""
    if found is None:
        return f"no map: {why}"
    k, verdict = int(np.argmax(found.off_m)), "within" if found.excess_m < 0 else "beyond"
    return (
        f"map of {len(found.off_m)}, {found.off_m[k]:.2f} m off at {found.distance_m[k]:.0f} m ({verdict}),"
        f" scale {found.scale:+.3%}, NEES/2 {np.mean(found.nees) / 2:.1f}{', calibration estimated' if found.calibrated else ''}"
    )


def summary(flights: Sequence[Explored]) -> str:
    """Return the summary of all flights."""
    whole, touched = sum(flown.passed == flown.gates for flown in flights), sum(bool(flown.crash) for flown in flights)
    maps = [flown.truth for flown in flights if flown.truth is not None]
    return (
        f"{whole} of {len(flights)} passed all gates, {touched} ended by contact{'; ' * bool(maps)}{map_summary(maps)}"
    )


def map_summary(maps: Sequence[MapDeviation]) -> str:
    """Return the summary of maps; empty without one."""
    if not maps:
        return ""
    off = np.array([off for one in maps for off in one.off_m])
    far = np.array([far for one in maps for far in one.distance_m])
    nees = np.array([n / 2 for one in maps for n in one.nees])
    scale = np.array([one.scale for one in maps])
    return (
        f"maps within {WITHIN_M} m + {WITHIN_SHARE:.1%}: {sum(one.excess_m < 0 for one in maps)} of {len(maps)}, gates"
        f" {np.sum(off < WITHIN_M + WITHIN_SHARE * far)} of {len(off)}, worst {off.max():.2f} m; scale rms"
        f" {np.sqrt(np.mean(scale**2)):.3%}, mean {scale.mean():+.3%};"
        f" NEES/2 mean {nees.mean():.2f}, median {np.median(nees):.2f},"
        f" least and greatest of a map {min(np.mean(one.nees) / 2 for one in maps):.2f} and"
        f" {max(np.mean(one.nees) / 2 for one in maps):.2f}"
    )


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument(
        "tracks", nargs="+", help="names or files; with the world unknown:N, the courses have the seeds N, N + 1, ..."
    )
    arguments.add_argument("--vehicle", default="dcl")
    arguments.add_argument("--profiles", nargs="+", default=["dcl"])
    arguments.add_argument("--worlds", nargs="+", default=["as_believed"])
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--excite", default="", help="excitation manoeuvres before the first gate")
    arguments.add_argument("--no-map", action="store_true")
    arguments.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Fly all courses in all worlds and print the results; returns the exit code."""
    vehicle, flights = load_vehicle(arguments.vehicle), list[Explored]()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(arguments.tracks):
        track = load_track(name)
        for named in arguments.worlds:
            file, *seed = named.split(":")
            world = resolve(f"{file}:{int(seed[0]) + i}" if seed else file, track, vehicle)
            for profile in arguments.profiles:
                flown, log = explore(
                    *(track, vehicle, load_profile(profile), world, arguments.seed + i, arguments.excite, arguments.out)
                )
                if not arguments.no_map:
                    truth, why = mapped([log], vehicle, world, track)
                    flown = Explored(**{**flown.__dict__, "truth": truth, "map": why})
                flights.append(flown)
                print(row(flown), flush=True)
                write_file(
                    arguments.out / "exploration.json", json.dumps([asdict(one) for one in flights], indent=2) + "\n"
                )
    print(summary(flights))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: run(parser().parse_args())))
