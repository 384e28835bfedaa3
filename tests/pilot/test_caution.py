"""A flight in doubt is a slower one, and one that is not is as fast as planned."""

import math

import numpy as np
import pytest

from gate_racer.pilot.guidance.plan_follower import LATE, SLOWEST, UNSEEN, Caution

PERIOD_S, RADIUS_M = 1 / 60, 0.3


def asked(gate, sigma_m, radius_m=RADIUS_M):
    """The pace allowed with one standard deviation in every direction."""
    return Caution(radius_m, PERIOD_S).pace(0.0, gate, np.diag([sigma_m**2] * 3))


def test_the_pace_falls_with_the_doubt_across_the_opening_and_never_to_rest(vq1):
    gate = vq1.gates[0]
    room = gate.half - RADIUS_M
    paces = [asked(gate, share * room) for share in (0.0, 0.49, 0.6, 0.8, 1.0, 5.0, math.inf)]
    assert paces[:2] == [math.inf, math.inf] and paces[-3:] == pytest.approx([SLOWEST] * 3)
    assert paces == sorted(paces, reverse=True) and SLOWEST < paces[3] < paces[2] < 1
    cov = np.diag([0.01, 0.4, 0.01]) ** 2
    assert Caution(RADIUS_M, PERIOD_S).pace(0.0, vq1.gates[0], cov) == pytest.approx(asked(vq1.gates[0], 0.4))
    gate, sure, caution = vq1.gates[0], 1e-6 * np.eye(3), Caution(RADIUS_M, PERIOD_S)
    along, *across = (0.4**2 * np.outer(axis, axis) for axis in gate.R_wg.T)
    assert caution.pace(0.0, gate, sure, along) == math.inf
    assert [caution.pace(0.0, gate, sure, cov) for cov in across] == pytest.approx([asked(gate, 0.4)] * 2)


@pytest.mark.parametrize(("cov", "radius_m"), [(None, RADIUS_M), (np.eye(3), 2.0)])
def test_without_doubt_or_without_room_nothing_is_slowed(cov, radius_m, vq1):
    assert Caution(radius_m, PERIOD_S).pace(0.0, vq1.gates[0], cov) == math.inf


def test_a_gate_is_looked_for_while_its_place_across_the_opening_is_in_doubt(vq1):
    gate, caution = vq1.gates[0], Caution(RADIUS_M, PERIOD_S)
    sigma = 1.1 * UNSEEN * (gate.half - RADIUS_M)
    along, *across = (sigma**2 * np.outer(axis, axis) for axis in gate.R_wg.T)
    assert not caution.looks(gate, along) and all(caution.looks(gate, cov) for cov in across)
    assert not caution.looks(gate, 0.5 * across[0]) and not caution.looks(gate, None)
    assert not Caution(2.0, PERIOD_S).looks(gate, across[0]), "nobody fits"


@pytest.mark.parametrize(("hz", "pace"), [(60.0, math.inf), (50.0, math.inf), (30.0, LATE * 0.5), (5.0, SLOWEST)])
def test_steered_less_often_it_flies_slower(hz, pace, vq1):
    caution, gate = Caution(RADIUS_M, PERIOD_S), vq1.gates[0]
    paces = [caution.pace(k / hz, gate, None) for k in range(round(5 * hz))]
    assert paces[-1] == pytest.approx(pace, rel=0.01)
