"""A page about one flight or several opens in a browser without a network, and tells what the logs hold."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from gate_racer.commands import COMMANDS
from gate_racer.field.report.compare import compare
from gate_racer.field.report.flight import read_logged_flight
from gate_racer.field.report.pages import flight_page, overlays
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.tracks.gate import Gate
from tests.field.flown import SQUARE, standing
from tests.processes import run_here


def unpacked(text):
    """The text of a page's data."""
    return zlib.decompress(base64.b64decode(text)).decode()


CHROMIUM = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)


def page_of(*logs, out):
    return run_here(COMMANDS["fly-report"], *logs, "--out", out)


@pytest.fixture
def page(tmp_path):
    """Return a function from logs to the text of their page and the data in it."""

    def made(*logs):
        assert page_of(*logs, out=tmp_path / "page.html").returncode == 0
        text = (tmp_path / "page.html").read_text()
        return text, json.loads(unpacked(Page(text).scripts[0][1]))

    return made


def chart(data, title):
    return next(figure for figure in data["figures"] if figure["title"] == title)


def test_the_page_tells_the_time_lost_at_every_gate(late_flight, page, plan):
    text, data = page(late_flight)
    assert "vq1, dcl, profile spec, seed 0: finished" in text
    (line,) = chart(data, "Behind the plan")["data"]
    assert line["x"] == pytest.approx([0.0, *(plan.gate_times_s + 0.1)], abs=1e-3)
    assert line["y"] == pytest.approx([0.0, *[0.1] * len(plan.gate_times_s)], abs=1e-3)
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="http', text)
    assert len(text.encode()) < 2.2e6, "Plotly is 1.9 MB of it"


@pytest.mark.parametrize("several", [False, True])
def test_every_axis_has_a_name_and_a_unit_and_gates_are_marked(several, late_flight, slow_flight, page):
    _, data = page(late_flight, slow_flight) if several else page(late_flight)
    axis = re.compile(r"\w[\w ]* \[(m|s|ms|m/s|s/s|rad/s|count|-)\]")
    charts = [figure for figure in data["figures"] if figure.get("linked")]
    assert len(charts) >= 5
    for figure in charts:
        layout = figure["layout"]
        assert all(axis.fullmatch(layout[name]["title"]["text"]) for name in ("xaxis", "yaxis")), figure["title"]
        assert layout["yaxis"]["title"]["text"].endswith(f"[{figure['unit']}]")
        assert not any(name.startswith("yaxis") and name != "yaxis" for name in layout)  # one quantity
        assert [line["x0"] for line in layout["shapes"]] == pytest.approx(data["more"]["gates"], abs=1e-3)
    scene, top = chart(data, "Path")["layout"]["scene"], chart(data, "From above")["layout"]
    assert all(axis.fullmatch(scene[name]["title"]["text"]) for name in ("xaxis", "yaxis", "zaxis"))
    assert all(axis.fullmatch(top[name]["title"]["text"]) for name in ("xaxis", "yaxis"))


def test_the_cursor_marks_where_the_vehicle_was(late_flight, page, plan):
    _, data = page(late_flight)
    east, north, up = data["more"]["places"][0]
    k = len(data["more"]["x"]) // 2
    x = [np.interp(data["more"]["x"][k] - 0.1, plan.t, column) for column in plan.x.T[:3]]
    assert [north[k], east[k], -up[k]] == pytest.approx(x, abs=0.05)
    for name in ("Path", "From above"):
        figure = chart(data, name)
        assert figure["data"][figure["mark"]]["mode"] == "markers"


def test_two_flights_differ_at_the_gates_by_their_gate_times(late_flight, slow_flight, page):
    first, second = read_logged_flight(late_flight), read_logged_flight(slow_flight)
    expected = second.gate_times_s - first.gate_times_s
    found = compare([first, second])
    at_gates = np.searchsorted(found.grid, found.gates)
    assert found.later_s[1][at_gates] == pytest.approx(expected, abs=1e-9)
    assert found.later_s[0] == pytest.approx(0.0) and np.all(np.diff(found.gates) > 0)
    text, data = page(late_flight, slow_flight)
    assert all(f"<td>{later:+.3f}</td>" in text for later in expected)
    assert len(chart(data, "Time after A")["data"]) == 2


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("several", [False, True])
def test_a_browser_draws_every_figure_and_the_cursor(several, late_flight, slow_flight, page, tmp_path):
    _, data = page(late_flight, slow_flight) if several else page(late_flight)
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom"]
    command = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", f"file://{tmp_path / 'page.html'}"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    body = shown.split("<body")[1].split(">")[0]
    assert f'data-drawn="{len(data["figures"])}"' in body and "data-cursor" in body and "data-error" not in body


def test_what_cannot_be_reported_is_refused_in_one_line(late_flight, tmp_path):
    contents = {"text.mcap": b"no log at all", "empty.mcap": b"", "x.bag": b"#ROSBAG V2.0", "x.csv": b"t,throttle,v_z"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    evil_log(tmp_path / "other.mcap", "vq2")
    for names, why in (
        (["missing.mcap"], "missing.mcap: cannot be read"),
        (["text.mcap"], "text.mcap: is not an MCAP file"),
        (["empty.mcap"], "is empty"),
        (["folder"], "is a folder without a flight"),
        (["x.bag"], "cannot be read as a bag of ROS"),
        (["x.csv"], "holds no accelerometer samples (a_x..a_z) and no gyro samples (w_x..w_z)"),
        ([late_flight, "other.mcap"], "other.mcap: a flight of vq2"),
    ):
        out = tmp_path / "page.html"
        done = page_of(*(tmp_path / name for name in names), out=out)
        assert done.returncode == 2 and why in done.stderr and done.stderr.count("\n") == 1 and not out.exists()


EVIL = "</script><script>alert(1)</script><!--<script><img src=x onerror=alert(1)>"


def evil_log(path, track="vq1"):
    """A log whose every text wants to run."""
    log = FlightLog(path)
    log._channels["camera"] = log._image
    log.write("flight", 0.0, track=track, vehicle=EVIL, plan_hash="", seed=EVIL, profile=EVIL)
    for k in range(5):
        pose = {"p": np.zeros(3), "q": np.array([1.0, 0, 0, 0]), "v": np.zeros(3)}
        log.write("state", float(k), **pose, w=np.zeros(3), sigma_p=np.ones(3), drift=0.0)
        log.write("link", float(k), counters={EVIL: k + 1})
        image = {"timestamp": {"sec": 0, "nsec": 0}, "data": f'AAAA">{EVIL}', "format": "jpeg"}
        log.write("camera", 0.0, **image)
    log.write("referee", 1.0, status=EVIL, cause=EVIL, gate_times_s=[1.0], gate_margins_m=[0.4])
    log.close()
    return path


class Page(HTMLParser):
    """The scripts of a page as a browser finds them, and every attribute."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.names, self.policy, self._inside = [], set(), "", None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        about = dict(attributes)
        self.names |= set(about)
        if tag == "script":
            self._inside = about.get("type", "")
            self.scripts.append([self._inside, ""])
        elif about.get("http-equiv") == "Content-Security-Policy":
            self.policy = about["content"]

    def handle_endtag(self, tag):
        self._inside = None if tag == "script" else self._inside

    def handle_data(self, data):
        if self._inside is not None:
            self.scripts[-1][1] += data


def test_nothing_in_a_log_runs_in_its_page(tmp_path):
    out = tmp_path / "page.html"
    assert page_of(evil_log(tmp_path / "evil.mcap"), out=out).returncode == 0
    text = out.read_bytes().decode()
    found = Page(text)
    assert [kind for kind, _ in found.scripts] == ["text/plain", "text/plain", ""] and "onerror" not in found.names
    (_, data), (_, plotly), (_, own) = found.scripts
    assert EVIL in json.dumps(json.loads(unpacked(data))).replace("\\", "")
    hashes = {base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in (unpacked(plotly), own)}
    assert all(f"'sha256-{one}'" in found.policy for one in hashes) and found.policy.count("sha256-") == 2
    assert "default-src 'none'" in found.policy and "unsafe-eval" not in found.policy
    assert "'unsafe-inline'" not in found.policy.split("script-src")[1].split(";")[0] and EVIL not in text


@pytest.mark.parametrize("track", ["../../etc/passwd", "/etc/passwd", "a/b", "*"])
def test_a_track_named_by_a_log_leads_nowhere_else(track, tmp_path):
    done = page_of(evil_log(tmp_path / "evil.mcap", track), out=tmp_path / "page.html")
    assert done.returncode == 2 and "is used as a file name: allowed are letters" in done.stderr


SEEN_FROM_M, OPENING_M = 6.0, 1.5


def test_an_image_shows_what_was_detected_in_it_and_the_gates_of_the_map_in_view(late_flight, vq1, dcl):
    """A gate ahead appears in the middle, as wide as f side / range; one behind does not appear."""
    camera = replace(dcl.camera, tilt_deg=0.0)
    ahead, behind = (Gate((x, 0.0, 0.0), 0.0, 0.0, OPENING_M, 2.7, 0.26) for x in (SEEN_FROM_M, -SEEN_FROM_M))
    track = replace(vq1, gates=(behind, ahead))
    drawn = overlays(standing(read_logged_flight(late_flight), camera), track, [0.5, 0.9])
    assert drawn["size"] == [640, 360]
    assert drawn["detected"] == [[(SQUARE + 0.5).tolist()], []]
    for gates in drawn["expected"]:
        ((number, corners),) = gates
        assert number == 1
        assert np.mean(corners, axis=0) == pytest.approx([camera.cx_px + 0.5, camera.cy_px + 0.5], abs=0.1)
        assert np.ptp(corners, axis=0) == pytest.approx(np.full(2, camera.fx_px * OPENING_M / SEEN_FROM_M), abs=0.2)


def test_the_page_has_an_entry_for_every_image(late_flight, vq1, dcl):
    for camera in (dcl.camera, None):
        text = flight_page(standing(read_logged_flight(late_flight), camera), vq1)
        more = json.loads(unpacked(Page(text).scripts[0][1]))["more"]
        assert len(more["images"]) == 2 and len(more["overlay"].get("detected", ())) == (2 if camera else 0)
        assert "<svg id='overlay'" in text and "gates of the map, projected" in text
