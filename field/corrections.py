"""Estimates of vehicle, camera and gates from runs of a course, and the significant changes of each."""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from gate_racer.field.calibration import combined
from gate_racer.field.files import write_yaml
from gate_racer.field.identify.fit import Fit, identify
from gate_racer.field.identify.signals import read_signals
from gate_racer.field.mapping.cli import moved as moved_to_pad
from gate_racer.field.mapping.gates import map_gates
from gate_racer.field.mapping.sights import LoggedFlight, MapError, read_flight
from gate_racer.field.runs import Run
from gate_racer.link.logs.rows import SignalError
from gate_racer.perception.rims import GateAppearance
from gate_racer.tracks.track import GateFrame, Track, TrackFile, load_track
from gate_racer.vehicle.config import load
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

THRUST, DRAG = 0.01, 0.03  # relative changes above which a new plan is made
# Largest plausible relative changes: twice the spread of public fits of one simulator, 30 % of thrust and drags of 0.034 to
# 0.076 1/m.
THRUST_MOST, DRAG_MOST = 0.6, 2.5
Z95 = 1.96  # -, two-sided 95 % quantile of the normal distribution
LEAST_THROTTLE = 0.15  # -, throttle below which the thrust is too small to compare (chosen)
MOVED_M, SIGMAS = 0.08, 3.0  # m and standard deviations by which a gate must be displaced
NEAR_M = 2.0  # m, greatest distance of an estimated gate from its position on the map (chosen)


@dataclass(frozen=True)
class Change:
    """One line of the report."""

    what: str
    before: str
    after: str
    why: str

    @property
    def made(self) -> bool:
        """Whether a value changes; an implausible change is only reported."""
        return self.after != self.before


def better_vehicle(runs: list[Run], vehicle: Vehicle, explored: Sequence[Path] = ()) -> tuple[Vehicle, list[Change]]:
    """Scale thrust and replace drag where the flights show a significant difference."""
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
    return (
        Change(what, before, after, why)
        if plausible
        else Change(what, before, before, f"{why}: implausible, not applied")
    )


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
        off, tolerance_m = near[0].p_w - gate.centre_m, SIGMAS * near[0].sigma_m
        if float(np.linalg.norm(off)) > max(MOVED_M, tolerance_m):
            moved[i] = off
            step = ", ".join(f"{value:+.2f}" for value in off)
            why = f"{near[0].sightings} sightings, +- {tolerance_m:.2f} m"
            changes.append(Change(f"gate {i}", "as mapped", f"({step}) m", why))
    return (_moved(track, moved, plans) if moved else track), changes


def _readable(logs: Sequence[Path]) -> list[LoggedFlight]:
    flights = []
    for log in logs:
        with contextlib.suppress(UserError):
            flights.append(read_flight(log, None))
    return flights


def _moved(track: Track, moved: dict[int, Array], plans: Path) -> Track:
    """Return the track with gates moved, stored as a new file."""
    file = load(track.file, TrackFile)
    entries = list(file.gates)
    for gate, off in moved.items():
        centre = np.array(track.gates[gate].centre_m) + off
        x, y, z = (round(float(value), 3) for value in centre)
        entries[gate] = replace(entries[gate], centre_m=(x, y, z), base_m=None)
    path = unused(plans, track.name, ".track.yaml")
    fields = asdict(
        replace(file, gates=tuple(entries), source=f"{file.source} Gates moved by --improve: {sorted(moved)}.")
    )
    write_yaml(path, fields)
    return load_track(path)


def unused(plans: Path, name: str, end: str) -> Path:
    """Return an unused file name for an improved file."""
    number = 1
    while (path := plans / f"{name}-improved{number}{end}").exists():
        number += 1
    return path
