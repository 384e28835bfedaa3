"""A gate that stands metres off the map is recognised, and put where it is; one that stands as usual is left alone."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.estimation import localisation
from gate_racer.estimation.estimator import ExposureState, State
from gate_racer.estimation.localisation import USUAL_M, GateRelocator, Localised, displaced, recognise
from gate_racer.model.gate_offsets import GateOffsets, block
from gate_racer.model.rims import GateAppearance
from gate_racer.perception.association import Associator
from gate_racer.perception.detection import Detection
from gate_racer.vehicle.rotation import exp, product
from tests.estimation.flying import before_gate
from tests.estimation.test_gates_moved import prior_state

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


def two_gates(track, camera, rotation_rad, steps_w, rng):
    """Return the gates relocated by six images of two gates 8 and 28 m away, displaced by steps_w (2, 3) m, world NED.

    The estimated attitude is off by rotation_rad (3,), body FRD, with a standard deviation of 1 deg about each axis.
    """
    near, sigma = track.gates[0], np.radians(1.0)
    gates = near, displaced(near, near.R_wg @ [20.0, 3.0, 0.0])
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
        moved.append(relocator.look(found, shown, [0, 1], associator))
    return {one.gate for one in moved if one is not None}


@pytest.mark.parametrize("pitch_deg", [-4.0, 4.0])
def test_an_error_of_attitude_displaces_no_gate(pitch_deg, vq1, dcl):
    turned = np.radians([0.0, pitch_deg, 0.0])
    assert two_gates(vq1, dcl.camera, turned, np.zeros((2, 3)), np.random.default_rng(4)) == set()


@pytest.mark.parametrize("gate", [0, 1])
def test_of_two_gates_the_displaced_one_is_moved(gate, vq1, dcl):
    steps_w = np.zeros((2, 3))
    steps_w[gate] = [0.0, 0.0, 2.5]
    assert two_gates(vq1, dcl.camera, np.zeros(3), steps_w, np.random.default_rng(4)) == {gate}


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
