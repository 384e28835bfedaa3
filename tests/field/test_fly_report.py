"""A page or film of flights tells what their logs hold, opens without a network, and its findings agree in value and place."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gate_racer.commands import COMMANDS
from gate_racer.common.errors import UserError
from gate_racer.field.report.charts import MOST_POINTS, thinned
from gate_racer.field.report.compare import compare
from gate_racer.field.report.film import DETECTED, EXPECTED, FLOWN, MAP_PX, write_film
from gate_racer.field.report.findings import figures, findings
from gate_racer.field.report.flight import TimeSeries, read_logged_flight
from gate_racer.field.report.pages import flight_page, overlays
from gate_racer.pilot.records.flight_log import FlightLog
from gate_racer.tracks.gate import Gate
from tests.field.flown import IMAGES_S, SLOW_LEG, SLOW_PACE, SQUARE, standing, write_log
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


# Findings on a flight agree with its log, in value and place.


FAR = {"p": np.full(3, 1e3), "q": np.eye(4)[0], "v": np.zeros(3), "w": np.zeros(3), "sigma_p": np.ones(3), "drift": 0.0}


def said(flight):
    """The findings on a flight and their times, by their text."""
    return {finding.text: finding.t for finding in findings(flight)}


def test_a_slow_leg_is_named_with_its_loss_and_what_the_log_shows_there(slow_flight, plan):
    lost = (plan.gate_times_s[SLOW_LEG] - plan.gate_times_s[SLOW_LEG - 1]) * (1 / SLOW_PACE - 1)
    (sentence,) = [text for text in said(read_logged_flight(slow_flight)) if "lost between" in text]
    assert sentence.startswith(f"{lost:.2f} s lost between gates 3 and 4: pace down to 0.86, throttle at the flight's ")
    assert sentence.endswith("% of the leg, thrust 8 % short.")


def test_losses_are_explained_by_what_the_log_shows_or_not_at_all(late_flight, tmp_path, plan):
    assert "0.10 s lost before gate 0: pace down to 0.00." in said(read_logged_flight(late_flight))
    flight = read_logged_flight(write_log(tmp_path / "good.mcap", plan))
    (sentence,) = said(flight)
    assert sentence.startswith(f"Finished in {plan.gate_times_s[-1]:.3f} s, 0.00 s ")
    told = said(replace(flight, planned_s=flight.planned_s - 0.1))
    assert "0.10 s lost before gate 0: no cause found in pace, throttle, commands or estimate." in told


def test_events_are_told_with_their_time_and_place(tmp_path, plan):
    jump, wait = float(plan.gate_times_s[2]) + 0.3, "no iterate"
    counters = {"frames": 200, "frames_dropped": 7, "late": 3, "fallbacks": 1, "lost": 0}
    spare = {"source": "spare solver", "reason": wait}
    records = [("state", jump, FAR), ("fallback", jump, spare), ("counters", 9.0, counters)]
    flight = read_logged_flight(write_log(tmp_path / "events.mcap", plan, records=records))
    told, shown = said(flight), figures(flight)
    (correction,) = [text for text in told if text.startswith("The position estimate was corrected")]
    assert "between gates 2 and 3" in correction and told[correction] == pytest.approx(jump, abs=0.02)
    spare = f"Commands from the fall-back spare solver at {jump:.2f} s, between gates 2 and 3: {wait}."
    assert told[spare] == pytest.approx(jump)
    assert shown["late commands"] == "3" and shown["lost frames"] == "7, 200 used"


def test_an_estimate_off_the_truth_is_told_with_its_size_and_place(tmp_path, plan):
    flight, at = read_logged_flight(write_log(tmp_path / "off.mcap", plan)), float(plan.gate_times_s[2]) + 0.3
    off = 0.34 * (np.abs(flight.state.t - at) < 0.1)
    for size, told in ((1.0, "up to 0.34 m"), (0.1, "")):
        truth = TimeSeries(flight.state.t, {"p": flight.state["p"] + size * off[:, None] * [0, 1, 0]})
        sentences = [text for text in said(replace(flight, truth=truth)) if "differed from the truth" in text]
        assert [told in text and "between gates 2 and 3" in text for text in sentences] == [True] * bool(told)


def test_a_flight_that_ended_early_tells_where_and_why(tmp_path, plan):
    log = FlightLog(tmp_path / "crash.mcap")
    log.write("flight", 0.0, track="vq1", vehicle="dcl", planned_gate_times_s=plan.gate_times_s, seed=0)
    for t in (0.0, 1.0, 2.0, 3.0):
        log.write("state", t, **FAR | {"p": np.array([t, 0, 0]), "v": np.array([1.0, 0, 0])})
    times = plan.gate_times_s[:2]
    log.write("referee", 3.0, status="collision", cause="gate 2", gate_times_s=times, gate_margins_m=[0.4, 0.1])
    log.close()
    flight = read_logged_flight(tmp_path / "crash.mcap")
    end, shown = findings(flight)[0].text, figures(flight)
    assert end.startswith("Ended after gate 1, passed at ") and end.endswith("at gate 1: collision (gate 2).")
    assert shown["gates passed"] == "2 of 6" and shown["least margin"] == "0.100 m at gate 1" and shown["time"] == "-"
    assert shown["late commands"] == shown["lost frames"] == shown["vehicle learned"] == "not in the log"


def test_the_distance_from_the_path_is_that_of_its_own_time(late_flight):
    flight = read_logged_flight(late_flight)
    still, times = (
        TimeSeries(np.array([0.0, 1.0, 9.0, 10.0]), {"p": np.eye(3)[[0, 0, 1, 1]]}),
        np.array([-5.0, 5.0, 15.0]),
    )
    at = TimeSeries(times, {"p": np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0, 1.0, 0]])})
    assert replace(flight, reference=still, state=at).off_path[1] == pytest.approx(0.0, abs=1e-12)


def test_a_flight_is_compared_as_far_as_it_came(late_flight):
    gates, first = 3, read_logged_flight(late_flight)
    other = replace(first, gate_times_s=first.gate_times_s[:gates], gate_margins_m=first.gate_margins_m[:gates])
    found = compare([first, other])
    later, known = found.later_s[1], found.grid <= found.gates[gates - 1]
    assert np.isfinite(later[known]).all() and np.isnan(later[~known]).all() and not known.all()


@given(arrays(float, st.integers(1, 3000), elements=st.floats(-1e6, 1e6)))
@settings(max_examples=30)
def test_thinned_lines_keep_their_peaks(y):
    rows = thinned(y)
    assert len(rows) <= MOST_POINTS and np.all(np.diff(rows) > 0)
    assert y[rows].max() == y.max() and y[rows].min() == y.min()


# A film shows what the log holds, in the flight's own time or slower.


@pytest.fixture
def still(late_flight, vq1, dcl):
    """A flight that stood before the first gate, with two images and a detection in the first."""
    return standing(read_logged_flight(late_flight), dcl.camera, vq1.start.p_wb, vq1.start.q_wb)


def frames(path):
    film = cv2.VideoCapture(str(path))
    while (read := film.read())[0]:
        yield read[1]


def pixels_of(image, colour):
    """Return the number of pixels close to a colour, after a lossy codec."""
    return int((np.abs(image.astype(int) - colour).max(axis=2) < 60).sum())


def test_it_shows_detections_in_their_image_the_maps_gates_in_all_and_the_way_flown(still, vq1, tmp_path):
    assert write_film(tmp_path / "film.webm", still, vq1, slower=2.0) == 2
    shown = list(frames(tmp_path / "film.webm"))
    assert len(shown) == 1 + round(2.0 * 30 * (IMAGES_S[1] - IMAGES_S[0])), "each image stands until the next"
    first, last = (np.split(image, [640], axis=1) for image in (shown[0], shown[-1]))
    assert first[0].shape == (360, 640, 3) and first[1].shape == (MAP_PX, MAP_PX, 3)
    assert pixels_of(first[0], DETECTED) > 100 > 10 > pixels_of(last[0], DETECTED)
    assert min(pixels_of(image[0], EXPECTED) for image in (first, last)) > 10
    assert pixels_of(last[1], FLOWN) > pixels_of(first[1], FLOWN)


def test_a_film_needs_images_and_a_single_log(still, vq1, tmp_path):
    with pytest.raises(UserError, match="holds no images to film"):
        write_film(tmp_path / "film.webm", replace(still, images=((0.5, b"no JPEG"),)), vq1)
    assert not (tmp_path / "film.webm").exists()
    done = run_here(COMMANDS["fly-report"], "flight.mcap", "other.mcap", "--set", "film=film.webm")
    assert done.returncode == 2 and done.stderr.endswith("film film.webm: needs a single log\n")
