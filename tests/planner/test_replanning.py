"""The rest of a plan, planned again from a state in flight."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.planner.models import P, Q, V
from gate_racer.planner.replanning import DEFECT_M, Remainder, replan
from gate_racer.planner.task import PlanOptions
from gate_racer.vehicle.dynamics import RATES_X

BEHIND_S = 0.1  # a gate
AFTER = 2  # that gate


@pytest.fixture(scope="module")
def rest(plan, vq1, dcl):
    """Return the remainder of VQ1 from behind a gate, in the plan's own state."""
    from_s = plan.gate_times_s[AFTER] + BEHIND_S
    t, x, _ = plan.dense(dcl, 8)
    return Remainder(plan, from_s, np.array([np.interp(from_s, t, column) for column in x.T]), vq1, dcl, PlanOptions())


def crossing(plan, vehicle, gate):
    """Return the margin, m, where a plan crosses a gate's plane, by integration between nodes."""
    _, x, _ = plan.dense(vehicle, 8)
    found = [gate.crossing(a, b) for a, b in zip(x[:-1, P], x[1:, P], strict=True)]
    return max(one.margin for one in found if one is not None)


def test_with_beliefs_unchanged_the_rest_is_flown_as_before(rest, plan, dcl):
    again = replan(rest)
    assert again.ok, again.status
    assert again.plan.hash == replan(rest).plan.hash
    left_s = plan.total_time - rest.from_s
    assert again.rest_s == pytest.approx(left_s, rel=0.015)
    assert again.plan.total_time == pytest.approx(rest.from_s + again.rest_s)
    before = np.flatnonzero(plan.t < rest.from_s)
    assert np.array_equal(again.plan.t[before], plan.t[before]) and np.array_equal(again.plan.x[before], plan.x[before])
    assert len(again.plan.gate_nodes) == len(plan.gate_nodes)
    assert again.plan.gate_times_s[: AFTER + 1] == pytest.approx(plan.gate_times_s[: AFTER + 1])
    at = np.array([again.plan.x[list(again.plan.gate_nodes), P], plan.x[list(plan.gate_nodes), P]])
    assert np.linalg.norm(at[0] - at[1], axis=1).max() < 0.6  # of an opening 1.5 m wide


def test_it_begins_in_the_state_that_was_given(rest):
    x = rest.x.copy()
    x[P] += [0.1, -0.1, 0.1]
    x[V] *= 1.04
    x[Q] /= np.linalg.norm(x[Q])  # rounded, in a file
    again = replan(replace(rest, x=x))
    assert again.ok, again.status
    k = int(np.flatnonzero(again.plan.t == rest.from_s)[0])
    x[Q] *= np.sign(x[Q] @ again.plan.x[k, Q])
    assert again.plan.x[k] == pytest.approx(x, abs=1e-6)
    q = again.plan.x[:, Q]
    assert (np.sum(q[1:] * q[:-1], axis=1) > 0).all()  # the attitude never changes its sign


def test_a_gate_that_stands_elsewhere_is_flown_through_there(rest, plan, vq1, dcl):
    number, gates = AFTER + 2, list(vq1.gates)
    x, y, z = gates[number].centre_m
    gates[number] = moved = replace(gates[number], centre_m=(x, y + 1.2, z - 0.5))
    assert crossing(plan, dcl, moved) < dcl.contact_radius_m  # as planned it is missed
    again = replan(replace(rest, track=replace(vq1, gates=tuple(gates))))
    assert again.ok, again.status
    assert crossing(again.plan, dcl, moved) > dcl.contact_radius_m + 0.1


def test_less_drag_is_faster_and_planned_by_its_own_motion(rest, dcl):
    slippery = replace(dcl, drag_quadratic_1_m=0.7 * dcl.drag_quadratic_1_m)
    usual, again = replan(rest), replan(replace(rest, vehicle=slippery))
    assert again.ok and again.rest_s < 0.97 * usual.rest_s
    k = int(np.flatnonzero(again.plan.t == rest.from_s)[0])

    def defect(vehicle):
        """The greatest of an interval, m."""
        model = again.plan.flight_model(vehicle)
        ends = model.integrate(again.plan.x[k:-1].T, again.plan.u[k:-1].T, np.diff(again.plan.t[k:]), 8)
        return np.linalg.norm(ends[P].T - again.plan.x[k + 1 :, P], axis=1).max()

    assert defect(slippery) < DEFECT_M
    assert defect(slippery) < 0.2 * defect(dcl)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda x: x[P].__setitem__(2, 1e3), "outside the bounds"),
        (lambda x: x[V].__imul__(100.0), "allows"),
        (lambda x: x.__setitem__(slice(None), np.nan), ""),
    ],
)
def test_an_impossible_state_gives_a_reason_and_keeps_the_plan(rest, wrong, says):
    x = rest.x.copy()
    wrong(x)
    again = replan(replace(rest, x=x))
    assert not again.ok and says in again.status
    assert again.plan is rest.plan
    assert len(x) == RATES_X.size
