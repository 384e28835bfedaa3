"""States of rivals as received: each datagram counts once, in the order of its stamp."""

import numpy as np
import pytest

from gate_racer.estimation.rivals import ReceivedRivals
from gate_racer.link.messages import RivalState


def state(t: float) -> RivalState:
    return RivalState(t=t, place=2, p_w=(10.0 * t * t, 0.0, 0.0), v_w=(20.0 * t, 0.0, 0.0))


@pytest.fixture
def rivals() -> ReceivedRivals:
    received = ReceivedRivals(1)
    for k in range(100, 140):
        received.receive(state(k * 0.02))
    return received


@pytest.mark.parametrize("t", [139 * 0.02, 135 * 0.02, 101 * 0.02], ids=["doubled", "overtaken", "late"])
def test_a_copy_and_a_late_datagram_change_nothing(rivals, t):
    (before,) = rivals.estimates()
    rivals.receive(state(t))
    assert rivals.estimates() == [before] and before.a_w[0] == pytest.approx(20.0, rel=0.05)


def test_another_race_begins_anew(rivals):
    rivals.receive(state(0.5))
    (now,) = rivals.estimates()
    assert now.t == 0.5 and np.all(now.a_w == 0.0)
