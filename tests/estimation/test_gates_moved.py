"""A map may be wrong: what counts is where the vehicle is to the gates that it sees; one metres off the map is moved on it."""

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

from gate_racer.estimation import localisation
from gate_racer.estimation.estimator import ExposureState, State
from gate_racer.estimation.localisation import USUAL_M, GateRelocator, Localised, displaced, recognise
from gate_racer.model.gate_offsets import GateOffsets, block
from gate_racer.model.imu import ImuReading
from gate_racer.model.kalman import FilterState
from gate_racer.model.reprojection import project
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import DELAY, EDGE_M, GATES, GATES_KEPT, SCALE, TURN, N, Nominal, P
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection
from gate_racer.vehicle.rotation import exp, matrix, product
from gate_racer.vehicle.statistics import chi2_limit, mahalanobis2
from tests.estimation.flying import FIRST, PAD, Flight, before_gate, corrected, looking, sighted

STILL = ImuReading(0.0, np.zeros(3), np.zeros(3))


def prior_state(rng):
    x = Nominal.at(0.0, np.zeros(3), np.zeros(3), [1.0, 0, 0, 0])
    A = rng.normal(size=(N, N))
    cov = A @ A.T
    cov[GATES], cov[:, GATES] = 0.0, 0.0
    return FilterState(x, cov, STILL)


def test_a_new_gate_continues_the_nearest_one_in_the_course():
    """m_new = m_near / 2 + n beside it: C_new,x = C_near,x / 2 and C_new,new = C_near,near / 4 + sigma^2."""
    offsets, before = GateOffsets(0.2, 0.02, 0.01, PAD), prior_state(np.random.default_rng(0))
    first = offsets.admit([0], before)
    assert first.cov[block(0), block(0)] == pytest.approx(0.04 * np.eye(3)) and not first.cov[block(0), P].any()
    first.cov[block(0), P] = first.cov[P, block(0)] = 0.01 * np.eye(3)
    first = replace(first, x=first.x.having(gates=first.x[GATES] + 0.1))
    second = offsets.admit([0, 1], first)
    a, b = block(0), block(1)
    assert second.x.gates[1] == pytest.approx(second.x.gates[0] / 2)
    assert second.cov[b, P] == pytest.approx(first.cov[a, P] / 2)
    assert second.cov[b, a] == pytest.approx(first.cov[a, a] / 2)
    assert second.cov[b, b] == pytest.approx(first.cov[a, a] / 4 + 0.04 * np.eye(3))
    assert second.cov == pytest.approx(second.cov.T)
    assert offsets.offset(3, PAD, second.x) == pytest.approx(second.x.gates[1] / 4), "as far as is known"


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 5), (3, 4, 9)])
def test_offsets_have_the_covariance_of_their_process(order):
    """m_k = m_k-1 / 2 + n from the pad on: C_ij = 2^(i-j) sigma^2 (1 - 4^-(i+1)) / (1 - 1/4) for i <= j."""
    b = GateOffsets(0.2, 0.02, 0.01, PAD).admit(order, prior_state(np.random.default_rng(1)))
    for i, j in combinations_with_replacement(range(len(order)), 2):
        law = 0.5 ** (order[j] - order[i]) * 0.04 * (1 - 0.25 ** (order[i] + 1)) / 0.75
        assert b.cov[block(i), block(j)] == pytest.approx(law * np.eye(3))


@pytest.mark.parametrize("gate", [0, 1, 4])
def test_a_gate_not_yet_seen_has_its_initial_covariance(gate):
    """Var(p - scale (gate - pad) - m), the same before and after the gate has its place in the state."""
    offsets, before = GateOffsets(0.2, 0.02, 0.01, PAD), prior_state(np.random.default_rng(1))
    for k in (0, 2):
        before = offsets.admit([k], before)
        before.cov[block(k // 2), P] = before.cov[P, block(k // 2)] = 0.01 * np.eye(3)
    at_w = PAD + [10.0, -3.0, 1.0]
    cov = offsets.relative_covariance(gate, at_w, before.cov)
    after = offsets.admit([gate], before).cov
    H = np.zeros((3, N))
    H[:, P], H[:, block(offsets.slots([gate])[0])], H[:, SCALE] = np.eye(3), -np.eye(3), -(at_w - PAD)
    assert cov == pytest.approx(H @ after @ H.T)


def test_the_gate_used_least_recently_gives_its_place():
    offsets, b = GateOffsets(0.2, 0.02, 0.01, PAD), prior_state(np.random.default_rng(1))
    for gate in range(GATES_KEPT):
        b = offsets.admit([gate], b)
        offsets.used(gate)
    offsets.used(0)
    b = offsets.admit([0, GATES_KEPT], b)
    assert offsets.slots([0, GATES_KEPT]).tolist() == [0, 1], "gate 1 was the oldest"
    shared, near = (b.cov[block(k), GATES].reshape(3, GATES_KEPT, 3)[:, 2:5] for k in (1, 5))
    assert shared == pytest.approx(near / 2), "the nearest to gate 6 is gate 5"
    assert b.cov[EDGE_M.start + 1] == pytest.approx(0.01**2 * (np.arange(N) == EDGE_M.start + 1))


@pytest.mark.parametrize(("step", "turn_deg"), [([0.0, 0.2, -0.15], [0.0, 0.0]), ([0.0, 0.0, 0.0], [3.0, 2.0])])
def test_a_gate_that_stands_elsewhere_or_turned_is_found_so(step, turn_deg, vq1, dcl):
    """The relative position stays correct, the absolute one and the turn within their covariance.

    From near: at 8 m the camera's yaw and principal point are unknown to 0.05 m, as far as so short a flight tells them.
    """
    flight, gate = Flight(vq1, dcl), vq1.gates[0]
    turned = replace(gate, yaw_deg=gate.yaw_deg + turn_deg[0], pitch_deg=gate.pitch_deg + turn_deg[1])
    flight.gate = displaced(turned, np.array(step))
    flight.a_b = matrix(flight.q).T @ [-12.0, 0.0, -0.9]  # up to 4 m before the gate
    flight.fly(1.8)
    estimator, state = flight.estimator, flight.estimator.state()
    seen = state.p_wb - estimator.gate_offset(0, gate.p_wg)
    assert estimator.health.gates_used > 30 and estimator.health.gates_refused < 5
    assert np.linalg.norm((seen - (flight.p - step))[1:]) < 0.06
    assert mahalanobis2(flight.p - state.p_wb, state.cov_p) < chi2_limit(3, 0.001)
    known = estimator.present()
    off = known.x.turns[0] - np.radians(turn_deg)
    assert (np.abs(off) < 3 * np.sqrt(known.cov[TURN, TURN].diagonal()[:2])).all()


def test_an_estimated_turn_is_seen_as_a_turn_in_the_world(vq1, dcl):
    """Compare to first order: 0.02 rad move a corner by 0.02 * 0.75 m, and the neglected terms by a hundredth of that."""
    gate, x = vq1.gates[0], before_gate(vq1.gates[0], np.random.default_rng(3))
    context = looking(dcl.camera, x[DELAY])
    for k, axis in enumerate(("yaw_deg", "pitch_deg")):
        turned = replace(gate, **{axis: getattr(gate, axis) + np.degrees(0.02)})
        tilted = x.having(turn=np.eye(2 * GATES_KEPT)[k] * 0.02)
        px = project(tilted, context, FIRST, gate.corners()[None])[0]
        assert px == pytest.approx(project(x, context, FIRST, turned.corners()[None])[0], abs=0.02)
        assert np.abs(px - project(x, context, FIRST, gate.corners()[None])[0]).max() > 0.05


@pytest.mark.parametrize("name", ["drift", "eskf"])
def test_on_a_true_map_nothing_is_moved(name, vq1, dcl):
    flight = Flight(vq1, dcl, name)
    flight.fly(0.5)
    assert np.linalg.norm(flight.estimator.gate_offset(0, vq1.gates[0].p_wg)) < 0.05


def test_an_offset_is_shared_between_scale_and_gate_by_variance(vq1, dcl):
    """Seen from a place that is known, 2 % farther from the pad than on the map: K = s^2 d^2 / (s^2 d^2 + m^2) of it."""
    gate, rng = vq1.gates[0], np.random.default_rng(2)
    x = before_gate(gate, rng).having(tilt=0.0, delay=0.0)
    away = gate.p_wg - PAD
    sigma = np.zeros(N)
    sigma[GATES], sigma[SCALE] = 0.1, 0.008
    seen = replace(sighted(displaced(gate, 0.02 * away), x, dcl.camera, sigma=0.01), corners_w=gate.corners())
    after = corrected(FilterState(x, np.diag(sigma**2), STILL), seen, looking(dcl.camera))
    d2 = float(away @ away)
    assert after.x[SCALE] == pytest.approx(0.02 * 0.008**2 * d2 / (0.008**2 * d2 + 0.1**2), rel=0.02)
    assert after.x.gates[0] + after.x[SCALE] * away == pytest.approx(0.02 * away, abs=0.01)


# Gates metres off the map.

FLAT = GateAppearance(outline_m=0.0, depth_m=0.0)
SIGMA_M, PX, ATTITUDE = 0.05, 0.3, 0.003
WHOLE, CUT, LONE = [True] * 4, [True, True, False, True], [True, False, False, False]
USUAL = np.zeros(3)


class Sight:
    """Views of a displaced first gate, from 8 m before its position on the map."""

    def __init__(self, track, camera, seed=5):
        self.gates, self.camera, self.rng = track.gates, camera, np.random.default_rng(seed)
        self.associator = Associator(track.gates, camera, FLAT)
        self.x = before_gate(track.gates[0], self.rng)

    def image(self, t, step_g, visible):
        """An exposure, and its detection of the first gate, off by step_g (3,) m in its own axes."""
        gate, (p_wc, R_wc) = self.gates[0], self.camera.pose(self.x.p_wb, self.x.q_wb)
        p_w = self.x.p_wb + self.rng.normal(0, SIGMA_M, 3)
        cov = np.diag([SIGMA_M**2] * 3 + [0.0] * 3 + [ATTITUDE**2] * 3)
        state = State(t, p_w, self.x.q_wb, np.zeros(3), np.zeros(3), cov, 0.0)
        px = self.camera.project((displaced(gate, gate.R_wg @ step_g).corners() - p_wc) @ R_wc)
        px = px + self.rng.normal(0, PX, (4, 2))
        sides = np.array(visible) | np.roll(visible, -1)
        whole = Detection.whole(px, PX, 1.0)
        shown = whole if all(visible) else Detection.partly(px, sides, np.array(visible), PX, 1.0)
        return ExposureState(t, state, self.camera), shown

    def relocated(self, steps_g, every_s=1 / 30, visible=WHOLE):
        """Return the relocation after images of the gate displaced by steps_g (M, 3) m in turn, and the number of images used."""
        relocator = GateRelocator()
        for k, step_g in enumerate(steps_g):
            exposure, shown = self.image(k * every_s, np.array(step_g), visible)
            found = recognise(exposure, self.associator, [shown])
            moved = relocator.look(found, [shown], [0], self.associator)
            if moved is not None:
                return moved, k + 1
        return None, len(steps_g)


RIGHT, UP_LEFT = [0.0, 2.0, 0.0], [0.0, -1.5, -1.3]
CASES = [
    ("2 m to the right", [RIGHT] * 2, {}, True),
    ("2 m to the left and up", [UP_LEFT] * 2, {}, True),
    ("cut by the image's edge", [RIGHT] * 2, {"visible": CUT}, True),
    ("one image errs grossly", [UP_LEFT, RIGHT, UP_LEFT], {}, True),
    ("a corner alone", [RIGHT] * 6, {"visible": LONE}, False),
    ("where the map has it", [USUAL] * 6, {}, False),
    ("as far off as maps usually are", [[0.1, 0.25, -0.1]] * 6, {}, False),
    ("too far to be that gate", [[0.0, 7.0, 0.0]] * 6, {}, False),
    ("seen once", [RIGHT], {}, False),
    ("seen at long intervals", [RIGHT] * 4, {"every_s": 0.5}, False),
    ("never twice at one place", [RIGHT, UP_LEFT, [0.0, 0.0, -2.0], [0.0, -2.0, 0.0]], {}, False),
]


@pytest.mark.parametrize(("steps_g", "how", "moves"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_what_is_taken_for_a_displaced_gate(steps_g, how, moves, vq1, dcl):
    found, images = Sight(vq1, dcl.camera).relocated(steps_g, **how)
    assert (found is not None) == moves
    if found is not None:
        assert images == len(steps_g)
        error = found.step_w - vq1.gates[0].R_wg @ steps_g[-1]
        assert np.linalg.norm(error) < 0.5
        assert error @ np.linalg.solve(found.cov, error) < 16.3, "its covariance is honest"


def test_another_gate_in_its_place_is_not_the_missing_one(vq1, dcl):
    """Two gates 2 m apart, one of them in view: it stands as usual, and nothing is known of the other."""
    other = displaced(vq1.gates[0], np.array([0.0, 2.0, 0.0]))
    sight = Sight(replace(vq1, gates=(vq1.gates[0], other)), dcl.camera)
    step_g = vq1.gates[0].R_wg.T @ [0.0, 2.0, 0.0]
    assert sight.relocated([step_g] * 6)[0] is None


def relocated_of(track, camera, rotation_rad, steps_w, rng):
    """Return the gates relocated by six images of gates 8 and 28 m away, displaced by steps_w (1 or 2, 3) m, world NED.

    The estimated attitude is off by rotation_rad (3,), body FRD, with a standard deviation of 1 deg about each axis.
    """
    near, sigma = track.gates[0], np.radians(1.0)
    gates = (near, displaced(near, near.R_wg @ [20.0, 3.0, 0.0]))[: len(steps_w)]
    associator, relocator, x = Associator(gates, camera, FLAT), GateRelocator(), before_gate(near, rng)
    p_wc, R_wc = camera.pose(x.p_wb, x.q_wb)
    q_wb = np.array(product(x.q_wb, exp(rotation_rad)))
    cov = np.diag([SIGMA_M**2] * 3 + [0.0] * 3 + [sigma**2] * 3)
    moved = []
    for t in np.arange(6) / 30:
        state = State(t, x.p_wb, q_wb, np.zeros(3), np.zeros(3), cov, 0.0)
        corners = (displaced(gate, step_w).corners() for gate, step_w in zip(gates, steps_w, strict=True))
        px = [camera.project((w - p_wc) @ R_wc) + rng.normal(0, PX, (4, 2)) for w in corners]
        shown = [Detection.whole(one, PX, 1.0) for one in px]
        found = Localised(at=ExposureState(t, state, camera))
        moved.append(relocator.look(found, shown, range(len(gates)), associator))
    return {one.gate for one in moved if one is not None}


@pytest.mark.parametrize("pitch_deg", [-4.0, 4.0])
def test_an_error_of_attitude_displaces_no_gate(pitch_deg, vq1, dcl):
    turned = np.radians([0.0, pitch_deg, 0.0])
    assert relocated_of(vq1, dcl.camera, turned, np.zeros((2, 3)), np.random.default_rng(4)) == set()


@pytest.mark.parametrize("down_m", [-1.0, 1.0])
def test_a_gate_seen_alone_is_not_displaced_by_errors_larger_than_assumed(down_m, vq1, dcl):
    """Attitude, map and position err by three sigma each, all in one direction, by a metre in sum."""
    turned = np.radians([0.0, -3.0 * down_m, 0.0])
    steps_w = [[0.0, 0.0, down_m * 3 * (USUAL_M + SIGMA_M)]]
    assert relocated_of(vq1, dcl.camera, turned, steps_w, np.random.default_rng(4)) == set()


@pytest.mark.parametrize("gate", [0, 1])
def test_of_two_gates_the_displaced_one_is_moved(gate, vq1, dcl):
    steps_w = np.zeros((2, 3))
    steps_w[gate] = [0.0, 0.0, 2.5]
    assert relocated_of(vq1, dcl.camera, np.zeros(3), steps_w, np.random.default_rng(4)) == {gate}


def test_no_more_gates_than_stated_are_falsely_moved(vq1, dcl, monkeypatch):
    """View 60 gates with usual map errors six times each: the rate of false relocations stays below the stated one."""
    monkeypatch.setattr(localisation, "FALSE_ALARM", 0.02)
    sight, rng = Sight(vq1, dcl.camera), np.random.default_rng(8)
    steps_g = rng.normal(0, USUAL_M, (60, 1, 3))
    moved = sum(sight.relocated(np.repeat(step_g, 6, 0))[0] is not None for step_g in steps_g)
    assert moved <= 0.02 * 60 + 3 * np.sqrt(0.02 * 60)


@pytest.fixture
def two():
    """Offsets of two gates, and the filter's state."""
    offsets = GateOffsets(0.2, 0.02, 0.01, np.zeros(3))
    return offsets, offsets.admit([0, 1], prior_state(np.random.default_rng(3)))


def test_a_relocated_gate_begins_anew_whatever_its_neighbours(two):
    (offsets, state), cov, own = two, np.diag([0.3, 0.1, 0.1]) ** 2, block(1)
    after = offsets.relocate(1, cov, state)
    assert after.cov[own, own] == pytest.approx(cov) and not after.x[own].any()
    rest = np.delete(np.arange(len(after.cov)), np.r_[own])
    assert not after.cov[np.ix_(np.r_[own], rest)].any() and offsets.slots([0, 1]).tolist() == [0, 1]
    assert np.delete(after.x.values, np.r_[own]) == pytest.approx(np.delete(state.x.values, np.r_[own]))


def test_a_gate_is_relocated_in_the_frame_of_the_last_used(two):
    offsets, state = two
    state.x.values[block(0)] = [0.2, -0.1, 0.3]
    offsets.used(0)
    before = offsets.on_map(state.x)
    after = offsets.relocate(1, 0.01 * np.eye(3), state)
    assert after.x[block(1)] == pytest.approx([0.2, -0.1, 0.3])
    assert offsets.on_map(after.x) == pytest.approx(before)


def test_about_a_relocated_gate_the_map_is_known_as_its_place(two):
    (offsets, state), cov = two, np.diag([1.0, 0.5, 0.3]) ** 2
    offsets.relocate(1, cov, state)
    for used, reference in ((None, 0), (1, cov), (0, 0)):
        if used is not None:
            offsets.used(used)
        assert offsets.reference_cov == pytest.approx(np.zeros((3, 3)) + reference)
