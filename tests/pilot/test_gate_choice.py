"""The next gate of an unknown course is the nearest ahead, until the simulator credits another."""

import math

import numpy as np
import pytest

from gate_racer.estimation.estimator import Landmark
from gate_racer.pilot.guidance.explorer import STALE_S, GateChoice

NOW, HERE = 10.0, np.zeros(3)


def gate(number, x, y=0.0, z=0.0, yaw=0.0, last_t=NOW):
    return Landmark(number, np.array([x, y, z]), 0.01 * np.eye(3), yaw, seen=50, views=2, last_t=last_t)


STACKED = [gate(0, 8.0), gate(1, 8.0, z=1.98)]


def fly(choice, gates, p_w=HERE, course_yaw=0.0):
    """Choose a gate and fly through it; return it."""
    chosen = choice.choose(gates, p_w, course_yaw, NOW)
    choice.flown_through()
    return chosen


def test_it_is_the_nearest_one_ahead_that_was_seen_lately_and_not_yet_flown_through():
    gates = [gate(0, 20.0), gate(1, 8.0), gate(2, -7.0), gate(3, 5.0, last_t=NOW - STALE_S - 1.0)]
    choice = GateChoice(counted=False)
    assert [fly(choice, gates).number for _ in range(3)] == [1, 2, 0]
    assert fly(choice, gates) is None and choice.passed == [1, 2, 0]


@pytest.mark.parametrize("yaw", [0.4, 0.4 + math.pi])
def test_it_is_flown_through_from_the_side_that_the_vehicle_is_on(yaw):
    """Whichever side it was first seen from, until it is passed or given up."""
    choice = GateChoice(counted=False)
    chosen = choice.choose([gate(0, 8.0, yaw=yaw)], HERE, 0.0, NOW)
    assert chosen.ahead @ [1.0, 0.0, 0.0] > 0
    missed = choice.choose([gate(0, 8.0, yaw=yaw)], np.array([10.0, 2.0, 0.0]), 0.0, NOW)
    assert missed.ahead == pytest.approx(chosen.ahead)


def test_of_two_stacked_gates_each_is_flown_through():
    choice = GateChoice(counted=False)
    assert [fly(choice, STACKED).number for _ in range(2)] == [0, 1]


def test_a_way_that_is_not_credited_is_left_out_until_another_is():
    choice = GateChoice(counted=True)
    assert fly(choice, STACKED).number == 0
    choice.check_credit()
    assert not choice.passed and fly(choice, STACKED).number == 1
    choice.credit(1)
    choice.check_credit()
    assert choice.passed == [1] and fly(choice, STACKED).number == 0


def test_with_no_other_gate_the_opposite_way_is_tried():
    choice = GateChoice(counted=True)
    first = fly(choice, STACKED[:1])
    choice.check_credit()
    again = fly(choice, STACKED[:1])
    assert again.ahead == pytest.approx(-first.ahead)
    choice.check_credit()
    assert fly(choice, STACKED[:1]) is None


def test_a_gate_credited_late_counts():
    choice = GateChoice(counted=True)
    fly(choice, STACKED)
    choice.check_credit()
    choice.credit(1)
    assert choice.passed == [0]
