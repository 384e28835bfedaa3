"""Long courses are solved in stretches first, and every search ends."""

from dataclasses import replace

import pytest

from gate_racer.benchmarks.planner import winding
from gate_racer.planner import search as stretches
from gate_racer.planner.course import resolve
from gate_racer.planner.guess import Guess, solve_point_mass
from gate_racer.planner.planning import make_plan
from gate_racer.planner.problem import TimeOptimalProblem
from gate_racer.planner.search import LEVELS, from_guess, refined
from gate_racer.planner.task import Task
from tests.conftest import ONE_GUESS, refused
from tests.planner.test_hard_courses import course
from tests.planner.test_planner import gate


def test_the_optimum_by_stretches_is_that_of_the_whole(dcl, monkeypatch):
    free = replace(dcl, mixer=None)  # with one, or with more thrust, two optima lie 0.2 % apart
    flight = resolve(Task(winding(4, 2), free, replace(ONE_GUESS, reserve=0.85)))
    point_mass, times = solve_point_mass(flight), []
    for long in (99, 1):
        monkeypatch.setattr(stretches, "LONG", long)
        monkeypatch.setattr(stretches, "STRETCH", 2)
        monkeypatch.setattr(stretches, "AHEAD", 1)
        problem = TimeOptimalProblem(flight)
        best = refined(problem, from_guess(problem, point_mass, Guess("forward", 1.1), 2), LEVELS)
        assert best.success
        times.append(best.total_time)
    assert times[1] == pytest.approx(times[0], rel=1e-3), "refined where its own first solution was coarse"


def test_a_search_ends_in_time_and_a_leg_of_kilometres_is_refused_at_once(dcl):
    with refused(r"no plan within 0\.01 s of CPU time.*limit_s"):
        make_plan(winding(7, 1), dcl, replace(ONE_GUESS, limit_s=0.01))
    bounds = replace(course(gate(10.0)).bounds, high_m=(6000.0, 60.0, 3.0))
    with refused(r"gates\[1\]: lies \d+ m from the previous goal"):
        make_plan(course(gate(10.0), gate(2000.0), bounds=bounds), dcl, ONE_GUESS)
