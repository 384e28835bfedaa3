"""A map may be wrong: what counts is where the vehicle is to the gates that it sees."""

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

from gate_racer.estimation.localisation import displaced
from gate_racer.model.gate_offsets import GateOffsets, block
from gate_racer.model.imu import ImuReading
from gate_racer.model.kalman import FilterState
from gate_racer.model.reprojection import project
from gate_racer.model.states import DELAY, EDGE_M, GATES, GATES_KEPT, SCALE, TURN, N, Nominal, P
from gate_racer.vehicle.rotation import matrix
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
