"""The first mesh: what the view's window covers does not hang on where nodes happen to fall."""

import numpy as np
import pytest

from gate_racer.planner.course import resolve
from gate_racer.planner.mesh import first_mesh, intervals
from gate_racer.planner.task import PlanOptions, Task
from tests.planner.test_planner import gate, straight


@pytest.mark.parametrize("see", [0.0, 0.3, 0.5, 0.8])
def test_nodes_lie_at_both_ends_of_the_window_of_the_view(see, dcl):
    options = PlanOptions(see=see)
    course = resolve(Task(straight(gate(12.0, 1.0), gate(16.0), gate(40.0, -3.0)), dcl, options))
    durations = np.array([0.05 if leg.inside else 0.3 + 0.37 * i for i, leg in enumerate(course.legs)])
    mesh = first_mesh(course, durations, [leg.target[:, None] for leg in course.legs])
    assert [fractions.sum() for fractions in mesh] == pytest.approx([1.0] * len(course.legs))
    for parts in course.ways:
        done = np.cumsum(intervals([mesh[i] for i in parts], durations[parts]))
        assert len(done) >= 8
        for edge in course.view_window(0.0, done[-1]) if see else ():
            assert np.abs(done - edge).min() < 1e-9
