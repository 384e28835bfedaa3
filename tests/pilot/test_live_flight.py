"""Simulator and pilot in two processes, in lock-step so that a busy machine does not matter.

In real time this is flown through a hostile network (tests/soak) and by the embedded simulator.
"""

import json
import subprocess

import pytest

from tests.conftest import ROOT
from tests.processes import command, few_images, free_port, run

ASIDE = '"SensorPosXYZ": [0.1, 0, -0.03], "SensorAngEular": [0, 20'  # where the file has it at [0, 0, 0]


def raced(sprint, folder, profile, images):
    """What the pilot and the simulator have written of a race that ends as it should, and what the pilot has said.

    Flown once more where another program took a port in between.

    Args:
        images: a function that returns keys for the images, of the simulator and of the pilot.
    """
    for _ in range(2):
        done, told = both(sprint, folder, profile, *images())
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr + told
    outcome, report = (json.loads((folder / name).read_text()) for name in ("result.json", "report.json"))
    assert outcome["status"] == report["status"] == "finished" and len(report["gate_times_s"]) == 2
    assert outcome["gate_times_s"] == pytest.approx(report["gate_times_s"], abs=0.1)
    assert "finished: 2/2 gates" in told and "Traceback" not in told + done.stderr
    return outcome, report, done.stderr


def both(sprint, folder, profile, simulated, asked):
    own, client = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    keys = "--set", "once=true", f"link.bind={own}", f"link.client={client}", simulated
    with subprocess.Popen(
        command("gate_racer.race.race_sim", "--track", sprint / "sprint.yaml", "--profile", profile, "--lockstep",
                "--seed", 5, "--report", folder / "report.json", *keys),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as server:  # fmt: skip
        try:
            flags = "--profile", profile, "--log", folder, "--json", folder / "result.json"
            keys = "--set", f"link.listen={client}", f"link.peer={own}", asked
            done = run("gate_racer.race.run_mpc", sprint / "sprint.csv", "--live", "--lockstep", *flags, *keys)
            if done.returncode != 0:
                server.terminate()
            return done, server.communicate(timeout=30)[0]
        finally:
            server.kill()


def test_a_live_flight_over_udp(sprint, tmp_path):
    outcome, _, _ = raced(
        sprint, tmp_path, few_images("dcl", tmp_path), lambda: [f"link.video=127.0.0.1:{free_port()}"] * 2
    )
    assert outcome["estimate_rmse_m"] is None  # nothing but camera and IMU: the truth is not there to compare with


def test_a_course_is_finished_in_offboard_by_a_camera_of_rflysim_that_sits_elsewhere_and_nothing_is_refused(
    sprint, tmp_path
):
    """PX4's side of MAVLink, and frames asked for and sent in RflySim's protocol."""
    text = (ROOT / "examples/rflysim.json").read_text(encoding="utf-8")
    text = text.replace(ASIDE.replace("[0.1, 0, -0.03]", "[0, 0, 0]"), ASIDE)

    def images():
        (tmp_path / "Config.json").write_text(text.replace("9999, 0, 0", f"{free_port()}, 1400, 0"))
        desk = f"rflysim://127.0.0.1:{free_port()}"
        return f"link.vision_protocol={desk}", f"link.vision={desk}?config={tmp_path / 'Config.json'}"

    outcome, report, said = raced(sprint, tmp_path, "px4", images)
    assert min(report["gate_margins_m"]) >= 0.25 and outcome["vision"]["sightings"] > 20
    assert "autopilot" not in said and not outcome["troubles"]
