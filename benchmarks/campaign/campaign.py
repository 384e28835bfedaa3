"""Execution of a campaign: prepare the courses, fly the missing cases, and store each outcome at once."""

import hashlib
import json
import os
import platform
import re
import subprocess
from importlib.metadata import version
from itertools import product
from pathlib import Path

from gate_racer.benchmarks.campaign.choice import SETTINGS, Choice
from gate_racer.benchmarks.campaign.flight import attempt, fly
from gate_racer.benchmarks.campaign.prepare import prepare
from gate_racer.benchmarks.campaign.run import CampaignProgress, FlightJob, in_processes, on_cluster
from gate_racer.benchmarks.campaign.store import FILE, Row, Store
from gate_racer.benchmarks.campaign.worlds import asked as asked_for
from gate_racer.benchmarks.campaign.worlds import cells_of
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.sim.physics.residual import Residuals
from gate_racer.sim.physics.setting import make_plant
from gate_racer.sim.worlds.distribution import resolve
from gate_racer.tracks.track import Track, load_track
from gate_racer.vehicle.command import remark
from gate_racer.vehicle.launch import DISTRIBUTION
from gate_racer.vehicle.vehicle import load_vehicle

ROOT = Path(__file__).resolve().parents[2]  # of a checkout


def campaign(
    tracks: list[str],
    choice: Choice,
    folder: Path,
    workers: int,
    scheduler: str = "",
    retry: bool = False,
    residuals: Residuals | None = None,
) -> tuple[Store, list[str]]:
    """Fly all cases that the folder's file does not contain; with `retry` those that failed as well.

    `residuals`: contents of the file that `choice.residual` names.

    Returns:
        The campaign's file, which may contain further cases, and the ids of the requested cases, in order.

    Raises:
        UserError: unknown names, no plan, a file of another commit, or no scheduler.
    """
    loaded = [load_track(track) for track in tracks]
    vehicles = [load_vehicle(name) for name in choice.vehicles]
    for track in loaded:
        track.course(choice.laps)
    for vehicle, name in product(vehicles, choice.settings):
        if (simulated := SETTINGS[name].simulated) is not None:
            # Raises before any flight where the vehicle lacks parameters.
            make_plant(vehicle, loaded[0].start, simulated)
        if residuals is not None:
            residuals.require(vehicle, SETTINGS[name].flown(vehicle), f"--residual {choice.residual}")
    for track, vehicle, world in product(loaded, vehicles, cells_of(choice.worlds)):
        resolve(asked_for(world, 0), track, vehicle)  # raises before any flight
    store = Store(folder / FILE)
    store.require({**machine(), **{f"gates:{track.name}": _outlines(track) for track in loaded}}, "commit")
    done = {key for key, status in store.done().items() if not (retry and status == "failed")}
    jobs, requested = list[FlightJob](), list[str]()
    for track in loaded:
        for vehicle in vehicles:
            cases = choice.cases(track, vehicle)
            requested += [case.id for case in cases]
            missing = [case for case in cases if (case.id, case.content) not in done]
            for plan in dict.fromkeys(case.plan for case in missing):
                of_plan = [case for case in missing if case.plan == plan]
                noisy = any(SETTINGS[case.setting].noisy for case in of_plan)
                given = (folder / "plans", remark, choice.uncertified, plan, residuals)
                course = prepare(track, vehicle, choice.laps, noisy, *given)
                jobs += [(case, course) for case in of_plan]
    stale = {case.id for case, _ in jobs} & {name for name, _ in store.done()}
    if stale and not retry:
        remark(f"{len(stale)} stored flights were of another course, vehicle, world or controller: flown again")
    if jobs:
        progress = CampaignProgress(len(jobs))
        flights = on_cluster(attempt, jobs, scheduler) if scheduler else in_processes(attempt, jobs, workers)
        for case, flown in flights:
            store.add(case, flown)
            progress(flown)
    return store, requested


def worst(rows: list[Row], count: int) -> list[Row]:
    """Return the `count` worst flights: by course completed, then by least gate margin."""
    flown = [row for row in rows if row.outcome.status != "failed"]
    return sorted(flown, key=lambda r: (r.outcome.finished, r.outcome.share, min(r.outcome.margin_m, default=0.0)))[
        :count
    ]


def fly_again(
    rows: list[Row], tracks: list[str], folder: Path, uncertified: bool = False, residuals: Residuals | None = None
) -> None:
    """Repeat flights to write their logs and plots into the campaign's folder; cases are deterministic."""
    by_name = {track.name: track for track in map(load_track, tracks)}
    for row in rows:
        case, log_path = row.case, log_of(folder, row)
        if log_path.exists() or case.track not in by_name:
            continue
        draft = log_path.with_suffix(".part.mcap")  # a flight that is interrupted leaves no log that looks whole
        log_path.parent.mkdir(parents=True, exist_ok=True)
        vehicle, noisy = load_vehicle(case.vehicle), SETTINGS[case.setting].noisy
        given = (folder / "plans", remark, uncertified, case.plan, residuals)
        course = prepare(by_name[case.track], vehicle, case.laps, noisy, *given)
        log = FlightLog(draft)
        try:
            fly(case, course, log, log_path.with_suffix(".png"))
        finally:
            log.close()
        draft.replace(log_path)


def log_of(folder: Path, row: Row) -> Path:
    """Return the path of a flight's log, which exists once it has been repeated."""
    return folder / "worst" / f"{re.sub('[/:]', '-', row.case.id)}-{row.case.content[:8]}.mcap"


def commit() -> str:
    """Return the program's commit, with a hash of uncommitted changes; without a checkout its version."""

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout

    try:
        # Its environment lies in another's.
        if Path(os.fsdecode(git("rev-parse", "--show-toplevel").rstrip(b"\n"))) != ROOT:
            return version(DISTRIBUTION)
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


def _outlines(track: Track) -> str:
    return json.dumps([gate.corners().round(3).tolist() for gate in track.gates])
