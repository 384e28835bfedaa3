"""Execution of a campaign: its courses, and its cases over the processes of this machine.

A course is prepared once per campaign folder: plan, bound and observation errors, shared by its cases. Each outcome is
stored at once. The result of a case does not depend on the process that flies it.
"""

import hashlib
import itertools
import json
import multiprocessing
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.command import remark
from gate_racer.common.errors import UserError
from gate_racer.common.files import read_arrays, read_json, reading, require_output, write_arrays
from gate_racer.common.launch import DISTRIBUTION, ONE_THREAD
from gate_racer.common.process import end_with_parent, shielded
from gate_racer.estimation.registry import DEFAULT
from gate_racer.link.record import Record
from gate_racer.mpc.registry import DEFAULT as CONTROLLER
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.planner.planning import find_or_make_plan, plan_path
from gate_racer.planner.task import PlanOptions
from gate_racer.race.campaign.case import FILE, Case, Row, Store
from gate_racer.race.campaign.choice import (
    BenchSettings,
    Choice,
    PreparedCourse,
    asked_world,
    cells_of,
    conditions_of,
    plan_options,
)
from gate_racer.race.campaign.flight import NoLog, attempt, fly, not_flown
from gate_racer.race.planning import fly_trial
from gate_racer.race.settings import LIMIT_MB
from gate_racer.sim.physics.plant import make_plant
from gate_racer.sim.physics.registry import natural
from gate_racer.sim.physics.residual import ObservationModel, Residuals
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.rotation import Array, Indices, between, conjugate, log, product
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle

ROLLOUTS = 3  # flights to learn from, as in the paper
ROLLOUT_SEED = 1_000_000  # outside the range of a campaign's seeds


def odometry_errors(truth: list[Record], state: list[Record]) -> tuple[Array, Array]:
    """Return true states (N, 10) p, q, v and errors (N, 9), estimated minus true, both at the times of the estimates."""
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


def prepare(
    track: Track,
    vehicle: Vehicle,
    laps: int,
    noisy: bool,
    folder: Path,
    uncertified: bool = False,
    plan_asked: str = "",
    residuals: Residuals | None = None,
) -> PreparedCourse:
    """Prepare plan and bound, and with `noisy` the observation errors. Raises UserError without a plan or a flight.

    `plan_asked`: options as in `plan_options`; errors are learned from flights of the default plan in any case.
    """
    course = _course(track, vehicle, laps, folder / plan_asked, uncertified, plan_asked)
    errors, acceleration = (residuals.observation, residuals.acceleration) if residuals else (None, None)
    if noisy and errors is None:
        usual = _course(track, vehicle, laps, folder, uncertified, "") if plan_asked else course
        path = plan_path(folder, track, vehicle, PlanOptions(laps=laps))
        path = path.with_suffix(f".errors-{usual.plan.hash[:8]}.npz")
        if not path.exists():
            remark(f"learning observation errors from {ROLLOUTS} vision-only flights: {path.stem}")
            write_arrays(path, ObservationModel.fit(*_rollouts(usual, laps)).arrays())
        arrays = read_arrays(path)
        with reading(path, "not a file of observation errors; delete it to learn them again"):
            errors = ObservationModel.from_arrays(**arrays)
    return replace(course, errors=errors, residual=acceleration)


def _course(
    track: Track, vehicle: Vehicle, laps: int, folder: Path, uncertified: bool, plan_text: str
) -> PreparedCourse:
    """Prepare the course without observation errors."""
    options = plan_options(plan_text, laps)
    path = plan_path(folder, track, vehicle, options)
    if not path.exists():
        remark(f"planning {path.stem}" + (f", {plan_text}" if plan_text else ""))
    plan = find_or_make_plan(
        folder, track, vehicle, options, None, uncertified, None if uncertified or plan_text else fly_trial
    )
    about = read_json(path.with_suffix(".json"))
    with reading(path.with_suffix(".json")):
        bound_s = about["point_mass_bound_s"] if track.end_m is None else None
        return PreparedCourse(track, vehicle, plan, tuple(about["gate_times_s"]), bound_s, None)


class Estimates(NoLog):
    """Log that keeps only the channels `state` and `truth`."""

    def __init__(self) -> None:
        self.records: dict[str, list[Record]] = {"state": [], "truth": []}

    def write(self, channel: str, t: float, **fields: Any) -> None:
        if channel in self.records:
            self.records[channel].append({"t": t, **fields})


def _rollouts(course: PreparedCourse, laps: int) -> tuple[Array, Array, Indices]:
    """Return true states (N, 10), errors (N, 9), observed minus true, and flight numbers (N,) of vision-only flights.

    They are flown with the controller's own model, since a flight that ends early has no data on the rest of the course.
    """
    states, errors, flights = list[Array](), list[Array](), list[int]()
    for k in range(ROLLOUTS):
        kept, names = Estimates(), (course.track.name, course.vehicle.name, laps)
        fly(Case(*names, "projected-1", CONTROLLER, DEFAULT, ROLLOUT_SEED + k), course, kept)
        if len(kept.records["truth"]) > 1 and kept.records["state"]:
            x, off = odometry_errors(kept.records["truth"], kept.records["state"])
            states, errors, flights = [*states, *x], [*errors, *off], [*flights, *[k] * len(x)]
    if len(states) < 2:
        where = f"{course.track.name}, {course.vehicle.name}"
        raise UserError(f"{where}: no flight by sight left the pad, to learn errors from; leave out settings 2 and 4")
    return np.array(states), np.array(errors), np.array(flights)


Work = Callable[[Case, Any], Row]  # (case, course) -> result
FlightJob = tuple[Case, Any]
LINE_S = 0.5  # s between updates of the progress line


def in_processes(work: Work, jobs: list[FlightJob], workers: int) -> Iterator[Row]:
    """Yield results as they complete, from `workers` processes of this machine.

    When a process dies, the pool does not report which case it had, so that the pending ones are repeated one by one.
    """
    waiting, suspects = deque(jobs), deque[FlightJob]()
    spawn = multiprocessing.get_context("spawn")  # since CasADi, numba and OpenGL do not survive a fork
    for name in ONE_THREAD:
        os.environ[name] = "1"  # read by the children at start
    while waiting or suspects:
        alone = bool(suspects)
        queue, at_once = (suspects, 1) if alone else (waiting, workers)
        pool = ProcessPoolExecutor(at_once, spawn, _begin)
        flying: dict[Future[Row], FlightJob] = {}
        try:
            while queue or flying:
                while queue and len(flying) < at_once:
                    with shielded():  # the first submission starts the processes
                        future = pool.submit(work, *queue[0])  # may raise: the job stays in the queue
                    flying[future] = queue.popleft()
                for future in wait(flying, return_when=FIRST_COMPLETED).done:
                    row = future.result()
                    del flying[future]
                    yield row
        except BrokenProcessPool:
            for case, course in flying.values():
                if alone:
                    yield not_flown(case, course, "the worker process died")
                else:
                    suspects.append((case, course))
        finally:
            pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """Initialise a worker process: ignore Ctrl-C, which the parent handles, and end with the parent, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def counted(rows: Iterable[Row], total: int) -> Iterator[Row]:
    """Yield the rows, and print how many are done, failed, and the time left."""
    failed, begin = 0, time.monotonic()
    reported = begin
    for done, row in enumerate(rows, 1):
        yield row
        failed += row.outcome.status == "failed"
        now = time.monotonic()
        if now - reported < LINE_S and done < total:
            continue
        reported = now
        left = timedelta(seconds=round((now - begin) / done * (total - done)))
        line = f"{done}/{total}" + (f", {failed} failed" if failed else "") + f", {left} left"
        live = sys.stderr.isatty()
        end = "\n" if not live or done == total else ""
        print(f"\r{line:<40}" if live else line, end=end, file=sys.stderr, flush=True)


ROOT = Path(__file__).resolve().parents[2]  # of a checkout


def campaign(
    tracks: Sequence[str],
    choices: Sequence[Choice],
    folder: Path,
    workers: int | None,
    retry: bool = False,
) -> tuple[Store, list[Row]]:
    """Fly all cases that the folder's file does not contain; with `retry` those that failed as well. Raises UserError.
    Returns the campaign's file, which may contain further cases, and the requested rows, in order."""
    loaded = [load_track(track) for track in tracks]
    for choice in choices:
        _require(choice, loaded)
    asked = [
        (choice, track, vehicle, choice.cases(track, vehicle))
        for choice, track in itertools.product(choices, loaded)
        for vehicle in map(load_vehicle, choice.vehicles)
    ]
    requested = [case.id for *_, cases in asked for case in cases]
    if not requested:
        raise UserError("no flights were asked for: one of the axes, such as settings, has no values")
    require_output(folder / FILE)
    store = Store(folder / FILE)
    about = machine()
    for track in loaded:
        about[f"gates:{track.name}"] = json.dumps([gate.corners().round(3).tolist() for gate in track.gates])
    store.require(about, "commit")
    done = {key for key, status in store.done().items() if not (retry and status == "failed")}
    jobs = list[FlightJob]()
    for choice, track, vehicle, cases in asked:
        missing = [case for case in cases if (case.id, case.content) not in done]
        for plan in dict.fromkeys(case.plan for case in missing):
            of_plan = [case for case in missing if case.plan == plan]
            noisy = any(conditions_of(case.setting).noisy for case in of_plan)
            given = (folder / "plans", choice.uncertified, plan, choice.residuals)
            course = prepare(track, vehicle, choice.laps, noisy, *given)
            jobs += [(case, course) for case in of_plan]
    stale = {case.id for case, _ in jobs} & {name for name, _ in store.done()}
    if stale and not retry:
        remark(f"{len(stale)} stored flights were of another course, vehicle, world or controller: flown again")
    if jobs:
        try:
            for row in counted(in_processes(attempt, jobs, workers or os.cpu_count() or 1), len(jobs)):
                store.add(row)
        except KeyboardInterrupt:
            remark(f"\ncompleted flights are kept in {folder}; repeat the command to continue")
            raise
    by_id = {row.case.id: row for row in store.rows()}
    return store, [by_id[name] for name in dict.fromkeys(requested)]


def _require(choice: Choice, tracks: Sequence[Track]) -> None:
    """Check, before any flight, that each case can be flown. Raises UserError."""
    choice.require_known()
    vehicles, residuals = [load_vehicle(name) for name in choice.vehicles], choice.residuals
    for track in tracks:
        track.course(choice.laps)
    for vehicle, name in itertools.product(vehicles, choice.flown):
        if (simulated := conditions_of(name).simulated) is not None:
            make_plant(vehicle, tracks[0].start, simulated)  # which may lack parameters
        if residuals is not None:
            residuals.require(vehicle, simulated or natural(vehicle), f"residual {choice.residual}")
    for track, vehicle, world in itertools.product(tracks, vehicles, cells_of(choice.worlds)):
        resolve(asked_world(world, 0), track, vehicle)


def worst(rows: list[Row], count: int) -> list[Row]:
    """Return the `count` worst flights: by course completed, then by least gate margin."""
    flown = [row for row in rows if row.outcome.status != "failed"]
    flown.sort(key=lambda row: (row.outcome.finished, row.outcome.share, min(row.outcome.margin_m, default=0.0)))
    return flown[:count]


def fly_again(rows: list[Row], settings: BenchSettings, folder: Path) -> None:
    """Repeat flights of these settings to write their logs and plots into the folder; cases are deterministic."""
    tracks = {track.name: track for track in map(load_track, settings.tracks)}
    vehicles = {vehicle.name: vehicle for vehicle in map(load_vehicle, settings.vehicles)}
    for row in rows:
        case, log_path = row.case, log_of(folder, row)
        if log_path.exists():
            continue
        draft = log_path.with_suffix(".part.mcap")  # a flight that is interrupted leaves no log that looks whole
        log_path.parent.mkdir(parents=True, exist_ok=True)
        given = (folder / "plans", settings.uncertified, case.plan, settings.residuals)
        noisy = conditions_of(case.setting).noisy
        course = prepare(tracks[case.track], vehicles[case.vehicle], case.laps, noisy, *given)
        with closing(FlightLog(draft, limit_mb=LIMIT_MB)) as log:
            fly(case, course, log, log_path.with_suffix(".png"))
        draft.replace(log_path)


def log_of(folder: Path, row: Row) -> Path:
    """Return the path of a flight's log, which exists once it has been repeated."""
    return folder / "worst" / f"{re.sub('[/:]', '-', row.case.id)}-{row.case.content[:8]}.mcap"


def commit() -> str:
    """Return the program's commit, with a hash of uncommitted changes; without a checkout its version."""

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout

    if not (ROOT / ".git").exists():  # an environment may lie in the checkout of another project
        return version(DISTRIBUTION)
    try:
        head, changes = git("rev-parse", "--short=12", "HEAD").decode().strip(), git("diff", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return version(DISTRIBUTION)
    return head + (f"-changed-{hashlib.sha256(changes).hexdigest()[:6]}" if changes else "")


def machine() -> dict[str, str]:
    """Return commit, machine and Python version, for the tables."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    processor = f"{len(models)} x {models[0]}" if models else platform.processor() or platform.machine()
    return {"commit": commit(), "machine": processor, "python": platform.python_version()}
