"""The pilot waits for GO, arms again, and believes no race but its own."""

from types import SimpleNamespace

import numpy as np
import pytest

from link.messages import Ack, Arm, Heartbeat, RaceStatus
from link.profile import load_profile
from pilot.pilot import Phase, Pilot


class Clockwork:
    """As much of an estimator as the wait on the pad needs."""

    def __init__(self):
        self.odometry = SimpleNamespace(pose=SimpleNamespace(t=10.0))
        self.releases = 0

    def release(self):
        self.releases += 1

    def state(self):
        return SimpleNamespace(t=10.0, p_wb=np.zeros(3), v_w=np.zeros(3))


@pytest.fixture
def pilot(vq1, dcl):
    pilot = Pilot(vq1, dcl, load_profile("dcl"), Clockwork(), None, None, 1)
    pilot.phase, pilot._fly = Phase.WAIT_GO, lambda t: []
    return pilot


def status(t, start):
    return RaceStatus(t, start, None, 0, None)


@pytest.mark.parametrize(
    ("statuses", "armed"),
    [
        ([], False),
        ([status(10.0, None)], False),
        ([status(10.0, 12.0)], False),
        ([status(10.0, 12.0), status(11.9, 12.0)], False),
        ([status(10.0, 12.0), status(12.0, 12.0)], True),
        ([status(10.0, 3.0)], False),  # an old race
        ([status(10.0, None), status(12.1, 12.0)], True),
    ],
)
def test_it_arms_at_go_and_not_before(pilot, statuses, armed):
    for told in statuses:
        pilot.hear(told)
    assert pilot.act() == ([Arm(True)] if armed else [])


def at_launch(pilot):
    pilot.hear(status(10.0, 12.0))
    pilot.hear(status(12.0, 12.0))
    pilot.act()
    pilot.hear(Ack(12.0, True))
    pilot.act()
    assert pilot.phase is Phase.LAUNCH and pilot.go_t == 12.0
    return pilot


def test_it_arms_again_when_the_start_disarms_it(pilot):
    at_launch(pilot)
    pilot.estimator.odometry.pose.t = 13.0
    pilot.hear(Heartbeat(12.1, False))
    assert pilot.act() == [Arm(True)]
    pilot.hear(Ack(12.2, True))
    pilot.act()
    assert pilot.phase is Phase.LAUNCH and pilot.estimator.releases == 1


def test_a_race_that_starts_anew_ends_the_flight(pilot):
    at_launch(pilot).hear(status(13.0, 20.0))
    assert pilot.phase is Phase.ABORTED and pilot.reason == "the race was started anew"
