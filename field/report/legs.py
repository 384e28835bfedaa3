"""Figures of a logged flight by leg and by time: pace, corrections, distances from the path and from the truth."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gate_racer.field.report.flight import ReportedFlight
from gate_racer.vehicle.rotation import Array

NEAR_CEILING = 0.005  # tolerance of the throttle to its maximum
PACE_OVER_S = 0.1  # s, interval of the pace


@dataclass(frozen=True)
class FlownLeg:
    """The leg to one gate. Times in s since GO."""

    gate: int
    begin_s: float
    end_s: float
    planned_s: float | None  # planned duration
    margin_m: float | None
    mean_pace: float | None  # s of plan time per s
    least_pace: float | None  # least over intervals of a tenth of a second
    least_pace_t: float
    at_ceiling: float  # share of commands with the throttle at the maximum of the flight

    @property
    def lost_s(self) -> float | None:
        """Time lost against the plan, s; None without a plan."""
        return None if self.planned_s is None else self.end_s - self.begin_s - self.planned_s


def legs(flight: ReportedFlight) -> list[FlownLeg]:
    """Return the leg of every gate passed."""
    highest = ceiling(flight)
    t, pace = paces(flight)
    planned = np.diff(flight.planned_s, prepend=0.0)
    found = []
    for gate, (begin, end) in enumerate(zip([0.0, *flight.gate_times_s], flight.gate_times_s, strict=False)):
        slow, throttle = within(t, begin, end), flight.command["throttle"][within(flight.command.t, begin, end)]
        theta = flight.reference.at("theta", np.array([begin, end])) if len(t) else None
        least = int(np.argmin(np.where(slow, pace, np.inf))) if slow.any() else None
        found.append(
            FlownLeg(
                gate=gate,
                begin_s=float(begin),
                end_s=float(end),
                planned_s=float(planned[gate]) if gate < len(planned) else None,
                margin_m=float(flight.gate_margins_m[gate]) if gate < len(flight.gate_margins_m) else None,
                mean_pace=float((theta[1] - theta[0]) / (end - begin)) if theta is not None and end > begin else None,
                least_pace=None if least is None else float(pace[least]),
                least_pace_t=float(begin) if least is None else float(t[least]),
                at_ceiling=float(np.mean(throttle >= highest - NEAR_CEILING)) if len(throttle) else 0.0,
            )
        )
    return found


def ceiling(flight: ReportedFlight) -> float:
    """Return the highest throttle of the flight, 0..1; a limit if much of the flight is at it."""
    return float(flight.command["throttle"].max(initial=0.0))


def paces(flight: ReportedFlight) -> tuple[Array, Array]:
    """Return times (N,) s since GO and the pace there (N,), s of plan per s over a tenth of a second; (0,) without data."""
    reference = flight.reference
    if len(reference) < 2:
        return np.empty(0), np.empty(0)
    begin, end = (
        np.clip(reference.t + side, reference.t[0], reference.t[-1]) for side in np.array([-0.5, 0.5]) * PACE_OVER_S
    )
    return reference.t, (reference.at("theta", end) - reference.at("theta", begin)) / np.maximum(end - begin, 1e-9)


def corrections(flight: ReportedFlight) -> tuple[Array, Array]:
    """Return times (N,) s since GO, and the step of the position estimate beyond its velocity (N,), m."""
    state = flight.state
    step = np.diff(state["p"], axis=0) - (state["v"][1:] + state["v"][:-1]) / 2 * np.diff(state.t)[:, None]
    return state.t[1:], np.linalg.norm(step, axis=1)


def off_path(flight: ReportedFlight) -> tuple[Array, Array]:
    """Return times (N,) s since GO, and the estimate's distance from the path commanded within 0.5 s (N,), m."""
    state, commanded = flight.state, flight.reference
    if len(commanded) < 2:
        return np.empty(0), np.empty(0)
    a, step = commanded["p"][:-1], np.diff(commanded["p"], axis=0)
    length = np.maximum(np.sum(step * step, axis=1), 1e-12)
    away = np.empty(len(state))
    for k, (t, p) in enumerate(zip(state.t, state["p"], strict=True)):
        near = slice(*np.searchsorted(commanded.t, [t - 0.5, t + 0.5]).clip(0, len(a)))
        if near.start == near.stop:
            near = slice(len(a) - 1, len(a))
        along = np.clip(np.sum((p - a[near]) * step[near], axis=1) / length[near], 0, 1)
        away[k] = np.linalg.norm(p - a[near] - along[:, None] * step[near], axis=1).min()
    return state.t, away


def estimate_errors(flight: ReportedFlight) -> tuple[Array, Array]:
    """Return times (N,) s since GO, and the error of the position estimate (N,), m; (0,) without truth."""
    state, truth = flight.state, flight.truth
    if len(truth) < 2:
        return np.empty(0), np.empty(0)
    known = (state.t >= truth.t[0] - 1e-3) & (state.t <= truth.t[-1])
    t = state.t[known]
    return t, np.linalg.norm(state["p"][known] - truth.at("p", t), axis=1)


def within(t: Array, begin: float, end: float) -> NDArray[np.bool_]:
    """Return the mask (N,) of the times t (N,) in [begin, end)."""
    return (t >= begin) & (t < end)
