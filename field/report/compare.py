"""Comparison of several flights of one track by their progress along the course, or by time where no gate was passed.

Progress is measured in metres of the first flight's path: at each gate it is equal for all, and on a leg it is proportional
to the share of the leg that a flight has covered. The difference in time at a gate is thus that of the gate times.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.field.report.charts import Figure, charts, line
from gate_racer.field.report.findings import LOST_S, WORST_LEGS, FlightFinding
from gate_racer.field.report.flight import ReportedFlight, TimeSeries
from gate_racer.vehicle.rotation import Array

POINTS = 600  # along the course
PROGRESS, SINCE_TAKE_OFF = "progress along the course [m]", "time since take-off [s]"


@dataclass(frozen=True)
class Comparison:
    """Flights at equal progress, or at equal time. Rows of the grid that a flight has not reached are NaN."""

    names: list[str]
    axis: str  # what the grid is, with its unit
    gates: Array  # (G,) progress at the gates passed by the first flight, m
    grid: Array  # (N,) ascending, gates included; m of progress, or s since take-off
    t: Array  # (flights, N) s since GO
    p: Array  # (flights, N, 3) m, world NED
    speed: Array  # (flights, N) m/s

    @property
    def later_s(self) -> Array:
        """Time after the first flight, (flights, N) s."""
        return self.t - self.t[0]

    @property
    def apart_m(self) -> Array:
        """Distance from the first flight, (flights, N) m."""
        return np.linalg.norm(self.p - self.p[0], axis=2)

    @property
    def by_time(self) -> bool:
        """Whether the flights are compared at equal time."""
        return self.axis == SINCE_TAKE_OFF


def compare(flights: list[ReportedFlight]) -> Comparison:
    """Compare flights on the legs completed by the first, or by time from take-off if it has passed no gate.

    Raises:
        UserError: the flights are of different tracks.
    """
    first = flights[0]
    for other in flights[1:]:
        if other.track != first.track:
            raise UserError(
                f"{other.path}: a flight of {other.track}, {first.path} one of {first.track}: only flights of one track compare"
            )
    gates = np.cumsum([length for _, length in _legs(first)])
    if len(gates):
        axis, grid = PROGRESS, np.unique(np.concatenate([np.linspace(0, gates[-1], POINTS), gates]))
        rows = [_moved(flight, _reached(flight, gates, grid)) for flight in flights]
    else:
        axis, grid = SINCE_TAKE_OFF, np.linspace(0.0, max(float(flight.state.t[-1]) for flight in flights), POINTS)
        rows = [_moved(flight, np.where(grid <= flight.state.t[-1], grid, np.nan)) for flight in flights]
    names = [chr(ord("A") + k % 26) + (str(k // 26) if k >= 26 else "") for k in range(len(flights))]
    t, p, speed = (np.stack(part) for part in zip(*rows, strict=True))
    return Comparison(names, axis, gates, grid, t, p, speed)


def _legs(flight: ReportedFlight) -> list[tuple[tuple[Array, Array], float]]:
    """Return for each completed leg times (n,) s with distances covered since its start (n,) m, and its length, m."""
    path, found = flight.path_flown, []
    for begin, end in zip([0.0, *flight.gate_times_s], flight.gate_times_s, strict=False):
        t = np.array([begin, *path.t[(path.t > begin) & (path.t < end)], end])
        covered = np.cumsum(np.linalg.norm(np.diff(_positions(path, t), axis=0), axis=1))
        found.append(((t, np.array([0.0, *covered])), float(covered[-1])))
    return found


def _positions(path: TimeSeries, t: Array) -> Array:
    """Return positions (n, 3) at times t (n,); a path that ends a tick before its last gate is extrapolated."""
    p, last = path["p"], path.t[-1] - path.t[-2]
    beyond = np.maximum(t - path.t[-1], 0.0) / last
    return path.at("p", t) + beyond[:, None] * (p[-1] - p[-2])


def _reached(flight: ReportedFlight, gates_m: Array, grid_m: Array) -> Array:
    """Return the times (N,) at which a flight has reached the progress of the grid."""
    t = np.full(len(grid_m), np.nan)
    begins_m = np.array([0.0, *gates_m[:-1]])
    for (times, covered), begin, end in zip((leg for leg, _ in _legs(flight)), begins_m, gates_m, strict=False):
        on = (grid_m >= begin) & (grid_m <= end)
        t[on] = np.interp((grid_m[on] - begin) / max(end - begin, 1e-9), covered / max(covered[-1], 1e-9), times)
    return t


def _moved(flight: ReportedFlight, t: Array) -> tuple[Array, Array, Array]:
    """Return times (N,), positions and speeds of a flight at these times, NaN where they are."""
    known = np.isfinite(t)
    p, speed = np.full((len(t), 3), np.nan), np.full(len(t), np.nan)
    p[known] = flight.path_flown.at("p", t[known])
    speed[known] = np.linalg.norm(flight.state.at("v", t[known]), axis=1)
    return t, p, speed


def compared_charts(flights: list[ReportedFlight], found: Comparison) -> list[Figure]:
    """Return charts of differences in time, speeds and heights over the progress."""

    def lines(rows: Array) -> list[Figure]:
        return [line(found.grid, row, name) for row, name in zip(rows, found.names, strict=True)]

    throttles = np.full(found.t.shape, np.nan)
    margins = []
    for k, flight in enumerate(flights):
        if len(flight.command):
            throttles[k] = flight.command.at("throttle", found.t[k])
        n = min(len(flight.gate_margins_m), len(found.gates))
        dots = {"mode": "markers", "marker": {"size": 9}}
        margins.append(line(found.gates[:n], flight.gate_margins_m[:n], found.names[k], **dots))
    quantities = [
        (f"time after {found.names[0]}", "later", "s", [] if found.by_time else lines(found.later_s)),
        (f"distance from {found.names[0]}", "distance", "m", lines(found.apart_m) if found.by_time else []),
        ("speed", "speed", "m/s", lines(found.speed)),
        ("throttle, 0 to 1", "throttle", "-", lines(throttles)),
        ("height above the origin", "height", "m", lines(-found.p[:, :, 2])),
        ("margin at the gates", "margin", "m", margins),
    ]
    return charts(quantities, found.axis, [0.0, float(found.grid[-1])], found.gates)


def compared_findings(flights: list[ReportedFlight], found: Comparison) -> list[FlightFinding]:
    """Return where each flight lost or gained the most against the first; positions are progress instead of time."""
    texts, first = [], flights[0].gate_times_s
    for name, flight in zip(found.names[1:], flights[1:], strict=True):
        n = min(len(first), len(flight.gate_times_s))
        if found.by_time:
            apart = found.apart_m[found.names.index(name)]
            if np.isfinite(apart).any():
                rms = float(np.sqrt(np.nanmean(apart**2)))
                texts.append(
                    FlightFinding(f"{name} is {rms:.2f} m rms from {found.names[0]} at equal time from take-off.")
                )
            continue
        if n == 0:
            texts.append(FlightFinding(f"{name} passed no gate."))
            continue
        later = flight.gate_times_s[:n] - first[:n]
        side = "behind" if later[-1] >= 0 else "ahead of"
        text = f"{name} is {abs(later[-1]):.3f} s {side} {found.names[0]} at gate {n - 1}"
        steps = np.diff(later, prepend=0.0)
        worst = [k for k in np.argsort(-np.abs(steps)) if abs(steps[k]) >= LOST_S][:WORST_LEGS]
        parts = [
            f"{abs(steps[k]):.3f} s {'lost' if steps[k] > 0 else 'gained'} {flight.leg_name(int(k))}" for k in worst
        ]
        begin = float(found.gates[worst[0] - 1]) if worst and worst[0] else 0.0
        texts.append(FlightFinding(f"{text}{': ' if parts else ''}{', '.join(parts)}.", begin))
    return texts
