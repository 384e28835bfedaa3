"""Real-time races of `dcl` over UDP while every core is busy with something else, with and without TIMESYNC: all finish."""

import contextlib
import json
import os
import subprocess
import sys

import pytest

from link.profile import FOLDER
from tests.conftest import ROOT
from tests.soak.race import LIMIT_S

RACES = int(os.environ.get("SOAK_BUSY_RACES", "10"))  # in all


@contextlib.contextmanager
def busy_cores():
    """As many processes as there are cores that never wait."""
    spin = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def fly(plan, profile, seed, folder):
    flags = "--profile", profile, "--seed", seed, "--log", folder / "logs", "--json", folder / "result.json"
    command = [sys.executable, "-m", "pilot.cli", plan, *flags]
    subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, timeout=LIMIT_S, check=False)
    for log in (folder / "logs").glob("*"):
        log.unlink()
    return json.loads((folder / "result.json").read_text())


@pytest.mark.soak
@pytest.mark.parametrize("timesync", [True, False], ids=["TIMESYNC", "no TIMESYNC"])
def test_races_finish_on_a_busy_machine(timesync, plan_folder, tmp_path):
    text = (FOLDER / "dcl.yaml").read_text()
    assert "timesync: true" in text
    profile = tmp_path / "dcl.yaml"
    profile.write_text(text if timesync else text.replace("timesync: true", "timesync: false"))
    ends = []
    with busy_cores():
        for seed in range(RACES // 2):
            r = fly(plan_folder / "vq1.csv", profile, seed, tmp_path)
            about = f"margin {r['min_margin_m']} m, estimate {r['estimate_rmse_m']} m, {r['command_hz']:.0f} Hz"
            print(seed, r["status"], r["cause"], r["race_time_s"], about, flush=True)
            ends.append(r["status"])
    assert ends == ["finished"] * len(ends)
