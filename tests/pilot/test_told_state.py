"""A told state is the easiest world: no flight by it is slower or less sure than by camera and IMU alone."""

import json

import pytest

from gate_racer.planner.plan import read_plan
from tests.processes import run_here

FLIGHTS = [("spec", "mpcc"), ("dcl", "mpcc"), ("dcl", "tracking"), ("px4", "tracking")]


@pytest.mark.parametrize(("profile", "controller"), FLIGHTS)
def test_a_told_state_is_never_worse_than_an_estimated_one(profile, controller, sprint, tmp_path):
    flown, first_s = {}, read_plan(sprint / "sprint.csv").gate_times_s[0]
    for name, told in (("camera", []), ("told", ["--pose"])):
        result = tmp_path / f"{name}.json"
        done = run_here(
            "gate_racer.race.run_mpc", sprint / "sprint.csv", "--lockstep", "--camera", "projected", "--profile", profile,
            "--controller", controller, *told, "--log", tmp_path, "--json", result,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        flown[name] = json.loads(result.read_text())
    told, camera = flown["told"], flown["camera"]
    assert camera["gate_times_s"][0] < 1.08 * first_s, "no time is lost while the first gate is looked for"
    assert told["race_time_s"] < 1.01 * camera["race_time_s"]
    assert told["estimate_rmse_m"] < min(0.01, camera["estimate_rmse_m"])
    assert told["vision"]["sightings"] > 0.8 * camera["vision"]["sightings"], "images are used as well"
