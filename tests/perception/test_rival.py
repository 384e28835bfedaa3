"""Position of another vehicle from the bounding box of its outline."""

import numpy as np
import pytest

from gate_racer.perception.detection import RivalDetection, RivalRanging
from gate_racer.vehicle.rotation import exp, matrix, product

WHOLE = (False, False, False, False)


def box_of(camera, body_m, p_c, R):
    """(4,) px of the outline of a body at p_c (3,), turned by R, in camera axes."""
    signs = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
    px = camera.project(p_c + signs * body_m @ R.T)
    return np.concatenate([px.min(axis=0), px.max(axis=0)])


def attitudes(n, seed=0):
    """Body to camera: tilted by up to 80 degrees in any direction, about a body that looks any way."""
    rng = np.random.default_rng(seed)
    upright = np.array([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]])
    for turn, way, tilt in rng.uniform(0, 1, (n, 3)) * [2 * np.pi, 2 * np.pi, np.radians(80)]:
        tilted = exp(tilt * np.array([np.cos(way), np.sin(way), 0.0]))
        yield upright @ matrix(product(tilted, exp(np.array([0.0, 0.0, turn]))))


@pytest.mark.parametrize("p_c", [(0.0, 0.0, 2.0), (1.0, -0.5, 4.0), (-2.0, 1.0, 7.0)])
def test_a_rival_of_any_attitude_is_placed_within_its_covariance(dcl, p_c):
    ranging, rng, errors = RivalRanging(dcl.camera, dcl.body_m), np.random.default_rng(1), []
    for R in attitudes(300):
        box_px = box_of(dcl.camera, dcl.body_m, np.array(p_c), R) + rng.standard_normal(4)
        at, cov = ranging.place(RivalDetection(box_px, 1.0, WHOLE, 1.0))
        off = at - p_c
        errors.append(off @ np.linalg.solve(cov + 0.03**2 * np.eye(3), off))  # the outline's middle is not the body's
    assert 0.3 < np.mean(errors) < 5.0, "chi-square with 3 degrees of freedom has a mean of 3"


@pytest.mark.parametrize("edge", [0, 1, 2, 3])
def test_the_visible_part_of_a_cut_rival_gives_its_position(dcl, edge):
    ranging, p_c = RivalRanging(dcl.camera, dcl.body_m), np.array([0.3, 0.2, 3.0])
    for R in attitudes(20):
        box_px = box_of(dcl.camera, dcl.body_m, p_c, R)
        box_px[edge] = (box_px[edge] + box_px[(edge + 2) % 4]) / 2
        at, cov = ranging.place(RivalDetection(box_px, 1.0, tuple(k == edge for k in range(4)), 1.0))
        off = at - p_c
        assert off @ np.linalg.solve(cov, off) < 16.3, "0.1 % of what is as said lies beyond"


def test_one_in_a_corner_of_the_image_is_not_placed(dcl):
    seen = RivalDetection(np.array([0.0, 0, 20, 20]), 1.0, (True, True, False, False), 1.0)
    assert RivalRanging(dcl.camera, dcl.body_m).place(seen) is None
