"""A frame in the way of a gate found too late is not hit: through the opening if it can be reached, else beside or above it."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.mpc.registry import make_controller
from gate_racer.pilot.guidance.evasion import BEGIN_S, FrameEvasion, clear_places, crossing
from gate_racer.tracks.track import bars
from gate_racer.vehicle.dynamics import RATES_X
from gate_racer.vehicle.rotation import from_euler

RADIUS_M, FLOOR_M = 0.3, 1.5
P, Q, V = (RATES_X[name].at for name in "pqv")


@pytest.fixture
def gate(vq1):
    return vq1.gates[2]


def state(gate, p_g, v_g):
    """A vehicle (14,) at p_g (3,) m with v_g (3,) m/s in the gate's axes, upright."""
    x = np.zeros(RATES_X.size)
    x[P], x[V] = gate.p_wg + gate.R_wg @ p_g, gate.R_wg @ v_g
    x[Q] = from_euler(0.0, 0.0, np.radians(gate.yaw_deg))
    return x


def test_where_the_plane_is_crossed_without_thrust(gate):
    seconds, place, slope = crossing(gate, state(gate, [-8.0, 1.0, -0.5], [20.0, -2.0, 1.0]), ((0.0, 0.0, 0.0), 0.0))
    assert (seconds, *place, *slope) == pytest.approx((0.4, 0.2, -0.1, -0.1, 0.05))
    braked, same, _ = crossing(gate, state(gate, [-8.0, 1.0, -0.5], [20.0, -2.0, 1.0]), ((0.0, 0.0, 0.0), 0.05))
    assert same == pytest.approx(place) and braked == pytest.approx((np.exp(0.05 * 8.09) - 1) / 0.05 / 20.1, rel=0.05)
    assert crossing(gate, state(gate, [0.1, 0.0, 0.0], [20.0, 0.0, 0.0]), ((0.0, 0.0, 0.0), 0.0)) is None
    assert crossing(gate, state(gate, [-8.0, 0.0, 0.0], [-20.0, 0.0, 0.0]), ((0.0, 0.0, 0.0), 0.0)) is None


@pytest.mark.parametrize("slope", [0.0, 0.8])
def test_places_are_clear_of_the_frame_and_those_outside_above_the_floor(gate, slope):
    rng, aside = np.random.default_rng(3), gate.outer_m / 2 + RADIUS_M
    for p0 in rng.uniform(-3, 3, (100, 2)):
        through, *beside = clear_places(gate, p0, np.array([slope, 0.0]), RADIUS_M, FLOOR_M)
        assert np.abs(through).max() <= gate.half - RADIUS_M
        assert all((abs(y) > aside or z < -aside) and z < FLOOR_M for y, z in beside)


def test_who_is_clear_of_the_frame_already_may_fly_on(gate):
    straight = np.zeros(2)
    for p0 in (np.array([0.1, -0.2]), np.array([2.5, 0.3]), np.array([0.3, -2.5])):
        assert any(place == pytest.approx(p0) for place in clear_places(gate, p0, straight, RADIUS_M, FLOOR_M))


@pytest.mark.parametrize("p0", [(1.0, 0.0), (-1.2, 0.3), (0.3, -1.1), (0.9, -0.9)])
@pytest.mark.parametrize("begin_s", [0.3, 0.36])
def test_the_vehicle_flies_clear_of_the_frame(p0, begin_s, gate, vq1, plan, dcl):
    controller = make_controller("mpcc", plan, dcl, vq1)
    evasion, v_g = FrameEvasion(controller, dcl, dcl.contact_radius_m, vq1.bounds), np.array([25.0, 2.0, -1.0])
    x, t, dt = state(gate, np.array([0.0, *p0]) - begin_s * v_g, v_g), 0.0, 1 / 60
    model, predictor = controller.disturbance.parameters, controller.predictor
    path = []
    while gate.local(x[P])[0] < 0.5 and t < 2 * BEGIN_S:
        assert (evasion.step(gate, x, t, 0.0) is not None) == (gate.local(x[P])[0] <= 0)
        x[RATES_X["c"].at] = predictor.thrust_at(t)
        x, t = predictor.fly(x, t, t + dt, model), t + dt
        path.append(x[P].copy())
    assert gate.local(x[P])[0] >= 0.5
    a, b = np.array(path[:-1]), np.array(path[1:])
    fine = np.concatenate([a + s * (b - a) for s in np.linspace(0, 1, 8)])
    assert min(bar.distance(fine).min() for bar in bars(gate)) > dcl.half_diagonal


@pytest.mark.parametrize(("axis", "side"), [(2, "above"), (1, "beside")])
def test_nobody_evades_to_where_the_bounds_leave_no_room_to_stop(axis, side, gate, vq1, plan, dcl):
    controller, v_g = make_controller("mpcc", plan, dcl, vq1), np.array([20.0, 0.0, 0.0])
    p0 = np.array([0.0, 0.2, -1.4]) if side == "above" else np.array([0.0, 1.4, 0.2])
    x, clear = state(gate, p0 - 0.25 * v_g, v_g), gate.outer_m / 2 + RADIUS_M

    def crossed(bounds):
        """Where the plane is crossed on the way first chosen, right and down."""
        evasion = FrameEvasion(controller, dcl, RADIUS_M, bounds)
        found = crossing(gate, x, (dcl.rates_parameters.drag_linear, dcl.rates_parameters.drag_quadratic))
        accel = gate.R_wg.T @ evasion._acceleration(gate, x, *found)
        return (p0 + accel * found[0] ** 2 / 2)[axis]

    low, high = np.array(vq1.bounds.low_m), np.array(vq1.bounds.high_m)
    assert abs(crossed(vq1.bounds)) > clear
    low[axis], high[axis] = gate.p_wg[axis] - 2.0, gate.p_wg[axis] + 2.0
    assert abs(crossed(replace(vq1.bounds, low_m=tuple(low), high_m=tuple(high)))) < clear
