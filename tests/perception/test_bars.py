"""Where frames end: at their proportion, whatever the slant; and what a nearer gate has cut is told from what is whole."""

import cv2
import numpy as np
import pytest

from perception.bars import SCALES, cut, even, frame_ends
from perception.candidates import scaled

QUAD = np.array([[250.0, 130.0], [340.0, 140.0], [330.0, 220.0], [255.0, 235.0]])


def drawn(*frames):
    """A picture with frames (quad, proportion), the nearest last."""
    image = np.zeros((360, 640), np.uint8)
    for quad, proportion in frames:
        ring = np.round(np.stack([scaled(quad[None], proportion)[0], quad])).astype(np.int32)
        cv2.fillPoly(image, list(ring), 230)
    return image


@pytest.mark.parametrize("proportion", [1.4, 1.8, 2.2])
def test_a_frame_ends_at_its_proportion_on_all_sides(proportion):
    ends, shines = frame_ends(drawn((QUAD, proportion)), QUAD[None])
    step = SCALES[1:] / SCALES[:-1]
    assert (ends > proportion / step.max()).all() and (ends < proportion * step.max()).all()
    assert (shines == 1).all() and even(ends).all() and not cut(ends).any()


def test_what_lies_beside_the_picture_is_not_known():
    moved = QUAD - [245.0, 0.0]
    ends, _ = frame_ends(drawn((moved, 1.8)), moved[None])
    assert np.isnan(ends[0, 3]) and np.isfinite(ends[0, :3]).all() and even(ends).all()


def test_the_edge_of_a_nearer_gate_is_no_side_of_an_opening():
    whole = np.array([[200.0, 150.0], [260.0, 150.0], [260.0, 210.0], [200.0, 210.0]])
    near = np.array([[260.0, 100.0], [420.0, 100.0], [420.0, 260.0], [260.0, 260.0]])
    image = drawn((whole, 1.8), (near, 1.5))  # its frame begins at u = 220
    image[100:260, 220:260] = 230
    left = whole.copy()
    left[1:3, 0] = 220
    ends, _ = frame_ends(image, left[None])
    assert cut(ends).tolist() == [[False, True, False, False]]


def test_a_frame_is_as_wide_across_as_upright():
    assert not even(np.array([[2.0, 1.1, 2.0, 1.1]]))[0]
    assert not even(np.full((1, 4), np.inf))[0], "a frame ends somewhere"
    assert even(np.array([[2.0, 2.4, 5.0, 2.6]]))[0], "another gate or a slant widens it"
