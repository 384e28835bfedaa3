"""Derivatives that are put together from blocks are those of the whole."""

import casadi as ca
import numpy as np
import pytest

from gate_racer.planner.models import MODELS
from gate_racer.planner.nlp import Block, Blocks
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


def test_blocks_of_shared_variables_add_up():
    z, p = ca.SX.sym("z", 2), ca.SX.sym("p")
    block = Block.of("product", z, p, ca.vertcat(z[0] * z[1] ** 2, ca.sin(p * z[0])))
    w, lam = ca.MX.sym("w", 4), ca.MX.sym("lam", 6)
    places = [w[:2], 2 * w[1:3] + 1, ca.vertcat(w[3], 5.0)]
    blocks = Blocks(block, ca.horzcat(*places), ca.DM([[1.0, 2.0, 3.0]]))
    plain = ca.vertcat(*(ca.vertcat(at[0] * at[1] ** 2, ca.sin(k * at[0])) for k, at in enumerate(places, 1)))
    selection = blocks.selection(w)
    ours = ca.Function("ours", [w, lam], [blocks.values, blocks.jacobian(selection), blocks.hessian(selection, lam)])
    whole = ca.Function("whole", [w, lam], [plain, ca.jacobian(plain, w), ca.hessian(ca.dot(lam, plain), w)[0]])
    numbers = np.linspace(0.3, 1.2, 4), np.arange(1.0, 7.0)
    for a, b in zip(ours(*numbers), whole(*numbers), strict=True):
        assert np.asarray(a) == pytest.approx(np.asarray(b), rel=1e-12)
