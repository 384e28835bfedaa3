"""PX4's way into OFFBOARD, step by step, and what is said of refusals."""

import pytest

from gate_racer.link.messages import Ack, Arm, AttitudeTarget, EnterOffboard, Heartbeat, Imu, StatusText
from gate_racer.link.profile import load_profile
from gate_racer.pilot.flight import DetectedImage, EndReason, Phase
from gate_racer.pilot.handshake import IDLE, Handshake

PX4 = load_profile("px4")
DT = 0.01


class Autopilot:
    """Receiver of the handshake's commands on a separate clock."""

    def __init__(self):
        self.handshake, self.t, self.asked = Handshake(PX4), 0.0, []
        for message in (beat(self.t), Imu(0.0, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0)), DetectedImage(0.0, 1, [])):
            self.receive(message)

    def receive(self, message):
        self.handshake.receive(message, self.t, False)

    def run(self, seconds):
        """The commands of so many seconds, with their times."""
        asked = []
        for _ in range(round(seconds / DT)):
            self.t += DT
            asked += [(self.t, command) for command in self.handshake.advance(self.t)]
        self.asked += asked
        return asked


def beat(t, mode="AUTO.LOITER", armed=False):
    return Heartbeat(t, armed, mode)


def kinds(asked):
    return {type(command) for _, command in asked}


@pytest.fixture
def px4():
    return Autopilot()


def test_set_points_stream_before_the_mode_is_asked_for_and_the_mode_before_arming(px4):
    first = px4.run(5.0)
    begun = next(t for t, command in first if command == IDLE)
    asked = next(t for t, command in first if command == EnterOffboard())
    assert asked - begun > PX4.offboard.stream_s and kinds(first) == {AttitudeTarget, EnterOffboard}
    px4.receive(Ack(px4.t, True, 176, result="ACCEPTED"))
    assert kinds(px4.run(2.0)) == {AttitudeTarget, Arm} and px4.handshake.phase is Phase.ARM
    px4.receive(Ack(px4.t, True, 400, result="ACCEPTED"))
    px4.run(DT)
    assert px4.handshake.phase is Phase.LAUNCH


def test_the_stream_never_pauses_and_silence_is_no_permission(px4):
    px4.run(30.0)
    assert px4.handshake.phase is Phase.ARM
    px4.receive(Ack(px4.t, True, 176, result="ACCEPTED"))
    px4.run(5.0)
    times = [t for t, command in px4.asked if command == IDLE]
    assert max(b - a for a, b in zip(times, times[1:], strict=False)) < PX4.offboard.loss_s / 2


def test_a_refusal_is_said_with_its_reason(px4):
    px4.run(4.0)
    px4.receive(StatusText(px4.t, 6, "Armed by external command"))
    px4.receive(Ack(px4.t, False, 176, result="DENIED"))
    assert px4.handshake.awaited == "an accepted arm command; OFFBOARD is refused (DENIED)"
    px4.receive(StatusText(px4.t, 2, "Offboard needs a permit"))
    assert px4.handshake.awaited == "an accepted arm command; OFFBOARD is refused (DENIED): Offboard needs a permit"
    px4.receive(beat(px4.t, "OFFBOARD"))
    assert px4.handshake.awaited == "an accepted arm command"
    px4.receive(Ack(px4.t, False, 400, result="TEMPORARILY_REJECTED"))
    assert "arming is refused (TEMPORARILY_REJECTED)" in px4.handshake.awaited


def launched(px4):
    px4.run(4.0)
    for command in (176, 400):
        px4.receive(Ack(px4.t, True, command, result="ACCEPTED"))
        px4.run(0.1)
    assert px4.handshake.phase is Phase.LAUNCH


def test_a_heartbeat_from_before_the_switch_ends_nothing(px4):
    launched(px4)
    px4.receive(beat(px4.t, "AUTO.LOITER", armed=True))
    assert px4.handshake.end is None


def test_leaving_offboard_ends_the_flight_with_mode_and_reason(px4):
    launched(px4)
    px4.receive(beat(px4.t, "OFFBOARD", armed=True))
    px4.receive(StatusText(px4.t, 1, "Failsafe activated: no offboard control signal"))
    px4.receive(beat(px4.t, "AUTO.LAND", armed=True))
    assert px4.handshake.end.reason is EndReason.LEFT_OFFBOARD
    cause = "the autopilot left OFFBOARD for AUTO.LAND: Failsafe activated: no offboard control signal"
    assert px4.handshake.end.cause == cause


def test_a_mode_that_is_taken_away_before_arming_is_asked_for_again(px4):
    px4.run(4.0)
    px4.receive(beat(px4.t, "OFFBOARD"))
    px4.receive(beat(px4.t, "POSCTL"))
    assert EnterOffboard in kinds(px4.run(1.0))
