"""An explorer that is told of walls keeps away from them, and of gates it sees beyond them."""

import math

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.estimation.estimator import Landmark
from gate_racer.pilot.guidance.explorer import MARGIN_M, NEAR_M, OPEN, STAND_OFF_M, Room, approach, parse_room

ROOM = Room(19.0, 12.7, 5.0, 4.3, 5.4, 0.6)
RESPONSE_S = 0.5  # s, of the velocity controller: its gain is 2/s


def test_a_vehicle_that_lags_its_aim_never_comes_to_a_side_whichever_way_it_flies():
    """Fly at 9 m/s from the middle of the room, with a first-order response of the velocity."""
    rng, dt = np.random.default_rng(2), 0.02
    low, high = ROOM.corners
    for _ in range(15):
        way = rng.standard_normal(3)
        p_w, v_w, aimed_w = np.array([7.0, 4.0, -2.5]), np.zeros(3), 9.0 * way / np.linalg.norm(way)
        for _ in range(500):
            v_w = v_w + dt / RESPONSE_S * (ROOM.slowed(aimed_w, p_w) - v_w)
            p_w = p_w + dt * v_w
            assert (p_w > low + MARGIN_M / 3).all() and (p_w < high - MARGIN_M / 3).all()
        assert np.linalg.norm(v_w) < 0.3


def test_aims_keep_their_direction_far_from_all_sides_and_lead_back_from_beyond():
    v_w = np.array([3.0, -1.0, 0.5])
    assert OPEN.slowed(v_w, np.array([500.0, 0.0, 20.0])) == pytest.approx(v_w)
    slow = ROOM.slowed(v_w, np.array([16.5, 4.0, -2.5]))
    assert slow == pytest.approx(np.linalg.norm(slow) / np.linalg.norm(v_w) * v_w) and 0 < slow[0] < 3.0
    back = ROOM.slowed(np.array([2.0, 0.0, 0.0]), np.array([18.8, 4.0, -2.5]))
    assert back[0] < 0


def test_a_gate_near_a_wall_is_looked_at_from_inside():
    """Its usual stand-off lies 2 m beyond the wall."""
    gate = Landmark(0, np.array([0.5, 4.0, -1.5]), 0.01 * np.eye(3), 0.0, seen=50, views=1, last_t=10.0)
    ahead_m = ROOM.reach(gate.p_w, -gate.ahead, STAND_OFF_M)
    assert ahead_m == pytest.approx(5.5 - MARGIN_M) and ahead_m < NEAR_M
    p_w = gate.p_w - (ahead_m + 0.5) * gate.ahead + [0.0, 1.5, 0.0]
    for _ in range(1000):
        p_w = p_w + 0.01 * ROOM.slowed(approach(p_w, gate, 10.1, 1.0, ROOM).v_w, p_w)
    assert p_w == pytest.approx(gate.p_w - ahead_m * gate.ahead, abs=0.1)


def test_places_and_manoeuvres_are_moved_inside():
    assert ROOM.contains(np.zeros(3)) and not ROOM.contains(np.array([0.0, 0.0, 0.9]))
    assert ROOM.inside(np.array([30.0, 0.0, -9.0])) == pytest.approx([19.0 - MARGIN_M, 0.0, MARGIN_M - 5.4])
    box = ROOM.around(np.array([0.0, 0.0, -1.0]), 12.0, 10.0)
    assert box.low_m == (-5.0, -4.3, -5.4) and box.high_m == (12.0, 12.0, -1.0)


@pytest.mark.parametrize(
    "text", ["", "1,2,3", "9,9,9,9,9,0.5,1", "9,9,x,9,9,0", "9,9,0.8,9,9,0", "9,9,9,9,9,-1", "nan,9,9,9,9,0"]
)
def test_a_room_that_is_none_is_refused_in_one_line(text):
    with pytest.raises(UserError, match="expected NORTH,EAST,SOUTH,WEST,UP,DOWN") as refused:
        parse_room(text)
    assert "\n" not in str(refused.value)


def test_a_side_that_does_not_exist_is_infinitely_far():
    assert parse_room("19,12.7,5,4.3,inf,0.6") == Room(19.0, 12.7, 5.0, 4.3, math.inf, 0.6)
