"""Charts for plotly: one quantity with its unit each over a common axis, gates as vertical lines; and the path among the
gates, in 3-D and from above, with a marker for each flight at the cursor.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gate_racer.field.report.flight import ReportedFlight, TimeSeries
from gate_racer.mpc.control import Source
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array

Figure = dict[str, Any]
Quantity = tuple[str, str, str, list[Figure]]  # title, label of the axis, unit, lines
MOST_POINTS = 800  # per line; a chart is about as many pixels wide
TIME = "time since GO [s]"
GATE_LINE = {"color": "#999", "width": 1, "dash": "dot"}
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2")
PLAN_COLOUR = "#888"
GREY = {"line": {"color": PLAN_COLOUR}}
PLAIN = {"displayModeBar": False}


def time_charts(flight: ReportedFlight) -> list[Figure]:
    state, reference, command = flight.state, flight.reference, flight.command
    behind = (np.array([0.0, *flight.gate_times_s[: len(flight.lost_s)]]), np.array([0.0, *flight.lost_s]))
    away, ranges = flight.off_path, (flight.sighting.t, flight.sighting["range_m"])
    gates = [f"gate {gate:.0f}" for gate in flight.sighting["gate"]]
    dots: Figure = {"mode": "markers", "marker": {"size": 4}, "text": gates}
    solved = np.array([source == Source.SOLVED for source in flight.sources], bool)
    spare = (command.t[~solved], command["solve_ms"][~solved])
    up, planned_up = -state["p"][:, 2], -reference["p"][:, 2]
    height = [line(state.t, up, "flown"), line(reference.t, planned_up, "plan", **GREY)]
    sigma = _size(state, "sigma_p", "estimated standard deviation", **GREY)
    rates = [_size(state, "w", "flown"), _size(command, "w", "commanded", **GREY)]
    solver = [line(command.t, command["solve_ms"], "solver"), line(*spare, "fall-back", **dots | {"text": []})]
    late = [line(*behind, "behind", mode="lines+markers")] if len(flight.lost_s) else []
    quantities = [
        ("speed", "speed", "m/s", [_size(state, "v", "flown"), _size(reference, "v", "plan", **GREY)]),
        ("behind the plan", "behind", "s", late),
        ("pace: plan time per flight time", "pace", "s/s", [line(*flight.paces, "pace")]),
        ("throttle, 0 to 1", "throttle", "-", _commanded(flight, command["throttle"], flight.sticks["throttle"])),
        *_axes(flight),
        ("distance from the plan's path", "distance", "m", [line(*away, "distance")]),
        ("error of the estimated position", "error", "m", [line(*flight.estimate_errors, "true error"), sigma]),
        ("corrections of the estimated position", "correction", "m", [line(*flight.corrections, "correction")]),
        ("range to recognised gates", "range", "m", [line(*ranges, "range", **dots)]),
        ("body rate", "body rate", "rad/s", rates),
        ("height above the origin", "height", "m", height),
        ("solver time", "solve time", "ms", solver),
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
        about = {"title": f"{title[0].upper()}{title[1:]}", "unit": unit, "box": f"chart-{len(found)}"}
        found.append(about | {"linked": True, "config": PLAIN, "data": shown, "layout": layout})
    return found


def line(x: Array, y: Array, name: str, **more: Any) -> Figure:
    """Return a trace of y (N,) over x (N,) with its extremes, in at most MOST_POINTS; values not finite are gaps."""
    keep = thinned(y)
    at = {"x": np.round(x[keep], 3).tolist(), "y": rounded(y[keep], 4)}
    return {**at, "name": name, "mode": "lines", **more}


def thinned(y: Array) -> NDArray[np.intp]:
    """Return the rows, ascending, that keep minimum and maximum of each interval of y (N,)."""
    if len(y) <= MOST_POINTS:
        return np.arange(len(y))
    finite = np.where(np.isfinite(y), y, 0.0)
    stretches = np.array_split(np.arange(len(y)), MOST_POINTS // 2)
    return np.unique([rows[pick(finite[rows])] for rows in stretches for pick in (np.argmin, np.argmax)])


def evenly(n: int, most: int = MOST_POINTS) -> NDArray[np.intp]:
    """Return at most `most` indices of n points, ends included."""
    return np.linspace(0, n - 1, min(n, most)).astype(int)


def _size(series: TimeSeries, column: str, name: str, **more: Any) -> Figure:
    return line(series.t, np.linalg.norm(series[column], axis=1), name, **more)


def _commanded(flight: ReportedFlight, ours: Array, theirs: Array) -> list[Figure]:
    human = [line(flight.sticks.t, theirs, "the person's sticks", **GREY)] if len(theirs) else []
    return [line(flight.command.t, ours, "commanded"), *human]


def _axes(flight: ReportedFlight) -> list[Quantity]:
    ours, theirs = flight.command["w"], flight.sticks["w"]
    return [
        (f"commanded {name} rate", f"{name} rate", "rad/s", _commanded(flight, ours[:, k], theirs[:, k]))
        for k, name in enumerate(("roll", "pitch", "yaw"))
        if len(theirs)
    ]


def _link(flight: ReportedFlight) -> list[Figure]:
    if not flight.link:
        return []
    t = np.array([row[0] for row in flight.link])
    return [
        line(t, np.array([row[1].get(name, 0) for row in flight.link], float), name)
        for name, count in flight.link[-1][1].items()
        if count
    ]


GATE_COLOUR = "crimson"
LONGEST, TICKS = 2.4, 10  # extent of the course in plotly's units, and ticks along it


def path_figures(flights: list[ReportedFlight], names: list[str], track: Track) -> list[Figure]:
    """Return the figures in 3-D and from above. `mark` is the index of the first flight's marker trace; the others follow."""
    lines: list[tuple[str, Array, str]] = []
    if len(flights) == 1 and len(flights[0].reference):
        lines.append(("plan", flights[0].reference["p"], PLAN_COLOUR))
    if len(flights) == 1 and flights[0].path_flown is not flights[0].state:
        lines.append(("estimate", flights[0].state["p"], COLOURS[4]))
    for k, (flight, name) in enumerate(zip(flights, names, strict=True)):
        lines.append((name, flight.path_flown["p"], COLOURS[k % len(COLOURS)]))
    rings = [gate.corners()[[0, 1, 2, 3, 0]] for gate in track.gates if not gate.is_ball and gate.opening_m]
    centres = np.array([gate.p_wg for gate in track.gates]).reshape(-1, 3)
    numbers = [f"{gate}" for gate in range(len(centres))]
    ring = np.vstack([np.vstack([corners, np.full(3, np.nan)]) for corners in rings] or [np.full((1, 3), np.nan)])
    figures = []
    for space in (True, False):
        data = [_trace(p, name, space, line={"color": colour, "width": 4 if space else 2}) for name, p, colour in lines]
        if space and len(flights) == 1:
            data[-1]["line"] = _coloured_by_speed(flights[0])
        data.append(_trace(ring, "gates of the map", space, line={"color": GATE_COLOUR, "width": 5 if space else 3}))
        text = {"mode": "text", "text": numbers, "textfont": {"color": GATE_COLOUR}, "textposition": "top right"}
        data.append(_trace(centres, "numbers", space, showlegend=False, **text))
        mark = len(data)
        for k, name in enumerate(names):
            colour = "#000" if len(names) == 1 else COLOURS[k % len(COLOURS)]
            marker = {"size": 6 if space else 11, "color": colour, "line": {"color": "#fff", "width": 1}}
            here = flights[k].path_flown["p"][:1]
            data.append(_trace(here, name, space, mode="markers", marker=marker, showlegend=False))
        points = np.vstack([centres, *(p for _, p, _ in lines)])
        known = points if np.isfinite(points).any() else np.zeros((1, 3))  # a log may hold no position
        layout = _space_layout(known) if space else _top_layout()
        title, box = ("Path", "path") if space else ("From above", "top")
        figure = {"title": title, "box": box, "mark": mark, "data": data, "layout": layout}
        figures.append(figure if space else {**figure, "config": PLAIN})
    return figures


def rounded(values: Array, digits: int) -> list[float | None]:
    """Return values (N,) rounded, None where there is none."""
    return [round(value, digits) if np.isfinite(value) else None for value in values.tolist()]


def east_north_up(p: Array) -> list[list[float | None]]:
    """Return positions (N, 3) in NED as three lists."""
    return [rounded(axis, 2) for axis in (p[:, [1, 0, 2]] * [1, 1, -1]).T]


def _trace(p: Array, name: str, space: bool, **more: Any) -> Figure:
    """Return a trace of positions (N, 3) in NED as east, north, up, right-handed like plotly's axes."""
    east, north, up = east_north_up(p[evenly(len(p))])
    at = {"x": east, "y": north, "z": up, "type": "scatter3d"} if space else {"x": east, "y": north}
    return {"mode": "lines", "name": name, "hoverinfo": "skip", **at, **more}


def _coloured_by_speed(flight: ReportedFlight) -> Figure:
    path, state = flight.path_flown, flight.state
    speed = np.linalg.norm(state.at("v", path.t[evenly(len(path))]), axis=1)
    bar = {"title": {"text": "speed [m/s]"}, "thickness": 12, "len": 0.7, "orientation": "h", "y": 0}
    if not np.isfinite(speed).any():  # a log may hold no velocity
        return {"color": COLOURS[0], "width": 6}
    return {"color": np.round(speed, 1).tolist(), "colorscale": "Viridis", "width": 6, "colorbar": bar}


def _space_layout(p: Array) -> Figure:
    extents = np.maximum(np.nanmax(p, axis=0) - np.nanmin(p, axis=0), 1.0)[[1, 0, 2]]
    ratio = dict(zip("xyz", (LONGEST * extents / extents.max()).tolist(), strict=True))
    axes = {
        f"{axis}axis": {"title": {"text": f"{name} [m]"}, "nticks": max(2, round(TICKS * extent / extents.max()))}
        for axis, name, extent in zip("xyz", ("east", "north", "up"), extents, strict=True)
    }
    eye = {"x": -1.5, "y": 0.4, "z": 0.6} if extents[0] < extents[1] else {"x": -0.4, "y": -1.5, "z": 0.6}
    scene = {**axes, "aspectmode": "manual", "aspectratio": ratio, "camera": {"eye": eye}}
    return {"scene": scene, "height": 520, "legend": {"x": 0, "y": 1}, "margin": {"t": 0, "r": 0, "b": 0, "l": 0}}


def _top_layout() -> Figure:
    axis = {"zeroline": False, "automargin": True}
    return {
        "xaxis": {"title": {"text": "east [m]"}, **axis},
        "yaxis": {"title": {"text": "north [m]"}, "scaleanchor": "x", **axis},
        "margin": {"t": 8, "r": 8, "b": 40, "l": 56},
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom"},
        "font": {"size": 12},
        "hovermode": False,
    }
