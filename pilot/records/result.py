"""The result of a flight: figures under stable keys, and a table."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from gate_racer.link.messages import FINISHED, RaceStatus
from gate_racer.mpc.control import EstimatedParameters
from gate_racer.mpc.reference import Reference
from gate_racer.pilot.flight import SAME_START_S, Phase, Replan, Retry
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.recorder import Recorder, Scoreboard
from gate_racer.planner.plan import Plan
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

BEHIND_S, AHEAD_S = 0.5, 0.2  # window of plan time around the progress in which the nearest point of the plan is sought
REFEREE, RACE_STATUS, OWN_ESTIMATE = "referee", "race status", "own estimate"


@dataclass(frozen=True)
class Verdict:
    """Verdict on a flight. Times in s since GO."""

    status: str
    cause: str
    gate_times_s: list[float]
    gate_margins_m: list[float]
    t: Array | None = None  # (M,) of the true path
    x: Array | None = None  # (M, 14)
    by: str = REFEREE  # who says so
    estimated: list[int] = field(default_factory=list)  # gates, from 1, whose times the race status never had


@dataclass(frozen=True)
class LinkReport:
    command_hz: float
    command_hz_max_1s: int
    frames_dropped: int
    counters: dict[str, int]


def live_verdict(pilot: AnyPilot, board: Scoreboard) -> Verdict:
    """Return the verdict of the simulator's farewell, else of the race status, else the pilot's own.

    Margins are always the pilot's.
    """
    said, go_t, total = board.farewell, pilot.go_t, len(pilot.guidance.course)
    if said is None or go_t is None:
        return _by_status(pilot, board)
    if said.finish_s is not None:
        finish_t = go_t + said.finish_s
        if finish_t > said.t + SAME_START_S:  # of another race
            return _by_status(pilot, board)
        board.receive(RaceStatus(max(said.t, finish_t), go_t, finish_t, total, said.finish_s))
    cause = "" if said.verdict == FINISHED else said.reason.partition(": ")[2]
    return replace(_by_status(pilot, board), status=said.verdict, cause=cause, by=REFEREE)


def _by_status(pilot: AnyPilot, board: Scoreboard) -> Verdict:
    own, told, total = pilot.guidance.passages, board.race(pilot.go_t), len(pilot.guidance.course)
    status, cause = "finished" if pilot.phase is Phase.FINISHED else "aborted", pilot.cause
    if told is None:
        return Verdict(status, cause, own.times_s, own.margins_m, by=OWN_ESTIMATE)
    reported = told.gate_times_s(total)
    times, estimated = completed(reported, own.times_s, [told.counted_s(n) for n in range(1, len(reported) + 1)])
    if told.finished:
        status, cause = "finished", ""
    elif status == "finished":
        status, cause = "missed_gate", f"by the race status {len(times)} of {total} gates were passed, and no finish"
    return Verdict(status, cause, times, own.margins_m[: len(times)], by=RACE_STATUS, estimated=estimated)


def completed(reported: list[float | None], own: list[float], latest: list[float]) -> tuple[list[float], list[int]]:
    """Return gate times, s since GO, and the gates, numbered from 1, that were not reported.

    Such a gate has the pilot's own time if that lies between its neighbours'. Else it has the latest that is possible, that of
    the status which first counts it, or where gates share that, an equal part of the time up to it.
    """
    ends, end = list[float](), np.inf
    for time, counted in zip(reversed(reported), reversed(latest), strict=True):
        end = min(end, counted) if time is None else time
        ends.insert(0, end)
    times, estimated, begin = list[float](), list[int](), 0.0
    for k, time in enumerate(reported):
        if time is None:
            end = ends[k]
            inside = k < len(own) and begin < own[k] < end
            time = own[k] if inside else max(begin, begin + (end - begin) / ends[k:].count(end))
            estimated.append(k + 1)
        times.append(time)
        begin = time
    return times, estimated


def lap_times(gate_times_s: list[float], gates: int) -> list[float]:
    """Return the times, s, of the complete laps of so many gates each, the first from GO."""
    ends = gate_times_s[gates - 1 :: gates] if gates else []
    return [end - begin for begin, end in pairwise([0.0, *ends])]


def off_path(reference: Reference, theta: Array, p: Array) -> Array:
    """Return the distance (N,) m of each position (N, 3) from the plan's path near theta (N,)."""
    near = (reference.sample(np.linspace(centre - BEHIND_S, centre + AHEAD_S, 141)) for centre in theta)
    return np.array([distance(point, rows[:, :3]) for point, rows in zip(p, near, strict=True)])


def distance(point: Array, line: Array) -> float:
    """Return the distance (m) of a point (3,) from a polyline (N, 3)."""
    a, step = line[:-1], np.diff(line, axis=0)
    along = np.clip(np.sum((point - a) * step, 1) / np.maximum(np.sum(step * step, 1), 1e-12), 0, 1)
    return float(np.linalg.norm(point - a - along[:, None] * step, axis=1).min())


def true_positions(verdict: Verdict, t: Array) -> Array | None:
    """Return the true positions (N, 3) at times t (N,), NaN outside the recorded run; None where the truth is unknown."""
    if verdict.t is None or verdict.x is None or len(verdict.t) < 2:
        return None
    return interpolated(t, verdict.t, verdict.x[:, :3])


def interpolated(t: Array, times: Array, values: Array) -> Array:
    """Return values (M, n), known at times (M,), at t (N,): (N, n), NaN before the first and after the last."""
    return np.column_stack([np.interp(t, times, column, left=np.nan, right=np.nan) for column in values.T])


@dataclass(frozen=True)
class FlightResult:
    """Stable keys of the JSON. Lengths in m, times in s unless the name says ms."""

    status: str
    verdict_by: str
    cause: str
    race_time_s: float | None
    planned_time_s: float | None  # None without a plan
    gates_passed: int
    gates_total: int
    gate_times_s: list[float]
    gate_times_estimated: list[int]  # gates, from 1, whose times the race status never had
    lap_times_s: list[float]  # of the complete laps, the first from GO
    gate_margins_m: list[float]
    retries: list[Retry]  # gates flown again, in the order in which that was begun
    replans: list[Replan]  # plans asked for in flight, in that order
    min_margin_m: float | None
    mean_margin_m: float | None
    tracking_rmse_m: float | None
    estimate_rmse_m: float | None
    mpc_solve_ms: dict[str, float] | None  # percentiles of the solver's time, and the longest
    mpc_fallbacks: int
    mpc_fallback_reasons: dict[str, int]
    mpc_late: int
    command_hz: float
    command_hz_max_1s: int
    vision: dict[str, float]  # counts of the camera's images and gates, and the filter's NIS, 1 if all is as modelled
    learned: EstimatedParameters | None  # of the vehicle, in flight
    camera: dict[str, float] | None  # estimated in flight, relative to its file
    seed: int
    track: str
    vehicle: str
    world: dict[str, Any] | None  # None: external simulator
    settings: dict[str, Any]
    plan_hash: str  # empty without a plan
    log: str
    troubles: dict[str, str]


def flight_result(
    pilot: AnyPilot,
    recorder: Recorder,
    verdict: Verdict,
    link: LinkReport,
    track: Track,
    vehicle: Vehicle,
    plan: Plan | None,
    about: dict[str, Any],
) -> FlightResult:
    """Return the result of a flight that is over; without a plan a policy flew.

    `about`: names, hash, seed, world and settings, under their keys of the result.
    """
    flight, counters, health = recorder.flight, pilot.counters, pilot.estimator.health
    camera = pilot.estimator.calibration()
    t, p = np.array(flight.t), np.array(flight.p).reshape(-1, 3)
    truth = true_positions(verdict, t)
    margins = verdict.gate_margins_m
    race_s = verdict.gate_times_s[-1] if verdict.status == "finished" and verdict.gate_times_s else None
    # Nobody tracks a plan after the finish, nor looks for gates.
    racing = t <= (np.inf if race_s is None or pilot.go_t is None else pilot.go_t + race_s)
    flown = (p if truth is None else truth)[racing]
    line, flown_as = pilot.guidance.replanned() or (plan, vehicle)
    off = off_path(Reference(line, flown_as), np.array(flight.theta)[racing], flown) if line and len(flown) else None
    p50, p99, longest = np.percentile(1e3 * np.array(flight.solve_s or [0.0]), [50, 99, 100]).tolist()
    solve_ms = {"p50": p50, "p99": p99, "max": longest}
    vision = {
        "frames": counters.frames,
        "dropped": link.frames_dropped,
        "sightings": counters.sightings,
        "rejected": counters.rejected,
        "refused": health.gates_refused,
        "nis": health.nis,
        "commands_lost": counters.lost,  # commands sent without knowing the position well enough to hit a gate
    }
    return FlightResult(
        status=verdict.status,
        verdict_by=verdict.by,
        cause=verdict.cause or pilot.cause,
        race_time_s=track.elapsed(verdict.gate_times_s) if race_s is not None else None,
        planned_time_s=track.elapsed(plan.passage_times_s(track)) if plan else None,
        gates_passed=len(verdict.gate_times_s),
        gates_total=len(pilot.guidance.course),
        gate_times_s=verdict.gate_times_s,
        gate_times_estimated=verdict.estimated,
        lap_times_s=lap_times(verdict.gate_times_s, len(track.gates)),
        gate_margins_m=margins,
        retries=pilot.guidance.passages.retries,
        replans=pilot.guidance.passages.replans,
        min_margin_m=min(margins) if margins else None,
        mean_margin_m=float(np.mean(margins)) if margins else None,
        tracking_rmse_m=rms(off) if off is not None else None,
        estimate_rmse_m=rms(np.linalg.norm(p - truth, axis=1)[racing]) if truth is not None else None,
        mpc_solve_ms=solve_ms if flight.solve_s else None,
        mpc_fallbacks=counters.fallbacks,
        mpc_fallback_reasons=counters.fallback_reasons,
        mpc_late=counters.late,
        command_hz=link.command_hz,
        command_hz_max_1s=link.command_hz_max_1s,
        vision=vision,
        learned=pilot.guidance.learned(),
        camera=_calibrated(camera, vehicle.camera) if camera is not None else None,
        log=str(recorder.log.path),
        troubles=recorder.troubles,
        **about,
    )


def _calibrated(seen: Camera, filed: Camera) -> dict[str, float]:
    """Return what was estimated of a camera in flight, relative to its file."""
    off = {name: getattr(seen, name) - getattr(filed, name) for name in ("yaw_deg", "tilt_deg", "roll_deg", "delay_s")}
    return {"focal_scale": seen.fx_px / filed.fx_px, **off}


def rms(values: Array) -> float | None:
    """Return the root mean square of the finite values; None where there are none."""
    known = values[np.isfinite(values)]
    return float(np.sqrt(np.mean(np.square(known)))) if len(known) else None


def _number(value: float | None, form: str, unit: str) -> str:
    return "-" if value is None else f"{value:{form}} {unit}".rstrip()


def _vehicle(learned: EstimatedParameters | None) -> str:
    if learned is None:
        return "-"
    force, lags = f"thrust x{learned.thrust_scale:.2f}, drag x{learned.drag_scale:.2f}", learned.rate_lag_scale
    return f"{force}, rate lags x{lags:.2f} of its file's, delay {1e3 * learned.delay_s:.0f} ms"


def _camera(seen: dict[str, float] | None) -> str:
    if seen is None:
        return "-"
    turned = "yaw {yaw_deg:+.1f}, tilt {tilt_deg:+.1f}, roll {roll_deg:+.1f} deg".format(**seen)
    return f"focal length x{seen['focal_scale']:.3f} of its file's, {turned}, images {1e3 * seen['delay_s']:+.0f} ms"


def world_name(world: dict[str, Any] | None) -> str:
    """Return the name of the world flown in, human-readable."""
    if world is None:
        return "not known: a simulator elsewhere"
    plain = world["name"] == "as_believed" and not world["nominal"]
    return str(world["name"]) + (", but the vehicle's own plant is more than the pilot's model" if plain else "")


def table(r: FlightResult) -> str:
    solve, vision = r.mpc_solve_ms, r.vision
    seen = f"{vision['frames']} frames, {vision['dropped']} dropped, {vision['sightings']} sightings"
    lost = f", lost for {vision['commands_lost']} commands" if vision["commands_lost"] else ""
    untold = {number: "~" for number in r.gate_times_estimated}  # that the race status never had
    times = "  ".join(f"{untold.get(number, '')}{value:.2f}" for number, value in enumerate(r.gate_times_s, 1))
    laps, flying = "  ".join(f"{value:.3f}" for value in r.lap_times_s), r.lap_times_s[1:]
    rows = [
        ("status", r.status + (f" ({r.cause})" if r.cause else "") + f", by {r.verdict_by}"),
        *[("trouble", sentence) for sentence in r.troubles.values()],
        ("track, vehicle", f"{r.track}, {r.vehicle}, seed {r.seed}"),
        ("world", world_name(r.world)),
        ("gates", f"{r.gates_passed} of {r.gates_total}"),
        ("planned again", "; ".join(one.sentence for one in r.replans)),
        ("flown again", "; ".join(f"gate {one.gate} at {one.time_s:.1f} s, {one.why}" for one in r.retries)),
        ("race time", f"{_number(r.race_time_s, '.3f', 's')} (planned {_number(r.planned_time_s, '.3f', 's')})"),
        ("lap times", f"{laps} s, best flying lap {min(flying):.3f} s" if flying else ""),
        ("gate times", f"{times} s" if times else ""),
        ("gate margins", "  ".join(f"{value:.2f}" for value in r.gate_margins_m) + " m" if r.gate_margins_m else ""),
        ("least, mean margin", f"{_number(r.min_margin_m, '.3f', 'm')}, {_number(r.mean_margin_m, '.3f', 'm')}"),
        ("tracking error", _number(r.tracking_rmse_m, ".3f", "m rms")),
        ("estimate error", _number(r.estimate_rmse_m, ".3f", "m rms")),
        ("MPC", f"{solve['p50']:.2f} ms median, {solve['p99']:.2f} ms p99" if solve else "-"),
        ("fall-backs", ", ".join(f"{n} x {reason}" for reason, n in r.mpc_fallback_reasons.items()) or "none"),
        ("commands", f"{r.command_hz:.1f} Hz, at most {r.command_hz_max_1s} in a second"),
        ("vision", f"{seen}, {vision['rejected']} rejected, NIS {vision['nis']:.1f}{lost}"),
        ("vehicle in flight", _vehicle(r.learned)),
        ("camera in flight", _camera(r.camera)),
        ("log", r.log),
    ]
    width = max(len(name) for name, value in rows if value)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows if value)
