"""Comparison of several flights of one track by their progress along the course, or by time where no gate was passed.

Progress is measured in metres of the first flight's path: at each gate it is equal for all, and on a leg it is proportional
to the share of the leg that a flight has covered. The difference in time at a gate is thus that of the gate times.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.field.report.charts import Figure, charts, line
from gate_racer.field.report.findings import LOST_S, WORST_LEGS, FlightFinding
from gate_racer.field.report.flight import ReportedFlight
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
        return self.t - self.t[0]

    @property
    def apart_m(self) -> Array:
        return np.linalg.norm(self.p - self.p[0], axis=2)

    @property
    def by_time(self) -> bool:
        return self.axis == SINCE_TAKE_OFF


def compare(flights: list[ReportedFlight]) -> Comparison:
    """Compare flights of one track (else raise UserError) on the legs of the first, or by time if it has passed no gate."""
    first = flights[0]
    for other in flights[1:]:
        if other.track != first.track:
            tracks = f"a flight of {other.track}, {first.path} one of {first.track}"
            raise UserError(f"{other.path}: {tracks}: only flights of one track compare")
    if len(first.gate_times_s):
        gates = np.interp(first.gate_times_s, *_progress(first, None))
        axis, grid = PROGRESS, np.unique(np.concatenate([np.linspace(0, gates[-1], POINTS), gates]))
        reached = [np.interp(grid, m, t, right=np.nan) for t, m in (_progress(flight, gates) for flight in flights)]
    else:
        last = [float(flight.state.t[-1]) for flight in flights]
        gates, axis, grid = np.empty(0), SINCE_TAKE_OFF, np.linspace(0.0, max(last), POINTS)
        reached = [np.where(grid <= end, grid, np.nan) for end in last]
    names = [f"{chr(ord('A') + k % 26)}{k // 26 or ''}" for k in range(len(flights))]
    t = np.array(reached)
    p = np.array([flight.path_flown.at("p", one) for flight, one in zip(flights, t, strict=True)])
    v = np.array([flight.state.at("v", one) for flight, one in zip(flights, t, strict=True)])
    return Comparison(names, axis, gates, grid, t, p, np.linalg.norm(v, axis=2))


def _progress(flight: ReportedFlight, gates_m: Array | None) -> tuple[Array, Array]:
    """Return times (n,) s from GO to the last gate, and the progress there (n,) m, scaled to that at the gates (G,) if given."""
    path, times, metres = flight.path_flown, [0.0], [0.0]
    for gate, end in enumerate(flight.gate_times_s[: None if gates_m is None else len(gates_m)]):
        t = np.array([times[-1], *path.t[(path.t > times[-1]) & (path.t < end)], end])
        covered = np.cumsum(np.linalg.norm(np.diff(path.at("p", t), axis=0), axis=1))
        scale = 1.0 if gates_m is None else (gates_m[gate] - metres[-1]) / max(covered[-1], 1e-9)
        metres += (metres[-1] + scale * covered).tolist()
        times += t[1:].tolist()
        if gates_m is not None:
            metres[-1] = float(gates_m[gate])  # without rounding errors
    return np.array(times), np.array(metres)


def compared_charts(flights: list[ReportedFlight], found: Comparison) -> list[Figure]:
    def lines(rows: Array) -> list[Figure]:
        return [line(found.grid, row, name) for row, name in zip(rows, found.names, strict=True)]

    flown = list(zip(flights, found.names, found.t, strict=True))
    throttles = [line(found.grid, one.command.at("throttle", t), name) for one, name, t in flown if len(one.command)]
    margins = []
    for flight, name, _ in flown:
        n = min(len(flight.gate_margins_m), len(found.gates))
        dots = {"mode": "markers", "marker": {"size": 9}}
        margins.append(line(found.gates[:n], flight.gate_margins_m[:n], name, **dots))
    quantities = [
        (f"time after {found.names[0]}", "later", "s", [] if found.by_time else lines(found.later_s)),
        (f"distance from {found.names[0]}", "distance", "m", lines(found.apart_m) if found.by_time else []),
        ("speed", "speed", "m/s", lines(found.speed)),
        ("throttle, 0 to 1", "throttle", "-", throttles),
        ("height above the origin", "height", "m", lines(-found.p[:, :, 2])),
        ("margin at the gates", "margin", "m", margins),
    ]
    return charts(quantities, found.axis, [0.0, float(found.grid[-1])], found.gates)


def compared_findings(flights: list[ReportedFlight], found: Comparison) -> list[FlightFinding]:
    """Return where each flight lost or gained the most against the first; positions are progress instead of time."""
    texts, first, of_first = [], flights[0].gate_times_s, found.names[0]
    for name, flight, apart in list(zip(found.names, flights, found.apart_m, strict=True))[1:]:
        n = min(len(first), len(flight.gate_times_s))
        if found.by_time:
            if np.isfinite(apart).any():
                rms = f"{np.sqrt(np.nanmean(apart**2)):.2f} m rms"
                texts.append(FlightFinding(f"{name} is {rms} from {of_first} at equal time from take-off."))
        elif n == 0:
            texts.append(FlightFinding(f"{name} passed no gate."))
        else:
            later = flight.gate_times_s[:n] - first[:n]
            side = "behind" if later[-1] >= 0 else "ahead of"
            steps = np.diff(later, prepend=0.0)
            worst = [int(k) for k in np.argsort(-np.abs(steps)) if abs(steps[k]) >= LOST_S][:WORST_LEGS]
            text = f"{name} is {abs(later[-1]):.3f} s {side} {of_first} at gate {n - 1}"
            lost = [(abs(steps[k]), "lost" if steps[k] > 0 else "gained", flight.leg_name(k)) for k in worst]
            parts = [f"{by:.3f} s {how} {leg}" for by, how, leg in lost]
            begin = float(found.gates[worst[0] - 1]) if worst and worst[0] else 0.0
            texts.append(FlightFinding(f"{text}{': ' if parts else ''}{', '.join(parts)}.", begin))
    return texts
