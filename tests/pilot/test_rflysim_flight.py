"""A course by the camera of RflySim: frames asked for and sent in its protocol, from one process to the other."""

import pytest

from tests.processes import run_here
from tests.rflysim_race import raced

ASIDE = '"SensorPosXYZ": [0.1, 0, -0.03], "SensorAngEular": [0, 20'


def test_a_flight_by_a_camera_of_rflysim_that_sits_elsewhere(sprint, tmp_path):
    race = raced(sprint, tmp_path, sensor=ASIDE)
    assert race.outcome["status"] == race.report["status"] == "finished" and min(race.report["gate_margins_m"]) >= 0.25
    assert race.outcome["vision"]["sightings"] > 20
    assert race.outcome["gate_times_s"] == pytest.approx(race.report["gate_times_s"], abs=0.1)
    assert "Traceback" not in race.simulator + race.pilot.stderr


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
    done = run_here(module, *arguments)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    assert words in done.stderr
