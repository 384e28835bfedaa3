"""The result of a flight as a human-readable table."""

from typing import Any

from gate_racer.mpc.control import EstimatedParameters
from gate_racer.pilot.records.result import CameraInFlight, FlightResult


def _number(value: float | None, form: str, unit: str) -> str:
    return "-" if value is None else f"{value:{form}} {unit}".rstrip()


def _vehicle(learned: EstimatedParameters | None) -> str:
    if learned is None:
        return "-"
    scales = (
        f"thrust x{learned.thrust_scale:.2f}, drag x{learned.drag_scale:.2f}, rate lags x{learned.rate_lag_scale:.2f}"
    )
    return f"{scales} of its file's, delay {1e3 * learned.delay_s:.0f} ms"


def _camera(seen: CameraInFlight | None) -> str:
    if seen is None:
        return "-"
    turned = f"yaw {seen.yaw_deg:+.1f}, tilt {seen.tilt_deg:+.1f}, roll {seen.roll_deg:+.1f} deg"
    return f"focal length x{seen.focal_scale:.3f} of its file's, {turned}, images {1e3 * seen.delay_s:+.0f} ms"


def _gate_times(r: FlightResult) -> str:
    """Return the times, with ~ before those that the race status never had."""
    marks = ("~" if gate in r.gate_times_estimated else "" for gate in range(1, len(r.gate_times_s) + 1))
    return "  ".join(f"{mark}{value:.2f}" for mark, value in zip(marks, r.gate_times_s, strict=True)) + " s"


def world_name(world: dict[str, Any] | None) -> str:
    """Return the name of the world flown in, human-readable."""
    return str(world["name"]) if world else "not known: a simulator elsewhere"


def table(r: FlightResult) -> str:
    """Return the result as a human-readable table."""
    solve, vision = r.mpc_solve_ms, r.vision
    rows = [
        ("status", r.status + (f" ({r.cause})" if r.cause else "") + f", by {r.verdict_by}"),
        ("track, vehicle", f"{r.track}, {r.vehicle}, seed {r.seed}"),
        ("world", world_name(r.world)),
        ("gates", f"{r.gates_passed} of {r.gates_total}"),
        ("race time", f"{_number(r.race_time_s, '.3f', 's')} (planned {_number(r.planned_time_s, '.3f', 's')})"),
        ("gate times", _gate_times(r)),
        ("gate margins", "  ".join(f"{value:.2f}" for value in r.gate_margins_m) + " m"),
        ("least, mean margin", f"{_number(r.min_margin_m, '.3f', 'm')}, {_number(r.mean_margin_m, '.3f', 'm')}"),
        ("tracking error", _number(r.tracking_rmse_m, ".3f", "m rms")),
        ("estimate error", _number(r.estimate_rmse_m, ".3f", "m rms")),
        ("MPC", f"{solve.p50:.2f} ms median, {solve.p99:.2f} ms p99" if solve else "-"),
        ("fall-backs", ", ".join(f"{n} x {reason}" for reason, n in r.mpc_fallback_reasons.items()) or "none"),
        ("commands", f"{r.command_hz:.1f} Hz, at most {r.command_hz_max_1s} in a second"),
        (
            "vision",
            f"{vision.frames} frames, {vision.dropped} dropped, {vision.sightings} sightings,"
            f" {vision.rejected} rejected, NIS {vision.nis:.1f}"
            + (f", lost for {vision.commands_lost} commands" if vision.commands_lost else ""),
        ),
        ("vehicle in flight", _vehicle(r.learned)),
        ("camera in flight", _camera(r.camera)),
        ("log", r.log),
    ]
    if len(r.lap_times_s) > 1:
        laps = "  ".join(f"{value:.3f}" for value in r.lap_times_s)
        rows.insert(5, ("lap times", f"{laps} s, best flying lap {min(r.lap_times_s[1:]):.3f} s"))
    if r.retries:
        again = "; ".join(f"gate {one.gate} at {one.time_s:.1f} s, {one.why}" for one in r.retries)
        rows.insert(4, ("flown again", again))
    if r.replans:
        rows.insert(4, ("planned again", "; ".join(one.sentence for one in r.replans)))
    rows[1:1] = [("trouble", sentence) for sentence in r.troubles.values()]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)
