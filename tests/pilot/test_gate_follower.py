"""Flight by a policy: gates count as they do with a plan, and the shipped one races."""

from types import SimpleNamespace

import numpy as np
import pytest

from gate_racer.estimation.estimator import State
from gate_racer.mpc.policy.policy import load_policy, names
from gate_racer.pilot.flight import EndReason, FlightOptions
from gate_racer.pilot.guidance.plan_follower import CIRCLING_S, GateFollower
from gate_racer.pilot.pilot import PilotModels, build_free
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.vehicle import load_vehicle
from tests.flights import SPEC, flown_by

LEVEL = np.array([1.0, 0, 0, 0])


class Map:
    """Stub of an estimator with the members that guidance uses: all gates have this offset from the map."""

    def __init__(self, offset_w=(0.0, 0.0, 0.0)):
        self.offset_w = np.array(offset_w)

    def gate_offset(self, gate, at_w):
        return self.offset_w


class Asked:
    """Stub of a controller that records the calls of guidance."""

    def step(self, t, x, gate):
        self.x, self.gate = x, gate


@pytest.fixture(scope="module")
def track():
    return load_track("splits_swift")


@pytest.fixture
def guidance(track):
    observer = SimpleNamespace(moved=lambda gate: np.zeros(3))
    return GateFollower(track, 1, Asked(), observer)


def at(t, p_w):
    return State(t, np.asarray(p_w, float), LEVEL, np.zeros(3), np.zeros(3), np.zeros((9, 9)), 0.0)


def through(guidance, gate, t, aside=0.0, offset=0.0, ground=None):
    """Steps before and behind a gate, `aside` m of its middle; ends of the second one."""
    ends = []
    for k, along in enumerate((-0.5, 0.5)):
        p = gate.p_wg + along * gate.R_wg[:, 0] + aside * gate.R_wg[:, 1] + offset
        ends.append(guidance.judge(at(t + 0.1 * k, p), t + 0.1 * k, 0.0, ground or Map()))
    return ends[-1]


def test_gates_count_in_their_order_and_the_last_one_ends_the_flight(guidance, track):
    for k, gate in enumerate(track.gates):
        assert len(guidance.passages.times_s) == k
        other = track.gates[(k + 2) % len(track.gates)]
        assert through(guidance, other, k) is None and len(guidance.passages.times_s) == k, "not its turn"
        end = through(guidance, gate, k + 0.5, aside=0.3)
        assert guidance.passages.times_s[-1] == pytest.approx(k + 0.55)
        assert guidance.passages.margins_m[-1] == pytest.approx(gate.half - 0.3)
    assert end is not None and end.reason is EndReason.FINISHED
    guidance.step(at(10.0, (0, 0, -2)), 10.0, 0.0, Map())
    assert guidance._controller.gate == track.gates[0], "a closed course goes on"


def test_a_gate_that_was_missed_stays_the_next(guidance, track):
    assert through(guidance, track.gates[0], 0.0, aside=1.2) is None
    assert guidance.passages.times_s == []
    guidance.step(at(0.2, (0, 0, -2)), 0.2, 0.0, Map())
    assert guidance._controller.gate == track.gates[0]


def test_a_gate_off_the_map_is_flown_at_and_counted_where_it_stands(guidance, track):
    off = np.array([0.2, 2.0, -0.1])
    guidance.step(at(0.0, track.gates[0].p_wg + off), 0.0, 0.0, Map(off))
    assert guidance._controller.x[:3] == pytest.approx(track.gates[0].p_wg), "seen as if the gate stood on the map"
    through(guidance, track.gates[0], 0.0, offset=off, ground=Map(off))
    assert guidance.passages.margins_m == pytest.approx([track.gates[0].half])


def test_one_that_circles_for_ever_is_ended(guidance):
    assert guidance.judge(at(1.0, (0, 0, -2)), 1.0, 0.0, Map()) is None
    end = guidance.judge(at(CIRCLING_S + 0.1, (0, 0, -2)), CIRCLING_S + 0.1, 0.0, Map())
    assert end is not None and end.reason is EndReason.TIME_LIMIT


@pytest.mark.parametrize("name", names())
def test_the_shipped_one_races_by_camera_and_imu(name):
    policy = load_policy(name)
    track, vehicle = load_track(policy.about.track), load_vehicle(policy.about.vehicle)
    pilot = build_free(PilotModels.of(track, vehicle, SPEC), name, FlightOptions())

    def status(pilot):
        if len(pilot.guidance.passages.times_s) == 3:
            pilot.abort(EndReason.INTERRUPTED, "that is enough")

    verdict = flown_by(pilot, as_believed(track, vehicle), vehicle, SPEC, 0, status)
    assert pilot.cause == "that is enough" and len(verdict.gate_times_s) == 3 and min(verdict.gate_margins_m) > 0
    assert verdict.gate_times_s == pytest.approx(pilot.guidance.passages.times_s, abs=0.1)
