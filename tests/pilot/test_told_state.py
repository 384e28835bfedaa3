"""A told state is the easiest world: no flight by it is slower or less sure than by camera and IMU alone."""

import pytest

from gate_racer.planner.plan import read_plan
from gate_racer.tracks.track import load_track
from tests.conftest import ROOT, with_plan
from tests.processes import raced

FLIGHTS = [("spec", "mpcc"), *(pytest.param(name, "tracking", marks=pytest.mark.soak) for name in ("px4", "dcl"))]
pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def balls(tmp_path_factory, dcl):
    """A folder with a course of six balls and a split S, and its plan."""
    folder = tmp_path_factory.mktemp("balls")
    text = (ROOT / "tracks/splits_uzh.yaml").read_text(encoding="utf-8").replace("name: splits_uzh", "name: balls")
    lines = [line for line in text.partition("  - &gate_7")[0].splitlines() if not line.startswith("end_m:")]
    (folder / "balls.yaml").write_text("\n".join(lines), encoding="utf-8")
    return with_plan(folder, tmp_path_factory, load_track(folder / "balls.yaml"), dcl)


@pytest.mark.parametrize(("profile", "controller"), FLIGHTS)
def test_a_told_state_is_never_worse_than_an_estimated_one(profile, controller, sprint, tmp_path):
    flown, first_s = {}, read_plan(sprint / "sprint.csv").gate_times_s[0]
    for name, told in (("camera", []), ("told", ["--set", "perception.pose=true"])):
        flight = sprint / "sprint.csv", "--profile", profile, "--controller", controller
        flown[name] = raced(tmp_path, *flight, *told)
    told, camera = flown["told"], flown["camera"]
    assert camera["gate_times_s"][0] < 1.08 * first_s, "no time is lost while the first gate is looked for"
    assert told["race_time_s"] < 1.01 * camera["race_time_s"]
    assert told["estimate_rmse_m"] < min(0.01, camera["estimate_rmse_m"])
    assert told["vision"]["sightings"] > 0.8 * camera["vision"]["sightings"], "images are used as well"


def test_a_course_of_balls_is_flown_within_their_margin(balls, tmp_path):
    flown = raced(tmp_path, balls / "balls.csv", "--profile", "dcl", "--set", "perception.pose=true")
    assert flown["min_margin_m"] > 0.1 and not flown["retries"]
    assert flown["race_time_s"] < 1.05 * flown["planned_time_s"]
