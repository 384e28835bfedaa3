"""A stored plan is kept while its inputs are the same, and made again with its own options once they are not."""

from dataclasses import asdict, replace

import pytest

from gate_racer.common.errors import UserError
from gate_racer.planner.plan import PlanError, write_plan
from gate_racer.planner.planning import find_or_make_plan, make_plan, options_of
from gate_racer.planner.task import PlanOptions
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.planner.test_planner import gate, straight

OWN = PlanOptions(see=0.3, margin_m=0.2, fast=True)
USUAL = PlanOptions()


@pytest.fixture(scope="module")
def made(sprint, dcl):
    """A course, its plan by options, and the certificate."""
    track = load_track(sprint / "sprint.yaml")
    return track, *make_plan(track, dcl, OWN)


@pytest.fixture
def stored(tmp_path, made, dcl):
    """A folder with that plan, and a picture of it."""
    track, plan, certificate = made
    write_plan(tmp_path / "sprint.csv", plan, dcl, certificate.as_dict())
    (tmp_path / "sprint.png").write_bytes(b"an old picture")
    return tmp_path, track, plan


def test_a_plan_of_the_same_inputs_is_kept_whatever_its_options(stored, dcl, capsys):
    folder, track, plan = stored
    assert find_or_make_plan(folder, track, dcl, USUAL, None).hash == plan.hash
    assert capsys.readouterr().err == "" and (folder / "sprint.png").read_bytes() == b"an old picture"


def test_a_plan_of_other_inputs_is_made_again_with_its_options(stored, dcl, capsys):
    folder, track, plan = stored
    x, y, z = track.gates[1].centre_m
    moved = replace(track, gates=(track.gates[0], replace(track.gates[1], centre_m=(x + 0.2, y, z))))
    again = find_or_make_plan(folder, moved, dcl, USUAL, None)
    assert again.hash != plan.hash and options_of(folder / "sprint.csv", 1) == OWN
    assert "planned again with its options" in capsys.readouterr().err
    assert (folder / "sprint.png").read_bytes() != b"an old picture"


def test_a_plan_tells_the_options_by_which_it_was_made(tmp_path, plan, dcl):
    asked = PlanOptions(reserve=0.7, margin_m=0.2, see=0.3)
    write_plan(tmp_path / "vq1.csv", plan, dcl, {"options": asdict(asked)})
    assert options_of(tmp_path / "vq1.csv", 1) == asked
    assert options_of(tmp_path / "none.csv", 2) == PlanOptions(laps=2)
    write_plan(tmp_path / "vq1.csv", plan, dcl, {"options": {"reserved": 0.7}})
    with pytest.raises(UserError, match="reserved"):
        options_of(tmp_path / "vq1.csv", 1)


def test_a_plan_for_another_vehicle_or_course_is_refused(plan, vq1, dcl):
    with pytest.raises(PlanError, match=r"made for vehicle dcl .* not for swift"):
        plan.require(vq1, load_vehicle("swift"))
    with pytest.raises(PlanError, match=r"made for track vq1 .* not for straight"):
        plan.require(straight(gate(5.0)), dcl)
