"""Courses that pass one gate several times are raced by camera alone: the gate is no rival of itself."""

import pytest

from gate_racer.planner.planning import find_or_make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.tracks.track import load_track
from tests.processes import few_images, raced

TRACK = """
name: repeated
source: two gates, passed again
start: {{position_m: [0.0, 0.0, 0.0], yaw_deg: 0.0}}
bounds: {{low_m: [-15.0, -15.0, -10.0], high_m: [35.0, 25.0, 0.5]}}
frame: {{opening_m: 1.5, outer_m: 2.7, depth_m: 0.26}}
closed: {closed}
gates:
  - {{centre_m: [11.0, 0.0, -1.8], yaw_deg: 0.0}}
  - {{centre_m: [11.0, 9.0, -2.2], yaw_deg: 180.0}}
{third}
"""
AGAIN = "  - {centre_m: [11.0, 0.0, -1.8], yaw_deg: 0.0}"


@pytest.mark.parametrize(
    ("closed", "third", "laps", "passages"),
    [("false", AGAIN, 1, 3), ("true", "", 2, 4)],
    ids=["twice in the course", "two laps"],
)
def test_a_gate_that_is_passed_again_is_recognised_and_the_race_finished(
    closed, third, laps, passages, tmp_path, dcl, undrawn
):
    track = tmp_path / "repeated.yaml"
    track.write_text(TRACK.format(closed=closed, third=third))
    find_or_make_plan(tmp_path, load_track(track), dcl, PlanOptions(laps=laps, guesses=1), None)
    flags = "--profile", few_images("spec", tmp_path, 15.0), "--set", f"plan.folder={tmp_path}"
    outcome = raced(tmp_path, track, "--laps", laps, "--seed", 1, *flags)
    assert outcome["status"] == "finished" and outcome["gates_passed"] == passages
    assert outcome["vision"]["sightings"] > 10 and outcome["estimate_rmse_m"] < 0.5 and outcome["min_margin_m"] > 0.2
