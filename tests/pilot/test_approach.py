"""A gate that no map tells of is flown through by fresh sights from two places alone; else it is looked at from afar."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.estimation.estimator import Landmark
from gate_racer.pilot.guidance.explorer import APPROACH_BRAKE as BRAKE
from gate_racer.pilot.guidance.explorer import CLIMB, CROSSING, FAST, FRESH_S, STAND_OFF_M, approach, offset

YAW = 0.6  # rad
GATE = Landmark(0, np.array([20.0, 5.0, -3.0]), 0.01 * np.eye(3), YAW, seen=50, views=2, last_t=10.0)
NOW = 10.1  # s


def before(ahead_m, right_m=0.0, below_m=0.0):
    """(3,) m: a place in the gate's axes."""
    right = np.array([-np.sin(YAW), np.cos(YAW), 0.0])
    return GATE.p_w - ahead_m * GATE.ahead + right_m * right + below_m * np.array([0.0, 0.0, 1.0])


def along(aim):
    return float(aim.v_w @ GATE.ahead)


@pytest.mark.parametrize("ahead_m", [1.0, 3.0, 6.0])
def test_a_gate_just_seen_from_two_places_is_flown_through(ahead_m):
    aim = approach(before(ahead_m), GATE, NOW, 1.0)
    assert aim.v_w == pytest.approx(CROSSING * GATE.ahead) and not aim.accel_w.any()


@pytest.mark.parametrize(
    "gate", [replace(GATE, last_t=NOW - FRESH_S - 0.1), replace(GATE, views=1)], ids=["stale", "once"]
)
def test_one_that_was_not_is_looked_at_from_afar(gate):
    assert along(approach(before(4.0), gate, NOW, 1.0)) < 0
    there = approach(before(STAND_OFF_M), gate, NOW, 0.5)
    assert np.linalg.norm(there.v_w) < 0.1 and np.linalg.norm(there.accel_w) > 1.0


@pytest.mark.parametrize(
    "place", [before(1.0, 0.8), before(1.0, 0.0, 0.7), before(-1.0, 2.0)], ids=["side", "below", "beside"]
)
def test_an_approach_that_would_hit_the_frame_is_repeated(place):
    aim = approach(place, GATE, NOW, 1.0)
    assert along(aim) < 0


@pytest.mark.parametrize("ahead_m", [8.0, 12.0, 20.0, 60.0])
def test_speed_at_a_far_gate_can_be_braked_to_that_of_crossing(ahead_m):
    speed = along(approach(before(ahead_m), GATE, NOW, 1.0))
    assert CROSSING < speed <= FAST
    assert (speed**2 - CROSSING**2) / (2 * BRAKE) <= ahead_m - STAND_OFF_M + 1e-9


def test_height_is_reached_before_the_gate_is():
    place = before(15.0, 0.0, -12.0)
    aim = approach(place, GATE, NOW, 1.0)
    assert aim.v_w[2] == pytest.approx(CLIMB)
    assert 0 < along(aim) < (15.0 - STAND_OFF_M) * CLIMB / 9.0


@pytest.mark.parametrize("across_m", [(0.0, 0.9), (1.2, 0.0), (0.0, -1.5)])
def test_one_that_was_missed_is_flown_back_past_clear_of_its_frame(across_m):
    """Integrate the aims from behind the gate, until the vehicle is before it."""
    p_w, dt = before(-1.5, *across_m), 0.01
    for _ in range(1000):
        beyond, across = offset(p_w, GATE)
        if beyond < -0.5:
            break
        assert abs(beyond) > 0.4 or max(np.hypot(across[0], across[1]), abs(across[2])) > 1.36 + 0.2, "hits the frame"
        p_w = p_w + dt * approach(p_w, GATE, NOW, 1.0).v_w
    assert beyond < -0.5
