"""VQ1 behind PX4's side of MAVLink and RflySim's cameras, from one process to the other."""

import json
import subprocess

import pytest

from tests.conftest import ROOT
from tests.pilot.test_flight import command, free_port, run_mpc


def flight(plan_folder, tmp_path, *options):
    """Both programs' ends, on ports that were free a moment ago."""
    mavlink, simulator, desk, frames = (free_port() for _ in range(4))
    text = (ROOT / "docs/rflysim.json").read_text(encoding="utf-8")
    (tmp_path / "Config.json").write_text(text.replace("9999, 0, 0", f"{frames}, 1400, 0"))
    with subprocess.Popen(
        command("sim.cli", "--track", "tracks/vq1.yaml", "--profile", "px4", "--lockstep", "--once", "--seed", 5,
                "--vision-protocol", f"rflysim://127.0.0.1:{desk}", "--bind", f"127.0.0.1:{simulator}",
                "--client", f"127.0.0.1:{mavlink}", "--report", tmp_path / "report.json"),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            done = run_mpc(
                plan_folder / "vq1.csv", "--live", "--lockstep", "--profile", "px4", "--listen", f"127.0.0.1:{mavlink}",
                "--peer", f"127.0.0.1:{simulator}", "--log", tmp_path, "--json", tmp_path / "result.json",
                "--vision", f"rflysim://127.0.0.1:{desk}?config={tmp_path / 'Config.json'}", *options,
            )  # fmt: skip
            if done.returncode != 0:
                server.terminate()
            told, errors = server.communicate(timeout=30)
        finally:
            server.kill()
    return done, told + errors


@pytest.fixture(scope="module")
def flown(plan_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("px4")
    done, told = flight(plan_folder, folder)
    if done.returncode != 0:  # another program may have taken a port in between
        done, told = flight(plan_folder, folder)
    assert done.returncode == 0, done.stdout + done.stderr + told
    return done, told, *(json.loads((folder / name).read_text()) for name in ("result.json", "report.json"))


def test_vq1_is_finished_by_rflysim_s_camera_in_offboard(flown):
    done, told, outcome, report = flown
    assert outcome["status"] == report["status"] == "finished" and min(report["gate_margins_m"]) >= 0.25
    assert outcome["vision"]["sightings"] > 20
    assert outcome["gate_times_s"] == pytest.approx(report["gate_times_s"], abs=0.1)
    assert "Traceback" not in told + done.stderr


def test_nothing_was_refused_on_the_way(flown):
    done, _, outcome, _ = flown
    assert "autopilot" not in done.stderr and not outcome["troubles"]
