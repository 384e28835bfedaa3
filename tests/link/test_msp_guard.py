"""The guard flies when the pilot's process does not: it streams a descent, whatever the vehicle was doing."""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.common.process import PERIODIC
from gate_racer.link.msp import messages as msp
from gate_racer.link.msp.client import LATE_S, MspLine, neutral
from gate_racer.link.msp.guard import DEAF_S, HELD_S, SILENT_S, Descent, GuardedPort, StickWatch, bring_down
from gate_racer.link.msp.ports import open_serial
from gate_racer.link.msp.profile import load_betaflight
from gate_racer.link.sockets import LinkError
from gate_racer.sim.betaflight.server import BetaflightServer, TerminalLine
from gate_racer.sim.betaflight.station import HANDOVER_S, BetaflightStation, StationPort
from gate_racer.sim.worlds.world import Deviations, ImuDeviation, PlantDeviation, World
from gate_racer.tracks.track import Bounds, load_track
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import from_euler, matrix
from gate_racer.vehicle.vehicle import load_vehicle
from tests.conftest import ROOT
from tests.processes import may_be_preferred, terminal

PROFILE = load_betaflight("betaflight")
ARCHER = load_vehicle("archer")
HOVER = ARCHER.throttle.throttle(GRAVITY)


def station_in(deviations, true=PROFILE, seed=0):
    """A vehicle over the open end of the hall, far from all gates."""
    track = load_track(ROOT / "tracks/pq.yaml")
    outside = replace(track.start, position_m=(-100.0, 0.0, -0.06))
    track = replace(track, start=outside, bounds=Bounds((-900.0, -900.0, -400.0), (900.0, 900.0, 0.0)))
    return BetaflightStation(World.of("abandoned", deviations, track, ARCHER), true, seed=seed)


class Abandoned:
    """A vehicle in the air whose pilot has died."""

    def __init__(self, deviations, climb_s, turn, throttle, seconds, climb=1.5, true=PROFILE, hover=HOVER, seed=0):
        self.station = station_in(deviations, true, seed)
        self.port, self.descent = StationPort(self.station), Descent(PROFILE, hover, ARCHER.accel_loss(GRAVITY))
        line = MspLine(self.port, PROFILE, PROFILE.stick_hz, clock=self.port.clock)
        while not self.station.simulator.armed:
            line.exchange(0.02)
        self.fly(line, neutral(PROFILE), HANDOVER_S + 0.1)
        self.fly(line, PROFILE.sticks_by_rates((0.0, 0.0, 0.0), climb * HOVER), climb_s)
        self.fly(line, PROFILE.sticks_by_rates(turn, throttle * HOVER), seconds)

    def fly(self, line, sticks, seconds):
        line.sticks, until = sticks, self.port.t + seconds
        while self.port.t < until:
            for t, message in line.exchange(0.02):
                self.descent.receive(message, t)

    @property
    def truth(self):
        return self.station.simulator.truth

    def may_land(self):
        """Let the floor carry it: the referee's contact switches the motors off."""
        watch = self.station.simulator.referee.watch
        self.station.simulator.referee.watch = lambda truth, contacts: watch(truth, ())


class Pausing:
    """A line whose reader is now and then not scheduled for up to .6 s."""

    def __init__(self, port, share, rng):
        self._port, self._share, self._rng = port, share, rng

    def read(self, timeout_s):
        data = self._port.read(timeout_s)
        if self._rng.random() < self._share:
            until = self._port.t + self._rng.uniform(0.0, 0.6)
            while self._port.t < until - 1e-6:
                data += self._port.read(until - self._port.t)
        return data

    def __getattr__(self, name):
        return getattr(self._port, name)


def drawn(seed):
    """A vehicle that climbs and turns; battery, barometer, accelerometer and hover throttle differ from what is believed."""
    rng = random.Random(seed)
    barometer = replace(PROFILE.barometer, fall_m=rng.uniform(1.6, 3.4), noise_m=rng.uniform(0.2, 0.6))
    true = replace(PROFILE, barometer=barometer, accel_loss_m_s2=PROFILE.accel_loss_m_s2 + rng.uniform(-0.35, 0.35))
    plant = PlantDeviation(thrust_scale=rng.uniform(0.8, 1.25))
    turn = tuple(rng.uniform(-1.0, 1.0) * rng.choice((0.0, 2.0, 6.0)) for _ in range(3))
    went = rng.uniform(0.7, 2.2), turn, rng.uniform(0.6, 2.2), rng.uniform(0.15, 0.6), rng.uniform(1.4, 2.2)
    vehicle = Abandoned(Deviations(plant=plant), *went, true=true, hover=HOVER * rng.uniform(0.9, 1.1), seed=seed)
    vehicle.may_land()
    return vehicle, Pausing(vehicle.port, rng.choice((0.0, 0.01, 0.03, 0.05)), rng)


def check_landing(seed):
    """Fly a drawn descent: its throttle is never low above half a metre, and it ends on the ground with the motors off."""
    vehicle, line = drawn(seed)
    lowest, channel, heights = PROFILE.throttle.min_check_us, PROFILE.channel("T"), []
    serve, begun = vehicle.station.tick, vehicle.port.t

    def watched():
        if vehicle.station.controller.receiver.channels[channel] < lowest and vehicle.station.simulator.armed:
            heights.append(-vehicle.truth.p_wb[2])
        if vehicle.port.t - begun > 200.0:
            raise TimeoutError("never landed")
        return serve()

    vehicle.station.tick = watched
    bring_down(line, PROFILE, vehicle.descent, vehicle.port.clock)
    assert not vehicle.station.controller.armed and heights
    assert max(heights) < 0.5


def watched(station):
    """The path that a station flies: down, m, rate of descent, m/s, and the cosine of its lean."""
    serve, path = station.tick, []

    def tick():
        truth = station.simulator.truth
        path.append((truth.p_wb[2], truth.x[9], matrix(truth.q_wb)[2, 2]))
        return serve()

    station.tick = tick
    return path


def sound_landing(path):
    """Whether it came down upright and slowly, once it was in the air."""
    down, sinks, upright = np.array(path)[int(np.argmin(np.array(path)[:, 0])) :].T
    touched = int((down > -0.3).argmax())
    return touched and sinks[touched] < 3.0 and upright[touched] > 0.9


SLOW_S = 0.02  # worst lag of a simulator whose machine was fast enough: sticks are sent every 25 ms
DRAINED = Deviations(plant=PlantDeviation(thrust_scale=0.85))
LATE = Deviations(
    plant=PlantDeviation(command_delay_s=0.05), imu=ImuDeviation(accel_bias_m_s2=(0.2, -0.2, 0.2), noise_scale=3.0)
)
DYING = {
    "thrown over, with a drained battery": (DRAINED, 1.7, (0.0, -6.0, 0.0), 1.3, 0.5),
    "turning and leaning, late, with a biased IMU": (LATE, 0.5, (1.0, 1.0, 4.0), 1.3, 0.4),
}


@pytest.mark.parametrize("dying", DYING.values(), ids=DYING)
def test_whatever_it_was_doing_it_comes_down_upright_and_slowly_and_is_switched_off(dying):
    vehicle = Abandoned(*dying)
    path = watched(vehicle.station)
    bring_down(vehicle.port, PROFILE, vehicle.descent, vehicle.port.clock)
    assert sound_landing(path) and not vehicle.station.controller.armed


PILOT = f"""
import os, signal, sys
from gate_racer.link.msp.client import MspLine, neutral
from gate_racer.link.msp.guard import GuardedPort
from gate_racer.link.msp.messages import StatusEx
from gate_racer.link.msp.profile import load_betaflight

profile = load_betaflight("betaflight")
port = GuardedPort(sys.argv[1], profile, {HOVER}, loss_m_s2={ARCHER.accel_loss(GRAVITY)})
line = MspLine(port, profile, profile.stick_hz)
armed_t, climb = None, profile.sticks_by_rates((0.0, 0.0, 0.0), 1.5 * {HOVER})
while True:
    for t, message in line.exchange(0.02):
        if isinstance(message, StatusEx) and message.armed:
            armed_t = armed_t or t
            line.sticks = climb if t > armed_t + {HANDOVER_S} + 0.1 else neutral(profile)
            if t > armed_t + {HANDOVER_S} + 0.45:
                if sys.argv[2] == "dies":
                    os.kill(os.getpid(), signal.SIGKILL)
                sys.exit(port.guard.join())
"""


@pytest.mark.parametrize("how", ["dies", pytest.param("hangs", marks=pytest.mark.soak)])
def test_a_process_that_dies_or_hangs_in_the_air_leaves_a_guard_that_brings_the_vehicle_down(how):
    """In real time; flown again, twice at most, where the machine was too slow for it."""
    for _ in range(3):
        station, line = station_in(Deviations(), replace(PROFILE, boot_s=1.0)), TerminalLine()
        server, path = BetaflightServer(station, line, lambda exposure: None), watched(station)
        thread = threading.Thread(target=server.run, args=(False, lambda lag: None))
        thread.start()
        try:  # its output ends with the guard, which has inherited it
            died = subprocess.run([sys.executable, "-c", PILOT, line.name, how], capture_output=True, timeout=120)
        finally:
            server.stopped = True
            thread.join(30.0)
            line.close()
        assert died.returncode == (-signal.SIGKILL if how == "dies" else 0), died.stderr
        landed = min(path)[0] < -0.5 and sound_landing(path) and not station.controller.armed
        if landed or server.worst_lag_s < SLOW_S:
            break
    assert landed, (path[-1], server.worst_lag_s)


def test_who_is_silent_with_the_throttle_up_has_left_the_vehicle_and_who_keeps_it_low_may_go():
    watch, codec = StickWatch(PROFILE, HOVER), msp.MspCodec()
    watch.said(codec.sticks(neutral(PROFILE)), 0.0)
    assert not watch.carries and not watch.silent(10.0)
    watch.said(codec.sticks(PROFILE.sticks_by_rates((1.0, -3.0, 0.5), HOVER)), 10.0)
    assert watch.carries and not watch.silent(10.0 + 0.9 * SILENT_S) and watch.silent(10.0 + 1.1 * SILENT_S)
    held = codec.sticks(PROFILE.sticks_by_rates((0.0, 0.0, 0.0), HOVER)) + codec.poll(PROFILE.polled)
    assert watch.held(10.0 + 0.9 * HELD_S) == b"" and watch.held(10.0 + 1.1 * HELD_S) == held
    assert watch.held(10.0 + 1.2 * HELD_S) == b"", "once in that time will do"
    watch.said(codec.request(msp.Code.ATTITUDE), 10.0 + SILENT_S)
    assert watch.silent(10.0 + 1.1 * SILENT_S), "requests fly nothing"
    watch.said(codec.sticks(neutral(PROFILE)), 11.0)
    assert not watch.carries and not watch.silent(20.0)


def test_an_answer_that_has_waited_for_a_late_reader_is_dropped_for_nobody_knows_its_time():
    answer = msp.pack(msp.Frame(msp.Code.ATTITUDE, msp.RawAttitude(0, 0, 0).encode(), msp.Direction.ANSWER))
    port = SimpleNamespace(read=lambda _: answer, write=lambda _: None)
    times = iter([0.0, *([0.01] * 3), *([0.02 + 2 * LATE_S] * 3), *([0.03 + 2 * LATE_S] * 3)])
    line = MspLine(port, PROFILE, PROFILE.stick_hz, clock=lambda: next(times))
    assert [len(line.exchange(0.02)) for _ in range(3)] == [1, 0, 1] and line.undated == 1


@pytest.mark.parametrize("seed", [2, *(pytest.param(1000 + k, marks=pytest.mark.soak) for k in range(200))])
def test_whatever_pauses_the_line_makes_the_motors_are_cut_on_the_ground_and_there_alone(seed):
    check_landing(seed)


@pytest.mark.parametrize("strength", [0.8, 1.0, 1.25])
@pytest.mark.parametrize("late_s", [0.05, 0.1, 0.15])
def test_a_late_thrust_does_not_make_the_throttle_ring(strength, late_s):
    """A vehicle whose hover throttle is not the believed one, with its thrust late: it dips once, and settles."""
    descent, channel, hz = Descent(PROFILE, HOVER), PROFILE.channel("T"), 100
    descent.receive(msp.StatusEx(1, msp.DisableFlag(0)), 0.0)
    descent.begin(0.0)
    v, h, thrusts, weights = 0.0, 20.0, [GRAVITY] * round(late_s * hz), []
    for k in range(4 * hz):
        throttle = PROFILE.throttle.throttle(descent.sticks(k / hz)[channel])
        weights.append(strength * throttle / HOVER)
        thrusts.append(weights[-1] * GRAVITY)
        v += (GRAVITY - thrusts[k]) / hz
        h -= v / hz
        descent.receive(PROFILE.raw_imu((0.0, 0.0, PROFILE.accel_loss_m_s2 - thrusts[k]), (0.0, 0.0, 0.0)), k / hz)
        if k % 10 == 0:
            descent.receive(msp.Altitude(round(100 * h), 0), k / hz)
    settling = np.array(weights[int(np.argmin(weights)) :])
    assert np.max(np.maximum.accumulate(settling) - settling) < 0.03 and settling[-1] == pytest.approx(1.0, abs=0.05)
    assert weights[hz] > 0.8, "within a second"


@pytest.mark.parametrize("late_s", [0.05, 0.1])
def test_a_late_turn_rights_it_within_a_second_and_does_not_throw_it_over(late_s):
    """A vehicle that leans, whose rates follow the sticks after what filters, rate loop and line take."""
    descent, hz = Descent(PROFILE, HOVER), 100
    descent.begin(0.0)
    roll, rates, leans = 1.0, [0.0] * round(late_s * hz), []
    for k in range(2 * hz):
        descent.receive(PROFILE.raw_attitude(from_euler(roll, 0.0, 0.0)), k / hz)
        descent.receive(PROFILE.raw_imu((0.0, 0.0, -GRAVITY), (rates[k], 0.0, 0.0)), k / hz)
        rates.append(PROFILE.asked_rates(descent.sticks(k / hz))[0])
        roll += rates[k] / hz
        leans.append(roll)
    assert leans[hz] < 0.1 and min(leans) > -0.02


def braked(reading_m, hz):
    """The throttle, relative to hover, .6 s after a barometer that is read at `hz` over a hovering vehicle jumped from 5 m."""
    descent = Descent(PROFILE, HOVER)
    descent.receive(msp.StatusEx(1, msp.DisableFlag(0)), 0.0)
    descent.receive(msp.Altitude(500, 0), 0.0)
    descent.begin(0.0)
    for k in range(1, 121):
        if k % (200 // hz) == 0:
            descent.receive(msp.Altitude(round(100 * reading_m), 0), k / 200)
        descent.receive(PROFILE.raw_imu((0.0, 0.0, PROFILE.accel_loss_m_s2 - GRAVITY), (0.0, 0.0, 0.0)), k / 200)
    return PROFILE.throttle.throttle(descent.sticks(0.6)[PROFILE.channel("T")]) / HOVER


def test_a_vehicle_that_sinks_by_its_barometer_is_braked_alike_however_often_that_is_read():
    few, more, many = (braked(3.0, hz) for hz in (5, 10, 40))
    assert many > braked(5.0, 40) + 0.1
    assert (few, more) == pytest.approx((many, many), abs=0.02)


def test_nobody_is_cut_because_time_has_passed_and_who_cannot_feel_does_not_turn():
    descent, channel = Descent(PROFILE, HOVER), PROFILE.channel("T")
    descent.begin(0.0)
    for t in np.arange(0.0, 300.0, 0.1):
        sticks = descent.sticks(float(t))
    level = PROFILE.sticks_by_rates((0.0, 0.0, 0.0), HOVER)
    assert sticks[channel] > PROFILE.throttle.min_check_us and sticks[channel] < level[channel]
    assert sticks[:channel] + sticks[channel + 1 :] == level[:channel] + level[channel + 1 :]


def test_a_descent_ends_where_nobody_answers():
    times, written = [0.0], []

    def read(timeout_s):
        times.append(times[-1] + max(timeout_s, 1e-3))
        return b""

    port = SimpleNamespace(read=read, write=written.append)
    bring_down(port, PROFILE, Descent(PROFILE, HOVER), lambda: times[-1])
    assert DEAF_S < times[-1] < 2 * DEAF_S and written


def reach(port, flight_controller, us):
    """Whether the flight controller has sticks within 400 of them."""
    parser, codec = msp.Parser((msp.Direction.REQUEST,)), msp.MspCodec()
    for _ in range(400):
        port.write(codec.sticks(us))
        port.read(0.0)
        while select.select([flight_controller], [], [], 0.01)[0]:
            frames = parser.feed(os.read(flight_controller, 4096))
            if any(msp.Channels.decode(f.payload).us[:4] == us for f in frames if f.command == msp.Code.SET_RAW_RC):
                return True
    return False


@pytest.mark.parametrize(("number", "lost"), [(signal.SIGKILL, True), (signal.SIGSTOP, True), (signal.SIGHUP, False)])
def test_sticks_reach_the_flight_controller_whatever_becomes_of_the_guard(number, lost):
    with terminal() as (ours, name), contextlib.closing(GuardedPort(name, PROFILE, HOVER)) as port:
        try:
            assert reach(port, ours, PROFILE.sticks_by_rates((1.0, 0.0, 0.0), HOVER))
            assert os.getpriority(os.PRIO_PROCESS, port.guard.pid) == PERIODIC or not may_be_preferred()
            os.kill(port.guard.pid, number)
            time.sleep(0.05)
            assert reach(port, ours, PROFILE.sticks_by_rates((0.0, -1.0, 0.0), HOVER))
            assert port.unguarded == lost == (not port.guard.is_alive())
            assert reach(port, ours, neutral(PROFILE))
        finally:
            port.guard.kill()
            port.guard.join()


def test_a_serial_port_that_nobody_reads_from_fails_instead_of_blocking():
    pytest.importorskip("serial")
    with (
        terminal() as (_, name),
        contextlib.closing(open_serial(name, PROFILE.baud)) as port,
        pytest.raises(LinkError, match="does not read"),
    ):
        for _ in range(4000):
            port.write(bytes(100))
