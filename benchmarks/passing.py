"""Overtaking of a scripted rival: python benchmarks/passing.py vq1 --shares 0.8 0.9 --seeds 10

A pilot on the true state races a scripted rival, a point that follows the same plan at a fraction of its pace, with a lead at
GO, and does not give way. Starts and leads are random. Prints a line per fraction and writes passing.json.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gate_racer.benchmarks.campaign.choice import PreparedCourse
from gate_racer.benchmarks.campaign.prepare import prepare
from gate_racer.benchmarks.true_state import COMMAND_TICKS, PHYSICS_HZ, SCATTER_M
from gate_racer.estimation.estimator import State
from gate_racer.estimation.rivals import ReceivedRivals
from gate_racer.link.messages import AttitudeTarget, RivalState
from gate_racer.mpc.giving_way import P, V
from gate_racer.mpc.make import make_controller
from gate_racer.mpc.reference import Reference
from gate_racer.pilot.guidance.passing_room import PassingRoom
from gate_racer.pilot.guidance.rivals import Known, RivalWatch, StartGrid
from gate_racer.sim.physics.contact import Colliders
from gate_racer.sim.physics.setting import make_plant, natural
from gate_racer.sim.referee import Referee
from gate_racer.tracks.grid import place
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.errors import exit_code
from gate_racer.vehicle.files import write_file
from gate_racer.vehicle.vehicle import load_vehicle

LEADS_S = 0.1, 0.6  # bounds of the rival's lead at GO, in plan time
BESIDE_M = 1.0  # m, offset of the pilot's start from the line
PATIENCE = 2.0  # time limit over the plan's time


@dataclass(frozen=True)
class ScriptedDuel:
    """Result of a duel."""

    share: float | None  # fraction of the plan's pace at which the rival flies; None: no rival
    seed: int
    gates: int
    time_s: float | None  # time of the last gate; None: not passed
    rival_s: float | None  # time of the rival at the last gate
    least_m: float  # least distance between the centres
    lead_m: float  # final lead of the pilot along the rival's direction of flight
    touched: bool
    margin_m: float  # least gate margin

    @property
    def first(self) -> bool:
        """Whether the pilot finished before the rival."""
        return self.time_s is not None and self.rival_s is not None and self.time_s < self.rival_s


def duel(course: PreparedCourse, share: float | None, seed: int, until_s: float = np.inf) -> ScriptedDuel:
    """Fly on the true state until the end of the course, or until until_s."""
    vehicle, plan = course.vehicle, course.plan
    track = place(course.track, 2, 2, 2 * BESIDE_M)
    rng, gates = np.random.default_rng(seed), track.course(plan.laps)
    x, y, z = track.start.position_m
    dx, dy = rng.uniform(-SCATTER_M, SCATTER_M, 2)
    lead_s = rng.uniform(*LEADS_S)
    line, controller = Reference(plan, vehicle, gates), make_controller("mpcc", plan, vehicle, track)
    watch = RivalWatch(
        StartGrid(2, Known.TOLD, {}),
        vehicle.half_diagonal,
        PassingRoom(track, vehicle.half_diagonal),
        ReceivedRivals(2),
    )
    limit_s = min(until_s, PATIENCE * plan.total_time)
    start = replace(track.start, position_m=(x + dx, y + dy, z))
    plant, referee = make_plant(vehicle, start, natural(vehicle), Colliders(track)), Referee(track, plan.laps, limit_s)
    plant.armed, least_m, lead_m, count = True, np.inf, np.nan, 0
    referee.go(0.0)
    while not referee.race.over:
        t, now = count / PHYSICS_HZ, plant.truth.x
        if share is not None:
            there = line.sample(np.array([share * t + lead_s]))[0]
            off = plant.truth.p_wb - there[P]
            least_m, lead_m = min(least_m, float(np.linalg.norm(off))), float(off @ there[V] / np.linalg.norm(there[V]))
            watch.receive(RivalState(t, 1, tuple(there[P]), tuple(share * there[V])))
        if count % COMMAND_TICKS == 0:
            state = State(t, now[:3], now[3:7], now[7:10], now[10:13], np.zeros((9, 9)), 0.0)
            progress = controller.progress
            way = watch.way(state, controller.reference, progress.theta, progress.pace, progress.attainable)
            controller.give_way(way.tubes)
            controller.limit_pace(way.pace)
            control = controller.step(t, now, COMMAND_TICKS / PHYSICS_HZ)
            controller.prepare()
            throttle = vehicle.throttle.throttle(control.u[3])
            plant.command(t, AttitudeTarget(tuple(control.q_wb), tuple(control.u[:3]), throttle, True))
        count += 1
        referee.watch(plant.truth, plant.advance(count / PHYSICS_HZ))
    race = referee.race
    passed, done = len(race.gate_times_s), len(race.gate_times_s) == len(gates)
    rival_s = (plan.gate_times_s[len(gates) - 1] - lead_s) / share if share is not None else None
    margin_m, touched = min(race.gate_margins_m, default=np.nan), least_m < 2 * vehicle.half_diagonal
    time_s = race.gate_times_s[-1] if done else None
    return ScriptedDuel(share, seed, passed, time_s, rival_s, least_m, lead_m, touched, margin_m)


def row(duels: Sequence[ScriptedDuel], alone: Sequence[ScriptedDuel]) -> str:
    """Return the duels in one line, compared with flights of the same seeds without a rival."""
    both = [(a.time_s, b.time_s) for a, b in zip(duels, alone, strict=True) if a.time_s and b.time_s]
    lost = f"{np.mean([a - b for a, b in both]):+.3f} s" if both else "-"
    return (
        f"share {duels[0].share:g}: first {sum(one.first for one in duels)} of {len(duels)}, finished"
        f" {sum(one.time_s is not None for one in duels)}, contacts {sum(one.touched for one in duels)}, least distance"
        f" {min(one.least_m for one in duels):.2f} m, least margin {min(one.margin_m for one in duels):.2f} m,"
        f" time lost to the rival {lost}"
    )


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("track", nargs="?", default="vq1")
    arguments.add_argument("--vehicle", default="dcl")
    arguments.add_argument("--shares", type=float, nargs="+", default=[0.7, 0.8, 0.9, 1.0])
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    return arguments


def run(arguments: argparse.Namespace) -> int:
    """Fly all duels and print a line per speed fraction; returns the exit code."""
    track, vehicle = load_track(arguments.track), load_vehicle(arguments.vehicle)
    course = prepare(track, vehicle, 1, False, arguments.out, lambda text: print(text, file=sys.stderr, flush=True))
    alone = [duel(course, None, seed) for seed in range(arguments.seeds)]
    flown = list(alone)
    for share in arguments.shares:
        duels = [duel(course, share, seed) for seed in range(arguments.seeds)]
        print(row(duels, alone), flush=True)
        flown += duels
    write_file(arguments.out / "passing.json", json.dumps([asdict(one) for one in flown], indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: run(parser().parse_args())))
