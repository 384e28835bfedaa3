"""Laws of rotations and of the two flight models, and published trajectories replayed."""

from pathlib import Path

import casadi as ca
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation
from scipy.special import chdtri

from gate_racer.common.config import names
from gate_racer.vehicle.dynamics import GRAVITY, rates, rk4, rotors
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
from gate_racer.vehicle.statistics import chi2_limit
from gate_racer.vehicle.vehicle import FOLDER, load_vehicle

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
def test_euler_angles_are_scipys_and_come_back(roll, pitch, yaw):
    q = from_euler(roll, pitch, yaw)
    assert np.allclose(matrix(q), Rotation.from_euler("ZYX", (yaw, pitch, roll)).as_matrix(), atol=1e-12)
    assert np.allclose(matrix(from_euler(*to_euler(q))), matrix(q), atol=1e-6)
    if abs(pitch) <= 1.5:
        assert np.allclose(to_euler(q), (roll, pitch, yaw), atol=1e-6)


@given(quaternions, quaternions)
def test_between_starts_and_ends_where_it_should(p, q):
    for s, end in ((0.0, p), (1.0, q)):
        assert np.allclose(matrix(between(p, q, s)), matrix(end), atol=1e-6)


# Laws of the two flight models, and published trajectories replayed.


SHARED = Path(__file__).parents[3] / "shared" / "data"


def state(p=(0, 0, 0), q=(1, 0, 0, 0), v=(0, 0, 0), w=(0, 0, 0), c=0.0):
    return np.array([*p, *q, *v, *w, c], float)


@pytest.mark.parametrize("name", names(FOLDER))
def test_hover_is_an_equilibrium_and_free_fall_gravity_alone(name):
    vehicle = load_vehicle(name)
    par = vehicle.rates_parameters
    assert np.abs(rates(state(c=GRAVITY), [0, 0, 0, GRAVITY], par)).max() < 1e-12
    assert rates(state(), [0, 0, 0, 0], par)[7:10] == pytest.approx((0, 0, GRAVITY))
    if vehicle.rotors is not None:
        lifts = [vehicle.rotors.mass_kg * GRAVITY / 4] * 4
        assert np.abs(rotors(state()[:13], lifts, vehicle.rotors_parameters)).max() < 1e-12


def test_drag_takes_energy_and_nothing_else_does():
    still = load_vehicle("swift").rates_parameters._replace(lift=0.0)
    rng = np.random.default_rng(0)
    for _ in range(50):
        x = state(v=rng.normal(0, 10, 3), q=from_euler(*rng.uniform(-3, 3, 3)))
        power = np.dot(x[7:10], np.subtract(rates(x, [0] * 4, still)[7:10], [0, 0, GRAVITY]))
        assert power < 0
    dragless = still._replace(drag_linear=(0.0, 0.0, 0.0), drag_quadratic=0.0)
    assert np.dot(x[7:10], np.subtract(rates(x, [0] * 4, dragless)[7:10], [0, 0, GRAVITY])) == 0


def test_gyroscopic_torque_does_no_work():
    par = load_vehicle("kolibri").rotors_parameters
    rng = np.random.default_rng(1)
    for w in rng.normal(0, 10, (50, 3)):
        angular = np.array(rotors(state(w=w)[:13], [0] * 4, par)[10:13])
        assert abs(w @ (np.array(par.inertia) * angular)) < 1e-15


TURNS = {"front right": [-1, 1, 1], "rear left": [1, -1, 1], "rear right": [-1, -1, -1], "front left": [1, 1, -1]}


def test_each_rotor_turns_the_body_its_own_way():
    for thrusts, (rotor, ways) in zip(np.eye(4), TURNS.items(), strict=True):
        angular = rotors(state()[:13], thrusts, load_vehicle("cpc").rotors_parameters)[10:13]
        assert np.sign(angular).tolist() == ways, rotor


@pytest.mark.parametrize(("model", "nx"), [(rates, 14), (rotors, 13)])
def test_one_text_serves_casadi_and_numpy_and_its_jacobian_is_right(model, nx):
    vehicle = load_vehicle("swift")
    par = vehicle.rates_parameters if model is rates else vehicle.rotors_parameters
    x, u = ca.SX.sym("x", nx), ca.SX.sym("u", 4)
    f = ca.vertcat(*model(ca.vertsplit(x), ca.vertsplit(u), par))
    function, jacobian = ca.Function("f", [x, u], [f]), ca.Function("J", [x, u], [ca.jacobian(f, x)])
    rng = np.random.default_rng(2)
    x0, u0 = rng.normal(0, 1, nx), rng.uniform(0, 5, 4)
    assert function(x0, u0).full().ravel() == pytest.approx(np.array(model(x0, u0, par)), abs=1e-12)
    h = 1e-6
    for i, column in enumerate(jacobian(x0, u0).full().T):
        step = np.eye(nx)[i] * h
        difference = np.subtract(model(x0 + step, u0, par), model(x0 - step, u0, par)) / (2 * h)
        assert difference == pytest.approx(column, abs=1e-6)


def test_rk4_is_of_fourth_order():
    par = load_vehicle("dcl").rates_parameters
    x0, u = state(v=(5, 1, -2), w=(1, 2, 3), c=20), [3, -2, 1, 30]

    def fly(steps):
        x = x0
        for _ in range(steps):
            x = rk4(rates, x, u, par, 0.1 / steps)
        return np.array(x)

    exact = fly(512)
    coarse, fine = np.abs(fly(8) - exact).max(), np.abs(fly(16) - exact).max()
    assert 12 < coarse / fine < 20


@pytest.mark.skipif(not SHARED.exists(), reason="needs the published trajectories beside the checkout")
@pytest.mark.parametrize("name", ["timeopt_splits7_togt_refined.csv", "timeopt_splits19_aos_refined.csv"])
def test_published_rotor_trajectories_replay_row_by_row(name):
    """World z up and body FLU there, NED and FRD here: (x, y, z) -> (x, -y, -z) on vectors and on quaternion parts."""
    lines = [line for line in (SHARED / name).read_text().splitlines() if not line.startswith("#")]
    columns = np.loadtxt(lines[1:], delimiter=",")
    flip = np.array([1.0, -1.0, -1.0])
    t, p, v, q, w, u = np.split(columns, [1, 4, 7, 11, 14], axis=1)
    x = np.hstack([p * flip, q * [1, 1, -1, -1], v * flip, w * flip])
    par = load_vehicle("cpc").rotors_parameters
    dt, gravity_there = np.diff(t[:, 0]), 9.8066
    ends = np.array(rk4(rotors, x[:-1].T, u[:-1].T, par, dt))
    ends[2] += (gravity_there - GRAVITY) * dt**2 / 2
    assert np.abs(ends[:3].T - x[1:, :3]).max() < 1e-9


# Limits of squared distances, against SciPy's.


@pytest.mark.parametrize("dof", [1, 2, 3, 4, 8, 9, 30])
@pytest.mark.parametrize("false_alarm", [0.5, 1e-3, 1e-9])
def test_a_limit_is_exceeded_by_the_share_that_is_asked_for(dof, false_alarm):
    assert chi2_limit(dof, false_alarm) == pytest.approx(chdtri(dof, false_alarm), rel=1e-10)
