"""Simulator and pilot in two processes, in lock-step so that a busy machine does not matter.

In real time this is flown through a hostile network (tests/soak) and by the embedded simulator.
"""

import json
import subprocess

import pytest

from tests.conftest import ROOT
from tests.processes import command, few_images, free_port, run_here

ASIDE = '"SensorPosXYZ": [0.1, 0, -0.03], "SensorAngEular": [0, 20'  # where the file has it at [0, 0, 0]


def both(sprint, folder):
    """The simulator and the pilot in two processes, with PX4's side of MAVLink and a camera of RflySim between them."""
    own, client, desk = (f"127.0.0.1:{free_port()}" for _ in range(3))
    text = (ROOT / "examples/rflysim.json").read_text(encoding="utf-8")
    text = text.replace(ASIDE.replace("[0.1, 0, -0.03]", "[0, 0, 0]"), ASIDE)
    (folder / "Config.json").write_text(text.replace("9999, 0, 0", f"{free_port()}, 1400, 0"))
    keys = "--set", "once=true", f"link.bind={own}", f"link.client={client}", f"link.vision_protocol=rflysim://{desk}"
    profile = few_images("px4", folder)
    with subprocess.Popen(
        command("gate_racer.race.race_sim", "--track", sprint / "sprint.yaml", "--profile", profile, "--lockstep",
                "--seed", 5, "--report", folder / "report.json", *keys),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as server:  # fmt: skip
        try:
            vision = f"link.vision=rflysim://{desk}?config={folder / 'Config.json'}"
            flags = "--profile", profile, "--log", folder, "--json", folder / "result.json"
            keys = "--set", f"link.listen={client}", f"link.peer={own}", vision
            done = run_here("gate_racer.race.run_mpc", sprint / "sprint.csv", "--live", "--lockstep", *flags, *keys)
            if done.returncode != 0:
                server.terminate()
            return done, server.communicate(timeout=30)[0]
        finally:
            server.kill()


def test_a_course_is_finished_in_offboard_by_a_camera_of_rflysim_that_sits_elsewhere(sprint, tmp_path, undrawn):
    """Flown once more where another program took a port in between."""
    for _ in range(2):
        done, told = both(sprint, tmp_path)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr + told
    outcome, report = (json.loads((tmp_path / name).read_text()) for name in ("result.json", "report.json"))
    assert outcome["status"] == report["status"] == "finished" and len(report["gate_times_s"]) == 2
    assert outcome["gate_times_s"] == pytest.approx(report["gate_times_s"], abs=0.1)
    assert "finished: 2/2 gates" in told and "Traceback" not in told + done.stderr
    assert min(report["gate_margins_m"]) >= 0.25 and outcome["vision"]["sightings"] > 7
    assert "autopilot" not in done.stderr and not outcome["troubles"]
    assert outcome["estimate_rmse_m"] is None, "nothing but camera and IMU: the truth is not there to compare with"
