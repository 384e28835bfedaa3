"""Plans are certified, near their bound, and obey what physics says of them."""

import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gate_racer.planner import problem
from gate_racer.planner.certificate.certificate import certify
from gate_racer.planner.course import resolve
from gate_racer.planner.guess import solve_point_mass
from gate_racer.planner.models import P, V
from gate_racer.planner.plan import COLUMNS, PlanError, SolverStatistics, read_plan, write_plan
from gate_racer.planner.planning import find_or_make_plan, make_plan, options_of
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import Bounds, Start, Track, load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import refused


def straight(*gates, end=None, start=(0.0, 0.0, 0.0)):
    """A course along x in a wide box."""
    bounds = Bounds((-50.0, -50.0, -50.0), (90.0, 50.0, 50.0))
    return Track("straight", Start(start, 0.0), bounds, tuple(gates), False, end)


def gate(x, y=0.0, z=0.0, yaw=0.0, opening=1.5):
    return Gate((x, y, z), yaw, 0.0, opening, opening + 1.2, 0.26)


def mirrored(track):
    """The same course with left and right exchanged."""
    places = [(one.centre_m[0], -one.centre_m[1], one.centre_m[2]) for one in track.gates]
    gates = tuple(replace(g, centre_m=p, yaw_deg=-g.yaw_deg) for g, p in zip(track.gates, places, strict=True))
    (x, y, z), yaw = track.start.position_m, track.start.yaw_deg
    return replace(track, gates=gates, start=replace(track.start, position_m=(x, -y, z), yaw_deg=-yaw))


ONE = PlanOptions(guesses=1, margin_m=0.15)
BLIND = replace(ONE, see=0.0)
TWO = straight(gate(12.0, 1.0), gate(25.0, -2.0))
SOLVED = SolverStatistics("Solve_Succeeded", True, 0, 0.0, 0.0, 0.0, {})


@cache
def planned(track, vehicle, options=ONE):
    return make_plan(track, vehicle, options)


def test_vq1_is_certified_and_near_the_point_mass_bound(plan_folder):
    certificate = json.loads((plan_folder / "vq1.json").read_text())
    assert certificate["status"] == "certified"
    assert certificate["point_mass_bound_s"] < certificate["total_time_s"] < 1.2 * certificate["point_mass_bound_s"]
    assert len(certificate["gate_times_s"]) == 6 and sorted(certificate["gate_times_s"]) == certificate["gate_times_s"]
    assert min(certificate["gate_margins_m"]) >= 0.449 and min(certificate["seen_share"]) >= 0.18


def test_a_point_mass_between_two_rests_needs_the_bang_bang_time():
    """Up with c - g, then braked with c + g: T = sqrt(2 s (1 / (c - g) + 1 / (c + g)))."""
    vehicle = load_vehicle("cpc")
    track = straight(Gate((0.0, 0.0, -10.0), radius_m=5.0), end=(0.0, 0.0, -20.0))
    solved = solve_point_mass(resolve(Task(track, vehicle, PlanOptions(reserve=1.0))))
    c = vehicle.thrust_max
    exact = np.sqrt(2 * 20.0 * (1 / (c - GRAVITY) + 1 / (c + GRAVITY)))
    assert exact <= solved.total_time + 1e-6 < 1.005 * exact


EASIER = {
    "more thrust": (TWO, replace(ONE, reserve=1.0)),
    "wider openings": (straight(*(replace(one, opening_m=2.5, outer_m=3.7) for one in TWO.gates)), ONE),
    "less to see": (TWO, BLIND),
}


@pytest.mark.parametrize(("track", "options"), EASIER.values(), ids=EASIER)
def test_what_is_easier_is_never_slower(track, options, dcl):
    assert planned(track, dcl, options)[0].total_time <= planned(TWO, dcl)[0].total_time + 1e-4


def test_a_mirrored_course_gives_the_mirrored_plan(dcl):
    assert planned(mirrored(TWO), dcl)[0].total_time == pytest.approx(planned(TWO, dcl)[0].total_time, abs=2e-3)


def test_a_ball_and_a_stop_are_planned_too():
    vehicle = load_vehicle("cpc")
    track = straight(Gate((8.0, 2.0, -1.0), radius_m=0.3), end=(14.0, 0.0, -1.0))
    plan, certificate = make_plan(track, vehicle, replace(ONE, reserve=1.0))
    assert certificate.ok, certificate.status
    assert np.abs(plan.x[-1, V]).max() < 1e-5 and plan.x[-1, P] == pytest.approx([14, 0, -1], abs=1e-5)
    assert ONE.margin_m - 1e-3 < certificate.gate_margins_m[0] < ONE.margin_m + 0.02
    plan, certificate = make_plan(track, vehicle, replace(ONE, reserve=1.0, margin_m=0.01))
    assert certificate.ok and 0.009 < certificate.gate_margins_m[0] < 0.03
    refused = certify(plan, Task(track, vehicle, replace(ONE, reserve=1.0)), SOLVED)
    assert re.search(r"gate 0 is passed with a margin of 0\.0\d\d m instead of 0\.150 m", refused.status)


def test_a_thrust_quicker_than_the_intervals_of_a_plan_makes_it_shorter(dcl):
    plan, certificate = planned(TWO, replace(dcl, thrust_lag_s=0.006))
    assert certificate.ok and plan.total_time < planned(TWO, dcl)[0].total_time


def test_the_file_gives_back_the_plan(plan, plan_folder, dcl, tmp_path):
    about = json.loads((plan_folder / "vq1.json").read_text())
    write_plan(tmp_path / "again.csv", plan, dcl, about)
    again = read_plan(tmp_path / "again.csv")
    assert again.hash == plan.hash == about["plan_hash"] and again.gate_nodes == plan.gate_nodes
    assert (tmp_path / "again.csv").read_text().splitlines()[0] == ",".join(COLUMNS["rates"])
    named = ["t", "p_x", "p_y", "p_z", "q_w", "q_x", "q_y", "q_z", "v_x", "v_y", "v_z", "w_x", "w_y", "w_z"]
    assert list(COLUMNS["rates"][:14]) == list(COLUMNS["rotors"][:14]) == named


def test_the_dense_path_passes_through_the_nodes(plan, dcl):
    t, x, _ = plan.dense(dcl, 8)
    assert np.array_equal(t[::8], plan.t) and np.array_equal(x[::8], plan.x)
    step = np.linalg.norm(x[7:-1:8, P] - plan.x[1:, P], axis=1)  # from the last fine point of each interval
    assert (step < 40.0 * np.diff(plan.t) / 8).all()


def test_a_damaged_plan_file_is_one_clear_line(plan_folder, tmp_path):
    text = (plan_folder / "vq1.csv").read_text()
    (tmp_path / "lone.csv").write_text(text)
    (tmp_path / "p.csv").write_text(text.replace("p_x", "x", 1))
    (tmp_path / "p.json").write_text((plan_folder / "vq1.json").read_text())
    for name in ("lone", "p"):
        with refused(rf"{name}\.", PlanError):
            read_plan(tmp_path / f"{name}.csv")


def test_both_models_plan_one_course_in_nearly_the_same_time():
    """Rotor plans fly with torques where rate plans have lags: times agree within a few per cent, above the point mass."""
    vehicle = load_vehicle("cpc")
    track = straight(Gate((8.0, 2.0, -1.0), radius_m=0.3), Gate((14.0, -2.0, -2.0), radius_m=0.3))
    plans = {m: make_plan(track, vehicle, replace(ONE, model=m, reserve=1.0, see=0.0)) for m in ("rates", "rotors")}
    for plan, certificate in plans.values():
        assert certificate.ok, certificate.status
        assert certificate.total_time_s >= certificate.effort.point_mass_bound_s
        assert plan.flight_model(vehicle).commands(plan.x, plan.u)[:, 3].max() <= vehicle.thrust_max * 1.001
    times = [certificate.total_time_s for _, certificate in plans.values()]
    assert max(times) < 1.1 * min(times)


def test_seeing_all_corners_costs_no_less_than_seeing_the_centre(dcl):
    centre, corners = planned(TWO, dcl)[1], planned(TWO, dcl, replace(ONE, see_corners=True))[1]
    assert corners.ok and corners.total_time_s >= centre.total_time_s - 1e-3


def test_without_a_compiler_the_plan_is_the_same(dcl, monkeypatch):
    track = straight(gate(12.0, 1.0))
    fast = planned(track, dcl, BLIND)[0]
    monkeypatch.setattr("gate_racer.planner.nlp.COMPILERS", ())
    monkeypatch.setattr(problem, "_flight_block", problem._flight_block.__wrapped__)
    slow = make_plan(track, dcl, BLIND)[0]
    assert slow.total_time == pytest.approx(fast.total_time, abs=1e-6)


# A stored plan is kept while its inputs are the same, and made again with its own options once they are not.


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
