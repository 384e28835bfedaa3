"""Real-time races of `dcl` over UDP while every core is busy, with something else or another race, and in unknown worlds."""

import contextlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gate_racer.link.profile import FOLDER
from tests.conftest import ROOT
from tests.soak.race import LIMIT_S

RACES = int(os.environ.get("SOAK_BUSY_RACES", "10"))  # in all


@contextlib.contextmanager
def busy_cores():
    """Keep one busy process on each available core."""
    spin = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(spin) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def fly(plan, profile, seed, folder, *more):
    """The result of one race in the embedded simulator."""
    folder.mkdir(exist_ok=True)
    flags = "--profile", profile, "--seed", seed, "--log", folder / "logs", "--json", folder / "result.json"
    command = [sys.executable, "-m", "gate_racer", "run-mpc", plan, *flags, *more]
    subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, timeout=LIMIT_S, check=False)
    for log in (folder / "logs").glob("*"):
        log.unlink()
    result = json.loads((folder / "result.json").read_text())
    about = f"margin {result['min_margin_m']} m, estimate {result['estimate_rmse_m']} m, {result['command_hz']:.0f} Hz"
    print(seed, result["status"], result["cause"], result["race_time_s"], about, flush=True)
    return result


@pytest.mark.soak
@pytest.mark.parametrize("timesync", [True, False], ids=["TIMESYNC", "no TIMESYNC"])
def test_races_finish_on_a_busy_machine(timesync, plan_folder, tmp_path):
    text = (FOLDER / "dcl.yaml").read_text()
    assert "timesync: true" in text
    profile = tmp_path / "dcl.yaml"
    profile.write_text(text if timesync else text.replace("timesync: true", "timesync: false"))
    with busy_cores():
        ends = [fly(plan_folder / "vq1.csv", profile, seed, tmp_path)["status"] for seed in range(RACES // 2)]
    assert ends == ["finished"] * len(ends)


@pytest.mark.soak
@pytest.mark.parametrize("load", [contextlib.nullcontext, busy_cores], ids=["quiet", "busy"])
def test_races_in_unknown_worlds_finish(load, plan_folder, tmp_path):
    """Race in real time with rendered images on a separate clock, as many as the machine renders in time."""
    with load():
        results = [
            fly(plan_folder / "vq1.csv", "dcl", seed, tmp_path, "--world", f"unknown:{seed}")
            for seed in range(RACES // 2)
        ]
    assert [result["status"] for result in results] == ["finished"] * len(results)


@pytest.mark.soak
def test_two_races_at_once_finish(plan_folder, tmp_path):
    """Simulator, camera, perception and pilot of both on the same cores."""
    for pair in range(max(1, RACES // 10)):
        with ThreadPoolExecutor(2) as pool:
            seeds = (2 * pair, 2 * pair + 1)
            results = list(
                pool.map(lambda seed: fly(plan_folder / "vq1.csv", "dcl", seed, tmp_path / str(seed)), seeds)
            )
        assert [result["status"] for result in results] == ["finished"] * 2
