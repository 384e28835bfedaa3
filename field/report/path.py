"""The path among the gates, in 3-D and from above, with a marker for each flight at the cursor."""

from typing import Any

import numpy as np

from gate_racer.field.report.charts import COLOURS, MOST_POINTS, PLAIN, PLAN_COLOUR, Figure
from gate_racer.field.report.flight import ReportedFlight
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array

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


def _trace(p: Array, name: str, space: bool, **more: Any) -> Figure:
    """Return a trace of positions (N, 3) in NED as east, north, up, right-handed like plotly's axes."""
    kept = p[np.linspace(0, len(p) - 1, min(len(p), MOST_POINTS)).astype(int)]
    east, north, up = (
        [round(v, 2) if np.isfinite(v) else None for v in axis.tolist()] for axis in (kept[:, [1, 0, 2]] * [1, 1, -1]).T
    )
    at = {"x": east, "y": north, "z": up, "type": "scatter3d"} if space else {"x": east, "y": north}
    return {"mode": "lines", "name": name, "hoverinfo": "skip", **at, **more}


def _coloured_by_speed(flight: ReportedFlight) -> Figure:
    path, state = flight.path_flown, flight.state
    kept = np.linspace(0, len(path) - 1, min(len(path), MOST_POINTS)).astype(int)
    speed = np.linalg.norm(state.at("v", path.t[kept]), axis=1)
    bar = {"title": {"text": "speed [m/s]"}, "thickness": 12, "len": 0.7, "orientation": "h", "y": 0}
    if not np.isfinite(speed).any():  # a log may hold no velocity
        return {"color": COLOURS[0], "width": 6}
    return {"color": np.round(speed, 1).tolist(), "colorscale": "Viridis", "width": 6, "colorbar": bar}


def _space_layout(p: Array) -> Figure:
    """Return the layout of positions (N, 3) in NED, to scale, with the longest extent filling the view."""
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
