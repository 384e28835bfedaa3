"""A course behind PX4's side of MAVLink and RflySim's cameras, from one process to the other."""

import pytest

from tests.rflysim_race import raced

ASIDE = '"SensorPosXYZ": [0.1, 0, -0.03], "SensorAngEular": [0, 20'


def test_a_course_is_finished_in_offboard_by_a_camera_of_rflysim_that_sits_elsewhere_and_nothing_is_refused(
    sprint, tmp_path
):
    race = raced(sprint, tmp_path, "--profile", "px4", sensor=ASIDE)
    assert race.outcome["status"] == race.report["status"] == "finished" and min(race.report["gate_margins_m"]) >= 0.25
    assert race.outcome["vision"]["sightings"] > 20
    assert race.outcome["gate_times_s"] == pytest.approx(race.report["gate_times_s"], abs=0.1)
    assert "Traceback" not in race.simulator + race.pilot.stderr
    assert "autopilot" not in race.pilot.stderr and not race.outcome["troubles"]
