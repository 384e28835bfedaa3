"""`run-mpc --set plan.improve=true`: vehicle, map and reserve estimated from the last runs of a course.

The vehicle's thrust and drag are fitted to the runs; its camera is the mean of the filter's calibrations, with which the
next flight starts; a gate is moved to where the runs saw it; all only where the change is significant, and with the last
exploration of the course (`explore`) in addition to the runs. The reserve is bisected between the fastest run that kept
its margins and the boldest that did not.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from gate_racer.common.config import load, write
from gate_racer.common.errors import UserError
from gate_racer.common.files import FileError, read_json, reading
from gate_racer.field.files import DIGITS, camera_of, combined, write_vehicle
from gate_racer.field.identify.fit import Fit, identify
from gate_racer.field.identify.signals import read_signals
from gate_racer.field.mapping.bundle import map_gates
from gate_racer.field.mapping.flight import MapError, read_flight
from gate_racer.field.mapping.run import moved as moved_to_pad
from gate_racer.link.logs.samples import SignalError
from gate_racer.link.record import read_records
from gate_racer.model.rims import GateAppearance
from gate_racer.pilot.guidance.explorer import NAME
from gate_racer.planner.plan import Plan, PlanError, read_plan, write_plan
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.tracks.track import GateFrame, Track, TrackFile, load_track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.statistics import Z95
from gate_racer.vehicle.vehicle import Vehicle

Content = TypeVar("Content")
LAST, EXPLORED = 4, 2  # runs in use, and explorations tried, of which the newest of this course is used
SAMPLES = ("/camera", "/imu", "/state", "/command", "/reference", "/truth", "/attitude")  # the bulk of a log


@dataclass(frozen=True)
class Run:
    log: Path
    plan: Plan
    reserve: float
    time_s: float | None  # None: not finished
    margin_m: float | None  # least margin of the flight
    camera: Camera | None = None  # as calibrated by the filter

    def good(self, floor_m: float) -> bool:
        """Return whether the run finished with a margin of at least floor_m (m)."""
        return self.time_s is not None and self.margin_m is not None and self.margin_m >= floor_m


def history(logs: Path, plans: Path, track: str, vehicle: str) -> list[Run]:
    """Return the last runs of a course, oldest first; runs without their plan, or that never flew, are skipped."""
    known = {}
    for path in sorted(plans.glob(f"{track}*.csv")):
        try:
            plan = read_plan(path)
            known[plan.hash] = plan, read_json(path.with_suffix(".json"))
        except (PlanError, FileError):
            continue
    runs: list[Run] = []
    for log in _newest(logs, f"{track}-*.mcap"):
        if len(runs) == LAST:
            break
        with reading(log):
            last = dict(read_records(log, without=SAMPLES))  # of each topic
            flight, verdict = last.get("/flight", {}), last.get("/referee")
            course = flight.get("track"), flight.get("vehicle")
            if course != (track, vehicle) or flight.get("plan_hash") not in known or not verdict:
                continue
            plan, about = known[flight["plan_hash"]]
            times, margins = verdict["gate_times_s"], verdict["gate_margins_m"]
            time_s = float(times[-1]) if verdict["status"] == "finished" else None
            reserve = float(about.get("options", {}).get("reserve", PlanOptions().reserve))
            margin_m, camera = min(map(float, margins)) if margins else None, camera_of(last.get("/calibration", {}))
            runs.append(Run(log, plan, reserve, time_s, margin_m, camera))
    return runs[::-1]


def explorations(logs: Path) -> list[Path]:
    """Return the last explorations, newest first; their course is known by the gates in them only."""
    return _newest(logs, f"{NAME}-*.mcap")[:EXPLORED]


def _newest(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)


THRUST, DRAG = 0.01, 0.03  # relative changes above which a new plan is made
# Largest plausible relative changes: twice the spread of public fits of one simulator, 30 % of thrust and drags of 0.034 to
# 0.076 1/m.
THRUST_MOST, DRAG_MOST = 0.6, 2.5
LEAST_THROTTLE = 0.15  # -, throttle below which the thrust is too small to compare (chosen)
MOVED_M, SIGMAS = 0.08, 3.0  # m and standard deviations by which a gate must be displaced
NEAR_M = 2.0  # m, greatest distance of an estimated gate from its position on the map (chosen)


@dataclass(frozen=True)
class Change:
    what: str
    before: str
    after: str
    why: str

    @property
    def made(self) -> bool:
        return self.after != self.before


def better_vehicle(runs: list[Run], vehicle: Vehicle, explored: Sequence[Path] = ()) -> tuple[Vehicle, list[Change]]:
    """Scale thrust and replace drag where the flights show a significant difference."""
    signals = _readable([*(run.log for run in runs), *explored], read_signals)
    try:
        fit = identify(signals)
    except SignalError:
        return vehicle, []
    changes, better = [], vehicle
    scale, half_width = _thrust_scale(fit, vehicle)
    if abs(scale - 1) > max(THRUST, half_width):
        if plausible := abs(scale - 1) < THRUST_MOST:
            thrust = tuple(round(scale * c, 4) for c in vehicle.throttle.thrust_m_s2)
            better = replace(better, throttle=replace(vehicle.throttle, thrust_m_s2=thrust))
        why = f"estimated from {len(signals)} flights: {scale:.3f} +- {half_width:.3f} of {vehicle.name}'s"
        changes.append(_change("thrust", "1", f"{scale:.3f}", why, plausible))
    drag, before = fit.drag_quadratic_1_m, vehicle.drag_quadratic_1_m
    if drag is not None and abs(drag.value - before) > max(DRAG * before, drag.half_width):
        if plausible := 0 < drag.value < (1 + DRAG_MOST) * before:
            better = replace(better, drag_quadratic_1_m=round(drag.value, 5))
        why = f"estimated: {drag.value:.4f} +- {drag.half_width:.4f} 1/m"
        changes.append(_change("drag, 1/m", f"{before:.4f}", f"{drag.value:.4f}", why, plausible))
    return better, changes


def _change(what: str, before: str, after: str, why: str, plausible: bool) -> Change:
    known = Change(what, before, after, why)
    return known if plausible else replace(known, after=before, why=f"{why}: implausible, not applied")


def _thrust_scale(fit: Fit, vehicle: Vehicle) -> tuple[float, float]:
    """Return the fitted thrust over the vehicle's, and its 95 % half width, over all throttles large enough to compare."""
    ratios, weights = [], []
    for u, c in zip(fit.throttle, fit.thrust_m_s2, strict=True):
        if u > LEAST_THROTTLE:
            base = vehicle.throttle.thrust(u)
            ratios.append(c.value / base)
            weights.append(1 / ((c.half_width / base) ** 2 + THRUST**2))
    if not ratios:
        return 1.0, float("inf")
    return float(np.average(ratios, weights=weights)), Z95 / float(np.sqrt(sum(weights)))


def better_camera(runs: list[Run], vehicle: Vehicle) -> tuple[Vehicle, list[Change]]:
    """Use the camera calibrated by the finished flights, where it differs significantly."""
    calibrated = [run.camera for run in runs if run.time_s is not None and run.camera is not None]
    camera = combined(calibrated, vehicle.camera)
    if camera is None or camera.doubt is None:
        return vehicle, []
    doubt, why = camera.doubt, f"{len(calibrated)} flights"
    before, after = (
        f"yaw {c.yaw_deg:.2f}, tilt {c.tilt_deg:.2f}, roll {c.roll_deg:.2f} deg, focal {c.fx_px:.1f} px"
        for c in (vehicle.camera, camera)
    )
    why += f", +- {doubt.yaw_deg:.2f}, {doubt.tilt_deg:.2f}, {doubt.roll_deg:.2f} deg, {100 * doubt.focal:.1f} %"
    return replace(vehicle, camera=camera), [Change("camera", before, after, why)]


def better_track(
    runs: list[Run], track: Track, vehicle: Vehicle, plans: Path, explored: Sequence[Path] = ()
) -> tuple[Track, list[Change]]:
    """Move gates to the positions seen by all flights together, as in `map-track`, whichever map was flown by."""
    flights = _readable([run.log for run in runs], read_flight)
    size = next((gate for gate in track.gates if not gate.is_ball and gate.opening_m), None)
    if not flights or size is None:
        return track, []
    frame, found = GateFrame(size.opening_m, size.outer_m, size.depth_m), None
    seen = _readable(explored, read_flight)
    for more in [*([one] for one in seen), []]:  # an exploration of another course shares no gate
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
        off, tolerance_m = near[0].p_w - gate.centre_m, SIGMAS * near[0].sigma_m
        if float(np.linalg.norm(off)) > max(MOVED_M, tolerance_m):
            moved[i] = off
            step = ", ".join(f"{value:+.2f}" for value in off)
            why = f"{near[0].sightings} sightings, +- {tolerance_m:.2f} m"
            changes.append(Change(f"gate {i}", "as mapped", f"({step}) m", why))
    return (_moved(track, moved, plans) if moved else track), changes


def _readable(logs: Sequence[Path], read: Callable[[Path], Content]) -> list[Content]:
    found = list[Content]()
    for log in logs:
        with contextlib.suppress(UserError):
            found.append(read(log))
    return found


def _moved(track: Track, moved: dict[int, Array], plans: Path) -> Track:
    file = load(track.file, TrackFile)
    entries = list(file.gates)
    for gate, off in moved.items():
        centre = np.array(track.gates[gate].centre_m) + off
        x, y, z = (round(float(value), 3) for value in centre)
        entries[gate] = replace(entries[gate], centre_m=(x, y, z), base_m=None)
    path = unused(plans, track.name, ".track.yaml")
    source = f"{file.source} Gates moved by plan.improve: {sorted(moved)}."
    write(path, replace(file, gates=tuple(entries), source=source), DIGITS)
    return load_track(path)


def unused(plans: Path, name: str, end: str) -> Path:
    number = 1
    while (path := plans / f"{name}-improved{number}{end}").exists():
        number += 1
    return path


CLEAR_M = 0.04  # m beyond the body's half diagonal, least margin of a good run
STEP, HALVED, LEAST_STEP = 0.04, 0.5, 0.01  # of the reserve: increment, bisection factor, smallest change worth a plan
RETREAT, LEAST, MOST = 0.06, 0.4, 0.97  # decrement after a failure, and bounds of the reserve


@dataclass(frozen=True)
class Improvement:
    track: Track
    vehicle: Vehicle
    plan: Plan
    changes: tuple[Change, ...]
    best: Run | None


def improve(track: Track, vehicle: Vehicle, logs: Path, plans: Path, laps: int) -> Improvement:
    """Make the next plan from the last runs, and store it in `plans`. Raises UserError without a run, or a plan."""
    runs = history(logs, plans, track.name, vehicle.name)
    if not runs:
        missing = f"no run of {track.name} with {vehicle.name} in {logs} with its plan in {plans}"
        raise UserError(f"plan.improve: {missing}; fly the course first")
    floor = vehicle.half_diagonal + CLEAR_M
    reserve, why = next_reserve(runs, floor)
    changes, last = list[Change](), runs[-1].reserve
    if reserve != last:
        changes.append(Change("reserve", f"{last:.3f}", f"{reserve:.3f}", why))
    explored = explorations(logs)
    better, by_flights = better_vehicle(runs, vehicle, explored)
    better, by_camera = better_camera(runs, better)
    course, moved = better_track(runs, track, vehicle, plans, explored)
    changes += [*by_flights, *by_camera, *moved]
    good = [run for run in runs if run.good(floor)]
    best = min(good, key=lambda run: run.time_s or np.inf) if good else None
    if not any(change.made for change in changes):
        return Improvement(course, better, runs[-1].plan, tuple(changes), best)
    plan = _planned(plans, course, better, PlanOptions(laps=laps, reserve=reserve), runs[-1].plan)
    return Improvement(course, better, plan, tuple(changes), best)


def next_reserve(runs: list[Run], floor_m: float) -> tuple[float, str]:
    """Return the reserve to fly next, and the reason."""
    good = [run for run in runs if run.good(floor_m)]
    bad = [run for run in runs if not run.good(floor_m)]
    if not good:
        reserve = max(LEAST, min(run.reserve for run in runs) - RETREAT)
        return reserve, f"no run finished with a margin of {floor_m:.2f} m"
    best = max(run.reserve for run in good)
    above = [run.reserve for run in bad if run.reserve > best + 1e-9]
    if above:
        step = HALVED * (min(above) - best)
        reserve = best + step if step > LEAST_STEP else best
        return reserve, f"the margin was kept at {best:.3f}, and not at {min(above):.3f}"
    if any(abs(run.reserve - best) < 1e-9 for run in bad):
        return max(LEAST, best - LEAST_STEP), f"not every run at {best:.3f} kept the margin"
    margin = min(run.margin_m or 0.0 for run in good if run.reserve == best)
    return min(MOST, best + STEP), f"{best:.3f} was flown with a margin of {margin:.2f} m, {floor_m:.2f} m is required"


def _planned(plans: Path, track: Track, vehicle: Vehicle, options: PlanOptions, warm: Plan) -> Plan:
    plan, certificate = make_plan(track, vehicle, options, None, warm if warm.laps == options.laps else None)
    if not certificate.ok:
        raise PlanError(f"{track.name}: no certified plan ({certificate.status})")
    path = unused(plans, track.name, ".csv")
    write_plan(path, plan, vehicle, certificate.as_dict())
    write_vehicle(path.with_suffix(".vehicle.yaml"), vehicle)
    return plan


def summary(improvement: Improvement) -> str:
    lines = [f"{c.what}: {c.before} -> {c.after} ({c.why})" for c in improvement.changes] or ["no change"]
    best = improvement.best
    if best is not None:
        planned_s = improvement.plan.passage_times_s(improvement.track)[-1]
        lines.append(f"best so far {best.time_s:.3f} s with {best.margin_m:.2f} m; now planned {planned_s:.3f} s")
    return "\n".join(lines)
