"""Maps to gates: what is drawn into the maps comes out of them, to a fraction of a pixel."""

import numpy as np
import pytest

from gate_racer.perception.learned.network import CORNERS, FIELDS, group_corners
from gate_racer.perception.networks import to_image, to_map

H, W = 180, 320
SQUARE = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]) / 2


def quad(centre, side, turn_deg=0.0):
    c, s = np.cos(np.radians(turn_deg)), np.sin(np.radians(turn_deg))
    return np.asarray(centre) + side * SQUARE @ np.array([[c, s], [-s, c]])


def log_odds(maps):
    """The same maps, the heat maps' probabilities as log-odds."""
    heat = np.clip(maps[:CORNERS], 1e-5, 1 - 1e-5)
    return np.concatenate([np.log(heat / (1 - heat)), maps[CORNERS:]])


def maps_of(quads, heights=None):
    """Ideal maps of gates (4, 2) in map pixels; `heights` (gates, 4) of the peaks, 0 leaves a corner out."""
    maps = np.zeros((CORNERS + FIELDS, H, W), np.float32)
    v, u = np.mgrid[:H, :W]
    for n, corners in enumerate(quads):
        height = np.ones(4) if heights is None else heights[n]
        for k in range(4):
            a, b = corners[k], corners[(k + 1) % 4]
            maps[k] = np.maximum(maps[k], height[k] * np.exp(-((u - a[0]) ** 2 + (v - a[1]) ** 2) / 2))
            way = (b - a) / np.linalg.norm(b - a)
            along = (u - a[0]) * way[0] + (v - a[1]) * way[1]
            across = np.abs((u - a[0]) * way[1] - (v - a[1]) * way[0])
            on = (across < 1.2) & (along > -1) & (along < np.linalg.norm(b - a) + 1) & (height[k] > 0)
            maps[4 + 2 * k][on], maps[5 + 2 * k][on] = way
    return log_odds(maps)


@pytest.mark.parametrize("side", [6.0, 15.0, 80.0])
@pytest.mark.parametrize("turn_deg", [-35.0, 0.0, 20.0])
def test_planted_corners_come_back_to_a_hundredth_of_a_pixel(side, turn_deg):
    planted = quad([160.37, 91.81], side, turn_deg)
    (found,) = group_corners(maps_of([planted]))
    np.testing.assert_allclose(found.at, planted, atol=0.02)
    assert found.score > 0.9
    assert (found.height > 0.7).all()


def test_gates_side_by_side_and_within_each_other_are_kept_apart():
    planted = [
        quad([100, 90], 90),
        quad([105, 95], 30, 10),
        quad([115, 88], 8),
        quad([250, 90], 24),
        quad([279, 90], 24),
    ]
    found = group_corners(maps_of(planted))
    for corners in planted:
        assert min(np.abs(gate.at - corners).max() for gate in found) < 0.05


@pytest.mark.parametrize("missing", [(0,), (2,), (0, 1), (1, 2), (2, 3), (3, 0)])
def test_the_visible_parts_of_a_gate_are_one_gate(missing):
    planted, height = quad([160, 90], 40, 5), np.ones((1, 4))
    height[0, list(missing)] = 0
    found = group_corners(maps_of([planted], height))[0]
    seen = height[0] > 0
    np.testing.assert_allclose(found.at[seen], planted[seen], atol=0.02)
    assert np.isnan(found.at[~seen]).all()


def test_peaks_without_edges_are_no_gate_and_nothing_is_nothing():
    maps = maps_of([quad([160, 90], 40)])
    maps[CORNERS:] = 0
    assert group_corners(maps) == []
    assert group_corners(log_odds(np.zeros_like(maps))) == []


@pytest.mark.parametrize("flat", [-9.0, 0.5, 1.0, np.inf, np.nan])
def test_maps_of_nonsense_give_nothing_and_raise_nothing(flat):
    assert group_corners(np.full((CORNERS + FIELDS, H, W), flat, np.float32)) == []


def test_map_and_image_pixels_agree():
    px = np.array([[0.5, 0.5], [319.0, 7.25]])
    np.testing.assert_allclose(to_image(to_map(px)), px)
    np.testing.assert_allclose(to_map(np.array([0.5, 2.5])), [0, 1])
