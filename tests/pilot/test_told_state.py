"""A flight by a told state, which is the easiest world."""

import pytest

from gate_racer.tracks.track import load_track
from tests.conftest import ROOT, with_plan
from tests.processes import raced

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def balls(tmp_path_factory, dcl):
    """A folder with a course of six balls and a split S, and its plan."""
    folder = tmp_path_factory.mktemp("balls")
    text = (ROOT / "tracks/splits_uzh.yaml").read_text(encoding="utf-8").replace("name: splits_uzh", "name: balls")
    lines = [line for line in text.partition("  - &gate_7")[0].splitlines() if not line.startswith("end_m:")]
    (folder / "balls.yaml").write_text("\n".join(lines), encoding="utf-8")
    return with_plan(folder, tmp_path_factory, load_track(folder / "balls.yaml"), dcl)


def test_a_course_of_balls_is_flown_within_their_margin(balls, tmp_path):
    flown = raced(tmp_path, balls / "balls.csv", "--profile", "dcl", "--set", "perception.pose=true")
    assert flown["min_margin_m"] > 0.1 and not flown["retries"] and flown["estimate_rmse_m"] < 0.01
    assert flown["race_time_s"] < 1.05 * flown["planned_time_s"]
