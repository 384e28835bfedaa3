"""The way around obstacles that a first guess follows."""

from itertools import pairwise

import numpy as np
import pytest

from gate_racer.planner.course import along, route
from gate_racer.tracks.track import Obstacle, of_obstacle

LOW, HIGH, KEEP = np.full(3, -20.0), np.full(3, 20.0), 0.5
A, B = np.array([-10.0, 0.0, 0.0]), np.array([10.0, 0.0, 0.0])


def length(path):
    return np.linalg.norm(np.diff(path, axis=0), axis=1).sum()


@pytest.mark.parametrize(
    ("what", "boxes", "expected"),
    [
        ("nothing in the way", [((-1, 2, -1), (1, 3, 1))], 20.0),
        ("a thin wall, passed on its near side", [((0, -3, -30), (0.1, 30, 30))], 2 * np.hypot(10, 3.5)),
        ("a second wall behind it", [((0, -3, -30), (0.1, 30, 30)), ((5, -30, -30), (5.1, 2, 30))], 24.1),
        ("an end too near to the wall to be kept from it", [((9.8, -30, -30), (9.9, 30, 30))], 20.0),
    ],
)
def test_the_way_is_short_and_free(what, boxes, expected):
    obstacles = tuple(of_obstacle(Obstacle(*box)) for box in boxes)
    path = route(A, B, obstacles, KEEP, LOW, HIGH)
    assert path is not None
    assert (path[0] == A).all() and (path[-1] == B).all()
    assert length(path) == pytest.approx(expected, rel=0.03)
    if length(path) > 20.01:
        for a, b in pairwise(path):
            on_it = a + np.linspace(0, 1, 200)[:, None] * (b - a)
            assert min(o.distance(on_it).min() for o in obstacles) >= KEEP * 0.999


def test_a_wall_without_a_way_leaves_none():
    assert route(A, B, [of_obstacle(Obstacle((0, -30, -30), (0.1, 30, 30)))], KEEP, LOW, HIGH) is None


def test_places_along_a_path_are_even_and_face_ahead():
    path = np.array([[0.0, 0, 0], [3, 0, 0], [3, 1, 0]])
    places, directions = along(path, np.array([0.25, 0.5, 1.0]))
    assert np.allclose(places.T, [[1, 0, 0], [2, 0, 0], [3, 1, 0]])
    assert np.allclose(directions.T, [[1, 0, 0], [1, 0, 0], [0, 1, 0]])
