"""Group laws of rotations, and the tuple form against the matrix form."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from gate_racer.vehicle.rotation import (
    aligned,
    between,
    exp,
    from_euler,
    from_matrix,
    log,
    matrix,
    normalised,
    product,
    rate,
    rotate,
    to_euler,
    turn,
)

component = st.floats(-1, 1)
vectors = st.tuples(component, component, component).map(np.array)
quaternions = (
    st.tuples(component, component, component, component)
    .map(np.array)
    .filter(lambda q: np.linalg.norm(q) > 0.1)
    .map(normalised)
)


@given(quaternions, quaternions, vectors)
def test_product_is_composition(p, q, v):
    assert np.allclose(rotate(product(p, q), v), rotate(p, rotate(q, v)), atol=1e-12)


@given(quaternions, vectors)
def test_rotate_equals_the_matrix_and_scipy(q, v):
    assert np.allclose(rotate(q, v), matrix(q) @ v, atol=1e-12)
    assert np.allclose(matrix(q), Rotation.from_quat(q, scalar_first=True).as_matrix(), atol=1e-12)


@given(quaternions)
def test_matrix_round_trip_up_to_sign(q):
    back = from_matrix(matrix(q))
    assert min(np.abs(back - q).max(), np.abs(back + q).max()) < 1e-14 and back[0] >= 0


@pytest.mark.parametrize("half_turn", [(0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0.6, 0, -0.8), (1e-9, 0, 1, 0)])
def test_a_half_turn_has_a_quaternion(half_turn):
    """Test half turns, at which the trace method divides by w = 0."""
    assert matrix(from_matrix(matrix(half_turn))) == pytest.approx(matrix(half_turn), abs=1e-15)


@given(quaternions, vectors)
def test_aligned_puts_down_down_and_the_nose_as_near_to_its_heading_as_that_allows(q, heading):
    down = matrix(q)[:, 2]
    nose, right, z = matrix(aligned(down, heading)).T
    assert np.allclose(z, down, atol=1e-12)
    if np.linalg.norm(np.cross(down, heading)) > 1e-3:
        assert abs(right @ heading) < 1e-12 and nose @ heading > 0


@given(vectors, st.sampled_from([3.0, 1e-4, 1e-9, 0.0]))
def test_log_undoes_exp_and_turn(v, size):
    phi = size * v / max(1, np.linalg.norm(v))
    assert log(exp(phi)) == pytest.approx(phi, abs=1e-9 * size)
    assert exp(phi) == pytest.approx(turn(*phi), abs=1e-15)


@given(quaternions, vectors)
def test_rate_is_the_derivative_and_keeps_the_norm(q, w):
    h = 1e-6
    ahead, behind = product(q, exp(w * h)), product(q, exp(-w * h))
    assert np.allclose(rate(q, w), np.subtract(ahead, behind) / (2 * h), atol=1e-8)
    assert abs(np.dot(rate(q, w), q)) < 1e-12


@given(
    st.floats(-3.1, 3.1),
    st.one_of(st.floats(-1.5, 1.5), st.sampled_from([np.pi / 2, -np.pi / 2])),
    st.floats(-3.1, 3.1),
)
def test_euler_round_trip(roll, pitch, yaw):
    q = from_euler(roll, pitch, yaw)
    assert np.allclose(matrix(from_euler(*to_euler(q))), matrix(q), atol=1e-6)
    if abs(pitch) <= 1.5:
        assert np.allclose(to_euler(q), (roll, pitch, yaw), atol=1e-6)


def test_positive_pitch_lifts_the_nose_and_positive_yaw_turns_right():
    nose_up = rotate(from_euler(0, 0.1, 0), (1.0, 0.0, 0.0))
    assert nose_up[2] < 0  # NED: up is negative
    right = rotate(from_euler(0, 0, 0.1), (1.0, 0.0, 0.0))
    assert right[1] > 0


@given(quaternions, quaternions)
def test_between_starts_and_ends_where_it_should(p, q):
    for s, end in ((0.0, p), (1.0, q)):
        assert np.allclose(matrix(between(p, q, s)), matrix(end), atol=1e-6)
