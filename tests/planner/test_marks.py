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
    with refused(r"needs one quad_\*\.yaml beside it", ConfigError):
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


def test_without_a_tolerance_gates_are_rectangles(tmp_path):
    track, vehicle, options = other_problem(tmp_path, "uzh3.yaml", "pass_tolerance: 0.3", "")
    assert track.gates[1].yaw_deg == 20.0 and track.gates[1].half == 1.2
    assert Task(track, vehicle, options).keeps_m(1) == pytest.approx(np.full(4, 0.4))
