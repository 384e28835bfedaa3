"""The way to the start: the pilot waits for GO, arms again, believes no race but its own, and enters PX4's OFFBOARD."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.estimation.registry import make_estimator
from gate_racer.link.messages import (
    Ack,
    Arm,
    Attitude,
    AttitudeTarget,
    EnterOffboard,
    Heartbeat,
    Imu,
    RaceStatus,
    StatusText,
)
from gate_racer.link.profile import load_profile
from gate_racer.perception.association import Associator
from gate_racer.pilot.flight import DetectedImage, EndReason, FlightOptions, Passages, Phase
from gate_racer.pilot.guidance.plan_follower import PlanFollower
from gate_racer.pilot.handshake import ATTITUDE_WAIT_S, GO_MARGIN_S, IDLE, UNANSWERED_S, Handshake
from gate_racer.pilot.pilot import Pilot


class Clockwork:
    """Stub of an estimator with the members used while waiting on the pad."""

    def __init__(self):
        self.t = 10.0
        self.releases = 0
        self.offset = np.zeros(3)

    def release(self):
        self.releases += 1

    def state(self):
        return SimpleNamespace(t=10.0, p_wb=np.zeros(3), v_w=np.zeros(3))

    def gate_offset(self, gate, at_w):
        return self.offset

    def gate_covariance(self, gate, at_w):
        return None


class Waiting:
    """Guidance that never leaves the pad."""

    course, passages = (), Passages()

    def ready(self, rested_s):
        return False

    def receive(self, message):
        return None

    def end_of_rest(self, images, estimator):
        pass

    def conclude(self, end):
        return end


def on_pad(dcl, profile, estimator, phase=Phase.WAIT_LINK):
    profile = load_profile(profile)
    handshake = Handshake(profile)
    handshake.phase = phase
    return Pilot(handshake, estimator, Waiting(), profile, dcl)


@pytest.fixture
def pilot(dcl):
    return on_pad(dcl, "dcl", Clockwork(), Phase.WAIT_GO)


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
        pilot.receive(told)
    assert pilot.act() == ([Arm(True)] if armed else [])


AFTER_GO = [  # what is received after a start at 12 s was told, until when, whether it arms then, and its phase
    ("armed, it waits for the margin", [Ack(12.0, True)], GO_MARGIN_S - 1e-3, False, Phase.ARM),
    ("and flies after it", [Ack(12.0, True)], GO_MARGIN_S, False, Phase.LAUNCH),
    ("denied, it asks again after the margin", [Ack(12.0, False)], GO_MARGIN_S, True, Phase.ARM),
    ("a start that moves is waited for", [status(12.05, 20.0)], 1.0, False, Phase.WAIT_GO),
]


@pytest.mark.parametrize(("told", "after_s", "arms", "phase"), [c[1:] for c in AFTER_GO], ids=[c[0] for c in AFTER_GO])
def test_when_the_next_status_is_late_it_arms_by_the_clock(pilot, told, after_s, arms, phase):
    def acts(t, *messages):
        for message in messages:
            pilot.receive(message)
        pilot.estimator.t = t
        return pilot.act()

    assert acts(11.999, status(10.0, 12.0)) == [] and acts(12.0) == [Arm(True)]
    assert acts(12.0 + after_s, *told) == ([Arm(True)] if arms else []) and pilot.phase is phase
    assert phase is not Phase.LAUNCH or pilot.go_t == 12.0


def at_launch(pilot):
    pilot.receive(status(10.0, 12.0))
    pilot.receive(status(12.0, 12.0))
    pilot.act()
    pilot.receive(Ack(12.0, True))
    pilot.act()
    assert pilot.phase is Phase.LAUNCH and pilot.go_t == 12.0
    return pilot


def test_it_arms_again_when_the_start_disarms_it(pilot):
    at_launch(pilot)
    pilot.estimator.t = 13.0
    pilot.receive(Heartbeat(12.1, False))
    assert pilot.act() == [Arm(True)]
    pilot.receive(Ack(12.2, True))
    pilot.act()
    assert pilot.phase is Phase.LAUNCH and pilot.estimator.releases == 1


ARMING = [  # what the simulator answers, seconds of it, and whether the pilot flies
    ("nothing, for a while", [], UNANSWERED_S - 0.1, False),
    ("nothing at all: it knows no arming", [], UNANSWERED_S + 0.1, True),
    ("that it knows no such command", [Ack(10.1, False, known=False)], UNANSWERED_S + 0.1, True),
    ("no, not now", [Ack(10.1, False)], UNANSWERED_S + 0.1, False),
    ("yes", [Ack(10.1, True)], 0.2, True),
    ("by its heartbeat only", [Heartbeat(10.1, True)], 0.2, True),
]


@pytest.mark.parametrize(("answers", "after_s", "flies"), [row[1:] for row in ARMING], ids=[row[0] for row in ARMING])
def test_it_flies_when_armed_or_where_nobody_knows_of_arming(pilot, answers, after_s, flies):
    pilot.receive(status(9.0, 10.0))
    pilot.receive(status(10.0, 10.0))
    assert pilot.act() == [Arm(True)]
    for answer in answers:
        pilot.receive(answer)
    pilot.estimator.t += after_s
    assert pilot.act() == ([] if flies else [Arm(True)])
    assert (pilot.phase is Phase.LAUNCH) == flies == (pilot.estimator.releases == 1)


def test_it_does_not_wait_for_an_attitude_that_does_not_come(dcl):
    pilot = on_pad(dcl, "spec", Clockwork())
    pilot.estimator.imu, imu = lambda sample: False, Imu(10.0, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0))
    for message in (imu, Heartbeat(10.0, False)):
        pilot.receive(message)
    pilot.estimator.t += 2 * ATTITUDE_WAIT_S
    pilot.act()
    assert pilot.phase is Phase.WAIT_LINK and pilot.handshake.missing == ["video", "ATTITUDE"]
    pilot.receive(DetectedImage(12.0, 1, []))
    pilot.act()
    assert pilot.phase is Phase.WAIT_LINK
    pilot.estimator.t += ATTITUDE_WAIT_S + 0.1
    pilot.act()
    assert pilot.phase is Phase.CALIBRATE


UP, DOWN = True, False
BEATS = [  # what heartbeats say of arming in flight, 0.1 s apart, and whether that ends the flight
    ("never that it is armed", [DOWN] * 20, False),
    ("once that it is not", [UP, DOWN, UP], False),
    ("an old one now and then", [UP, DOWN, DOWN, UP, DOWN, DOWN, DOWN, UP, DOWN], False),
    ("that it is not, again and again", [UP, DOWN, DOWN, DOWN, DOWN, DOWN], True),
]


@pytest.mark.parametrize(("beats", "ends"), [row[1:] for row in BEATS], ids=[row[0] for row in BEATS])
def test_only_several_heartbeats_in_a_row_after_one_that_told_of_arming_tell_of_its_end(dcl, beats, ends):
    pilot = on_pad(dcl, "spec", Clockwork())
    for armed in [DOWN] * 30:  # on the pad
        pilot.receive(Heartbeat(pilot.estimator.t, armed))
    pilot.handshake._enter(Phase.ARM, pilot.estimator.t)
    pilot.receive(Ack(10.1, True))
    pilot.act()
    for armed in beats:
        pilot.estimator.t += 0.1
        pilot.receive(Heartbeat(pilot.estimator.t, armed))
    assert pilot.phase is (Phase.ABORTED if ends else Phase.LAUNCH)


def test_a_burst_of_old_heartbeats_is_no_proof(dcl):
    pilot = on_pad(dcl, "spec", Clockwork(), Phase.LAUNCH)
    pilot.receive(Heartbeat(9.0, True))
    for _ in range(20):
        pilot.receive(Heartbeat(9.0, False))
    assert pilot.phase is Phase.LAUNCH


def test_before_go_another_simulator_is_met_from_the_beginning(vq1, dcl):
    estimator = make_estimator("eskf", vq1.start, dcl, Associator(vq1.gates, dcl.camera).appearance)
    pilot = on_pad(dcl, "dcl", estimator)
    for message in (Imu(500.0, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0)), Heartbeat(500.0, True), status(500.0, 503.0)):
        pilot.receive(message)
    pilot.forget_link()
    assert pilot.phase is Phase.WAIT_LINK
    assert pilot.handshake.missing == ["HEARTBEAT", "HIGHRES_IMU", "video", "ATTITUDE"]
    pilot.receive(Imu(1.0, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0)))
    assert pilot.estimator.t == 1.0 and pilot.handshake._scheduled is None and not pilot.handshake._beats_armed


def test_in_flight_no_simulator_is_forgotten_and_a_race_that_starts_anew_ends_the_flight(pilot):
    at_launch(pilot).forget_link()
    assert pilot.phase is Phase.LAUNCH and pilot.go_t == 12.0
    pilot.receive(status(13.0, 20.0))
    assert pilot.phase is Phase.ABORTED and pilot.cause == "the simulator started another race"


def test_a_gate_counts_though_it_is_found_behind_the_vehicle_before_its_plane_is_crossed(vq1, dcl):
    controller, estimator = SimpleNamespace(theta=0.0, reference=SimpleNamespace(end=1.0)), Clockwork()
    observer = SimpleNamespace(moved=lambda gate: np.zeros(3))
    guidance = PlanFollower(vq1, dcl, controller, 1 / 60, FlightOptions(retry=False), observer)
    gate = guidance.course[0]
    for t, (ahead, offset) in enumerate([(-0.5, 0.0), (-0.3, 0.0), (-0.2, -0.4), (0.1, -0.4)]):
        estimator.offset = offset * gate.R_wg[:, 0]
        p_wb, v_w = gate.p_wg + ahead * gate.R_wg[:, 0], 5.0 * gate.R_wg[:, 0]
        state = SimpleNamespace(t=float(t), p_wb=p_wb, v_w=v_w)
        assert guidance.judge(state, float(t), 0.0, estimator) is None
    assert len(guidance.passages.times_s) == 1 and 1.0 < guidance.passages.times_s[0] < 2.0


def test_what_a_vehicle_on_the_pad_waits_for_is_said_and_what_is_refused():
    handshake = Handshake(load_profile("spec"))
    assert handshake.awaited == "HEARTBEAT, HIGHRES_IMU, video, ATTITUDE"
    level = Attitude(0.0, (1.0, 0.0, 0.0, 0.0))
    for message in (Heartbeat(0.0, False), Imu(0.0, (0.0, 0.0, -9.8), (0.0,) * 3), level, DetectedImage(0.0, 1, [])):
        handshake.receive(message, 0.0, airborne=False)
    handshake.phase = Phase.CALIBRATE
    assert handshake.awaited == "a vehicle at rest on the pad"
    handshake.phase = Phase.ARM
    handshake.receive(Ack(0.0, False), 0.0, airborne=False)
    assert handshake.awaited == "an accepted arm command; arming is refused"
    handshake.receive(Ack(0.0, True), 0.0, airborne=False)
    assert "refused" not in handshake.awaited


@pytest.mark.parametrize("hz", [0.0, 117.0])
def test_an_attitude_is_used_only_if_the_profile_has_it(dcl, hz):
    used, profile = [], replace(load_profile("dcl"), attitude_hz=hz)
    estimator = Clockwork()
    estimator.attitude = used.append
    pilot = Pilot(Handshake(profile), estimator, Waiting(), profile, dcl)
    pilot.receive(Attitude(10.0, (1.0, 0.0, 0.0, 0.0)))
    assert len(used) == (hz > 0.0)


# PX4's way into OFFBOARD, step by step, and what is said of refusals.


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
