"""Predicted thrust and pace of displaced lines, and when overtaking is aborted."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.mpc.avoidance import length_ratios, smoothed
from gate_racer.mpc.terms import NR, REFERENCE
from gate_racer.pilot.guidance.rivals import (
    BRAKING_M_S2,
    FASTEST,
    HORIZON,
    STEP_S,
    Overtaking,
    PassingRoom,
    PathState,
    Pursuit,
    fallen_back_m,
    most_closing_m_s,
    paces,
)
from tests.pilot.test_rivals import BEGUN_S, BOX, SPEED, Straight

P, Q, V, U_C, A = (REFERENCE[name].at for name in ("p", "q", "v", "u_c", "a"))
BODY_M = 0.2  # m, of the body
TURN_M, TURNING_M_S, G = 5.0, 12.0, 9.81


def circle():
    """Rows of a level turn to the right, flown at the limit of thrust, and the directions in to its centre."""
    angle = TURNING_M_S / TURN_M * HORIZON
    inward, along = (np.stack([np.cos(a), np.sin(a), 0 * a], axis=1) for a in (angle + math.pi / 2, angle))
    rows = np.zeros((len(HORIZON), NR))
    rows[:, P], rows[:, V], rows[:, A] = -TURN_M * inward, TURNING_M_S * along, TURNING_M_S**2 / TURN_M * inward
    thrust = rows[:, A] - [0.0, 0.0, G]
    rows[:, U_C] = np.linalg.norm(thrust, axis=1)[:, None]
    up = thrust / rows[:, U_C]
    turn = np.stack([1 - up[:, 2], up[:, 1], -up[:, 0], 0 * up[:, 0]], axis=1)  # the shortest, from upright to there
    rows[:, Q] = turn / np.linalg.norm(turn, axis=1, keepdims=True)
    return rows, inward


@pytest.mark.parametrize("step_m", [-1.0, 0.0, 0.7])
def test_the_parallel_line_of_a_circle_is_a_circle(step_m):
    rows, inward = circle()
    assert length_ratios(rows, step_m * inward) == pytest.approx((TURN_M - step_m) / TURN_M)


def test_who_flies_the_line_itself_has_its_pace_and_outside_of_a_bend_less_and_inside_more():
    rows, inward = circle()
    at = {step_m: paces(rows, step_m * inward, 0.95)[5:-5] for step_m in (-0.7, 0.0, 0.7)}
    assert at[0.0] == pytest.approx(0.95)
    assert (at[-0.7] < 0.94).all()
    assert (at[0.7] > 0.96).all() and (at[0.7] <= FASTEST).all()


def test_to_begin_a_step_takes_pace_in_the_direction_of_thrust_only_and_more_across_the_sooner():
    rows, _ = circle()
    least = []
    for seconds in (0.3, 0.6, 1.2):
        share = np.clip(HORIZON / seconds, 0, 1)
        steps = 0.7 * np.outer(share - np.sin(2 * math.pi * share) / (2 * math.pi), [0.0, 0.0, 1.0])
        least.append(paces(rows, steps, 0.95).min())
    assert least[0] < least[1] < least[2] <= 0.95 + 1e-3


def test_steps_that_need_no_acceleration_stay_and_a_jump_becomes_one_that_can_be_flown():
    weights = np.ones(len(HORIZON))
    steady = np.outer(HORIZON, [0.3, -0.2, 0.0]) + [0.1, 0.0, 0.4]
    assert smoothed(steady, weights, STEP_S) == pytest.approx(steady)
    jump = np.where(HORIZON > 1.2, 0.8, 0.0)[:, None] * [0.0, 1.0, 0.0]
    flown = smoothed(jump, weights, STEP_S)
    assert np.abs(np.diff(flown, 2, axis=0)).max() / STEP_S**2 < 15.0 and np.abs(flown - jump)[[0, -1]].max() < 0.01


@pytest.mark.parametrize("lead_m", [-0.3, 0.5, 2.0])
@pytest.mark.parametrize("time_s", [0.3, 1.0])
def test_who_closes_in_as_fast_as_is_allowed_is_just_behind_at_the_opening(lead_m, time_s):
    closing = most_closing_m_s(lead_m, 0.66, time_s)
    assert fallen_back_m(lead_m, closing, time_s) == pytest.approx(0.66)
    t = np.linspace(0.0, time_s, 101)
    gap = lead_m - np.trapezoid(closing - BRAKING_M_S2 * t, t)
    assert gap == pytest.approx(0.66)


def pursuit(lead_m, y_m, rival_pace, pace, line):
    """A rival on the line, `lead_m` ahead of oneself, who is y_m aside."""
    own = PathState(BEGUN_S, pace, np.array([0.0, y_m, 0.0]), np.zeros(3))
    rival = PathState(BEGUN_S + lead_m / SPEED, rival_pace, np.zeros(3), np.zeros(3))
    return Pursuit(line, own, pace, 1.0, rival, rival.at(line, HORIZON), 0.0, lead_m)


def goes_on(lead_m, y_m, opening_s):
    """Whether one who has begun to pass goes on when the rival turns out to be as fast, with an opening ahead."""
    overtaking = Overtaking(PassingRoom(SimpleNamespace(bounds=BOX, obstacles=(), gates=()), BODY_M), BODY_M)
    assert overtaking.tube(1, pursuit(1.6, 0.0, 0.7, 1.0, Straight(9.0))) is not None
    return overtaking.tube(1, pursuit(lead_m, y_m, 1.0, 1.0, Straight(opening_s))) is not None


def test_a_pass_is_given_up_while_one_can_still_fall_back_and_gone_on_with_when_one_no_longer_can():
    assert not goes_on(1.2, 0.0, 1.0)
    assert not goes_on(0.3, -0.7, 1.0)
    assert goes_on(0.3, -0.7, 0.3)
