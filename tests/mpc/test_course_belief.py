"""A course that begins off the plan's start comes to the plan's line at the first gate."""

import numpy as np
import pytest

from gate_racer.mpc.control import CourseBelief


def test_the_line_begins_where_it_is_said_without_a_slope_and_is_the_plans_own_from_the_first_gate_on():
    belief, offset = CourseBelief(np.array([1.0, 2.5])), np.array([0.5, -1.0, 0.2])
    belief.set_start_offset(offset)
    moved, moving = belief.line(np.array([0.0, 0.5, 1.0, 2.0]))
    assert moved[0] == pytest.approx(offset) and moved[1] == pytest.approx(offset / 2) and not moved[2:].any()
    assert not moving[[0, 2, 3]].any() and moving[1] @ offset < 0
