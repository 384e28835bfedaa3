"""A page about a flight opens in a browser without a network, and tells what the log holds."""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from field.fly_report import main
from pilot.flight_log import FlightLog

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
    lost = re.search(r'"gate 5"\], "y": \[([^\]]*)\]', text)
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


def test_a_log_without_a_flight_is_one_clear_line(tmp_path, plan_folder, monkeypatch, capsys):
    (tmp_path / "empty.mcap").write_bytes(b"")
    assert page_of(tmp_path / "empty.mcap", plan_folder, tmp_path / "page.html", monkeypatch) == 2
    assert "holds no flight" in capsys.readouterr().err
