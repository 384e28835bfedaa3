"""The pilot in a simulator that it was not developed with: `tests/peer`, written from the interface document alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes import free_port, run_here


def fly(plan: Path, folder: Path, profile: str, *options: object) -> dict:
    """Fly a plan for VQ1 over UDP in lock-step, and return the peer's truth."""
    own, client, video = free_port(), free_port(), free_port()
    peer = subprocess.Popen(
        [sys.executable, "-m", "tests.peer", "--own", str(own), "--client", str(client), "--video", str(video),
         "--out", str(folder / "truth.json"), *map(str, options)],
        cwd=ROOT, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        done = run_here(
            "gate_racer.race.run_mpc", plan, "--live", "--lockstep", "--profile", profile,
            "--set", f"link.listen=127.0.0.1:{client}", f"link.video=127.0.0.1:{video}", "--log", folder,
        )  # fmt: skip
        _, errors = peer.communicate(timeout=120)
    finally:
        peer.kill()
        peer.wait()
    assert peer.returncode == 0, errors + done.stdout + done.stderr
    return json.loads((folder / "truth.json").read_text())


def test_the_first_two_gates(plan_folder, tmp_path, undrawn):
    truth = fly(
        plan_folder / "vq1.csv", tmp_path, "dcl", "--wire", "builds", "--seed", 1, "--gates", 2, "--images-hz", 10
    )
    assert truth["verdict"] == "finished" and not truth["false_start"]
    assert min(truth["margins_m"]) > 0.3


@pytest.mark.soak
@pytest.mark.parametrize("fit", ["logs", "steep", "square"])
@pytest.mark.parametrize(("wire", "profile"), [("letter", "spec"), ("builds", "dcl")])
def test_the_whole_course(plan_folder, tmp_path, wire, profile, fit):
    """Thrust and drag as fitted by three teams, of which `dcl` is one: up to 31 % more thrust and 62 % more drag."""
    truth = fly(plan_folder / "vq1.csv", tmp_path, profile, "--wire", wire, "--fit", fit, "--seed", 2)
    assert truth["verdict"] == "finished" and not truth["false_start"]
    assert len(truth["times_s"]) == 6 and min(truth["margins_m"]) > 0.25
