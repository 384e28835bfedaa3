"""Charts over a common axis, for plotly: one quantity with its unit each, gates as vertical lines."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate_racer.field.report.flight import ReportedFlight, TimeSeries
from gate_racer.field.report.legs import corrections, estimate_errors, off_path, paces
from gate_racer.mpc.control import Source
from gate_racer.vehicle.rotation import Array

Figure = dict[str, Any]
Quantity = tuple[str, str, str, list[Figure]]  # title, label of the axis, unit, lines
MOST_POINTS = 800  # per line; a chart is about as many pixels wide
TIME = "time since GO [s]"
GATE_LINE = {"color": "#999", "width": 1, "dash": "dot"}
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2")
PLAN_COLOUR = "#888"
PLAIN = {"displayModeBar": False}


def time_charts(flight: ReportedFlight) -> list[Figure]:
    """Return the charts over the time since GO; quantities missing in the log are omitted."""
    state, reference, command = flight.state, flight.reference, flight.command
    behind = (np.array([0.0, *flight.gate_times_s[: len(flight.lost_s)]]), np.array([0.0, *flight.lost_s]))
    away, ranges = off_path(flight), (flight.sighting.t, flight.sighting["range_m"])
    gates = [f"gate {gate:.0f}" for gate in flight.sighting["gate"]]
    dots: Figure = {"mode": "markers", "marker": {"size": 4}, "text": gates}
    solved = np.array([source == Source.SOLVED for source in flight.sources], bool)
    spare = (command.t[~solved], command["solve_ms"][~solved])
    speed, height = [_speed(state, "flown")], [line(state.t, -state["p"][:, 2], "flown")]
    if len(reference):
        speed.append(_speed(reference, "plan") | {"line": {"color": PLAN_COLOUR}})
        height.append(line(reference.t, -reference["p"][:, 2], "plan", line={"color": PLAN_COLOUR}))
    quantities = [
        ("speed", "speed", "m/s", speed),
        (
            "behind the plan",
            "behind",
            "s",
            [line(*behind, "behind", mode="lines+markers")] if len(flight.lost_s) else [],
        ),
        ("pace: plan time per flight time", "pace", "s/s", [line(*paces(flight), "pace")]),
        ("throttle, 0 to 1", "throttle", "-", _commanded(flight, command["throttle"], flight.sticks["throttle"])),
        *_axes(flight),
        ("distance from the plan's path", "distance", "m", [line(*away, "distance")]),
        (
            "error of the estimated position",
            "error",
            "m",
            [
                line(*estimate_errors(flight), "true error"),
                line(
                    state.t,
                    np.linalg.norm(state["sigma_p"], axis=1),
                    "estimated standard deviation",
                    line={"color": PLAN_COLOUR},
                ),
            ],
        ),
        ("corrections of the estimated position", "correction", "m", [line(*corrections(flight), "correction")]),
        ("range to recognised gates", "range", "m", [line(*ranges, "range", **dots)]),
        (
            "body rate",
            "body rate",
            "rad/s",
            [_rate(state, "flown"), _rate(command, "commanded") | {"line": {"color": PLAN_COLOUR}}],
        ),
        ("height above the origin", "height", "m", height),
        (
            "solver time",
            "solve time",
            "ms",
            [line(command.t, command["solve_ms"], "solver"), line(*spare, "fall-back", **dots | {"text": []})],
        ),
        ("datagrams lost or refused by the link", "datagrams", "count", _link(flight)),
    ]
    span = [min(0.0, float(state.t[0])), float(state.t[-1])]
    return charts(quantities, TIME, span, flight.gate_times_s)


def charts(quantities: list[Quantity], axis: str, span: list[float], gates: Array) -> list[Figure]:
    """Return a chart for every quantity with points; `gates` (G,) on the common axis."""
    marks = [
        {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": GATE_LINE, "layer": "below"}
        for x in gates.tolist()
    ]
    numbers = [
        {"x": x, "y": 1, "yref": "paper", "yanchor": "bottom", "text": f"{gate}", "showarrow": False}
        for gate, x in enumerate(gates.tolist())
    ]
    found: list[Figure] = []
    for title, name, unit, lines in quantities:
        shown = [one for one in lines if any(value is not None for value in one["y"])]
        if not shown:
            continue
        layout = {
            "xaxis": {"title": {"text": axis}, "range": span, "zeroline": False},
            "yaxis": {"title": {"text": f"{name} [{unit}]"}, "automargin": True, "zeroline": False},
            "shapes": marks,
            "annotations": numbers,
            "hovermode": False,
            "showlegend": False,
            "margin": {"t": 20, "r": 10, "b": 40, "l": 64},
            "font": {"size": 12},
            "colorway": COLOURS,
        }
        found.append(
            {
                "title": f"{title[0].upper()}{title[1:]}",
                "unit": unit,
                "box": f"chart-{len(found)}",
                "linked": True,
                "config": PLAIN,
                "data": shown,
                "layout": layout,
            }
        )
    return found


def line(x: Array, y: Array, name: str, **more: Any) -> Figure:
    """Return a trace of y (N,) over x (N,) with its extremes, in at most MOST_POINTS; values not finite are gaps."""
    keep = thinned(y)
    values = [round(float(v), 4) if np.isfinite(v) else None for v in y[keep]]
    return {"x": np.round(x[keep], 3).tolist(), "y": values, "name": name, "mode": "lines", **more}


def thinned(y: Array) -> NDArray[np.intp]:
    """Return the rows, ascending, that keep minimum and maximum of each interval of y (N,)."""
    if len(y) <= MOST_POINTS:
        return np.arange(len(y))
    finite = np.where(np.isfinite(y), y, 0.0)
    stretches = np.array_split(np.arange(len(y)), MOST_POINTS // 2)
    return np.unique([rows[pick(finite[rows])] for rows in stretches for pick in (np.argmin, np.argmax)])


def _speed(series: TimeSeries, name: str) -> Figure:
    return line(series.t, np.linalg.norm(series["v"], axis=1), name)


def _rate(series: TimeSeries, name: str) -> Figure:
    return line(series.t, np.linalg.norm(series["w"], axis=1), name)


def _commanded(flight: ReportedFlight, ours: Array, theirs: Array) -> list[Figure]:
    """Return the traces of the commands and, if a person flew instead, of the person's sticks."""
    human = [line(flight.sticks.t, theirs, "the person's sticks", line={"color": PLAN_COLOUR})] if len(theirs) else []
    return [line(flight.command.t, ours, "commanded"), *human]


def _axes(flight: ReportedFlight) -> list[Quantity]:
    """Return the body rates by axis, if a person flew."""
    ours, theirs = flight.command["w"], flight.sticks["w"]
    return [
        (f"commanded {name} rate", f"{name} rate", "rad/s", _commanded(flight, ours[:, k], theirs[:, k]))
        for k, name in enumerate(("roll", "pitch", "yaw"))
        if len(theirs)
    ]


def _link(flight: ReportedFlight) -> list[Figure]:
    """Return the counters of the link that are not zero at the end."""
    if not flight.link:
        return []
    t = np.array([row[0] for row in flight.link])
    return [
        line(t, np.array([row[1].get(name, 0) for row in flight.link], float), name)
        for name, count in flight.link[-1][1].items()
        if count
    ]
