"""Properties of each wire profile: rates, stamps, signs and gains."""

import math
from dataclasses import replace

import numpy as np
import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import (
    Attitude,
    AttitudeTarget,
    Heartbeat,
    Imu,
    LocalPosition,
    Motors,
    Odometry,
    RaceStatus,
    VideoFrame,
)
from gate_racer.link.server import ServerCodec
from gate_racer.link.video import HEADER, datagrams
from gate_racer.sim.simulator import Simulator
from gate_racer.sim.worlds.world import as_believed
from gate_racer.vehicle.rotation import matrix
from tests.sim.peer import DCL, SPEC, of

# Rates, stamps and signs of the real builds.


def test_dcl_rates_are_as_observed(peer):
    received = peer(pose=True).ticks(10.0)
    hz = {
        kind: len(of(kind, received)) / 10
        for kind in (Heartbeat, Imu, Attitude, Motors, LocalPosition, Odometry, RaceStatus)
    }
    wanted = {Heartbeat: 10, Imu: 107, Attitude: 117, Motors: 95, LocalPosition: 95, Odometry: 73, RaceStatus: 4}
    assert hz == pytest.approx(wanted, rel=0.03)


def test_imu_stamps_step_by_7_and_14_ms_and_samples_repeat(peer):
    imu = of(Imu, peer().ticks(10.0))
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


def test_the_pose_is_told_only_where_it_is_asked_for(peer):
    assert not [m for m in peer().ticks(1.0) if isinstance(m, LocalPosition | Odometry)]


def raw(profile, message):
    """The fields on the wire."""
    (packet,) = ServerCodec(profile).encode(message)
    return dialect.MAVLink(None).decode(bytearray(packet))


def test_dcl_signs_stand_on_the_wire_as_observed():
    imu = raw(DCL, Imu(0.0, (1, 2, 3), (0.25, 0.5, 0.75)))
    assert (imu.xacc, imu.yacc, imu.zacc) == (1, 2, 3)
    assert (imu.xgyro, imu.ygyro, imu.zgyro) == (-0.25, -0.5, -0.75)
    pad = Attitude(0.0, (math.cos(-0.155), 0.0, math.sin(-0.155), 0.0))  # nose down: reads up
    assert raw(DCL, pad).pitch == pytest.approx(0.31, abs=1e-3)
    told = raw(DCL, Odometry(0.0, (1, 2, 3), (0.5, 0.5, 0.5, 0.5), (4, 5, 6), (1, 1, 1), 3))
    assert told.q == [0.5, -0.5, 0.5, -0.5] and (told.rollspeed, told.pitchspeed, told.yawspeed) == (-1, -1, 1)


def test_mask_128_turns_faster_and_144_the_other_way():
    def omega(mask):
        target = dialect.MAVLink_set_attitude_target_message(0, 1, 200, mask, (1, 0, 0, 0), 1.0, 0.0, 0.0, 0.5)
        (received,) = ServerCodec(DCL).decode(target.pack(dialect.MAVLink(None)))
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
