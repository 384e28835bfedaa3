"""VQ1 by the camera of RflySim: frames asked for and sent in its protocol, from one process to the other."""

import json
import subprocess

import pytest

from tests.conftest import ROOT
from tests.pilot.test_flight import command, free_port, run_mpc


def flight(plan_folder, tmp_path):
    """Both programs' ends, on ports that were free a moment ago."""
    mavlink, simulator, desk, frames = (free_port() for _ in range(4))
    text = (ROOT / "docs/rflysim.json").read_text(encoding="utf-8").replace("9999, 0, 0", f"{frames}, 1400, 0")
    text = text.replace(
        '"SensorPosXYZ": [0, 0, 0], "SensorAngEular": [0, 20',
        '"SensorPosXYZ": [0.1, 0, -0.03], "SensorAngEular": [0, 20',
    )
    (tmp_path / "Config.json").write_text(text)
    with subprocess.Popen(
        command("sim.cli", "--track", "tracks/vq1.yaml", "--lockstep", "--once", "--seed", 5,
                "--vision-protocol", f"rflysim://127.0.0.1:{desk}", "--bind", f"127.0.0.1:{simulator}",
                "--client", f"127.0.0.1:{mavlink}", "--report", tmp_path / "report.json"),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            done = run_mpc(
                plan_folder / "vq1.csv", "--live", "--lockstep", "--listen", f"127.0.0.1:{mavlink}",
                "--vision", f"rflysim://127.0.0.1:{desk}?config={tmp_path / 'Config.json'}", "--log", tmp_path,
                "--json", tmp_path / "result.json",
            )  # fmt: skip
            if done.returncode != 0:
                server.terminate()
            told, errors = server.communicate(timeout=30)
        finally:
            server.kill()
    return done, told, errors


def test_a_flight_by_rflysim_s_camera(plan_folder, tmp_path):
    done, told, errors = flight(plan_folder, tmp_path)
    if done.returncode != 0:  # another program may have taken a port in between
        done, told, errors = flight(plan_folder, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr + told + errors
    outcome, report = (json.loads((tmp_path / name).read_text()) for name in ("result.json", "report.json"))
    assert outcome["status"] == report["status"] == "finished" and min(report["gate_margins_m"]) >= 0.25
    assert outcome["vision"]["sightings"] > 20
    assert outcome["gate_times_s"] == pytest.approx(report["gate_times_s"], abs=0.1)
    assert "Traceback" not in errors + done.stderr


WRONG = [
    ("pilot.cli", ["--vision", "rflysim://h?config=docs/rflysim.json"], "needs --live"),
    ("pilot.cli", ["--live", "--vision", "rflysim://127.0.0.1"], "expected something like rflysim://"),
    (
        "pilot.cli",
        ["--live", "--vision", "rflysim://127.0.0.1?config=docs/none.json"],
        "docs/none.json: cannot be read",
    ),
    ("sim.cli", ["--vision-protocol", "airsim"], "expected something like rflysim://"),
    ("sim.cli", ["--vision-protocol", "rflysim", "--video", "127.0.0.1:5600"], "--video"),
]


@pytest.mark.parametrize(("module", "arguments", "words"), WRONG, ids=[f"{m} {' '.join(a)}" for m, a, _ in WRONG])
def test_bad_input_is_one_clear_line_and_exit_code_2(module, arguments, words):
    done = subprocess.run(
        command(module, *arguments), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr
