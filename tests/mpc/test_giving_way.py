"""The reference is led out of the tubes of others, and nowhere else."""

import numpy as np
import pytest

from mpc.giving_way import PREDICTED_S, P, Tube, V, aside
from mpc.problem.stage import NR

STILL = np.zeros(3)
RIGHT = np.array([0.0, 1.0, 0.0])
TIMES = np.linspace(0.0, 1.0, 21)


def line(speed=10.0):
    """Rows that fly north along the x axis."""
    rows = np.zeros((len(TIMES), NR))
    rows[:, P], rows[:, V] = np.outer(speed * TIMES, [1.0, 0, 0]), [speed, 0, 0]
    return rows


def test_nobody_in_the_way_moves_nothing():
    rows = line()
    assert not aside(rows, TIMES, []).any()
    assert not aside(rows, TIMES, [Tube(0.0, np.array([2.0, -3.0, 0.0]), STILL, STILL, 0.8, RIGHT)]).any()


@pytest.mark.parametrize("lateral", [-0.5, 0.0, 0.3])
def test_the_line_leaves_each_tube_on_the_side_that_is_said_and_stays_where_that_is_far(lateral):
    rows = line()
    tube = Tube(0.0, np.array([5.0, lateral, 0.0]), STILL, STILL, 0.8, RIGHT)
    steps = aside(rows, TIMES, [tube])
    off = rows[:, P] + steps - tube.at(TIMES)
    assert (np.linalg.norm(off, axis=1) >= 0.8 - 1e-9).all()
    assert (steps[:, 1] >= 0).all() and not steps[:, [0, 2]].any(), "across the line alone"
    assert not steps[np.abs(rows[:, P][:, 0] - 5.0) > 0.8].any()


def test_who_flies_ahead_at_the_same_speed_is_no_obstacle_and_beside_is_one_all_along():
    rows, v_w = line(), np.array([10.0, 0.0, 0.0])
    assert not aside(rows, TIMES, [Tube(0.0, np.array([1.0, 0.0, 0.0]), v_w, STILL, 0.8, RIGHT)]).any()
    beside = aside(rows, TIMES, [Tube(0.0, np.array([0.0, -0.3, 0.0]), v_w, STILL, 0.8, RIGHT)])
    assert beside[:, 1] == pytest.approx(0.5)


def test_an_acceleration_is_believed_for_a_while_and_then_the_velocity_stays():
    tube = Tube(2.0, STILL, np.array([1.0, 0, 0]), np.array([4.0, 0, 0]), 1.0, RIGHT)
    early, end, late = tube.at(2.0 + np.array([0.2, PREDICTED_S, PREDICTED_S + 1.0]))[:, 0]
    assert early == pytest.approx(0.2 + 0.5 * 4.0 * 0.2**2)
    assert late - end == pytest.approx(1.0 + 4.0 * PREDICTED_S)
    assert not tube.at(np.array([0.0])).any(), "before it was told it stood there"
