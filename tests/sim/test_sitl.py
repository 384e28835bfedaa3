"""Betaflight's own program as the flight controller: what it is told, and, where BETAFLIGHT_SITL names it, how it flies."""

import math
import os
import socket
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.messages import Attitude, Imu
from gate_racer.link.msp.messages import Channels, Code, Direction, DisableFlag, Frame, Parser, StatusEx, pack
from gate_racer.link.msp.profile import load_betaflight
from gate_racer.sim.betaflight.sitl import SitlController, firmware, motion, order
from gate_racer.sim.betaflight.station import BetaflightStation
from gate_racer.sim.physics.plant import RotorsPlant
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import from_euler, matrix
from gate_racer.vehicle.vehicle import Rotors, load_vehicle

BF, ARCHER = load_betaflight("betaflight"), load_vehicle("archer")
PROGRAM = os.environ.get("BETAFLIGHT_SITL", "")
INSTALLED = pytest.mark.skipif(not PROGRAM, reason="BETAFLIGHT_SITL names no program")


def test_the_firmware_converts_a_packet_to_the_profile_s_counts():
    sample, q = Imu(0.0, (1.5, -2.0, -9.0), (0.5, -1.0, 2.0)), from_euler(0.3, -0.2, 1.0)
    _, *values = struct.unpack("<17d", motion(BF, sample, Attitude(0.0, tuple(q.tolist()))))
    rates, force, (w, x, y, z) = np.array(values[:3]), np.array(values[3:6]), values[6:10]
    wire = BF.raw_imu(sample.accel, sample.gyro)
    assert np.allclose(-force / GRAVITY * 256, wire.accel)  # target.c: updateState
    assert np.allclose(np.degrees(rates * [1, -1, -1]) * BF.gyro_counts_per_deg_s, wire.gyro, atol=0.5)
    R = matrix(np.array([w, x, y, z]))  # imu.c: imuUpdateEulerAngles
    roll, pitch, yaw = math.atan2(R[2, 1], R[2, 2]), math.pi / 2 - math.acos(-R[2, 0]), -math.atan2(R[1, 0], R[0, 0])
    told = BF.raw_attitude(q)
    angles = told.roll_ddeg / 10, told.pitch_ddeg / 10, told.heading_deg
    assert np.allclose(np.degrees([roll, pitch, yaw]), angles, atol=0.5)


def test_motors_are_found_by_where_they_sit():
    assert order(ARCHER.rotors) == [0, 1, 3, 2]  # a packet has front right, rear left, front left, rear right
    plus = Rotors(1.0, (1.0, 1.0, 1.0), (0.1, 0.1, -0.1, -0.1), (0.1, 0.1, -0.1, 0.1), (1.0, 1.0, -1.0, -1.0), 5.0)
    with pytest.raises(UserError, match="one rotor in each corner"):
        order(plus)


@pytest.mark.parametrize("vehicle, words", [(load_vehicle("dcl"), "no `rotors` section"), (ARCHER, "no such file")])
def test_what_cannot_be_flown_is_refused_in_a_line(vehicle, words):
    with pytest.raises(UserError, match=words), firmware(Path("nowhere.elf"), BF, vehicle):
        pass


def flown(seconds, *outputs):
    track = load_track("pq")
    plant = RotorsPlant(lambda truth: np.array(outputs), ARCHER, track.start)
    plant.place(np.array([0.0, 0.0, -5.0]), np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3))
    plant.advance(seconds)
    return plant.truth.x


def test_rotors_hover_by_the_curve_and_fall_without_thrust():
    hover = ARCHER.throttle.throttle(GRAVITY)
    x = flown(1.0, *(hover,) * 4)
    assert x[13] == pytest.approx(GRAVITY, rel=1e-6) and np.allclose(x[10:13], 0.0, atol=1e-9)
    assert flown(0.1, 0.0, 0.0, 0.0, 0.0)[9] == pytest.approx(0.1 * GRAVITY, rel=0.02)


@pytest.mark.parametrize(
    "stronger, signs", [((0, 3), (0, 1, 0)), ((1, 3), (1, 0, 0)), ((0, 1), (0, 0, 1))], ids=["ahead", "left", "turning"]
)
def test_stronger_rotors_turn_it_away_from_them(stronger, signs):
    w = flown(0.05, *(0.3 if k in stronger else 0.25 for k in range(4)))[10:13]
    assert np.allclose(np.sign(np.where(np.abs(w) < 1e-6, 0.0, w)), signs)


@pytest.fixture
def relayed():
    """A controller whose firmware is the far ends of two sockets."""
    pairs = [socket.socketpair() for _ in range(2)]
    for _, far in pairs:
        far.settimeout(1.0)
    controller = SitlController(BF, SimpleNamespace(uarts=[near for near, _ in pairs], alive=True))
    yield controller, *(far for _, far in pairs)
    for pair in pairs:
        for one in pair:
            one.close()


def test_sticks_reach_the_firmware_only_with_the_override_on(relayed):
    controller, _, transmitter = relayed
    sticks = pack(Frame(Code.SET_RAW_RC, Channels((1600, 1600, 1600, 1600)).encode()))
    for k, (aux5, roll) in enumerate([(1000, 1500), (1900, 1600)]):
        controller.receiver.pilot = [1500.0, 1500.0, 1000.0, 1500.0, 1900.0, 1000.0, 1000.0, 1000.0, float(aux5)]
        controller.receive(sticks, 0.5 * k + 0.1)
        controller.serve(0.5 * k + 0.2)  # the first time the switch is seen, the second time it acts
        controller.serve(0.5 * k + 0.4)
        frames = Parser((Direction.REQUEST,)).feed(transmitter.recv(1 << 16))
        newest = [Channels.decode(frame.payload) for frame in frames if frame.command == Code.SET_RAW_RC][-1]
        assert newest.us[0] == roll and newest.us[4] == 1900
    acknowledged = Parser((Direction.ANSWER,)).feed(controller.transmitted(2.0))
    assert [frame.command for frame in acknowledged] == [Code.SET_RAW_RC] * 2


def test_other_frames_pass_and_the_firmware_reports_arming(relayed):
    controller, companion, transmitter = relayed
    request = pack(Frame(Code.ATTITUDE))
    controller.receive(request, 0.0)
    controller.serve(0.01)
    assert companion.recv(64) == request
    companion.sendall(b"answer")
    status = StatusEx(1, DisableFlag(0))
    transmitter.sendall(pack(Frame(Code.STATUS_EX, status.encode(), Direction.ANSWER)))
    controller.serve(0.02)
    controller.serve(0.03)
    assert controller.transmitted(1.0) == b"answer" and controller.armed


@INSTALLED
def test_betaflight_itself_arms_climbs_and_turns_by_its_sticks():
    from gate_racer.link.msp.messages import MspCodec

    codec, hover = MspCodec(), ARCHER.throttle.throttle(1.3 * GRAVITY)
    with firmware(Path(PROGRAM), BF, ARCHER) as sitl:
        station = BetaflightStation(as_believed(load_track("pq"), ARCHER), BF, 0, sitl=sitl)
        armed_t, turned = math.inf, np.zeros(3)
        while station.t < armed_t + 2.8:
            armed_t = min(armed_t, station.t) if station.simulator.armed else armed_t
            yaws, rolls = (0 < station.t - armed_t - start < 0.3 for start in (1.8, 2.2))
            throttle = hover if station.t > armed_t + 1.3 else 0.0
            if station.simulator.count % 24 == 0:
                station.receive(codec.sticks(BF.sticks_by_rates((3.0 * rolls, 0.0, 3.0 * yaws), throttle)), station.t)
            station.serve(station.tick_t)
            station.tick()
            turned = np.maximum(turned, station.simulator.truth.x[10:13])
            assert station.t < 12.0, "it does not arm"
        height = -float(station.simulator.truth.x[2])
    assert height > 0.5 and turned[[0, 2]] == pytest.approx(3.0, rel=0.25)
