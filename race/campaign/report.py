"""Report of a campaign in one HTML file: tables, paths, margins per gate, time lost per leg, and the worst runs.

Plots use Plotly, whose script is embedded, so that the file needs no network.
"""

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.files import write_file
from gate_racer.field.page import html_page, html_table
from gate_racer.race.campaign.campaign import log_of, worst
from gate_racer.race.campaign.case import Row
from gate_racer.race.campaign.compare import Entry, as_html
from gate_racer.race.campaign.tables import Block, Cell, blocks
from gate_racer.sim.worlds.world import NOMINAL

PATHS = 6  # worst paths drawn per configuration
WORST = 20  # rows of the list of worst flights


def write_report(
    folder: Path, about: dict[str, str], rows: list[Row], found: list[Cell], standing: Sequence[Entry]
) -> None:
    """Write report.html into the campaign's folder."""
    figures = [
        figure for name in dict.fromkeys(row.case.course for row in rows) for figure in _figures(name, about, rows)
    ]
    flown_with = html.escape(f"commit {about.get('commit', '?')}, {about.get('machine', '?')}")
    tables = "\n".join(map(_html, blocks(found)))
    above = f"<h1>race-bench</h1>\n<p>{flown_with}</p>\n{as_html(standing)}\n{tables}"
    page = html_page("race-bench", above, figures, f"<h2>Worst flights</h2>\n{_worst(folder, rows)}")
    write_file(folder / "report.html", page)


def name_of(row: Row) -> str:
    """Return setting, controller, estimator and world as text."""
    c = row.case
    world = f", {c.world}" if c.world != NOMINAL else ", as believed"
    return f"{c.setting}: {c.flown_by}{world}"


def _figures(course: str, about: dict[str, str], rows: list[Row]) -> list[dict[str, Any]]:
    """Return the figures of one course: paths, margins and time lost."""
    group = [row for row in rows if row.case.course == course]
    gates = json.loads(about.get(f"gates:{group[0].case.track}", "[]"))
    by_name: dict[str, list[Row]] = {}
    for row in group:
        by_name.setdefault(name_of(row), []).append(row)
    lost: list[dict[str, Any]] = []
    margins: list[dict[str, Any]] = []
    for name, some in by_name.items():
        passed = [(gate, m) for r in some for gate, m in enumerate(r.outcome.margin_m)]
        margins.append(_box(name, [f"gate {g}" for g, _ in passed], [m for _, m in passed]))
        legs = [(leg, s) for r in some for leg, s in enumerate(lost_s(r))]
        lost.append(_box(name, [f"leg {leg}" for leg, _ in legs], [s for _, s in legs]))
    axis = {"title": {"text": "margin [m]"}, "rangemode": "tozero"}
    return [
        {"title": f"{course}: paths", "data": _paths(by_name, gates), "layout": SCENE},
        {"title": f"{course}: margin at each gate", "data": margins, "layout": GROUPED | {"yaxis": axis}},
        {
            "title": f"{course}: time lost on each leg against the plan",
            "data": lost,
            "layout": GROUPED | {"yaxis": {"title": {"text": "delay against the plan [s]"}}},
        },
    ]


GROUPED = {"boxmode": "group", "legend": {"orientation": "h", "y": -0.15, "yanchor": "top"}}
COLOUR_BAR = {
    "title": {"text": "speed [m/s]"},
    "orientation": "h",
    "y": 1,
    "yanchor": "bottom",
    "thickness": 12,
    "len": 0.7,
}
SCENE = {
    "height": 650,
    "margin": {"t": 20, "r": 0, "b": 0, "l": 0},
    "legend": {"orientation": "h", "y": 0, "yanchor": "top"},
    "scene": {
        "aspectmode": "data",
        "camera": {"eye": {"x": 1.7, "y": 1.7, "z": 1.4}},
        "xaxis": {"title": {"text": "north [m]"}},
        "yaxis": {"title": {"text": "east [m]"}, "autorange": "reversed"},
        "zaxis": {"title": {"text": "down [m]"}, "autorange": "reversed"},
    },
}


def lost_s(row: Row) -> list[float]:
    """Return the time lost against the plan on each leg, s."""
    flown = np.diff([0.0, *row.outcome.gate_s])
    return (flown - np.diff([0.0, *row.outcome.planned_gate_s])[: len(flown)]).round(4).tolist()


def _box(name: str, x: list[str], y: list[float]) -> dict[str, Any]:
    y = [round(value, 4) for value in y]
    return {"type": "box", "name": name, "x": x, "y": y, "boxpoints": "all", "jitter": 0.4, "marker": {"size": 3}}


def _paths(by_name: dict[str, list[Row]], gates: list[Any]) -> list[dict[str, Any]]:
    """Return paths coloured by speed, and the gates' outlines."""
    data: list[dict[str, Any]] = []
    shown = [(name, row) for name, some in by_name.items() for row in worst(some, PATHS) if len(row.path)]
    fastest = max((float(row.path[:, 4].max()) for _, row in shown), default=1.0)
    for k, (name, row) in enumerate(shown):
        x, y, z, speed = (column.astype(float).round(2).tolist() for column in row.path[:, 1:].T)
        colour = {"color": speed, "cmin": 0, "cmax": round(fastest, 1), "colorscale": "Viridis", "width": 4}
        if k == 0:
            colour |= {"showscale": True, "colorbar": COLOUR_BAR}
        label = f"{name}, seed {row.case.seed}: {row.outcome.status}"
        line = {"type": "scatter3d", "mode": "lines", "name": label, "x": x, "y": y, "z": z, "line": colour}
        data.append({**line, "customdata": speed, "hovertemplate": "%{customdata:.1f} m/s"})
    for corners in gates:
        x, y, z = (list(axis) for axis in zip(*[*corners, corners[0]], strict=True))
        frame = {"type": "scatter3d", "mode": "lines", "x": x, "y": y, "z": z, "showlegend": False, "hoverinfo": "skip"}
        data.append({**frame, "line": {"color": "crimson", "width": 6}})
    return data


def _worst(folder: Path, rows: list[Row]) -> str:
    """Return a table of the worst flights, with links to their logs and plots."""
    failed = [row for row in rows if row.outcome.status == "failed"]
    lines = ["<tr><th>flight<th>status<th>cause<th>gates<th>least margin m<th>log, plot</tr>"]
    for row in [*failed, *worst(rows, WORST)][:WORST]:
        o, log = row.outcome, log_of(folder, row)
        least = f"{min(o.margin_m):.3f}" if o.margin_m else "-"
        files = [path for path in (log, log.with_suffix(".png")) if path.exists()]
        links = " ".join(f'<a href="{path.relative_to(folder).as_posix()}">{path.suffix[1:]}</a>' for path in files)
        why = "; ".join(text for text in (o.rule, o.cause) if text)
        texts = (row.case.id, o.status, why, f"{len(o.gate_s)}/{o.gates_total}", least)
        lines.append("<tr>" + "".join(f"<td>{html.escape(text)}" for text in texts) + f"<td>{links}</tr>")
    return "<table>" + "\n".join(lines) + "</table>"


def _html(block: Block) -> str:
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in block.notes)
    return f"<h3>{html.escape(block.title)}</h3>\n{html_table(block.head, block.rows)}\n{notes}"
