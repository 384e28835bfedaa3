"""Real-time races of `dcl` over UDP while every core is busy, with something else or another race, and in unknown worlds."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gate_racer.link.profile import FOLDER
from tests.conftest import changed
from tests.processes import run
from tests.soak.race import LIMIT_S, RUN_MPC

RACES = int(os.environ.get("SOAK_BUSY_RACES", "10"))  # in all


@contextlib.contextmanager
def busy_cores():
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
    run(RUN_MPC, plan, *flags, *more, timeout=LIMIT_S)
    shutil.rmtree(folder / "logs", ignore_errors=True)
    result = json.loads((folder / "result.json").read_text())
    about = f"margin {result['min_margin_m']} m, estimate {result['estimate_rmse_m']} m, {result['command_hz']:.0f} Hz"
    print(seed, result["status"], result["cause"], result["race_time_s"], about, flush=True)
    return result


@pytest.mark.soak
@pytest.mark.parametrize("timesync", ["true", "false"])
def test_races_finish_on_a_busy_machine(timesync, plan_folder, tmp_path):
    profile = changed(tmp_path, FOLDER / "dcl.yaml", "timesync: true", f"timesync: {timesync}")
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
    with ThreadPoolExecutor(2) as pool:
        races = [
            pool.submit(fly, plan_folder / "vq1.csv", "dcl", seed, tmp_path / str(seed))
            for seed in range(2 * max(1, RACES // 10))
        ]
    assert [race.result()["status"] for race in races] == ["finished"] * len(races)
