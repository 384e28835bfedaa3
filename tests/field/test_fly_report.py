"""A page about one flight or several opens in a browser without a network, and tells what the logs hold."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from field.report.charts import MOST_POINTS, thinned
from field.report.cli import main
from field.report.compare import compare
from field.report.findings import figures, findings
from field.report.flight import read_flight
from field.report.images import BUDGET_BYTES, thumbnails
from pilot.records.flight_log import FlightLog

CHROMIUM = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)


SLOW_LEG, SLOW_PACE = 4, 0.86


def write_log(path, plan, slow=None, late_s=0.0, throttle=0.5, learned=None, told=True, records=()):
    """A flight along the plan.

    Args:
        slow: a leg and the pace on it; there the throttle is full.
        late_s: s that are lost before the first gate, standing still.
        learned: of the vehicle.
        told: the log tells the planned times of the gates.
        records: (channel, t, fields) of further records.
    """
    log, gates = FlightLog(path), plan.gate_times_s
    begin = np.array([0.0, *gates[:-1]])
    pace = np.where(np.arange(len(gates)) == slow[0], slow[1], 1.0) if slow else np.ones(len(gates))
    passed = late_s + np.cumsum((gates - begin) / pace)
    more = {"planned_gate_times_s": gates} if told else {}
    log.write("flight", 0.0, track="vq1", vehicle="dcl", plan_hash=plan.hash, seed=0, profile="spec", **more)
    for t in np.arange(0.0, passed[-1], 1 / 60):
        theta = np.interp(t, [0.0, late_s, *passed], [0.0, 0.0, *gates])
        on_slow = slow is not None and begin[slow[0]] <= theta < gates[slow[0]]
        x = np.array([np.interp(theta, plan.t, column) for column in plan.x.T])
        pose = {"p": x[:3], "q": x[3:7], "v": x[7:10]}
        log.write("state", t, **pose, w=x[10:13], sigma_p=np.full(3, 0.01), drift=0.0)
        log.write("reference", t, theta=theta, **pose)
        log.write("truth", t, **pose, w=x[10:13])
        full = 1.0 if on_slow else throttle
        log.write("command", t, q=x[3:7], w=x[10:13], throttle=full, source="solved", status=0, solve_ms=1.0)
    for channel, t, fields in records:
        log.write(channel, t, **fields)
    if learned:
        log.write("learned", passed[-1], **learned)
    log.write("referee", passed[-1], status="finished", gate_times_s=passed, gate_margins_m=[0.4] * len(gates))
    log.close()
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory, plan):
    """A flight exactly along the plan, a tenth of a second late at every gate."""
    return write_log(tmp_path_factory.mktemp("logs") / "flight.mcap", plan, late_s=0.1)


@pytest.fixture(scope="module")
def slow(tmp_path_factory, plan):
    """A flight with one slow leg, at full throttle, by a vehicle with too little thrust."""
    path = tmp_path_factory.mktemp("logs") / "slow.mcap"
    learned = {"thrust_scale": 0.92, "drag_scale": 1.0, "rate_lag_scale": 1.0, "delay_s": 0.04}
    return write_log(path, plan, slow=(SLOW_LEG, SLOW_PACE), learned=learned)


def page_of(logs, plan_folder, out, monkeypatch):
    """The exit code."""
    logs = logs if isinstance(logs, list) else [logs]
    monkeypatch.setattr(sys, "argv", ["fly-report", *map(str, logs), "--plans", str(plan_folder), "--out", str(out)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


@pytest.fixture
def page(plan_folder, tmp_path, monkeypatch):
    """Of logs: the text of their page, and the data in it."""

    def made(*logs):
        assert page_of(list(logs), plan_folder, tmp_path / "page.html", monkeypatch) == 0
        text = (tmp_path / "page.html").read_text()
        return text, json.loads(Page(text).scripts[0][1])

    return made


def chart(data, title):
    return next(figure for figure in data["figures"] if figure["title"] == title)


def said(path):
    """The findings of a log."""
    return [finding.text for finding in findings(read_flight(path))]


def test_the_page_tells_the_time_lost_at_every_gate(log, page, plan):
    text, data = page(log)
    assert "vq1, dcl, profile spec, seed 0: finished" in text
    (line,) = chart(data, "Behind the plan")["data"]
    assert line["x"] == pytest.approx([0.0, *(plan.gate_times_s + 0.1)], abs=1e-3)
    assert line["y"] == pytest.approx([0.0, *[0.1] * len(plan.gate_times_s)], abs=1e-3)
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="http', text)


def test_a_slow_leg_is_named_with_its_loss_and_what_the_log_shows_there(slow, plan):
    lost = (plan.gate_times_s[SLOW_LEG] - plan.gate_times_s[SLOW_LEG - 1]) * (1 / SLOW_PACE - 1)
    (sentence,) = [text for text in said(slow) if "lost between" in text]
    assert sentence.startswith(
        f"{lost:.2f} s lost between gates 3 and 4: pace down to 0.86, throttle at its highest, 1.00, for "
    )
    assert sentence.endswith("% of it, thrust 8 % short.")
    assert any(text == "Against the vehicle's file was learned: thrust 8 % short." for text in said(slow))


def test_a_flight_as_planned_has_nothing_to_tell_but_its_end(tmp_path, plan):
    (sentence,) = said(write_log(tmp_path / "good.mcap", plan))
    assert sentence.startswith(f"Finished in {plan.gate_times_s[-1]:.3f} s, 0.00 s ")


def test_a_loss_that_nothing_explains_is_not_explained(tmp_path, plan):
    flight = read_flight(write_log(tmp_path / "good.mcap", plan))
    told = findings(replace(flight, planned_s=flight.planned_s - 0.1))
    assert "0.10 s lost before gate 0: pace, throttle, commands and estimate show nothing unusual." in [
        f.text for f in told
    ]


def test_a_wait_on_the_pad_shows_in_the_pace(log):
    assert "0.10 s lost before gate 0: pace down to 0.00." in said(log)


def test_events_are_told_with_their_time_and_place(tmp_path, plan):
    jump, wait = float(plan.gate_times_s[2]) + 0.3, "no iterate"
    counters = {"frames": 200, "frames_dropped": 7, "late": 3, "fallbacks": 1, "lost": 0}
    far = {
        "p": np.full(3, 1e3),
        "q": np.eye(4)[0],
        "v": np.zeros(3),
        "w": np.zeros(3),
        "sigma_p": np.ones(3),
        "drift": 0.0,
    }
    records = [
        ("state", jump, far),
        ("fallback", jump, {"source": "spare solver", "reason": wait}),
        ("counters", 9.0, counters),
    ]
    path = write_log(tmp_path / "events.mcap", plan, records=records)
    told = {finding.text: finding.t for finding in findings(read_flight(path))}
    (correction,) = [text for text in told if text.startswith("The estimate was corrected")]
    assert "between gates 2 and 3" in correction and told[correction] == pytest.approx(jump, abs=0.02)
    assert told[f"Commands of the spare solver at {jump:.2f} s, between gates 2 and 3: {wait}."] == pytest.approx(jump)
    assert "Frames lost: 7." in told and any(text.startswith("Late: 3 of ") for text in told)
    shown = figures(read_flight(path))
    assert shown["late commands"] == "3" and shown["lost frames"] == "7, 200 used"


def test_a_flight_that_ended_early_tells_where_and_why(tmp_path, plan):
    log = FlightLog(tmp_path / "crash.mcap")
    log.write("flight", 0.0, track="vq1", vehicle="dcl", planned_gate_times_s=plan.gate_times_s, seed=0)
    for t in (0.0, 1.0, 2.0, 3.0):
        pose = {"p": np.array([t, 0, 0]), "q": np.eye(4)[0], "v": np.array([1.0, 0, 0]), "w": np.zeros(3)}
        log.write("state", t, **pose, sigma_p=np.ones(3), drift=0.0)
    times = plan.gate_times_s[:2]
    log.write("referee", 3.0, status="collision", cause="gate 2", gate_times_s=times, gate_margins_m=[0.4, 0.1])
    log.close()
    flight = read_flight(tmp_path / "crash.mcap")
    assert findings(flight)[0].text.startswith("Ended after gate 1, passed at ")
    assert findings(flight)[0].text.endswith("at gate 1: collision (gate 2).")
    shown = figures(flight)
    assert shown["gates passed"] == "2 of 6" and shown["least margin"] == "0.100 m at gate 1" and shown["time"] == "-"
    assert shown["late commands"] == shown["lost frames"] == shown["vehicle learned"] == "not in the log"


def test_a_log_without_planned_times_takes_them_from_the_plan_that_was_flown(tmp_path, plan, page):
    _, data = page(write_log(tmp_path / "old.mcap", plan, late_s=0.1, told=False))
    assert chart(data, "Behind the plan")["data"][0]["y"][1] == pytest.approx(0.1, abs=1e-3)


@pytest.mark.parametrize("several", [False, True])
def test_every_axis_has_a_name_and_a_unit_and_gates_are_marked(several, log, slow, page):
    _, data = page(log, slow) if several else page(log)
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


def test_the_cursor_marks_where_the_vehicle_was(log, page, plan):
    _, data = page(log)
    east, north, up = data["more"]["places"][0]
    k = len(data["more"]["x"]) // 2
    x = [np.interp(data["more"]["x"][k] - 0.1, plan.t, column) for column in plan.x.T[:3]]
    assert [north[k], east[k], -up[k]] == pytest.approx(x, abs=0.05)
    for name in ("Path", "From above"):
        figure = chart(data, name)
        assert figure["data"][figure["mark"]]["mode"] == "markers"


def test_two_flights_differ_at_the_gates_by_their_gate_times(log, slow, page):
    first, second = read_flight(log), read_flight(slow)
    expected = second.gate_times_s - first.gate_times_s
    found = compare([first, second])
    at_gates = np.searchsorted(found.grid_m, found.gates_m)
    assert found.later_s[1][at_gates] == pytest.approx(expected, abs=1e-9)
    assert found.later_s[0] == pytest.approx(0.0) and np.all(np.diff(found.gates_m) > 0)
    text, data = page(log, slow)
    assert all(f"<td>{later:+.3f}</td>" in text for later in expected)
    assert len(chart(data, "Time after A")["data"]) == 2


def test_a_flight_is_compared_as_far_as_it_came(log, plan, tmp_path):
    gates, first = 3, read_flight(log)
    other = replace(first, gate_times_s=first.gate_times_s[:gates], gate_margins_m=first.gate_margins_m[:gates])
    later = compare([first, other]).later_s[1]
    known = compare([first, other]).grid_m <= compare([first, other]).gates_m[gates - 1]
    assert np.isfinite(later[known]).all() and np.isnan(later[~known]).all() and not known.all()


def test_a_page_without_images_has_two_megabytes_however_long_the_flight(plan, page, tmp_path):
    text, _ = page(write_log(tmp_path / "long.mcap", plan, slow=(0, 0.025)))  # a minute
    assert len(text.encode()) < 2.2e6


@given(arrays(float, st.integers(1, 3000), elements=st.floats(-1e6, 1e6)))
def test_thinned_lines_keep_their_peaks(y):
    rows = thinned(y)
    assert len(rows) <= MOST_POINTS and np.all(np.diff(rows) > 0)
    assert y[rows].max() == y.max() and y[rows].min() == y.min()


def test_pictures_stay_within_their_budget_and_every_gate_has_its_own(log):
    flight, rng = read_flight(log), np.random.default_rng(0)
    noise = rng.integers(0, 255, (180, 320, 3), np.uint8)
    jpeg = cv2.imencode(".jpg", noise)[1].tobytes()
    stamps = np.linspace(0.0, flight.gate_times_s[-1], 190)
    images, of_gates = thumbnails(replace(flight, images=tuple((float(t), jpeg) for t in stamps)))
    size = sum(len(base64.b64decode(data)) for _, data in images)
    assert BUDGET_BYTES / 2 < size <= BUDGET_BYTES and len(images) < len(stamps)
    for gate_t, k in zip(flight.gate_times_s, of_gates, strict=True):
        assert 0.1 < gate_t - images[k][0] < 0.25


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("several", [False, True])
def test_a_browser_draws_every_figure_and_the_cursor(several, log, slow, page, tmp_path):
    _, data = page(log, slow) if several else page(log)
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom"]
    command = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", f"file://{tmp_path / 'page.html'}"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    body = shown.split("<body")[1].split(">")[0]
    assert f'data-drawn="{len(data["figures"])}"' in body and "data-cursor" in body and "data-error" not in body


def test_what_cannot_be_told_is_one_line(log, plan_folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "text.mcap").write_text("no log at all")
    other = evil_log(tmp_path / "other.mcap", "vq2")
    out = tmp_path / "page.html"
    for logs, why in (
        ([tmp_path / "missing.mcap"], "missing.mcap: cannot be read"),
        ([tmp_path / "text.mcap"], "text.mcap: is no MCAP file"),
        ([log, other], "other.mcap: a flight of vq2"),
    ):
        assert page_of(logs, plan_folder, out, monkeypatch) == 2
        error = capsys.readouterr().err
        assert why in error and error.count("\n") == 1 and not out.exists()


EVIL = "</script><script>alert(1)</script><!--<script><img src=x onerror=alert(1)>"


def evil_log(path, track="vq1"):
    """A log whose every text wants to run."""
    log = FlightLog(path)
    log.write("flight", 0.0, track=track, vehicle=EVIL, plan_hash="", seed=EVIL, profile=EVIL)
    for k in range(5):
        pose = {"p": np.zeros(3), "q": np.array([1.0, 0, 0, 0]), "v": np.zeros(3)}
        log.write("state", float(k), **pose, w=np.zeros(3), sigma_p=np.ones(3), drift=0.0)
        log.write("link", float(k), counters={EVIL: k + 1})
        image = {"timestamp": {"sec": 0, "nsec": 0}, "data": f'AAAA">{EVIL}', "format": "jpeg"}
        log._writer.add(log._image, 0.0, json.dumps(image).encode())
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


def test_nothing_in_a_log_runs_in_its_page(tmp_path, plan_folder, monkeypatch):
    out = tmp_path / "page.html"
    assert page_of(evil_log(tmp_path / "evil.mcap"), plan_folder, out, monkeypatch) == 0
    text = out.read_bytes().decode()
    found = Page(text)
    assert [kind for kind, _ in found.scripts] == [
        "application/json",
        "text/plain",
        "",
    ] and "onerror" not in found.names
    (_, data), (_, packed), (_, own) = found.scripts
    assert EVIL in json.dumps(json.loads(data)).replace("\\", "")
    plotly = zlib.decompress(base64.b85decode(packed.replace(",", "<")))
    hashes = {base64.b64encode(hashlib.sha256(body).digest()).decode() for body in (plotly, own.encode())}
    assert all(f"'sha256-{one}'" in found.policy for one in hashes) and found.policy.count("sha256-") == 2
    assert "default-src 'none'" in found.policy and "unsafe-eval" not in found.policy
    assert "'unsafe-inline'" not in found.policy.split("script-src")[1].split(";")[0] and EVIL not in text


@pytest.mark.parametrize("track", ["../../etc/passwd", "/etc/passwd", "a/b", "*"])
def test_a_track_named_by_a_log_leads_nowhere_else(track, tmp_path, plan_folder, monkeypatch, capsys):
    log = evil_log(tmp_path / "evil.mcap", track)
    assert page_of(log, plan_folder, tmp_path / "page.html", monkeypatch) == 2
    assert "names files, so only letters" in capsys.readouterr().err


def test_a_page_takes_the_place_of_no_log_and_no_plan(log, plan_folder, monkeypatch, capsys):
    for out in (log, plan_folder / "vq1.csv"):
        before = out.read_bytes()
        assert page_of(log, plan_folder, out, monkeypatch) == 2
        assert "is an input of this command" in capsys.readouterr().err and out.read_bytes() == before


def test_a_log_without_a_flight_is_one_clear_line(tmp_path, plan_folder, monkeypatch, capsys):
    (tmp_path / "empty.mcap").write_bytes(b"")
    assert page_of(tmp_path / "empty.mcap", plan_folder, tmp_path / "page.html", monkeypatch) == 2
    assert "holds no flight" in capsys.readouterr().err
