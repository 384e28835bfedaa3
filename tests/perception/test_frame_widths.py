"""Width of frames: constant proportion at any slant; frames occluded by a nearer gate are recognised."""

import cv2
import numpy as np
import pytest

from gate_racer.model.quadrilateral import enlarged
from gate_racer.perception.learned.detector import frame_ends, goes_on, guess_is_even, is_even, occluded_sides

QUAD = np.array([[250.0, 130.0], [340.0, 140.0], [330.0, 220.0], [255.0, 235.0]])


def drawn(*frames):
    """An image with frames (quad, proportion), the nearest last."""
    image = np.zeros((360, 640), np.uint8)
    for quad, proportion in frames:
        ring = np.round(np.stack([enlarged(quad[None], proportion)[0], quad])).astype(np.int32)
        cv2.fillPoly(image, list(ring), 230)
    return image


NOTHING = np.zeros((1, 4), bool)  # of all sides
SQUARE = np.array([[[200.0, 150.0], [260.0, 150.0], [260.0, 210.0], [200.0, 210.0]]])


@pytest.mark.parametrize("proportion", [1.4, 1.8, 2.2])
def test_a_frame_ends_at_its_proportion_on_all_sides(proportion):
    ends, shines = frame_ends(drawn((QUAD, proportion)), QUAD[None])
    assert ends == pytest.approx(np.full((1, 4), proportion), abs=0.08)
    assert (shines == 1).all() and is_even(ends, QUAD[None], NOTHING, 1.8).all()
    assert not occluded_sides(ends, QUAD[None], NOTHING, 1.8).any()


def test_the_frame_outside_of_the_image_is_unknown():
    moved = QUAD[None] - [245.0, 0.0]
    ends, _ = frame_ends(drawn((moved[0], 1.8)), moved)
    assert np.isnan(ends[0, 3]) and np.isfinite(ends[0, :3]).all() and is_even(ends, moved, NOTHING, 1.8).all()


def test_the_edge_of_a_nearer_gate_is_no_side_of_an_opening():
    near = np.array([[260.0, 100.0], [420.0, 100.0], [420.0, 260.0], [260.0, 260.0]])
    image = drawn((SQUARE[0], 1.8), (near, 1.5))  # its frame begins at u = 220
    image[100:260, 220:260] = 230
    left = SQUARE.copy()
    left[0, 1:3, 0] = 220
    ends, _ = frame_ends(image, left)
    assert occluded_sides(ends, left, NOTHING, 1.8).tolist() == [[False, True, False, False]]


def test_a_side_that_goes_on_beyond_its_frame_is_another_gates():
    image = drawn((SQUARE[0], 1.8))
    assert not goes_on(image, SQUARE).any()
    image[:, 250:290] = 230  # a bar from the top of the image to its bottom
    left = SQUARE.copy()
    left[0, 1:3, 0] = 250
    assert goes_on(image, left).tolist() == [[False, True, False, False]]


def test_a_frame_is_as_wide_across_as_upright():
    def possible(*ends, quads=SQUARE, hidden=NOTHING):
        return bool(is_even(np.array([ends]), quads, hidden, 1.8)[0])

    flat = SQUARE * [1.0, 0.5]  # as of a slant by 60 deg, which shows the frame's depth
    assert possible(1.8, 1.8, 1.8, 1.8) and possible(2.3, 2.3, 2.3, 2.3)
    assert not possible(2.6, 1.8, 2.6, 1.8) and possible(2.6, 1.8, 2.6, 1.8, quads=flat)
    assert not possible(1.8, 2.6, 1.8, 2.6, quads=flat), "a slant widens the frame where it flattens the opening"
    assert not possible(*np.full(4, np.inf)), "a frame ends somewhere"
    assert possible(1.8, 2.4, 5.0, 1.9), "another gate widens it"
    assert possible(3.0, 1.8, 5.0, 1.8, hidden=np.array([[False, False, True, False]])), "what is left of an opening"


def test_a_guess_has_the_width_of_a_frame():
    assert guess_is_even(np.array([[1.8, 1.8, np.nan, 1.8], [1.8, np.inf, np.nan, 1.8]]), 1.8).all()
    assert not guess_is_even(np.array([[2.6, 2.6, np.nan, 1.4], [1.1, 1.8, np.nan, 1.8]]), 1.8).any()
