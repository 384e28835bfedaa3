"""The pilot's client on the simulated aircraft's line: it hears telemetry, and flies by what it hears alone."""

import math
from dataclasses import replace

import pytest

from gate_racer.link.messages import Ack, Arm, Attitude, AttitudeTarget, EnterOffboard, Heartbeat, Imu, PositionTarget
from gate_racer.link.msp.client import MspClient
from gate_racer.link.msp.profile import load_betaflight
from gate_racer.link.udp import MavlinkClient
from gate_racer.sim.betaflight.station import BetaflightStation, StationPort, switched
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import to_euler
from gate_racer.vehicle.vehicle import load_vehicle

BF = replace(load_betaflight("betaflight"), boot_s=2.0)
PQ, ARCHER = load_track("pq"), load_vehicle("archer")
HOVER = ARCHER.throttle.throttle(9.80665)
LEVEL = (1.0, 0.0, 0.0, 0.0)
CALL_S = 0.008  # as often as the live driver looks


class Companion:
    """A client, and all that it has heard."""

    def __init__(self, pilot=None):
        self.station = BetaflightStation(as_believed(PQ, ARCHER), BF, 0, pilot=pilot)
        self.port = StationPort(self.station)
        self.client, self.received = MspClient(self.port, BF, self.port.clock), []

    def of(self, kind):
        return [message for message in self.received if isinstance(message, kind)]

    def run(self, seconds, act=None):
        """Run for `seconds`, calling `act` after each reading."""
        end = self.port.t + seconds
        while self.port.t < end:
            self.received += [message for _, message in self.client.receive(CALL_S)]
            self.client.keep_alive(self.port.t)
            if act is not None:
                act()
        return self

    def send(self, command):
        return self.client.send(command, self.port.t, self.port.t)

    def level(self, throttle):
        """Body rates that bring the last attitude back to level."""
        roll, pitch, _ = to_euler(self.of(Attitude)[-1].q_wb)
        self.send(AttitudeTarget(LEVEL, (-4 * roll, -4 * pitch, 0.0), throttle))


@pytest.fixture
def handed_over():
    companion = Companion().run(4.0)
    assert companion.client.handed_over
    return companion


def test_it_has_the_face_of_the_client_for_mavlink():
    public = {name for name in vars(MavlinkClient) if not name.startswith("_")} | {"counters", "socket", "address"}
    assert not public - set(dir(Companion().client))


def test_telemetry_is_as_fast_as_the_line_with_rising_times():
    companion = Companion().run(4.0)
    samples, attitudes = companion.of(Imu), companion.of(Attitude)
    assert len(samples) == len(attitudes) == pytest.approx(4.0 * 58, rel=0.1)
    assert all(a.t < b.t for a, b in zip(samples, samples[1:], strict=False))
    assert 0 < companion.port.t - samples[-1].t < 0.05
    assert samples[-1].accel[2] == pytest.approx(-9.8, abs=2.5)
    assert len(companion.of(Heartbeat)) == pytest.approx(16, abs=2)
    assert companion.client.counters.timeouts == companion.client.counters.checksum == 0


def test_gravity_reads_the_same_with_and_without_propellers():
    before = [sample.accel[2] for sample in Companion().run(2.0).of(Imu)]
    armed = Companion().run(4.0)
    armed.received.clear()
    after = [sample.accel[2] for sample in armed.run(2.0).of(Imu)]
    assert armed.client.handed_over and sum(after) / len(after) == pytest.approx(sum(before) / len(before), abs=0.2)


def test_arming_is_answered_by_what_the_pilot_has_done(handed_over):
    assert handed_over.of(Heartbeat)[0].armed is False and handed_over.of(Heartbeat)[-1].armed is True
    assert not handed_over.of(Ack), "nobody has asked yet"
    handed_over.send(Arm())
    handed_over.run(0.3)
    assert [ack.accepted for ack in handed_over.of(Ack)] == [True]


def test_before_the_handover_arming_is_refused():
    companion = Companion().run(1.0)
    companion.send(Arm()), companion.send(AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), 0.9))
    companion.run(1.7)  # booted and armed, but still in his hands
    assert [ack.accepted for ack in companion.of(Ack)] == [False]
    assert companion.station.controller.armed and companion.station.simulator.landed


def test_it_flies_level_by_what_it_hears(handed_over):
    handed_over.run(0.5, lambda: handed_over.level(1.5 * HOVER))
    handed_over.run(2.0, lambda: handed_over.level(HOVER))
    x = handed_over.station.simulator.truth.x
    roll, pitch, _ = to_euler(x[3:7])
    assert not handed_over.station.simulator.landed and x[2] < -0.5
    assert max(abs(roll), abs(pitch)) < math.radians(6)
    assert handed_over.client.counters.unsent == 0 and handed_over.client.counters.missed_beats == 0


def test_disarming_is_a_low_throttle_and_the_pilots_business(handed_over):
    handed_over.run(0.5, lambda: handed_over.level(1.5 * HOVER))
    handed_over.send(Arm(False))
    handed_over.run(0.3)
    assert handed_over.station.controller.armed
    assert handed_over.station.controller.fly(LEVEL, handed_over.port.t).throttle == pytest.approx(0, abs=0.01)


def test_what_msp_cannot_carry_is_held_back_and_counted(handed_over):
    none = (None, None, None)
    assert not handed_over.send(PositionTarget(none, (0.0, 0.0, 0.0)))
    assert not handed_over.send(EnterOffboard())
    assert not handed_over.send(AttitudeTarget(LEVEL, (math.nan, 0.0, 0.0), 0.5))
    assert not handed_over.send(AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), 0.5, by_rates=False)), "ANGLE is not on"
    assert handed_over.client.counters.unsent == 4


class AnglePilot:
    """Safety pilot that arms with ANGLE on and hands over without waiting."""

    angle = True

    def channels(self, controller, t):
        handed = (BF.aux.arm, BF.aux.override) if t > 2.5 else ()
        return switched(BF, *handed, *([BF.aux.angle] if self.angle else []))


def test_attitudes_are_followed_in_angle_mode_alone():
    pilot = AnglePilot()
    companion = Companion(pilot).run(3.0)
    tilted = AttitudeTarget((math.cos(0.1), 0.0, -math.sin(0.1), 0.0), (0.0, 0.0, 0.0), 1.3 * HOVER, by_rates=False)
    assert not companion.send(AttitudeTarget(LEVEL, (0.0, 0.0, 0.0), 0.5))
    companion.run(1.0, lambda: companion.send(tilted))
    assert to_euler(companion.station.simulator.truth.q_wb)[1] == pytest.approx(-0.2, abs=0.05)
    before = companion.station.controller.receiver.channels[:4]
    pilot.angle = False
    companion.run(0.2, lambda: companion.send(tilted))
    roll, pitch, throttle, yaw = companion.station.controller.receiver.channels[:4]
    assert (roll, pitch, yaw) == (1500, 1500, 1500) != (before[0], before[1], before[3]) and throttle == before[2]
