"""A controller goes on by another plan, and says where it expects to be."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.vehicle.dynamics import RATES_X

P, Q = RATES_X["p"].at, RATES_X["q"].at
DT = 1 / 60


@pytest.fixture
def flying(control, solver, plan, dcl):
    """A controller that has flown a second on the plan's line, and its time then."""
    controller, (t, x, _) = control(solver), plan.dense(dcl, 8)
    for k in range(60):
        at = np.array([np.interp(k * DT, t, column) for column in x.T])
        controller.step(k * DT, at, DT)
        controller.prepare()
    return controller, 59 * DT


def test_it_expects_to_be_where_its_last_solution_leads(flying):
    controller, t = flying
    p_w = controller.way(0.1)
    assert controller.expected(t, 0.0)[P] == pytest.approx(p_w[0])
    assert controller.expected(t, 0.05)[P] == pytest.approx(p_w[1])
    between = controller.expected(t, 0.075)
    assert between[P] == pytest.approx((p_w[1] + p_w[2]) / 2)
    assert np.linalg.norm(between[Q]) == pytest.approx(1.0)
    assert controller.expected(t, 1.2) is None  # beyond its horizon
    controller.rejoin(0.0, 1.0)
    assert controller.expected(t, 0.0) is None  # nothing solved is left


def test_another_plan_is_followed_through_displaced_gates(flying, plan, dcl):
    controller, t = flying
    offset = np.array([0.2, -0.1, 0.1])
    controller.reference.offsets.set_offset(2, offset, 0.1)
    slower = replace(plan, t=1.1 * plan.t)
    controller.follow(slower, dcl, 1.1)
    assert controller.theta == 1.1 and controller.progress.pace == 1.0
    assert controller.reference.gate_times_s[2] == pytest.approx(1.1 * plan.gate_times_s[2])
    assert controller.reference.offsets.line(controller.reference.gate_times_s[2:3])[0][0] == pytest.approx(offset)
    row = controller.reference.sample(np.array([1.1]))[0]
    x = np.array([np.interp(1.1, slower.t, column) for column in slower.x.T])
    x[P] = row[P]
    control = controller.step(t + DT, x, DT)
    assert control.source == "solved"
