"""Verification of gate hypotheses, one predicate at a time."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.model.quadrilateral import NEXT, outward_normals
from gate_racer.perception.classical.evidence import Evidence, conditions, verify
from gate_racer.perception.edges import QuadEdges

SQUARE = np.array([[100.0, 100.0], [160.0, 100.0], [160.0, 160.0], [100.0, 160.0]])
ALL, NONE = np.ones((1, 4), bool), np.zeros((1, 4), bool)


def edges(measured=ALL) -> QuadEdges:
    quads = SQUARE[None]
    return QuadEdges(quads, outward_normals(quads, quads[:, NEXT]), np.full((1, 4, 2), 0.1), measured, np.ones((1, 4)))


# A gate wholly in view, with everything where it should be and nothing behind it.
GATE = Evidence(
    opening=edges(),
    silhouette=edges(),
    visible=ALL,
    on_frame=np.ones((1, 4)),
    beyond=np.zeros((1, 4)),
    fits=ALL,
    shown=ALL,
    middle_inside=ALL,
    silhouette_inside=np.ones(1, bool),
    suspect=NONE,
    replaced=NONE,
    source=np.zeros(1, int),
    first_view=True,
)


def sides(*values) -> np.ndarray:
    return np.array([values])


CASES = {  # what is wrong, by the condition that fails
    "corners": {"visible": NONE},
    "colour": {"on_frame": sides(0.1, 0.1, 1.0, 1.0)},
    # The colour goes on beyond the frame, and its end is not seen everywhere.
    "background": {"beyond": np.full((1, 4), 0.9), "fits": sides(True, True, True, False)},
    # The frame ends in one direction only, though the opening seems whole.
    "silhouette": {"fits": sides(True, False, True, False), "beyond": np.full((1, 4), 0.3)},
    # A side was replaced beside which neither the frame ends nor anything covers it.
    "replaced sides": {"replaced": sides(True, False, False, False), "fits": sides(False, True, True, True)},
    # Lettering may be a hole, and one side of the silhouette is in view but not seen.
    "second view": {"first_view": False, "fits": sides(False, True, True, True)},
}


def test_a_gate_in_order_passes_every_predicate_and_is_accepted():
    assert all(holds.all() for holds in conditions(GATE).values())
    accepted, score = verify(GATE)
    assert accepted.tolist() == [0] and score == pytest.approx(1.0)


@pytest.mark.parametrize(("predicate", "changes"), CASES.items(), ids=CASES)
def test_a_failed_predicate_refuses_and_is_the_only_failed_one(predicate, changes):
    evidence = replace(GATE, **changes)
    assert {name for name, holds in conditions(evidence).items() if not holds.all()} == {predicate}
    assert not len(verify(evidence)[0])


@pytest.mark.parametrize("side", range(4))
def test_one_side_may_be_washed_white(side):
    washed = np.where(np.arange(4) == side, 0.0, 1.0)[None]
    assert verify(replace(GATE, on_frame=washed))[0].tolist() == [0]
