"""`run-mpc --improve`: what the last runs of a course say of vehicle, map and reserve, and what is changed for the next.

The vehicle's thrust and drag are fitted to the runs; its camera is the mean of what the filter has made of it in each, and the
next flight begins with that; a gate is moved to where the runs saw it; both only where the change is
significant, and with the last exploration of the course (`run-mpc --explore`) beside the runs. The reserve is bisected between
the fastest run that kept its margins and the boldest that did not.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from field.calibration import camera_of, combined
from field.files import write_vehicle, write_yaml
from field.identify.fit import Fit, identify
from field.identify.signals import SignalError, read_signals
from field.mapping.cli import moved as moved_to_pad
from field.mapping.gates import map_gates
from field.mapping.sights import LoggedFlight, MapError, read_flight
from link.record_reader import Record, read_records
from perception.rims import GateAppearance
from pilot.guidance.explorer import NAME
from planner.options import PlanOptions
from planner.plan import Plan, PlanError, read_plan, write_plan
from planner.planning import make_plan
from tracks.track import GateFrame, Track, TrackFile, load_track
from vehicle.camera import Camera
from vehicle.config import load
from vehicle.errors import UserError
from vehicle.files import FileError, read_json, reading
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

LAST, EXPLORED = 4, 2  # runs that are looked at, and explorations, of which the newest of this course is used
CLEAR_M = 0.04  # beyond the body's half diagonal: the least margin of a good run
STEP, HALVED, LEAST_STEP = 0.04, 0.5, 0.01  # of the reserve: bolder by, between good and bad, and not worth a plan
RETREAT, LEAST, MOST = 0.06, 0.4, 0.97
THRUST, DRAG, MOST_CHANGE = 0.01, 0.03, 0.25  # relative changes that are worth it, and that are believed
Z95 = 1.96
SAMPLES = ("/camera", "/imu", "/state", "/command", "/reference", "/truth", "/attitude")  # what a log holds most of
TELLING_THROTTLE = 0.15  # below it thrust is too small to compare
MOVED_M, SIGMAS = 0.08, 3.0  # a gate stands elsewhere: by so much, and so surely
NEAR_M = 2.0  # from where it is mapped


@dataclass(frozen=True)
class Run:
    """One earlier flight of the course."""

    log: Path
    plan: Plan
    reserve: float
    time_s: float | None  # None: not finished
    margin_m: float | None  # the least
    camera: Camera | None = None  # as the filter has calibrated it

    def good(self, floor_m: float) -> bool:
        return self.time_s is not None and self.margin_m is not None and self.margin_m >= floor_m


@dataclass(frozen=True)
class Change:
    """One line of the report."""

    what: str
    before: str
    after: str
    why: str


@dataclass(frozen=True)
class Improvement:
    """What to fly next, and why."""

    track: Track
    vehicle: Vehicle
    plan: Plan
    changes: tuple[Change, ...]
    best: Run | None


def improve(track: Track, vehicle: Vehicle, logs: Path, plans: Path, laps: int) -> Improvement:
    """From the last runs to the next plan, stored in `plans` with its vehicle and track.

    Raises:
        UserError: no run of this track and vehicle, or no plan can be made.
    """
    runs = history(logs, plans, track.name, vehicle.name)
    if not runs:
        raise UserError(
            f"--improve: no run of {track.name} with {vehicle.name} in {logs} whose plan is in {plans}: fly first"
        )
    floor = vehicle.half_diagonal + CLEAR_M
    reserve, why = next_reserve(runs, floor)
    changes = (
        [] if reserve == runs[-1].reserve else [Change("reserve", f"{runs[-1].reserve:.3f}", f"{reserve:.3f}", why)]
    )
    explored = explorations(logs)
    better, told = better_vehicle(runs, vehicle, explored)
    better, seen = better_camera(runs, better)
    course, moved = better_track(runs, track, vehicle, plans, explored)
    changes += [*told, *seen, *moved]
    good = [run for run in runs if run.good(floor)]
    best = min(good, key=lambda run: run.time_s or np.inf) if good else None
    if not changes:
        return Improvement(course, better, runs[-1].plan, (), best)
    plan = _planned(plans, course, better, PlanOptions(laps=laps, reserve=reserve), runs[-1].plan)
    return Improvement(course, better, plan, tuple(changes), best)


def history(logs: Path, plans: Path, track: str, vehicle: str) -> list[Run]:
    """The last runs of a course, oldest first; those whose plan is gone, or that never flew, say nothing."""
    known = {}
    for path in sorted(plans.glob(f"{track}*.csv")):
        try:
            plan = read_plan(path)
            known[plan.hash] = plan, read_json(path.with_suffix(".json"))
        except (PlanError, FileError):
            continue
    runs: list[Run] = []
    for log in sorted(logs.glob(f"{track}-*.mcap"), key=lambda path: path.stat().st_mtime, reverse=True):
        if len(runs) == LAST:
            break
        flight, verdict, calibration = _ends(log)
        if flight.get("vehicle") != vehicle or flight.get("plan_hash") not in known or not verdict:
            continue
        plan, about = known[flight["plan_hash"]]
        with reading(log):
            times, margins = verdict["gate_times_s"], verdict["gate_margins_m"]
            time_s = float(times[-1]) if verdict["status"] == "finished" else None
            reserve = float(about.get("options", {}).get("reserve", PlanOptions().reserve))
            margin_m, camera = min(map(float, margins)) if margins else None, camera_of(calibration)
            runs.append(Run(log, plan, reserve, time_s, margin_m, camera))
    return runs[::-1]


def explorations(logs: Path) -> list[Path]:
    """The last ones, newest first; of what course, only the gates in them tell."""
    return sorted(logs.glob(f"{NAME}-*.mcap"), key=lambda path: path.stat().st_mtime, reverse=True)[:EXPLORED]


def _ends(log: Path) -> tuple[Record, Record, Record]:
    """What was flown, how it ended, and what camera it has shown; the last record of each."""
    found: dict[str, Record] = {"/flight": {}, "/referee": {}, "/calibration": {}}
    for topic, record in read_records(log, without=SAMPLES):
        if topic in found:
            found[topic] = record
    return found["/flight"], found["/referee"], found["/calibration"]


def next_reserve(runs: list[Run], floor_m: float) -> tuple[float, str]:
    """The reserve to fly next, and why."""
    good = [run for run in runs if run.good(floor_m)]
    bad = [run for run in runs if not run.good(floor_m)]
    if not good:
        reserve = max(LEAST, min(run.reserve for run in runs) - RETREAT)
        return reserve, f"no run has finished with {floor_m:.2f} m of margin"
    best = max(run.reserve for run in good)
    above = [run.reserve for run in bad if run.reserve > best + 1e-9]
    if above:
        step = HALVED * (min(above) - best)
        reserve = best + step if step > LEAST_STEP else best
        return reserve, f"{best:.3f} was good, {min(above):.3f} was not"
    if any(abs(run.reserve - best) < 1e-9 for run in bad):
        return max(LEAST, best - LEAST_STEP), f"with {best:.3f} not every run was good"
    margin = min(run.margin_m or 0.0 for run in good if run.reserve == best)
    return min(MOST, best + STEP), f"{best:.3f} was flown with {margin:.2f} m of margin, {floor_m:.2f} m are needed"


def better_vehicle(runs: list[Run], vehicle: Vehicle, explored: Sequence[Path] = ()) -> tuple[Vehicle, list[Change]]:
    """Thrust scaled and drag replaced, where the flights say so clearly."""
    signals = []
    for log in [*(run.log for run in runs), *explored]:
        with contextlib.suppress(UserError):
            signals.append(read_signals(log))
    try:
        fit = identify(signals) if signals else None
    except SignalError:
        fit = None
    if fit is None:
        return vehicle, []
    changes, better = [], vehicle
    scale, sure = _thrust_scale(fit, vehicle)
    if max(THRUST, sure) < abs(scale - 1) < MOST_CHANGE:
        thrust = tuple(round(scale * c, 4) for c in vehicle.throttle.thrust_m_s2)
        better = replace(better, throttle=replace(vehicle.throttle, thrust_m_s2=thrust))
        why = f"{len(signals)} flights say {scale:.3f} +- {sure:.3f} of {vehicle.name}'s"
        changes.append(Change("thrust", "1", f"{scale:.3f}", why))
    drag = fit.drag_quadratic_1_m
    if drag is not None and drag.value > 0:
        before = vehicle.drag_quadratic_1_m
        if max(DRAG * before, drag.half_width) < abs(drag.value - before) < 2 * MOST_CHANGE * before:
            better = replace(better, drag_quadratic_1_m=round(drag.value, 5))
            why = f"the flights say {drag.value:.4f} +- {drag.half_width:.4f} 1/m"
            changes.append(Change("drag, 1/m", f"{before:.4f}", f"{drag.value:.4f}", why))
    return better, changes


def _thrust_scale(fit: Fit, vehicle: Vehicle) -> tuple[float, float]:
    """Fitted thrust over the vehicle's, and its 95 % half width, over all throttles that tell."""
    ratios, weights = [], []
    for u, c in zip(fit.throttle, fit.thrust_m_s2, strict=True):
        if u > TELLING_THROTTLE:
            base = vehicle.throttle.thrust(u)
            ratios.append(c.value / base)
            weights.append(1 / ((c.half_width / base) ** 2 + THRUST**2))
    if not ratios:
        return 1.0, float("inf")
    return float(np.average(ratios, weights=weights)), Z95 / float(np.sqrt(sum(weights)))


def better_camera(runs: list[Run], vehicle: Vehicle) -> tuple[Vehicle, list[Change]]:
    """The camera as the finished flights have shown it, where that differs surely."""
    shown = [run.camera for run in runs if run.time_s is not None and run.camera is not None]
    camera = combined(shown, vehicle.camera)
    if camera is None or camera.doubt is None:
        return vehicle, []
    doubt, why = camera.doubt, f"{len(shown)} flights"
    before, after = (
        f"yaw {c.yaw_deg:.2f}, tilt {c.tilt_deg:.2f}, roll {c.roll_deg:.2f} deg, focal {c.fx_px:.1f} px"
        for c in (vehicle.camera, camera)
    )
    why += f", +- {doubt.yaw_deg:.2f}, {doubt.tilt_deg:.2f}, {doubt.roll_deg:.2f} deg, {100 * doubt.focal:.1f} %"
    return replace(vehicle, camera=camera), [Change("camera", before, after, why)]


def better_track(
    runs: list[Run], track: Track, vehicle: Vehicle, plans: Path, explored: Sequence[Path] = ()
) -> tuple[Track, list[Change]]:
    """Gates moved to where all flights together saw them, as `map-track` maps them; no matter which map was flown by."""
    flights = _readable([run.log for run in runs])
    size = next((gate for gate in track.gates if not gate.is_ball and gate.opening_m), None)
    if not flights or size is None:
        return track, []
    frame, found = GateFrame(size.opening_m, size.outer_m, size.depth_m), None
    for more in [*([one] for one in _readable(explored)), []]:  # an exploration of another course shares no gate
        with contextlib.suppress(MapError, np.linalg.LinAlgError):
            found = map_gates([*flights, *more], vehicle, frame, GateAppearance())
            break
    if found is None:
        return track, []
    moved, changes = {}, []
    placed = [moved_to_pad(gate, track.start, found) for gate in found.gates]
    for i, gate in enumerate(track.gates):
        near = [one for one in placed if np.linalg.norm(one.p_w - gate.centre_m) < NEAR_M]
        if gate.is_ball or len(near) != 1:
            continue
        off, sure = near[0].p_w - gate.centre_m, SIGMAS * near[0].sigma_m
        if float(np.linalg.norm(off)) > max(MOVED_M, sure):
            moved[i] = off
            far = ", ".join(f"{value:+.2f}" for value in off)
            why = f"{near[0].sightings} sightings, +- {sure:.2f} m"
            changes.append(Change(f"gate {i}", "as mapped", f"({far}) m", why))
    return (_moved(track, moved, plans) if moved else track), changes


def _readable(logs: Sequence[Path]) -> list[LoggedFlight]:
    flights = []
    for log in logs:
        with contextlib.suppress(UserError):
            flights.append(read_flight(log, None))
    return flights


def _moved(track: Track, moved: dict[int, Array], plans: Path) -> Track:
    """The track with gates moved, as a file of its own."""
    file = load(track.file, TrackFile)
    entries = list(file.gates)
    for gate, off in moved.items():
        centre = np.array(track.gates[gate].centre_m) + off
        x, y, z = (round(float(value), 3) for value in centre)
        entries[gate] = replace(entries[gate], centre_m=(x, y, z), base_m=None)
    path = _free(plans, track.name, ".track.yaml")
    fields = asdict(
        replace(file, gates=tuple(entries), source=f"{file.source} Gates moved by --improve: {sorted(moved)}.")
    )
    write_yaml(path, fields)
    return load_track(path)


def _planned(plans: Path, track: Track, vehicle: Vehicle, options: PlanOptions, warm: Plan) -> Plan:
    plan, certificate = make_plan(track, vehicle, options, None, warm if warm.laps == options.laps else None)
    if not certificate.ok:
        raise PlanError(f"{track.name}: no certified plan ({certificate.status})")
    path = _free(plans, track.name, ".csv")
    write_plan(path, plan, vehicle, certificate.as_dict())
    write_vehicle(path.with_suffix(".vehicle.yaml"), vehicle)
    return plan


def _free(plans: Path, name: str, end: str) -> Path:
    number = 1
    while (path := plans / f"{name}-improved{number}{end}").exists():
        number += 1
    return path


def told(improvement: Improvement) -> str:
    """What was changed and why, a line each."""
    lines = [f"{c.what}: {c.before} -> {c.after} ({c.why})" for c in improvement.changes] or ["nothing to change"]
    best = improvement.best
    if best is not None:
        lines.append(
            f"best so far {best.time_s:.3f} s with {best.margin_m:.2f} m; planned now {improvement.plan.total_time:.3f} s"
        )
    return "\n".join(lines)
