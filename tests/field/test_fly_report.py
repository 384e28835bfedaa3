"""A page about a flight opens in a browser without a network, and tells what the log holds."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest

from field.report.cli import main
from pilot.records.flight_log import FlightLog

CHROMIUM = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def log(tmp_path_factory, plan):
    """A flight exactly along the plan, a tenth of a second late at every gate."""
    path = tmp_path_factory.mktemp("logs") / "flight.mcap"
    log = FlightLog(path)
    log.write("flight", 0.0, track="vq1", vehicle="dcl", plan_hash=plan.hash, seed=0, profile="spec")
    for t, x in zip(plan.t[::4], plan.x[::4], strict=True):
        pose = {"p": x[:3], "q": x[3:7], "v": x[7:10]}
        log.write("state", t, **pose, w=x[10:13], sigma_p=np.full(3, 0.01), drift=0.0)
        log.write("reference", t, theta=t, **pose)
        log.write("truth", t, **pose, w=x[10:13])
        log.write("command", t, q=x[3:7], w=x[10:13], throttle=0.5, source="solved", status=0, solve_ms=1.0)
    times = [plan.t[node] + 0.1 for node in plan.gate_nodes]
    log.write("referee", plan.t[-1], status="finished", gate_times_s=times, gate_margins_m=[0.4] * len(times))
    log.close()
    return path


def page_of(log, plan_folder, out, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fly-report", str(log), "--plans", str(plan_folder), "--out", str(out)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_the_page_tells_the_time_lost_on_every_leg(log, plan_folder, tmp_path, monkeypatch):
    assert page_of(log, plan_folder, tmp_path / "page.html", monkeypatch) == 0
    text = (tmp_path / "page.html").read_text()
    assert "vq1, dcl, profile spec, seed 0: finished" in text
    lost = re.search(r'"gate 5"\],"y":\[([^\]]*)\]', text)
    assert lost is not None
    assert [float(s) for s in lost[1].split(",")] == pytest.approx([0.1, 0, 0, 0, 0, 0], abs=1e-3)
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="http', text)


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_draws_every_figure(log, plan_folder, tmp_path, monkeypatch):
    page_of(log, plan_folder, tmp_path / "page.html", monkeypatch)
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom"]
    command = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", f"file://{tmp_path / 'page.html'}"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert 'data-drawn="4"' in shown and "data-error" not in shown.split("<h1>")[0].split("<body")[-1]


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
