"""The HTML pages: figures and findings, then charts beside path and camera image.

An image has an overlay: detected openings, and the gates of the map projected from the estimate.
"""

import base64
import html
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from gate_racer.common.images import decode_image
from gate_racer.field.page import html_page, html_table
from gate_racer.field.report.charts import Figure, east_north_up, evenly, path_figures, rounded, time_charts
from gate_racer.field.report.compare import Comparison, compare, compared_charts, compared_findings
from gate_racer.field.report.findings import FlightFinding, FlownLeg, figures, findings, legs
from gate_racer.field.report.flight import ReportedFlight, TimedImage
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, between

SAME_IMAGE_S = 1e-3  # detections have the stamp of their image
NEAR_M = 0.2  # m, depth below which a corner is not drawn


def overlays(flight: ReportedFlight, track: Track, stamps: list[float]) -> dict[str, Any]:
    """Return the size of the images, and two lists with an entry for each image at these times (s since GO).

    `detected` holds openings, `expected` pairs of a gate's number and its opening: corners in px, with the centre of the
    first pixel at 0.5 as in SVG. Empty without a camera.
    """
    camera = flight.camera
    if camera is None:
        return {}
    seen = np.array([t for t, _ in flight.detections])
    detected, expected = [], []
    for t in stamps:
        first, last = np.searchsorted(seen, [t - SAME_IMAGE_S, t + SAME_IMAGE_S])
        detected.append([_drawn(corners) for _, corners in flight.detections[first:last]])
        gates = _expected(flight, track, camera, t) if flight.state.t[0] <= t <= flight.state.t[-1] else []
        expected.append([(gate, _drawn(corners)) for gate, corners in gates])
    return {"size": [camera.width_px, camera.height_px], "detected": detected, "expected": expected}


def _expected(flight: ReportedFlight, track: Track, camera: Camera, t: float) -> list[tuple[int, Array]]:
    """Return the numbers of the gates in view at t, and the projected corners (4, 2) px of their openings."""
    state, exposed = flight.state, np.array([t + camera.delay_s])
    k = int(np.clip(np.searchsorted(state.t, exposed[0]) - 1, 0, len(state) - 2))
    share = float(np.clip((exposed[0] - state.t[k]) / (state.t[k + 1] - state.t[k]), 0.0, 1.0))
    q_wb = between(state["q"][k], state["q"][k + 1], share)
    p_wc, R_wc = camera.pose(state.at("p", exposed)[0], q_wb)
    found = []
    for number, gate in enumerate(track.gates):
        corners_c = (gate.corners(2 * gate.half if gate.is_ball else None) - p_wc) @ R_wc
        if corners_c[:, 2].min() > NEAR_M and camera.sees(px := camera.project(corners_c)).any():
            found.append((number, px))
    return found


def _drawn(corners_px: Array) -> list[list[float]]:
    return np.round(corners_px + 0.5, 1).tolist()


WIDTH_PX, QUALITY = 320, 70
MOST_IMAGES = 120  # 7 kB each, so that a page stays below 3 MB


def thumbnails(flight: ReportedFlight) -> list[tuple[float, str]]:
    """Return times (s since GO) and JPEGs (base 64) of images spread evenly, in order of time."""
    spread = (flight.images[k] for k in evenly(len(flight.images), MOST_IMAGES))
    small = ((image[0], _thumbnail(image)) for image in spread)
    return [(t, base64.b64encode(data).decode()) for t, data in small if data]


def _thumbnail(image: TimedImage) -> bytes | None:
    pixels = decode_image(image[1])
    if pixels is None:
        return None
    height = max(1, round(pixels.shape[0] * WIDTH_PX / pixels.shape[1]))
    small = cv2.resize(pixels, (WIDTH_PX, height), interpolation=cv2.INTER_AREA)
    done, data = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return data.tobytes() if done else None


SCRIPT = (Path(__file__).parent / "cursor.js").read_text(encoding="utf-8")
STYLED = f"<style>{(Path(__file__).parent / 'report.css').read_text(encoding='utf-8')}</style>"
GATES = "Gates count from 0, in the order of flight; dotted lines mark them."
CAMERA = (
    "<div class='camera'><img id='image' alt='camera'><svg id='overlay' aria-hidden='true'></svg></div><p class='legend'>"
    "<span class='detected'>detected</span><span class='expected'>gates of the map, projected from the estimated pose</span></p>"
)
HELP = "Point at a chart to move the cursor, click to hold or release it; arrow keys step. Drag to zoom, double-click to undo."


def flight_page(flight: ReportedFlight, track: Track) -> str:
    about = flight.about
    heading = f"{flight.track}, {about.get('vehicle')}, profile {about.get('profile')}, seed {about.get('seed')}: {flight.status}"
    listed = findings(flight)
    charts, paths = time_charts(flight), path_figures([flight], ["flown"], track)
    images = thumbnails(flight)
    path = flight.path_flown
    kept = evenly(len(path))
    cursor = _cursor(path.t[kept], path["p"][kept][None], flight.gate_times_s, "s", listed[1:])
    above = (
        f"<h1>{_safe(heading)}</h1><p>{_safe(flight.path.name)}</p>{_tiles(figures(flight))}"
        f"<h2>What the log shows</h2>{_list(listed)}<h2>Legs</h2>{_leg_table(flight)}"
        f"{_linked(charts, bool(images))}"
    )
    pictures = {"images": [[round(t, 3), data] for t, data in images]}
    more = {**cursor, **pictures, "overlay": overlays(flight, track, [t for t, _ in images])}
    title, figured = f"{flight.track}: {flight.status}", [*charts, *paths]
    return html_page(title, STYLED + above, figured, "", more, [SCRIPT])


def compared_page(flights: list[ReportedFlight], track: Track) -> str:
    """Return the page of several flights over their progress, or over time. Raises UserError as `compare`."""
    found = compare(flights)
    listed = compared_findings(flights, found)
    charts, paths = compared_charts(flights, found), path_figures(flights, found.names, track)
    cursor = _cursor(found.grid, found.p, found.gates, "s" if found.by_time else "m", listed)
    title = f"{flights[0].track}: {len(flights)} flights"
    above = (
        f"<h1>{_safe(title)}</h1>{_flight_table(flights, found)}"
        f"<h2>What the logs show</h2>{_list(listed)}{_gate_table(flights, found)}"
        f"{_linked(charts, False)}"
    )
    return html_page(title, STYLED + above, [*charts, *paths], "", cursor, [SCRIPT])


def _cursor(x: Array, p: Array, gates: Array, unit: str, listed: list[FlightFinding]) -> dict[str, Any]:
    """Return the data of the cursor, which starts at the first finding with a time: x (N,), and places (flights, N, 3)."""
    start = next((finding.t for finding in listed if finding.t is not None), 0.0)
    places = [east_north_up(one) for one in p]
    return {"x": rounded(x, 3), "places": places, "gates": rounded(gates, 3), "unit": unit, "start": start}


def _linked(charts: list[Figure], camera: bool) -> str:
    left = "".join(
        f"<h3>{_safe(chart['title'])} <output></output></h3><div class='chart' id='{chart['box']}'></div>"
        for chart in charts
    )
    view = f"<h3>Camera <output id='image-time'></output></h3>{CAMERA}" if camera else ""
    sidebar = f"<h3>At the cursor: <output id='place'></output></h3><div id='top'></div>{view}<p>{HELP}</p>"
    return (
        f"<h2>Path</h2><div id='path'></div><h2 id='charts'>Charts</h2><p>{GATES}</p>"
        f"<div class='linked'><div>{left}</div><aside>{sidebar}</aside></div>"
    )


def _tiles(values: dict[str, str]) -> str:
    tiles = (f"<div><dt>{_safe(name)}</dt><dd>{_safe(value)}</dd></div>" for name, value in values.items())
    return f"<dl class='tiles'>{''.join(tiles)}</dl>"


def _list(listed: list[FlightFinding]) -> str:
    texts = []
    for finding in listed:
        text = _safe(finding.text)
        texts.append(text if finding.t is None else f"<a href='#charts' data-x='{finding.t:.3f}'>{text}</a>")
    return f"<ul>{''.join(f'<li>{text}</li>' for text in texts)}</ul>"


def _leg_table(flight: ReportedFlight) -> str:
    planned_s = dict(enumerate(flight.planned_s))
    columns: dict[str, tuple[str, Callable[[FlownLeg], float]]] = {
        "gate": ("d", lambda leg: leg.gate),
        "time [s]": (".3f", lambda leg: leg.end_s),
        "planned [s]": (".3f", lambda leg: planned_s.get(leg.gate, math.nan)),
        "lost on the leg [s]": ("+.3f", lambda leg: leg.lost_s),
        "margin [m]": (".3f", lambda leg: leg.margin_m),
        "least pace [s/s]": (".2f", lambda leg: leg.least_pace),
        "throttle at maximum [%]": (".0f", lambda leg: 100 * leg.at_ceiling),
    }

    def cell(value: float, form: str) -> str:
        return "-" if math.isnan(value) else f"{value:{form}}"

    return html_table([*columns], [[cell(of(leg), form) for form, of in columns.values()] for leg in legs(flight)])


def _flight_table(flights: list[ReportedFlight], found: Comparison) -> str:
    columns = [figures(flight) for flight in flights]
    keys = dict.fromkeys(key for one in columns for key in one)
    rows = [
        ["log", *(flight.path.name for flight in flights)],
        *([key, *(one.get(key, "-") for one in columns)] for key in keys),
    ]
    return html_table(["", *found.names], rows)


def _gate_table(flights: list[ReportedFlight], found: Comparison) -> str:
    first = flights[0]
    if not len(first.gate_times_s):
        return ""
    head = ["gate"]
    for k, name in enumerate(found.names):
        head += [f"{name} time [s]", *([f"{name} - {found.names[0]} [s]"] if k else []), f"{name} margin [m]"]
    rows = []
    for gate, begin in enumerate(first.gate_times_s):
        row = [f"{gate}"]
        for k, flight in enumerate(flights):
            passed = gate < len(flight.gate_times_s)
            row.append(f"{flight.gate_times_s[gate]:.3f}" if passed else "-")
            row += [f"{flight.gate_times_s[gate] - begin:+.3f}" if passed else "-"] if k else []
            row.append(f"{flight.gate_margins_m[gate]:.3f}" if gate < len(flight.gate_margins_m) else "-")
        rows.append(row)
    return f"<h2>At the gates</h2>{html_table(head, rows)}"


def _safe(text: object) -> str:
    return html.escape(str(text))
