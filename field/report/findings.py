"""Findings on a flight, as figures and sentences, from its log alone: by leg and by time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gate_racer.field.report.flight import ReportedFlight
from gate_racer.mpc.control import Source
from gate_racer.vehicle.rotation import Array

NEAR_CEILING = 0.005  # tolerance of the throttle to its maximum


@dataclass(frozen=True)
class FlownLeg:
    """The leg to one gate. Times in s since GO; NaN where the log does not tell."""

    gate: int
    begin_s: float
    end_s: float
    planned_s: float  # planned duration
    margin_m: float
    least_pace: float  # s of plan time per s, least over intervals of a tenth of a second
    least_pace_t: float
    at_ceiling: float  # share of commands with the throttle at the maximum of the flight

    @property
    def lost_s(self) -> float:
        return self.end_s - self.begin_s - self.planned_s


def legs(flight: ReportedFlight) -> list[FlownLeg]:
    (t, pace), ends, found = flight.paces, flight.gate_times_s, list[FlownLeg]()
    known = np.diff(flight.planned_s, prepend=0.0), flight.gate_margins_m
    planned, margins = (np.append(one, np.full(len(ends), np.nan)) for one in known)
    for gate, (begin, end) in enumerate(zip([0.0, *ends], ends.tolist(), strict=False)):
        on, throttle = within(t, begin, end), flight.command["throttle"][within(flight.command.t, begin, end)]
        least = int(np.argmin(np.where(on, pace, np.inf))) if on.any() else None
        slowest, at = (np.nan, begin) if least is None else (float(pace[least]), float(t[least]))
        at_ceiling = float(np.mean(throttle >= flight.ceiling - NEAR_CEILING)) if len(throttle) else 0.0
        found.append(FlownLeg(gate, begin, end, planned[gate], margins[gate], slowest, at, at_ceiling))
    return found


def within(t: Array, begin: float, end: float) -> NDArray[np.bool_]:
    """Return the mask (N,) of the times t (N,) in [begin, end)."""
    return (t >= begin) & (t < end)


# Thresholds above which a figure is reported in a sentence: chosen, not measured.
LOST_S = 0.03  # s, time lost on a leg
WORST_LEGS = 3  # legs reported, those with the largest losses
SLOW_PACE = 0.97  # -, fraction of the plan's pace
CEILING, CEILING_SHARE = 0.8, 0.1  # throttle that may be a limit, and share of a leg's commands at it
UNLIKE = 0.02  # -, relative deviation from the vehicle's file
CORRECTED_M, LEG_CORRECTED_M, OFF_PATH_M, OFF_TRUTH_M = 0.1, 0.3, 0.5, 0.1
UNSEEN_S = 0.5
SILENT_PERIODS = 2.5  # command periods without a command
UNKNOWN = "not in the log"
LEARNED = {"thrust_scale": "thrust", "drag_scale": "drag", "rate_lag_scale": "lags of the body rates"}  # in flight


@dataclass(frozen=True)
class FlightFinding:
    """A sentence, and the time that it refers to, s since GO."""

    text: str
    t: float | None = None


def figures(flight: ReportedFlight) -> dict[str, str]:
    n = len(flight.gate_times_s)
    total = f" of {len(flight.planned_s)}" if len(flight.planned_s) else ""
    finished = flight.status == "finished" and n > 0
    lost, margins, counters = flight.lost_s, flight.gate_margins_m, flight.counters
    least = int(np.argmin(margins)) if len(margins) else 0
    t, corrected = flight.corrections
    largest = _largest(flight, t, corrected)
    used = f", {_count(counters, 'frames')} used" if "frames" in counters else ""
    return {
        "end": flight.status + (f": {flight.cause}" if flight.cause else ""),
        "gates passed": f"{n}{total}",
        "time": f"{flight.gate_times_s[-1]:.3f} s" if finished else "-",
        "planned time": f"{flight.planned_s[-1]:.3f} s" if len(flight.planned_s) else UNKNOWN,
        "behind the plan": f"{lost[-1]:+.3f} s at gate {len(lost) - 1}" if len(lost) else "-",
        "least margin": f"{margins[least]:.3f} m at gate {least}" if len(margins) else "-",
        "world": flight.world or UNKNOWN,
        **_vehicle(flight),
        "late commands": _count(counters, "late"),
        "fall-backs": f"{sum(source != Source.SOLVED for source in flight.sources)} of {len(flight.command)} commands",
        "lost frames": _count(counters, "frames_dropped") + used,
        "largest correction": largest or "-",
    }


def findings(flight: ReportedFlight) -> list[FlightFinding]:
    parts = _end, _losses, _replans, _fallbacks, _sight, _estimate, _silence
    return [finding for part in parts for finding in part(flight)]


def _end(flight: ReportedFlight) -> list[FlightFinding]:
    n, lost = len(flight.gate_times_s), flight.lost_s
    behind = ""
    if len(lost):
        behind = f", {abs(lost[-1]):.2f} s {'behind' if lost[-1] >= 0 else 'ahead of'} the plan at gate {len(lost) - 1}"
    why = f" ({flight.cause})" if flight.cause else ""
    if flight.status == "finished" and n:
        return [FlightFinding(f"Finished in {flight.gate_times_s[-1]:.3f} s{behind}.", float(flight.gate_times_s[-1]))]
    after = f"after gate {n - 1}, passed at {flight.gate_times_s[-1]:.3f} s{behind}" if n else "before the first gate"
    return [FlightFinding(f"Ended {after}: {flight.status}{why}.", float(flight.state.t[-1]))]


def _losses(flight: ReportedFlight) -> list[FlightFinding]:
    lost = [leg for leg in legs(flight) if leg.lost_s >= LOST_S]
    return [_loss(flight, leg) for leg in sorted(lost, key=lambda leg: -leg.lost_s)[:WORST_LEGS]]


def _loss(flight: ReportedFlight, leg: FlownLeg) -> FlightFinding:
    shown = []
    if leg.least_pace < SLOW_PACE:
        shown.append(f"pace down to {leg.least_pace:.2f}")
    if leg.at_ceiling >= CEILING_SHARE and flight.ceiling >= CEILING:
        share = f"{100 * leg.at_ceiling:.0f} % of the leg"
        shown.append(f"throttle at the flight's maximum, {flight.ceiling:.2f}, for {share}")
        short, more = 1 - flight.learned.get("thrust_scale", 1.0), flight.learned.get("drag_scale", 1.0) - 1
        shown += [f"thrust {100 * short:.0f} % short"] if short >= UNLIKE else []
        shown += [f"drag {100 * more:.0f} % more"] if more >= UNLIKE else []
    on = within(flight.command.t, leg.begin_s, leg.end_s)
    spare = sum(source != Source.SOLVED for source, used in zip(flight.sources, on, strict=True) if used)
    if spare:
        shown.append(f"{spare} commands from fall-backs")
    for (t, away), least, words in (
        (flight.corrections, LEG_CORRECTED_M, "position estimate corrected by {:.2f} m"),
        (flight.off_path, OFF_PATH_M, "up to {:.2f} m off the plan's path"),
    ):
        on = within(t, leg.begin_s, leg.end_s)
        if on.any() and away[on].max() >= least:
            shown.append(words.format(away[on].max()))
    _, blind = _longest_gap(flight.sighting.t, leg.begin_s, leg.end_s)
    if len(flight.sighting) and blind >= UNSEEN_S:
        shown.append(f"no gate recognised for {blind:.2f} s")
    what = ", ".join(shown) or "no cause found in pace, throttle, commands or estimate"
    return FlightFinding(f"{leg.lost_s:.2f} s lost {flight.leg_name(leg.gate)}: {what}.", leg.least_pace_t)


def _replans(flight: ReportedFlight) -> list[FlightFinding]:
    found = []
    for one in flight.replans:
        t, model = float(one["asked_s"]), f"for thrust x{one['thrust']:.2f} and drag x{one['drag']:.2f}"
        if "taken_s" in one:
            times = f"remaining time {one['before_s']:.2f} -> {one['after_s']:.2f} s"
            outcome = f"taken over at {one['taken_s']:.2f} s, {times}"
        else:
            outcome = f"not taken over: {one['why']}"
        found.append(FlightFinding(f"Plan requested at {t:.2f} s {model}: {outcome}.", t))
    return found


def _fallbacks(flight: ReportedFlight) -> list[FlightFinding]:
    first = {(source, reason): t for t, source, reason in reversed(flight.fallbacks)}
    return [
        FlightFinding(f"Commands from the fall-back {source} at {flight.when(t)}: {reason}.", t)
        for (source, reason), t in sorted(first.items(), key=lambda item: item[1])
    ]


def _sight(flight: ReportedFlight) -> list[FlightFinding]:
    if not (len(flight.gate_times_s) and len(flight.sighting)):
        return []
    t, blind = _longest_gap(flight.sighting.t, 0.0, flight.gate_times_s[-1])
    text = f"No gate recognised for {blind:.2f} s from {flight.when(t)}."
    return [FlightFinding(text, t)] if blind >= UNSEEN_S else []


def _longest_gap(times: Array, begin: float, end: float) -> tuple[float, float]:
    """Return start and duration, s, of the longest time between two of `times` (N,), or begin and end."""
    t = np.array([begin, *times[within(times, begin, end)], max(begin, end)])
    k = int(np.argmax(np.diff(t)))
    return float(t[k]), float(t[k + 1] - t[k])


def _estimate(flight: ReportedFlight) -> list[FlightFinding]:
    found = []
    for (t, size), least, words in (
        (flight.corrections, CORRECTED_M, "was corrected by"),
        (flight.estimate_errors, OFF_TRUTH_M, "differed from the truth by"),
    ):
        if (text := _largest(flight, t, size)) and np.nanmax(size) >= least:
            at = float(t[np.nanargmax(size)])
            found.append(FlightFinding(f"The position estimate {words} up to {text}.", at))
    if lost := flight.counters.get("lost"):
        found.append(FlightFinding(f"{lost} commands were sent while the position was too uncertain to hit a gate."))
    return found


def _silence(flight: ReportedFlight) -> list[FlightFinding]:
    times = flight.command.t
    if len(times) < 3:
        return []
    t, gap = _longest_gap(times, times[0], times[-1])
    text = f"No command for {gap:.2f} s from {flight.when(t)}."
    return [FlightFinding(text, t)] if gap > SILENT_PERIODS * np.median(np.diff(times)) else []


def _vehicle(flight: ReportedFlight) -> dict[str, str]:
    learned, plant = flight.learned, ((flight.about.get("world") or {}).get("deviations") or {}).get("plant") or {}
    true = {key: f" (world x{value:.2f})" for key, value in plant.items() if key in LEARNED}
    known = {key: name for key, name in LEARNED.items() if key in learned}
    found = {f"{name} learned": f"x{learned[key]:.2f}{true.get(key, '')}" for key, name in known.items()}
    if "delay_s" in learned:
        found["delay learned"] = f"{1e3 * learned['delay_s']:.0f} ms"
    return found or {"vehicle learned": UNKNOWN}


def _largest(flight: ReportedFlight, t: Array, values: Array) -> str:
    if not np.isfinite(values).any():
        return ""
    k = int(np.nanargmax(values))
    return f"{values[k]:.2f} m at {flight.when(t[k])}"


def _count(counters: dict[str, int], name: str) -> str:
    return str(counters[name]) if name in counters else UNKNOWN
