"""Long courses, and an end to every search."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.benchmarks.planner import winding
from gate_racer.common.errors import UserError
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions
from tests.planner.test_hard_courses import course
from tests.planner.test_planner import gate

ONE = PlanOptions(guesses=1)


def test_a_search_ends_in_time_with_one_line(dcl):
    with pytest.raises(UserError, match=r"no plan within 0\.01 s of CPU time.*limit_s") as error:
        make_plan(winding(7, 1), dcl, replace(ONE, limit_s=0.01))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("metres", [2000.0, 5000.0])
def test_a_leg_of_kilometres_is_refused_at_once(metres, dcl):
    bounds = replace(course(gate(10.0)).bounds, high_m=(6000.0, 60.0, 3.0))
    with pytest.raises(UserError, match=r"gates\[1\]: lies \d+ m from the previous goal"):
        make_plan(course(gate(10.0), gate(metres), bounds=bounds), dcl, ONE)


@pytest.mark.parametrize("limit", [0.0, -1.0, np.nan])
def test_a_limit_is_positive(limit):
    with pytest.raises(UserError, match="limit_s"):
        PlanOptions(limit_s=limit)
