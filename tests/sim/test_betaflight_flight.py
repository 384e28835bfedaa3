"""The simulated aircraft behind its line: it flies by sticks alone, and by what the client of the pilot hears."""

import math
import threading
from dataclasses import replace

import pytest

from gate_racer.link.messages import Ack, Arm, Attitude, AttitudeTarget, EnterOffboard, Heartbeat, Imu, PositionTarget
from gate_racer.link.msp.client import MspClient, MspLine
from gate_racer.link.msp.messages import Altitude, Code, MspCodec, RawAttitude, RawImu, StatusEx, Version
from gate_racer.link.msp.ports import open_port
from gate_racer.link.msp.profile import load_betaflight
from gate_racer.link.sockets import LinkError
from gate_racer.sim.betaflight.server import BetaflightServer, open_line
from gate_racer.sim.betaflight.station import HANDOVER_S, STREAM_S, BetaflightStation, StationPort, switched
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import to_euler
from gate_racer.vehicle.vehicle import load_vehicle

BF = load_betaflight("betaflight")
BF = replace(BF, boot_s=1.5, poll=(*BF.poll, "altitude"))
PQ, ARCHER = load_track("pq"), load_vehicle("archer")
HOVER = ARCHER.throttle.throttle(9.80665)
BEFORE_S = 3.5  # boot, arming and handing over


class Flight:
    """An aircraft that a companion computer flies by sticks over its line, on the station's own clock."""

    def __init__(self, seed=0):
        self.station = BetaflightStation(as_believed(PQ, ARCHER), BF, seed)
        self.port, self.received, self.heard = StationPort(self.station), {}, []
        self.line = MspLine(self.port, BF, BF.stick_hz, clock=self.port.clock)

    @property
    def truth(self):
        return self.station.simulator.truth.x

    def fly(self, seconds, omega=(0.0, 0.0, 0.0), throttle=0.0):
        self.line.sticks, until = BF.sticks_by_rates(omega, throttle), self.port.t + seconds
        while self.port.t < until:
            heard = self.line.exchange(0.01)
            self.heard += heard
            self.received.update({type(message): message for _, message in heard})
        return self

    def ready(self):
        self.fly(BEFORE_S)
        assert self.station.controller.armed and self.station.controller.receiver.overridden
        return self


def test_the_pilot_arms_once_sticks_come_and_then_hands_over():
    flight = Flight().fly(1.4)
    assert not flight.station.simulator.armed, "Betaflight has not booted"
    flight.fly(0.5)
    assert flight.station.simulator.armed and not flight.station.controller.receiver.overridden
    assert flight.station.simulator.referee.race.status is RunStatus.RUNNING
    flight.fly(HANDOVER_S)
    assert flight.station.controller.receiver.overridden
    assert flight.station.controller.receiver.companion_t + STREAM_S < 1.5


def test_it_flies_by_sticks_and_reports_the_aircrafts_signs():
    flight = Flight().ready()
    assert flight.station.simulator.landed
    flight.fly(0.6, throttle=1.4 * HOVER)
    assert not flight.station.simulator.landed and flight.truth[9] < -0.5, "it climbs"
    flight.fly(0.4, omega=(0.0, -0.8, 1.0), throttle=HOVER)
    turn = flight.truth[10:13]
    assert turn == pytest.approx([0.0, -0.8, 1.0], abs=0.1)
    raw, angles = flight.received[RawImu], flight.received[RawAttitude]
    assert raw.gyro[1] == pytest.approx(math.degrees(0.8) * BF.gyro_counts_per_deg_s, rel=0.2), "nose down is positive"
    assert raw.gyro[2] == pytest.approx(-math.degrees(1.0) * BF.gyro_counts_per_deg_s, rel=0.2), "right is negative"
    assert angles.pitch_ddeg > 100 and 5 < angles.heading_deg < 40
    assert raw.accel[2] > 300 and flight.received[StatusEx].armed


def test_spinning_propellers_lower_gravity_and_altitude():
    flight = Flight()
    before = [flight.fly(0.06).received[RawImu].accel[2] for _ in range(20)]
    assert abs(flight.received[Altitude].altitude_cm) < 160
    flight.ready()
    spinning, altitudes = [], []
    for _ in range(40):
        spinning.append(flight.fly(0.06).received[RawImu].accel[2])
        altitudes.append(flight.received[Altitude].altitude_cm)
    assert sum(altitudes) / 40 == pytest.approx(-100 * BF.barometer.fall_m, abs=50)
    lost = (sum(before) / 20 - sum(spinning) / 40) / BF.accel_counts_per_g * 9.80665
    assert sum(before) / 20 == pytest.approx(512, abs=15)
    assert lost == pytest.approx(BF.accel_loss_m_s2, abs=0.25)


def test_a_crash_disarms_and_the_pilot_does_not_arm_it_again():
    flight = Flight().ready().fly(0.8, throttle=1.6 * HOVER)
    flight.fly(2.5, throttle=0.0)
    assert flight.station.simulator.referee.race.status is RunStatus.CRASHED
    assert not flight.station.controller.armed
    flight.fly(1.0)
    assert not flight.station.controller.armed
    flight.station.reset()
    flight.ready()
    assert flight.station.simulator.referee.race.status is RunStatus.RUNNING


def test_the_same_seed_and_sticks_give_the_same_answers():
    said = [Flight(seed).ready().fly(0.5, throttle=HOVER).heard for seed in (5, 5, 6)]
    assert said[0] == said[1] != said[2]


def conversed(name):
    port, codec = open_port(name, BF.baud), MspCodec()
    wanted, acknowledged = {Version: None, RawImu: None, StatusEx: None}, False
    port.write(codec.request(Code.API_VERSION) + codec.poll(BF.polled) + codec.sticks((1500,) * 4))
    while not (acknowledged and all(wanted.values())):
        for answer in codec.feed(port.read(30.0)):
            acknowledged |= answer.command == Code.SET_RAW_RC
            wanted.update({type(m): m for m in answer.messages if type(m) in wanted})
    port.close()
    assert wanted[Version] == Version((0, 1, 45)) and not wanted[StatusEx].armed


def test_one_client_after_the_other_is_answered_by_tcp():
    line = open_line("tcp:127.0.0.1:0")
    server = BetaflightServer(Flight().station, line, lambda exposure: None)
    thread = threading.Thread(target=server.run, args=(False, lambda lag: None))
    thread.start()
    try:
        conversed(line.name)
        conversed(line.name)
    finally:
        server.stopped = True
        thread.join(30)
        line.close()
    assert not thread.is_alive()


LEVEL = (1.0, 0.0, 0.0, 0.0)
CALL_S = 0.008  # as often as the live driver looks


class Companion:
    """The pilot's client on that line, and all that it has heard."""

    def __init__(self, pilot=None):
        self.station = BetaflightStation(as_believed(PQ, ARCHER), BF, 0, pilot=pilot)
        self.port = StationPort(self.station)
        self.client, self.received = MspClient(self.port, BF, self.port.clock), []

    def of(self, kind):
        return [message for message in self.received if isinstance(message, kind)]

    def run(self, seconds, act=None):
        end = self.port.t + seconds
        while self.port.t < end:
            self.received += [message for _, message in self.client.receive(CALL_S)]
            self.client.keep_alive(self.port.t)
            if act is not None:
                act()
        return self

    def send(self, command):
        return self.client.send(command, self.port.t, self.port.t)


@pytest.fixture
def handed_over():
    companion = Companion().run(3.5)
    assert companion.client.handed_over
    return companion


def test_telemetry_is_as_fast_as_the_line_with_rising_times():
    companion = Companion().run(4.0)
    samples, attitudes = companion.of(Imu), companion.of(Attitude)
    assert len(samples) == len(attitudes) == pytest.approx(4.0 * 58, rel=0.1)
    assert all(a.t < b.t for a, b in zip(samples, samples[1:], strict=False))
    assert 0 < companion.port.t - samples[-1].t < 0.05
    assert samples[-1].accel[2] == pytest.approx(-9.8, abs=2.5)
    assert len(companion.of(Heartbeat)) == pytest.approx(16, abs=2)
    counters = companion.client.counters
    assert counters.timeouts == counters.damaged == counters.missed_beats == 0


def test_arming_is_answered_by_what_the_pilot_has_done(handed_over):
    assert handed_over.of(Heartbeat)[0].armed is False and handed_over.of(Heartbeat)[-1].armed is True
    assert not handed_over.of(Ack), "nobody has asked yet"
    handed_over.send(Arm())
    handed_over.run(0.3)
    assert [ack.accepted for ack in handed_over.of(Ack)] == [True]


def test_before_the_handover_arming_is_refused():
    companion = Companion().run(1.0)
    companion.send(Arm())
    companion.send(AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), 0.9))
    companion.run(1.2)  # booted and armed, but still in his hands
    assert [ack.accepted for ack in companion.of(Ack)] == [False]
    assert companion.station.controller.armed and companion.station.simulator.landed


def test_what_msp_cannot_carry_is_held_back_and_counted(handed_over):
    none = (None, None, None)
    assert not handed_over.send(PositionTarget(none, (0.0, 0.0, 0.0)))
    assert not handed_over.send(EnterOffboard())
    assert not handed_over.send(AttitudeTarget(LEVEL, (math.nan, 0.0, 0.0), 0.5))
    assert not handed_over.send(AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), 0.5, by_rates=False)), "ANGLE is not on"
    assert handed_over.client.counters.unsent == 4


def test_a_line_that_goes_is_an_error_before_the_handover_and_silence_after_it(handed_over):
    def read(timeout_s):
        raise LinkError("the line is gone")

    early = Companion()
    early.port.read = handed_over.port.read = read
    with pytest.raises(LinkError):
        early.client.receive(0.0)
    assert handed_over.client.receive(0.0) == [] and handed_over.client.receive(0.0) == []
    handed_over.client.keep_alive(handed_over.port.t)


class AnglePilot:
    """Safety pilot that arms with ANGLE on and hands over without waiting."""

    angle = True

    def channels(self, controller, t):
        handed = (BF.aux.arm, BF.aux.override) if t > 2.0 else ()
        return switched(BF, *handed, *([BF.aux.angle] if self.angle else []))


def test_attitudes_are_followed_in_angle_mode_alone():
    pilot = AnglePilot()
    companion = Companion(pilot).run(2.5)
    tilted = AttitudeTarget((math.cos(0.1), 0.0, -math.sin(0.1), 0.0), (0.0, 0.0, 0.0), 1.3 * HOVER, by_rates=False)
    assert not companion.send(AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), 0.5))
    companion.run(1.0, lambda: companion.send(tilted))
    assert to_euler(companion.station.simulator.truth.q_wb)[1] == pytest.approx(-0.2, abs=0.05)
    before = companion.station.controller.receiver.channels[:4]
    pilot.angle = False
    companion.run(0.2, lambda: companion.send(tilted))
    roll, pitch, throttle, yaw = companion.station.controller.receiver.channels[:4]
    assert (roll, pitch, yaw) == (1500, 1500, 1500) != (before[0], before[1], before[3]) and throttle == before[2]


def test_gravity_reads_the_same_with_and_without_propellers():
    companion = Companion()
    before = [sample.accel[2] for sample in companion.run(2.0).of(Imu)]
    companion.run(2.0).received.clear()
    after = [sample.accel[2] for sample in companion.run(2.0).of(Imu)]
    assert companion.client.handed_over and sum(after) / len(after) == pytest.approx(sum(before) / len(before), abs=0.2)
