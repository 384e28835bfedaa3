"""The reference is led out of the tubes of others, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.mpc.avoidance import ACROSS, DOWN, GATE, A, AvoidanceTube, P, V, aside, displace, transported
from gate_racer.mpc.terms import NR

STILL = np.zeros(3)
RIGHT = np.array([0.0, 1.0, 0.0])
TIMES = np.linspace(0.0, 1.0, 21)
OPEN = 1e-3  # 1/m, axes of an opening that does not bind


def line(speed=10.0):
    """Rows that fly north along the x axis."""
    rows = np.zeros((len(TIMES), NR))
    rows[:, P], rows[:, V] = np.outer(speed * TIMES, [1.0, 0, 0]), [speed, 0, 0]
    rows[:, ACROSS], rows[:, DOWN] = [0, OPEN, 0], [0, 0, OPEN]
    return rows


def tube(p_w, v_w=STILL, radius_m=0.8, length_m=1.6):
    """Return the tube around a vehicle at constant velocity."""
    return AvoidanceTube(TIMES, p_w + np.outer(TIMES, v_w), radius_m, length_m, RIGHT)


def test_nobody_in_the_way_moves_nothing():
    assert not aside(line(), TIMES, []).any()
    assert not aside(line(), TIMES, [tube(np.array([2.0, -3.0, 0.0]))]).any()
    assert not aside(line(), TIMES, [tube(np.array([5.0, 3.0, 0.0]))]).any(), "far out on the own side"


@pytest.mark.parametrize("lateral", [-0.5, 0.0, 0.3])
def test_the_line_leaves_near_tubes_on_the_said_side(lateral):
    rows, other = line(), tube(np.array([5.0, lateral, 0.0]))
    steps = aside(rows, TIMES, [other])
    off = rows[:, P] + steps - other.at(TIMES)
    assert (np.linalg.norm(off, axis=1) >= 0.8 - 1e-9).all()
    assert (steps[:, 1] >= 0).all() and not steps[:, [0, 2]].any(), "across the line alone"
    assert not steps[np.abs(rows[:, P][:, 0] - 5.0) > 1.6].any()


def test_who_flies_ahead_is_no_obstacle_and_beside_is_one():
    rows, v_w = line(), np.array([10.0, 0.0, 0.0])
    assert not aside(rows, TIMES, [tube(np.array([1.7, 0.0, 0.0]), v_w)]).any()
    beside = aside(rows, TIMES, [tube(np.array([0.0, -0.3, 0.0]), v_w)])
    assert beside[:, 1] == pytest.approx(0.5)


def test_nobody_is_led_out_of_an_opening_by_another_in_it():
    rows = line()
    rows[:, GATE], rows[10, ACROSS] = [5.0, 0.1, 0.0], [0.0, 1 / 0.4, 0.0]
    steps = aside(rows, TIMES, [tube(np.array([5.0, 0.0, 0.0]), length_m=2.0)])
    assert steps[10] == pytest.approx([0.0, 0.5, 0.0]), "0.4 m from the middle of the opening"
    assert steps[9, 1] > 0.7
    box_w = np.array([[-20.0, -20.0, -20.0], [20.0, 0.4, 20.0]])
    steps = aside(line(), TIMES, [replace(tube(np.array([5.0, 0.0, 0.0])), box_w=box_w)])
    assert steps[:, 1].max() == pytest.approx(0.4), "nor out of a tube's box"


def half_circle(up):
    """Rows north that turn around to the right, or over the top."""
    angle, rows = np.linspace(0.0, np.pi, 41), np.zeros((41, NR))
    rows[:, V] = 10.0 * np.stack(
        [np.cos(angle), *((0 * angle, -np.sin(angle)) if up else (np.sin(angle), 0 * angle))], axis=1
    )
    return rows


@pytest.mark.parametrize("up", [False, True])
def test_a_side_stays_the_same_through_bends_and_upside_down(up):
    rows = half_circle(up)
    along = rows[:, V] / 10.0
    right, above = transported(rows, RIGHT), transported(rows, np.array([0.0, 0.0, -1.0]))
    for side in (right, above):
        assert np.linalg.norm(side, axis=1) == pytest.approx(1.0)
        assert np.einsum("ij,ij->i", side, along) == pytest.approx(0.0, abs=1e-9)
    assert np.einsum("ij,ij->i", right, above) == pytest.approx(0.0, abs=1e-9)
    assert right[-1] == pytest.approx(RIGHT if up else -RIGHT) and above[-1, 2] == pytest.approx(1.0 if up else -1.0)


def test_an_inner_bend_is_flown_at_the_shorter_lines_speed():
    rows, straight = half_circle(up=False), line()
    rows[:, ACROSS], rows[:, DOWN] = [0, OPEN, 0], [0, 0, OPEN]
    rows[:, P] = np.cumsum(rows[:, V], axis=0) * np.pi / 40 / 10 * 4.0  # of 4 m radius
    rows[:, A] = np.gradient(rows[:, V], np.pi / 40 * 4.0 / 10, axis=0)
    times = np.linspace(0.0, np.pi * 4.0 / 10, 41)
    other = AvoidanceTube(times, rows[:, P].copy(), 0.8, 1e3, RIGHT)
    assert displace(rows, times, [other])[5:-5] == pytest.approx(1 - 0.8 / 4.0, abs=0.02)
    assert np.linalg.norm(rows[5:-5, V], axis=1) == pytest.approx(10.0 * (1 - 0.8 / 4.0), rel=0.03)
    assert displace(straight, TIMES, [tube(np.array([5.0, 0.0, 0.0]))]) == pytest.approx(1.0)
