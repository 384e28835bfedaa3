"""Who gives way to whom, by what is told of rivals."""

import math

import numpy as np
import pytest

from estimation.estimator import State
from link.client import ClientCodec
from link.messages import RivalState
from link.profile import load_profile
from link.server import ServerCodec
from pilot.guidance.rivals import LEAST, NEAR_M, OLD_S, ROOM_M, RivalWatch

GOAL = np.array([20.0, 0.0, 0.0])
HERE = State(1.0, np.zeros(3), np.array([1.0, 0, 0, 0]), np.array([10.0, 0, 0]), np.zeros(3), np.zeros((9, 9)), 0.0)


def way(p_w, place=1, own=2, t=1.0):
    watch = RivalWatch(own, 0.2)
    watch.hear(RivalState(t, place, p_w, (10.0, 0.0, 0.0)))
    return watch.way(HERE, GOAL, 1.0)


def test_who_is_behind_gives_way_and_who_is_ahead_flies_as_if_alone():
    assert len(way((2.0, 0.5, 0.0), place=2, own=1).tubes) == 1
    assert way((-2.0, 0.5, 0.0)).tubes == [] and way((-2.0, 0.5, 0.0)).pace == math.inf


def test_side_by_side_exactly_one_of_two_gives_way():
    for lead in (-0.2, 0.0, 0.2):
        first, second = way((lead, -1.0, 0.0), place=2, own=1), way((-lead, 1.0, 0.0), place=1, own=2)
        assert [len(first.tubes), len(second.tubes)] == [0, 1]


def test_it_falls_back_until_there_is_room_and_then_keeps_its_pace():
    paces = [way((lead, 0.3, 0.0)).pace for lead in (0.0, ROOM_M / 2, ROOM_M - 1e-6)]
    assert LEAST <= paces[0] < paces[1] < paces[2] == pytest.approx(1.0), "as fast as the one ahead, once there is room"
    assert way((ROOM_M + 0.1, 0.3, 0.0)).pace == math.inf


def test_it_stays_on_its_own_side():
    assert way((0.5, 1.0, 0.0)).tubes[0].side_w == pytest.approx([0.0, -1.0, 0.0])


@pytest.mark.parametrize(("p_w", "t"), [((NEAR_M + 1.0, 0.0, 0.0), 1.0), ((1.0, 0.0, 0.0), 1.0 - 2 * OLD_S)])
def test_who_is_far_or_was_told_of_long_ago_does_not_count(p_w, t):
    assert way(p_w, t=t).tubes == []


@pytest.mark.parametrize("place", [0, 2, 9, 65535])
def test_its_own_place_and_places_that_there_are_not_do_not_count(place):
    assert way((1.0, 0.0, 0.0), place=place).tubes == []


def test_an_acceleration_shows_in_what_is_told():
    watch = RivalWatch(2, 0.2)
    for k in range(41):
        t = k / 40
        watch.hear(RivalState(t, 1, (1.0 + 4.0 * t**2, 0.0, 0.0), (8.0 * t, 0.0, 0.0)))
    assert watch.way(HERE, GOAL, 1.0).tubes[0].a_w == pytest.approx([8.0, 0.0, 0.0], abs=0.01)


def test_a_rival_s_place_goes_over_the_wire():
    profile, told = load_profile("spec"), RivalState(12.5, 2, (1.5, -2.25, 0.5), (20.0, 0.5, -1.0))
    datagrams = ServerCodec(profile).encode(told)
    assert [message for datagram in datagrams for message in ClientCodec(profile).decode(datagram)] == [told]
    broken = ServerCodec(profile).encode(RivalState(12.5, 2, (math.nan, 0.0, 0.0), (0.0, 0.0, 0.0)))
    assert [message for datagram in broken for message in ClientCodec(profile).decode(datagram)] == []
