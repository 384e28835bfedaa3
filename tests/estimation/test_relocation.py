"""A gate that stands metres off the map is recognised, and put where it is; one that stands as usual is left alone."""

from types import SimpleNamespace

import numpy as np
import pytest

from estimation.eskf.gate_offsets import GateOffsets, block
from estimation.localisation import Localised
from estimation.relocation import GateRelocator, displaced
from perception.association import Associator
from perception.detection import Detection
from perception.rims import GateAppearance
from tests.estimation.flying import before_gate
from tests.estimation.test_gates_moved import belief
from vehicle.rotation import matrix

FLAT = GateAppearance(outline_m=0.0, depth_m=0.0)
SIGMA_M, PX = 0.05, 0.3


def relocated(track, camera, step_g, images=4, explained=False, every_s=1 / 30):
    """What images of the first gate, off by step_g (3,) m in its own axes, lead to, from 8 m before its place on the map."""
    gate, rng = track.gates[0], np.random.default_rng(5)
    true, x = displaced(gate, gate.R_wg @ step_g), before_gate(gate, rng)
    relocator = GateRelocator(Associator(track.gates, camera, FLAT))
    found = None
    for k in range(images):
        state = SimpleNamespace(
            t=k * every_s, p_wb=x.p_wb, q_wb=x.q_wb, cov_p=SIGMA_M**2 * np.eye(3), sigma_attitude_rad=0.003
        )
        px = camera.project((true.corners() - camera.pose(x.p_wb, x.q_wb)[0]) @ camera.pose(x.p_wb, x.q_wb)[1])
        detection = Detection.whole(px + rng.normal(0, PX, (4, 2)), PX, 1.0)
        sightings = [SimpleNamespace(gate=0, detection=0)] if explained else []
        seen = Localised(sightings=sightings, at=SimpleNamespace(state=state, camera=camera))
        found = found or relocator.look(seen, [detection], [(0, gate)])
    return found, gate.R_wg @ step_g


CASES = [
    ("2 m to the right", [0.0, 2.0, 0.0], {}, True),
    ("2 m to the left and up", [0.0, -1.5, -1.3], {}, True),
    ("where the map has it", [0.0, 0.0, 0.0], {}, False),
    ("as far off as maps usually are", [0.2, 0.3, -0.2], {}, False),
    ("too far to be that gate", [0.0, 7.0, 0.0], {}, False),
    ("seen too seldom", [0.0, 2.0, 0.0], {"images": 3}, False),
    ("seen at long intervals", [0.0, 2.0, 0.0], {"every_s": 0.5}, False),
    ("recognised as what it is", [0.0, 2.0, 0.0], {"explained": True}, False),
]


@pytest.mark.parametrize(("step_g", "how", "moves"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_what_is_taken_for_a_displaced_gate(step_g, how, moves, vq1, dcl):
    found, step_w = relocated(vq1, dcl.camera, np.array(step_g), **how)
    assert (found is not None) == moves
    if found is not None:
        error = found.step_w - step_w
        assert np.linalg.norm(error) < 0.5
        assert error @ np.linalg.solve(found.cov, error) < 16.3, "its doubt is honest"


def test_a_gate_put_elsewhere_begins_anew_whatever_its_neighbours_are_off():
    offsets, state = GateOffsets(0.2, 0.02, 0.01, np.zeros(3)), belief(np.random.default_rng(3))
    state = offsets.admit([0, 1], state)
    cov = np.diag([0.3, 0.1, 0.1]) ** 2
    after = offsets.relocate(1, cov, state)
    own = block(1)
    assert after.cov[own, own] == pytest.approx(cov) and not after.x[own].any()
    rest = np.delete(np.arange(len(after.cov)), np.r_[own])
    assert not after.cov[np.ix_(np.r_[own], rest)].any() and offsets.slots([0, 1]).tolist() == [0, 1]
    assert np.delete(after.x.values, np.r_[own]) == pytest.approx(np.delete(state.x.values, np.r_[own]))


def test_a_displaced_gate_is_the_same_gate_elsewhere(vq1):
    gate = vq1.gates[1]
    there = displaced(gate, np.array([1.0, -2.0, 0.5]))
    assert there.p_wg - gate.p_wg == pytest.approx([1.0, -2.0, 0.5])
    assert matrix(there.q_wg) == pytest.approx(matrix(gate.q_wg)) and there.opening_m == gate.opening_m
