"""The published problems, solved better than their published solutions, and read as they are."""

from pathlib import Path
from shutil import copy

import numpy as np
import pytest

from gate_racer.common.config import ConfigError
from gate_racer.planner.imported import read_problem
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import Task
from tests.conftest import changed, refused

PROBLEMS = Path(__file__).parents[3] / "shared" / "data" / "planner_problem"

pytestmark = pytest.mark.skipif(not PROBLEMS.exists(), reason="needs the published problems beside the checkout")


@pytest.mark.parametrize(("name", "best"), [("uzh3", 4.0453), ("uzh7", 7.3915), ("fastfly7", 8.2794)])
def test_the_best_published_time_with_honest_dynamics_is_reached(name, best):
    track, vehicle, options = read_problem(PROBLEMS / f"{name}.yaml")
    plan, certificate = make_plan(track, vehicle, options)
    assert certificate.ok, certificate.status
    assert certificate.total_time_s <= best
    assert min(certificate.gate_margins_m) > -1e-6  # within 0.3 m of every waypoint
    assert np.abs(plan.x[-1, 7:13]).max() < 1e-5 and np.abs(plan.x[-1, 4:6]).max() < 1e-5  # in hover
    at_bound = (plan.u < 1e-2) | (plan.u > vehicle.rotors.thrust_max_n - 1e-2)
    assert at_bound.any(axis=1).mean() > 0.8, "bang-bang: most of the time some rotor is at a bound"


def test_a_problem_without_its_quadrotor_says_so(tmp_path):
    copy(PROBLEMS / "uzh3.yaml", tmp_path)
    with refused(r"needs its quadrotor, one \*quad\*\.yaml, beside it", ConfigError):
        read_problem(tmp_path / "uzh3.yaml")


def other_problem(folder, file, old, new):
    """Read a problem, with a text in one of its files replaced."""
    for name in ("uzh3.yaml", "quad_cpc085.yaml"):
        copy(PROBLEMS / name, folder)
    changed(folder, PROBLEMS / file, old, new)
    return read_problem(folder / "uzh3.yaml")


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("uzh3.yaml", "condition: 'hover", "condition: 'free, not hover", "end.condition: 'free.* only hover"),
        ("quad_cpc085.yaml", "gravity: 9.8066", "gravity: 1.62", "gravity: 1.62 m/s.2 is not supported"),
    ],
)
def test_a_problem_of_another_kind_is_refused(tmp_path, file, old, new, words):
    with refused(words, ConfigError):
        other_problem(tmp_path, file, old, new)


def test_the_least_rotor_thrust_is_a_limit(tmp_path):
    track, vehicle, options = other_problem(tmp_path, "quad_cpc085.yaml", "thrust_min: 0.0", "thrust_min: 1.0")
    plan, certificate = make_plan(track, vehicle, options)
    assert certificate.ok and plan.u.min() > 0.999


PEER_QUADS = {
    "cpc": "{mass: 0.85, arm_length: 0.15, inertia: [[0.001, 0, 0], [0, 0.001, 0], [0, 0, 0.0017]], thrust_min: 0.0,"
    " TWR_max: 3.3, omega_max_xy: 15.0, omega_max_z: 0.3, torque_coeff: 0.05, rampup_dist: 35}",
    "togt": "{mass: 0.85, gravity: 9.8066, inertia: [0.001, 0.001, 0.0017], armLength: 0.15, beta: 45.0,"
    " torCoeff: 0.05, thrust_min: 0.0, thrust_max: 6.879, omega_max: [15.0, 15.0, 3.0]}",
}
PEER_COURSES = {
    "cpc": """
gates: [[-1.1, -1.6, 3.6], [9.2, 6.6, 1.0], [9.2, -4.0, 1.2]]
initial: {position: [-5, 4.5, 1.2], attitude: [1, 0, 0, 0], velocity: [0, 0, 0], omega: [0, 0, 0]}
end: {position: [-4.5, -6.0, 3.5]}
""",
    "togt": """
initState: {pos: [-5.0, 4.5, 1.2], vel: [0, 0, 0], cthrustmass: 9.8066, euler: [0, 0, 0]}
endState: {pos: [-4.5, -6.0, 3.5], vel: [0, 0, 0], cthrustmass: 9.8066, euler: [0, 0, 0]}
orders: ['Gate2', 'Gate1', 'Gate3']
Gate1: {type: 'RectanglePrisma', position: [9.2, 6.6, 1.0], rpy: [0, -90, 160], width: 2.4, height: 2.0,
  marginW: 0.8, marginH: 0.6, length: 0.0, midpoints: 0, stationary: true}
Gate2: {type: 'SingleBall', position: [-1.1, -1.6, 3.6], radius: 0.5, margin: 0.4}
Gate3: {type: 'SingleBall', position: [9.2, -4.0, 1.2], radius: 0.3, margin: 0.0}
""",
}


def peer_problem(folder, peer, old="", new=""):
    """Read a course and a quadrotor in the form of another planner, with a text in one of them replaced."""
    for name, text in (("course", PEER_COURSES[peer]), (f"{peer}_quad", PEER_QUADS[peer])):
        (folder / f"{name}.yaml").write_text(text.replace(old, new) if old else text)
    return read_problem(folder / "course.yaml")


@pytest.mark.parametrize("peer", PEER_COURSES)
def test_the_files_of_other_planners_are_read_as_ours(tmp_path, peer, capsys):
    """CPC's end is one more waypoint, and its code takes the whole arm as moment arm."""
    ours, quad, _ = read_problem(PROBLEMS / "uzh3.yaml")
    track, vehicle, options = peer_problem(tmp_path, peer)
    assert [gate.centre_m for gate in track.gates[:3]] == [gate.centre_m for gate in ours.gates]
    assert track.gates[0].radius_m == pytest.approx(0.3) and track.gates[2].radius_m == 0.3
    assert (
        track.start == ours.start and track.bounds == ours.bounds and options.start == Task(ours, quad, options).begin
    )
    scale = 2**0.5 if peer == "cpc" else 1.0
    assert vehicle.rotors.x_m == pytest.approx(scale * np.array(quad.rotors.x_m), rel=1e-6)
    assert vehicle.rotors.thrust_max_n == pytest.approx(quad.rotors.thrust_max_n, rel=1e-4)
    assert vehicle.rotors.inertia_kg_m2 == quad.rotors.inertia_kg_m2
    assert ("rampup_dist" in capsys.readouterr().err) is (peer == "cpc")
    if peer == "cpc":
        assert (
            track.end_m is None
            and track.gates[3].centre_m == ours.end_m
            and vehicle.rate_max_rad_s == (15.0, 15.0, 0.3)
        )
    else:
        assert track.end_m == ours.end_m and vehicle.rate_max_rad_s == quad.rate_max_rad_s
        assert track.gates[1].outline_m.max(axis=0) == pytest.approx([1.1, 1.0])
        assert Task(track, vehicle, options).keeps_m(1) == pytest.approx(np.full(4, 0.3))
        assert track.gates[1].R_wg[:, 0] @ (track.gates[2].p_wg - track.gates[0].p_wg) > 0  # along the course


@pytest.mark.parametrize(
    ("peer", "old", "new", "words"),
    [
        ("cpc", "gates: [[", "ring: true\ngates: [[", "unknown field 'ring'"),
        ("cpc", "[[0.001, 0, 0]", "[[0.001, 0, 1e-4]", "inertia: must be diagonal"),
        ("togt", "beta: 45.0", "beta: 30.0", "only a beta of 45"),
        ("togt", "RectanglePrisma", "HexagonPrisma", "Gate1: only SingleBall, and RectanglePrisma"),
        ("togt", "0, -90, 160", "0, -60, 160", "Gate1: only SingleBall, and RectanglePrisma"),
        ("togt", "margin: 0.4", "margin: 1.0", r"gates\[0\]: radius: 0: must be positive"),
        (
            "togt",
            "marginW: 0.8",
            "marginW: 2.4",
            r"gates\[1\]: width, height: 0.6 x 2 m: must exceed the margin of 0.6 m",
        ),
        ("togt", "'Gate3'", "'Gate4'", "Gate4: missing"),
        ("togt", "orders: ['Gate2', 'Gate1', 'Gate3']", "orders: Gate2", "orders: must list the names"),
        ("togt", "3.5], vel: [0, 0, 0]", "3.5], vel: [1, 0, 0]", "endState: must be a hover"),
    ],
)
def test_what_is_not_read_of_another_planner_is_one_line(tmp_path, peer, old, new, words):
    with refused(words, ConfigError):
        peer_problem(tmp_path, peer, old, new)


def test_without_a_tolerance_gates_are_rectangles(tmp_path):
    track, vehicle, options = other_problem(tmp_path, "uzh3.yaml", "pass_tolerance: 0.3", "")
    assert track.gates[1].yaw_deg == 20.0 and track.gates[1].half == 1.2
    assert Task(track, vehicle, options).keeps_m(1) == pytest.approx(np.full(4, 0.4))
