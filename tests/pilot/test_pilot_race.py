"""The pilot waits for GO, arms again, and believes no race but its own."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.estimation.registry import make_estimator
from gate_racer.link.messages import Ack, Arm, Attitude, Heartbeat, Imu, RaceStatus
from gate_racer.link.profile import load_profile
from gate_racer.perception.association import Associator
from gate_racer.pilot.flight import DetectedImage, FlightOptions, Passages, Phase
from gate_racer.pilot.guidance.plan_follower import PlanFollower
from gate_racer.pilot.handshake import ATTITUDE_WAIT_S, GO_MARGIN_S, UNANSWERED_S, Handshake
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


def test_when_the_next_status_is_late_it_arms_by_the_clock_and_flies_after_a_margin(pilot):
    def acts(t, *told):
        for message in told:
            pilot.receive(message)
        pilot.estimator.t = t
        return pilot.act(), pilot.phase

    assert acts(11.999, status(10.0, 12.0)) == ([], Phase.WAIT_GO)
    assert acts(12.0) == ([Arm(True)], Phase.ARM)
    assert acts(12.0 + GO_MARGIN_S - 1e-3, Ack(12.0, True)) == ([], Phase.ARM)
    assert acts(12.0 + GO_MARGIN_S) == ([], Phase.LAUNCH) and pilot.go_t == 12.0


def test_who_is_denied_at_the_scheduled_start_asks_again_after_the_margin(pilot):
    pilot.receive(status(10.0, 12.0))
    pilot.estimator.t = 12.0
    assert pilot.act() == [Arm(True)]
    pilot.receive(Ack(12.0, False))
    pilot.estimator.t = 12.0 + GO_MARGIN_S
    assert pilot.act() == [Arm(True)]


def test_a_start_that_moves_is_waited_for(pilot):
    pilot.receive(status(10.0, 12.0))
    pilot.estimator.t = 12.0
    assert pilot.act() == [Arm(True)]
    pilot.receive(status(12.05, 20.0))
    pilot.estimator.t = 13.0
    assert pilot.act() == [] and pilot.phase is Phase.WAIT_GO


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
