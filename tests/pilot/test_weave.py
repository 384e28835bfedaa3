"""The weave before the first gate banks steeply to both sides, in front of the gate."""

import math

import numpy as np
import pytest

from gate_racer.estimation.estimator import Landmark
from gate_racer.pilot.guidance.explorer import ACCEL, AMPLITUDE_M, Weave
from gate_racer.pilot.guidance.explorer import WEAVE_AT_M as AT_M
from gate_racer.vehicle.dynamics import GRAVITY

GATE = Landmark(0, np.array([20.0, 5.0, -3.0]), 0.01 * np.eye(3), 0.6, seen=50, views=2, last_t=10.0)


@pytest.mark.parametrize("before_m", [12.0, 6.0])
def test_a_vehicle_that_follows_it_banks_by_half_a_radian_to_both_sides_and_never_comes_nearer(before_m):
    """Integrate the aims, without lag, from a place beside the gate's axis."""
    right = np.array([-GATE.ahead[1], GATE.ahead[0], 0.0])
    p_w, t, dt = GATE.p_w - before_m * GATE.ahead + 0.5 * right, 3.0, 0.01
    weave = Weave(p_w, GATE, t)
    sides, aims = [], []
    while not weave.done(t):
        aim = weave.aim(p_w, t)
        p_w, t = p_w + dt * aim.v_w, t + dt
        assert -(p_w - GATE.p_w) @ GATE.ahead >= min(before_m, AT_M) - 1e-9
        sides.append((p_w - GATE.p_w) @ right)
        aims.append(aim.v_w @ right)
    late = slice(len(sides) // 2, None)
    accel = np.diff(aims[late]) / dt
    assert np.ptp(sides[late]) / 2 == pytest.approx(AMPLITUDE_M, rel=0.05)
    for peak in (accel.max(), -accel.min()):
        assert math.atan(peak / GRAVITY) > 0.5 and peak < ACCEL
