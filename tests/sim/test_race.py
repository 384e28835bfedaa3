"""Each wire profile has its rates, stamps, signs and gains, and the race its countdown, false starts, map and resets."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import (
    UNASKED,
    Ack,
    Arm,
    Attitude,
    AttitudeTarget,
    Collision,
    Heartbeat,
    Imu,
    LocalPosition,
    Motors,
    Odometry,
    PositionTarget,
    RaceStatus,
    Reset,
    Struck,
    TrackMap,
    VideoFrame,
)
from gate_racer.link.server import ServerCodec
from gate_racer.link.video import HEADER, datagrams
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.vehicle.rotation import matrix
from tests.mavlink import attitude_target, command_long, packed, unpacked
from tests.sim.peer import DCL, HOVER, SPEC, of


def test_dcl_rates_are_as_observed_imu_stamps_step_by_7_and_14_ms_and_samples_repeat(peer):
    received = peer(pose=True).ticks(10.0)
    wanted = {Heartbeat: 10, Imu: 107, Attitude: 117, Motors: 95, LocalPosition: 95, Odometry: 73, RaceStatus: 4}
    assert {kind: len(of(kind, received)) / 10 for kind in wanted} == pytest.approx(wanted, rel=0.03)
    imu = of(Imu, received)
    steps = np.diff([sample.t for sample in imu])
    assert set(np.round(steps * 1e3, 1)) == {6.9, 13.9}
    repeats = [a.accel == b.accel and a.gyro == b.gyro for a, b in zip(imu, imu[1:], strict=False)]
    assert np.mean(repeats) == pytest.approx(0.29, abs=0.01)


def test_images_come_twice_27_7_or_34_7_ms_apart(vq1, dcl):
    simulator = Simulator(as_believed(vq1, dcl), DCL, 0)
    seen = [tick.exposure.t for tick in (simulator.tick() for _ in range(600)) if tick.exposure]
    assert set(np.round(np.diff(seen) * 1e3, 1)) == {27.8, 34.7}
    first, again = datagrams(VideoFrame(seen[0], 1, b"jpeg"), DCL)
    stamp_ns = HEADER.unpack_from(first)[-1]
    assert first == again and stamp_ns % 100 == 0
    assert stamp_ns / 1e9 - seen[0] == pytest.approx(DCL.video_epoch_s, abs=1e-6)


def raw(profile, message):
    return unpacked(b"".join(ServerCodec(profile).encode(message)))


def test_dcl_signs_stand_on_the_wire_as_observed():
    imu = raw(DCL, Imu(0.0, (1, 2, 3), (0.25, 0.5, 0.75)))
    assert (imu.xacc, imu.yacc, imu.zacc) == (1, 2, 3)
    assert (imu.xgyro, imu.ygyro, imu.zgyro) == (-0.25, -0.5, -0.75)
    pad = Attitude(0.0, (math.cos(-0.155), 0.0, math.sin(-0.155), 0.0))  # nose down: reads up
    assert raw(DCL, pad).pitch == pytest.approx(0.31, abs=1e-3)
    told = raw(DCL, Odometry(0.0, (1, 2, 3), (0.5, 0.5, 0.5, 0.5), (4, 5, 6), (1, 1, 1), 3))
    assert (told.frame_id, told.child_frame_id) == (dialect.MAV_FRAME_LOCAL_NED, dialect.MAV_FRAME_BODY_NED)
    assert told.q == [0.5, -0.5, 0.5, -0.5] and (told.rollspeed, told.pitchspeed, told.yawspeed) == (-1, -1, 1)


def test_mask_128_turns_faster_and_144_the_other_way():
    def omega(mask):
        (received,) = ServerCodec(DCL).decode(packed(attitude_target(mask, rates=(1.0, 0.0, 0.0))))
        return received.omega[0]

    assert omega(128) == pytest.approx(2.5, abs=0.1) and omega(144) == pytest.approx(-0.98)


@pytest.mark.parametrize("bit", [True, False])
@pytest.mark.parametrize("profile", [SPEC, DCL], ids=lambda profile: profile.name)
def test_both_ends_agree_on_the_meaning_of_messages(profile, bit):
    profile = replace(profile, rates_rad_s_bit=bit)
    client, server = ClientCodec(profile), ServerCodec(profile)
    rates = AttitudeTarget((1.0, 0.0, 0.0, 0.0), (3.0, -2.0, 0.5), 0.5)
    (received,) = server.decode(client.encode(rates, 0.0))
    assert received.omega == pytest.approx(rates.omega, abs=1e-6)
    told = [
        Imu(1.0, (1, 2, 3), (0.5, -0.25, 0.125)),
        Odometry(1.0, (1, 2, 3), (0.5, -0.5, 0.5, 0.5), (4, 5, 6), (1, 2, 4), 3),
        LocalPosition(1.0, (1, 2, 3), (4, 5, 6)),
        Motors(1.0, (0.25, 0.5, 0.75, 1.0)),
    ]
    assert [client.decode(packet)[0] for message in told for packet in server.encode(message)] == told
    (attitude,) = client.decode(server.encode(Attitude(1.0, (0.5, -0.5, 0.5, 0.5)))[0])
    assert np.allclose(matrix(attitude.q_wb), matrix((0.5, -0.5, 0.5, 0.5)), atol=1e-3)


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


MOTION = HOVER, replace(HOVER, by_rates=False), PositionTarget(UNASKED, (0.0, 0.0, -1.0)), replace(HOVER, throttle=0.01)


@pytest.mark.parametrize("command", MOTION, ids=["rates", "attitude", "velocity", "little"])
def test_thrust_in_the_countdown_is_an_unreported_false_start(peer, command):
    pilot = peer()
    pilot.beat()
    pilot.ticks(DCL.race.lobby_s + 0.5)
    pilot.say(command)
    received = pilot.ticks(1.0)
    assert pilot.race.cause.startswith("false start")
    assert of(RaceStatus, received)[-1].start is not None


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


@pytest.mark.parametrize(
    "first",
    [
        dialect.MAVLink_timesync_message(5, 0),
        command_long(dialect.MAV_CMD_SET_MESSAGE_INTERVAL, 30, 1e4),
    ],
)
def test_a_client_s_first_message_schedules_the_race_whatever_it_says(peer, first):
    pilot = peer()
    pilot.bytes(packed(first))
    received = pilot.ticks(DCL.race.lobby_s + DCL.race.countdown_s + 0.5)
    assert of(TrackMap, received) and of(RaceStatus, received)[-1].go
