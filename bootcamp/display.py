"""Display of the camera image with detections and a pane of information, as a film or in a browser.

In a browser: one page, whose script requests the newest image again and again.
"""

import base64
import contextlib
import html
import math
import threading
import time
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from string import Template

import cv2
import numpy as np

from gate_racer.bootcamp.api import Box, Location, Report
from gate_racer.bootcamp.cli import PORT
from gate_racer.bootcamp.floor import GroundCamera
from gate_racer.bootcamp.judge import off_gate, target_of
from gate_racer.bootcamp.scenario import Scenario
from gate_racer.common.errors import UserError
from gate_racer.common.files import write_file
from gate_racer.link.sockets import parse_address
from gate_racer.sim.view.texture import Image
from gate_racer.tracks.track import VADR_FRAME

AGAIN_S = 2.0  # s from the end of a flight to its repetition (chosen)
GONE_S = 5.0  # s without a request, after which the page counts as closed (chosen)
POLL_S = 0.05  # s until the server notices that it is to end (chosen)
OPEN_S = 120.0  # s to wait for the page to be opened (chosen)
KEPT_MAX = 1000  # greatest number of frames kept to repeat a flight (chosen)
QUALITY = 85  # of 100, JPEG quality (chosen)
PAGE = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
SCRIPT = PAGE.template.partition("<script>")[2].partition("</script>")[0]
POLICY = (
    "default-src 'none'; img-src blob:; connect-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    f" script-src 'sha256-{base64.b64encode(sha256(SCRIPT.encode()).digest()).decode()}'"
)


class BrowserView:
    """Server of the newest frame, which a page requests again and again, then of the flight, over and over, and of its film."""

    def __init__(self, address: str, film: Path):
        """Start the server; the flight leaves its film. Raises UserError if the address is invalid or in use."""
        host, port = parse_address(address, PORT)
        self._film, self._page = (
            film,
            PAGE.substitute(title=html.escape(film.stem), film=html.escape(film.name)).encode(),
        )
        self._jpeg, self.opened, self._requested_t = b"", threading.Event(), -math.inf
        self._flown = False  # whether the film is complete
        self._kept, self._every, self._shown = list[bytes](), 1, 0  # frames to repeat, each how-manieth, and all
        view = self

        class Handler(BaseHTTPRequestHandler):
            timeout = GONE_S

            def do_GET(self) -> None:
                view.answer(self)

            def log_message(self, *_: object) -> None:
                """Suppress the server's log."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise UserError(f"--browser {address}: cannot be served there ({error.strerror})") from None
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(POLL_S,), name="browser", daemon=True).start()

    @property
    def watched(self) -> bool:
        return time.monotonic() - self._requested_t < GONE_S

    def show(self, jpeg: bytes) -> None:
        if self._shown % self._every == 0:
            self._kept.append(jpeg)
        self._shown += 1
        if len(self._kept) > KEPT_MAX:
            self._kept, self._every = self._kept[::2], 2 * self._every
        self._jpeg = jpeg

    def play(self, step_s: float) -> None:
        """Repeat the flight, with step_s (s) from step to step, as long as the page is open."""
        self._flown = True
        while self._kept and self.watched:
            for jpeg in self._kept:
                self._jpeg = jpeg
                time.sleep(step_s * self._every)
                if not self.watched:
                    return
            time.sleep(AGAIN_S)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer one request, in its own thread."""
        kind, content = "text/html; charset=utf-8", self._page
        heads = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
        if request.path == "/live":
            kind, content, self._requested_t = "image/jpeg", self._jpeg, time.monotonic()
            heads["Film"] = str(int(self._flown and self._film.is_file()))
            self.opened.set()
        with contextlib.suppress(OSError):  # the client has disconnected
            if request.path == "/film" and self._flown and self._film.is_file():
                kind, content = "video/webm", self._film.read_bytes()
            elif request.path not in ("/", "/live"):
                request.send_error(404)
                return
            heads["Content-Type"] = kind
            request.send_response(200 if content else 204)
            for head, value in (heads | {"Content-Length": str(len(content))}).items():
                request.send_header(head, value)
            request.end_headers()
            request.wfile.write(content)

    def close(self) -> None:
        """End the server; browsers keep showing the last frame."""
        self._server.shutdown()
        self._server.server_close()


PANE_PX, MAP_PX = 240, 200  # px, width of the pane and side of the map
SCALE_M = 20.0  # m, length of the map's bar
GATE_PX, GATE_VIEW_M = 160, 6.0  # px and m, side of the view of a gate (chosen)
INK, FOUND, ROUTE = (235, 235, 235), (0, 220, 255), (255, 190, 90)  # BGR
LEVEL = (1.0, 0.0, 0.0, 0.0)  # q_wb, level and facing north
SHOT_MARGIN = 1.25  # -, over the height from which the landing image just shows the target (chosen)
SHOT_MIN_M = 10.0  # m, least height of the landing image (chosen)


def jpeg_of(frame: Image) -> bytes:
    """Return an image (H, W, 3) BGR as JPEG."""
    return cv2.imencode(".jpg", frame, (cv2.IMWRITE_JPEG_QUALITY, QUALITY))[1].tobytes()


def compose(
    image: Image, report: Report, boxes: list[Box], pads: list[Location], trail: list[Location], boundary_m: float
) -> Image:
    """Return the image with its boxes, and to its left a pane with the report and a map of the path."""
    seen = image.copy()
    for box in boxes:
        left, top, right, bottom = (round(edge) for edge in box)
        cv2.rectangle(seen, (left, top), (right, bottom), FOUND, 2)
    if report.gates and min(image.shape[:2]) > GATE_PX + 16:
        _draw_gate(seen, report)
    pane = np.full((len(image), PANE_PX, 3), 30, np.uint8)
    for row, line in enumerate(_lines(report, pads), start=1):
        _write(pane, line, (8, 18 * row))
    left, top = (PANE_PX - MAP_PX) // 2, len(image) - MAP_PX - 10
    pane[top : top + MAP_PX, left : left + MAP_PX] = ground_map(MAP_PX, report, trail, boundary_m)
    return np.hstack([pane, seen])


def ground_map(side_px: int, report: Report, trail: list[Location], boundary_m: float) -> Image:
    """Draw a map (side_px, side_px, 3) BGR up to the boundary, north at the top: the path, and the task's places and gates."""
    drawn, scale = np.full((side_px, side_px, 3), 30, np.uint8), (side_px - 1) / (2 * boundary_m)

    def at(place: Location) -> list[int]:
        east_south = np.array([place.east, -place.north])
        return np.round(scale * (boundary_m + east_south)).astype(int).tolist()

    cv2.rectangle(drawn, (0, 0), (side_px - 1, side_px - 1), INK, 1)
    cv2.polylines(drawn, [np.array([at(place) for place in trail], np.int32)], False, INK, 1, cv2.LINE_AA)
    for place in report.route:
        cv2.drawMarker(drawn, at(place), ROUTE, cv2.MARKER_DIAMOND, 8)
    for gate in report.gates:
        across = 5 * np.array([math.cos(gate.heading), math.sin(gate.heading)])  # px east and south, along the opening
        ends = (np.round(at(Location(gate.north, gate.east)) + sign * across).astype(int).tolist() for sign in (-1, 1))
        cv2.line(drawn, *ends, ROUTE, 2, cv2.LINE_AA)
    if report.waypoint is not None:
        cv2.drawMarker(drawn, at(report.waypoint), FOUND, cv2.MARKER_CROSS, 8)
    cv2.circle(drawn, at(report.position), 3, FOUND, -1)
    cv2.line(drawn, (6, side_px - 7), (6 + round(SCALE_M * scale), side_px - 7), INK, 2)
    _write(drawn, f"{SCALE_M:g} m", (6, side_px - 12))
    cv2.arrowedLine(drawn, (side_px - 10, 34), (side_px - 10, 18), INK, 1, cv2.LINE_AA, tipLength=0.4)
    _write(drawn, "N", (side_px - 14, 14))
    return drawn


def _write(image: Image, text: str, at: tuple[int, int]) -> None:
    cv2.putText(image, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.4, INK, 1, cv2.LINE_AA)


def _draw_gate(image: Image, report: Report) -> None:
    """Draw the next gate as seen in its direction of flight into the upper right corner, with the drone in front of it."""
    gate, side = report.gates[min(report.passed, len(report.gates) - 1)], GATE_PX
    view, scale = image[8 : 8 + side, -8 - side : -8], side / GATE_VIEW_M
    view[:] = 30
    for width, colour in ((VADR_FRAME.outer_m, ROUTE), (VADR_FRAME.opening_m, (30, 30, 30))):
        low, high = (round(side / 2 + sign * scale * width / 2) for sign in (-1, 1))
        cv2.rectangle(view, (low, low), (high, high), colour, -1)
    ahead, right, up = off_gate(report, gate)
    dot = np.clip(np.round([side / 2 + scale * right, side / 2 - scale * up]), 4, side - 5).astype(int).tolist()
    cv2.circle(view, dot, 4, FOUND, -1)
    _write(view, f"gate {min(report.passed + 1, len(report.gates))}, {_number(ahead)} m ahead", (4, side - 6))


def _lines(report: Report, pads: list[Location]) -> list[str]:
    goal = "none" if report.waypoint is None else f"{_place(report.waypoint)}{' reached' if report.reached else ''}"
    return [
        f"seed {report.seed}   step {report.step}   {report.t:.1f} s",
        f"state {report.status}",
        f"position {_place(report.position)}",
        f"height {_number(report.height)} m",
        f"speed {report.speed:.2f} m/s",
        f"drift {report.drift:.2f} m",
        f"destination {_place(report.destination)}",
        f"waypoint {goal}",
        *([f"gates passed {report.passed} of {len(report.gates)}"] if report.gates else []),
        *([f"places to visit {len(report.route)}"] if report.route else []),
        *([] if report.has_image else ["no image"]),
        f"commands {report.taken}, ignored {report.ignored}",
        *(f"pad {_place(pad)}" for pad in pads),
        *([report.warning[:34]] if report.warning else []),
    ]


def _place(location: Location) -> str:
    return f"{_number(location.north)} N {_number(location.east)} E"


def _number(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}"  # a sum with zero has no minus zero


def landing_image(scenario: Scenario, report: Report) -> Image:
    """Draw the ground about the landing place from above, high enough to show the target, with a line to it."""
    camera, here = scenario.world.camera, report.position
    target = target_of(scenario, here) or here
    north, east = ((a + b) / 2 for a, b in zip(here, target, strict=True))
    view = scenario.world.view_m
    # In units of the image's extent at the flight's height.
    away = max(abs(here.north - north) / view.north, abs(here.east - east) / view.east)
    height = max(SHOT_MIN_M, 2 * SHOT_MARGIN * scenario.world.height_m * away)
    down = replace(scenario, world=replace(scenario.world, camera=replace(camera, tilt_deg=-90.0)))
    image = GroundCamera(down).image((north, east, -height), LEVEL)

    def at(place: Location) -> list[int]:
        px = np.array([place.east - east, north - place.north]) * camera.fx_px / height + (camera.cx_px, camera.cy_px)
        return np.round(px).astype(int).tolist()

    cv2.line(image, at(here), at(target), FOUND, 2, cv2.LINE_AA)
    cv2.drawMarker(image, at(here), INK, cv2.MARKER_TILTED_CROSS, 24, 3)
    return image


def screenshot(path: Path, frame: Image) -> None:
    write_file(path, cv2.imencode(".png", frame)[1].tobytes())
