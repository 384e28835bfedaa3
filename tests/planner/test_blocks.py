"""Derivatives that are put together from blocks are those of the whole."""

import casadi as ca
import numpy as np
import pytest

from gate_racer.planner.models import MODELS
from gate_racer.planner.nlp import Block
from gate_racer.planner.problem import step
from gate_racer.vehicle.dynamics import flat
from gate_racer.vehicle.vehicle import load_vehicle


@pytest.mark.parametrize(("model", "vehicle", "steps"), [("rates", "dcl", 2), ("rotors", "cpc", 1)])
def test_an_interval_is_so_many_steps_and_so_are_its_derivatives(model, vehicle, steps):
    chosen = MODELS[model](load_vehicle(vehicle), 0.8)
    x, u, dt, p, end = step(type(chosen), chosen.parameters)
    block = Block.integration(f"step_{model}", x, u, dt, p, end, steps)
    given = ca.DM(flat(chosen.parameters))
    one, z = ca.Function("one", [x, u, dt, p], [end]), ca.SX.sym("z", ca.vertcat(x, u, dt).numel())
    after, held = z[: x.numel()], (z[x.numel() : -1], z[-1] / steps)
    for _ in range(steps):
        after = one(after, *held, given)
    rng = np.random.default_rng(1)
    at, multipliers = np.append(rng.uniform(0.2, 1.0, z.numel() - 1), 0.05), rng.normal(size=x.numel())
    whole = ca.Function("whole", [z], [after, ca.jacobian(after, z), ca.hessian(ca.dot(multipliers, after), z)[0]])(at)
    ours = block.values(at, given), block.jacobian(at, given), block.hessian(at, given, multipliers)
    for a, b in zip(ours, whole, strict=True):
        assert np.asarray(a) == pytest.approx(np.asarray(b), rel=1e-9, abs=1e-9)
