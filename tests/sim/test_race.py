"""The race on the wire: countdown, GO, false starts, the map, resets and crashes."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.link.messages import (
    UNASKED,
    Ack,
    Arm,
    Collision,
    Odometry,
    PositionTarget,
    RaceStatus,
    Reset,
    Struck,
    TrackMap,
)
from gate_racer.sim.referee import RunStatus
from gate_racer.vehicle.rotation import matrix
from tests.sim.peer import DCL, HOVER, of


def test_the_map_comes_once_before_go_with_the_gates_feet(peer, vq1):
    pilot = peer()
    (told,) = of(TrackMap, pilot.until_go() + pilot.ticks(2.0))
    assert len(told.gates) == 6
    assert told.gates[0].p_w == pytest.approx((-23.298, -0.400, -0.032), abs=1e-4)
    assert told.gates[0].q_wg == pytest.approx((0.7071, 0, 0, 0.7071), abs=1e-4)
    y_w = matrix(told.gates[0].q_wg)[:, 1]
    assert y_w == pytest.approx(vq1.gates[0].R_wg[:, 0], abs=1e-6)  # the direction of flight


def test_a_race_is_scheduled_told_and_started(peer):
    pilot = peer()
    assert all(status.start is None for status in of(RaceStatus, pilot.ticks(2.0)))  # nobody there
    statuses = of(RaceStatus, pilot.until_go() + pilot.ticks(0.5))
    waiting = [status for status in statuses if status.start is not None and not status.go]
    assert waiting and statuses[-1].go and statuses[-1].start == pytest.approx(waiting[0].start)
    assert 3.0 - 1 / DCL.race.status_hz < waiting[0].start - waiting[0].t <= 3.0, "published three seconds before GO"
    assert pilot.race.status is RunStatus.RUNNING


IDLE = replace(HOVER, throttle=0.0)


@pytest.mark.parametrize(
    "idle", [IDLE, replace(IDLE, by_rates=False), replace(IDLE, keep_throttle=True)], ids=["rates", "attitude", "kept"]
)
def test_a_client_may_hold_without_thrust_until_go_and_then_fly(peer, idle):
    pilot = peer(beats=True, strict=True)
    pilot.beat()
    pilot.say(Arm(True))
    for _ in range(round(50 * (DCL.race.lobby_s + DCL.race.countdown_s))):
        pilot.say(idle)
        pilot.ticks(0.025)
    for _ in range(50):
        pilot.say(replace(HOVER, throttle=0.4))
        pilot.ticks(0.025)
    assert pilot.race.status is RunStatus.RUNNING and not pilot.simulator.landed and not pilot.violations


MOTION = [
    HOVER,
    replace(HOVER, by_rates=False),
    PositionTarget(UNASKED, (0.0, 0.0, -1.0)),
    replace(HOVER, throttle=0.01),
]


@pytest.mark.parametrize("command", MOTION, ids=["rates", "attitude", "velocity", "little"])
def test_thrust_in_the_countdown_is_an_unreported_false_start(peer, command):
    pilot = peer()
    pilot.beat()
    pilot.ticks(DCL.race.lobby_s + 0.5)
    pilot.say(command)
    received = pilot.ticks(1.0)
    assert pilot.race.cause.startswith("false start")
    assert of(RaceStatus, received)[-1].start is not None


def test_a_command_in_the_lobby_is_none(peer):
    pilot = peer()
    pilot.say(HOVER)
    pilot.ticks(0.1)
    assert pilot.race.status is RunStatus.WAITING


def test_a_reset_puts_the_vehicle_back_and_counts_down_anew(peer, vq1):
    pilot = peer(pose=True)
    pilot.say(Reset(race=True))  # in no race: not even answered
    assert not of(Ack, pilot.ticks(0.1)) and pilot.simulator.resets == 0
    pilot.until_go()
    pilot.say(Arm(True))
    pilot.say(replace(HOVER, throttle=0.6))
    pilot.ticks(0.5)
    assert np.linalg.norm(pilot.simulator.truth.p_wb - vq1.start.p_wb) > 0.5
    pilot.say(Reset(race=True))
    received = pilot.ticks(0.5)
    assert pilot.simulator.truth.p_wb == pytest.approx(vq1.start.p_wb)
    assert of(Odometry, received)[-1].resets == 1 and not of(RaceStatus, received)[-1].go
    pilot.ticks(DCL.race.settle_s + DCL.race.countdown_s)
    assert pilot.race.status is RunStatus.RUNNING


def test_a_crash_floods_collisions_and_disarms(peer):
    pilot = peer()
    pilot.until_go()
    pilot.say(Arm(True))
    pilot.say(replace(HOVER, omega=(0.0, -1.0, 0.0), throttle=0.5))
    received = pilot.ticks(6.0)
    hits = of(Collision, received)
    assert len(hits) >= DCL.collision_copies and hits[0].struck is Struck.ENVIRONMENT and hits[0].impulse > 1
    assert not pilot.simulator.armed
