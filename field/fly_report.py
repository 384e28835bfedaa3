"""`fly-report`: one flight on one page that opens from disk, with everything that its log tells."""

import argparse
import base64
import html
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from field.page import html_page
from link.record_reader import Record, read_records
from planner.plan import Plan, PlanError, read_plan
from tracks.track import Track, load_track_of
from vehicle.errors import UserError, exit_code
from vehicle.files import file_name, reading, require_output, write_file
from vehicle.rotation import Array

BEFORE_S = 0.15  # a gate, in its last good image
Figure = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="fly-report", description="One HTML page about one flight.")
    arguments.add_argument("log", type=Path, help="MCAP log of run-mpc")
    arguments.add_argument("--track", type=Path, help="name or YAML file (default: the log's)")
    arguments.add_argument("--plans", type=Path, default=Path("plans"), help="where the plan lies (default: plans)")
    arguments.add_argument("--out", type=Path, help="page to write (default: the log's name with .html)")
    return arguments


def run(arguments: argparse.Namespace) -> int:
    out = arguments.out or arguments.log.with_suffix(".html")
    require_output(out, arguments.log, arguments.track)
    log: dict[str, list[Record]] = defaultdict(list)
    for topic, record in read_records(arguments.log):
        log[topic].append(record)
    if not log["/flight"] or len(log["/state"]) < 2:
        raise UserError(f"{arguments.log}: holds no flight (topics /flight and /state of run-mpc are needed)")
    with reading(arguments.log):
        flight = log["/flight"][0]
        name = file_name(flight["track"], f"{arguments.log}: track")
        track = load_track_of(name, arguments.track)
        plan = _plan(arguments.plans, name, flight["plan_hash"])
        if plan is not None:
            require_output(out, *(arguments.plans.glob(f"{name}*")))
        text = page(log, track, plan)
    write_file(out, text)
    print(f"wrote {out}")
    return 0


def page(log: dict[str, list[Record]], track: Track, plan: Plan | None) -> str:
    """The HTML text. Figures whose records the log lacks are left out."""
    figures = [_path(log, track, plan), _errors(log), _legs(log, plan), _solver(log), _link(log)]
    verdict = (
        log["/referee"][-1]
        if log["/referee"]
        else {"status": log["/phase"][-1]["phase"] if log["/phase"] else "cut off"}
    )
    flight = log["/flight"][0]
    about = f"{flight['track']}, {flight['vehicle']}, profile {flight['profile']}, seed {flight['seed']}: {verdict['status']}"
    shown = [figure for figure in figures if figure]
    return html_page("flight", f"<h1>{html.escape(about)}</h1>", shown, f"<h2>At the gates</h2>\n{_strip(log)}")


def _plan(folder: Path, track: str, plan_hash: str) -> Plan | None:
    """The very plan that was flown, if it is still there."""
    for path in sorted(folder.glob(f"{track}*.csv")):
        try:
            plan = read_plan(path)
        except PlanError:
            continue
        if plan.hash == plan_hash:
            return plan
    return None


def _column(rows: list[Record], name: str) -> Array:
    return np.array([row[name] for row in rows], float)


def _line(x: Array, y: Array, name: str, **more: Any) -> Figure:
    return {"x": np.round(x, 4).tolist(), "y": np.round(y, 5).tolist(), "name": name, "mode": "lines", **more}


def _path(log: dict[str, list[Record]], track: Track, plan: Plan | None) -> Figure:
    p, v = _column(log["/state"], "p"), _column(log["/state"], "v")
    speed = np.linalg.norm(v, axis=1)
    colour = {"color": np.round(speed, 2).tolist(), "width": 6, "colorbar": {"title": "m/s"}}
    data = [_space(p, "flown", line=colour)]
    if plan is not None:
        data.append(_space(plan.x[:, :3], "plan", line={"color": "grey", "width": 2}))
    if log["/truth"]:
        data.append(_space(_column(log["/truth"], "p"), "truth", line={"color": "black", "width": 2}))
    for i, gate in enumerate(track.gates):
        if not gate.is_ball and gate.opening_m:
            ring = gate.corners()[[0, 1, 2, 3, 0]]
            data.append(_space(ring, f"gate {i}", line={"color": "red", "width": 5}, showlegend=False))
    if log["/sighting"]:
        seen = _column(log["/sighting"], "p")
        data.append(_space(seen, "where gates place it", mode="markers", marker={"size": 2, "color": "orange"}))
    axes = {"xaxis": {"title": "north"}, "yaxis": {"title": "west"}, "zaxis": {"title": "up"}, "aspectmode": "data"}
    return {"title": "Path", "data": data, "layout": {"scene": axes, "height": 640, "legend": {"x": 0, "y": 1}}}


def _space(p: Array, name: str, **more: Any) -> Figure:
    """North, west, up: plotly's axes are right-handed with z up."""
    north, west, up = np.round(p * [1, -1, -1], 3).T.tolist()
    return {"type": "scatter3d", "mode": "lines", "name": name, "x": north, "y": west, "z": up, **more}


def _errors(log: dict[str, list[Record]]) -> Figure | None:
    state, reference = log["/state"], log["/reference"]
    t, p = _column(state, "t"), _column(state, "p")
    data = []
    if reference:
        wanted = _column(reference, "p")
        n = min(len(p), len(wanted))
        # Compared with the path near each reference, which lies one command delay ahead.
        near = [np.linalg.norm(p[k : k + 8] - wanted[k], axis=1).min() for k in range(n)]
        data.append(_line(t[:n], np.array(near), "tracking"))
    if log["/truth"]:
        told, truth = _column(log["/truth"], "t"), _column(log["/truth"], "p")
        real = np.column_stack([np.interp(t, told, column) for column in truth.T])
        known = t <= told[-1]
        data.append(_line(t[known], np.linalg.norm(p - real, axis=1)[known], "estimate"))
    data.append(
        _line(t, np.linalg.norm(_column(state, "sigma_p"), axis=1), "estimate's own sigma", line={"dash": "dot"})
    )
    return {"title": "Errors", "data": data, "layout": {"yaxis": {"title": "m"}, "xaxis": {"title": "s"}}}


def _legs(log: dict[str, list[Record]], plan: Plan | None) -> Figure | None:
    """Time lost against the plan, leg by leg."""
    if plan is None or not log["/referee"]:
        return None
    flown = np.array(log["/referee"][-1].get("gate_times_s", []))
    n = min(len(flown), len(plan.gate_nodes))
    if n == 0:
        return None
    planned = plan.t[list(plan.gate_nodes[:n])]
    lost = np.diff(flown[:n], prepend=0.0) - np.diff(planned, prepend=0.0)
    bars = {"type": "bar", "x": [f"gate {i}" for i in range(n)], "y": np.round(lost, 4).tolist(), "name": "lost"}
    return {"title": "Time lost against the plan", "data": [bars], "layout": {"yaxis": {"title": "s"}}}


def _solver(log: dict[str, list[Record]]) -> Figure | None:
    rows = log["/command"]
    if not rows:
        return None
    t = _column(rows, "t")
    data = [
        _line(t, _column(rows, "solve_ms"), "solve [ms]"),
        _line(t, 10 * _column(rows, "throttle"), "10 x throttle"),
    ]
    return {"title": "Control", "data": data, "layout": {"xaxis": {"title": "s"}}}


def _link(log: dict[str, list[Record]]) -> Figure | None:
    """What the link dropped: the counters that are not zero at the end."""
    if not log["/link"]:
        return None
    rows = log["/link"]
    names = [name for name, count in rows[-1]["counters"].items() if count]
    t = _column(rows, "t")
    data = [_line(t, np.array([row["counters"].get(name, 0) for row in rows], float), name) for name in names]
    return {"title": "Link", "data": data, "layout": {"xaxis": {"title": "s"}}} if data else None


def _strip(log: dict[str, list[Record]]) -> str:
    """An image from just before each gate."""
    if not log["/camera"] or not log["/referee"] or not log["/state"]:
        return ""
    stamps = np.array([row["timestamp"]["sec"] + row["timestamp"]["nsec"] * 1e-9 for row in log["/camera"]])
    begin, parts = log["/state"][0]["t"], []
    for i, gate_t in enumerate(log["/referee"][-1].get("gate_times_s", [])):
        k = int(np.searchsorted(stamps, begin + gate_t - BEFORE_S)) - 1
        if k >= 0:
            data = base64.b64encode(base64.b64decode(log["/camera"][k]["data"])).decode()  # whatever else it may hold
            image = f'<img src="data:image/jpeg;base64,{data}" alt="gate {i}">'
            parts.append(f"<figure>{image}<figcaption>gate {i}, {gate_t:.3f} s</figcaption></figure>")
    return "".join(parts)


def main() -> None:
    sys.exit(exit_code(lambda: run(parser().parse_args())))


if __name__ == "__main__":
    main()
