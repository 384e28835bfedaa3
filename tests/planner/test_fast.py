"""Fast plans: certified on random courses, symmetric, and refused in one line; derivatives are those of the whole."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

from gate_racer.benchmarks.planner import random_track, winding
from gate_racer.common.errors import UserError
from gate_racer.planner import stages
from gate_racer.planner.certificate.certificate import certify
from gate_racer.planner.course import resolve
from gate_racer.planner.guess import solve_point_mass
from gate_racer.planner.models import MODELS, P
from gate_racer.planner.nlp import Block
from gate_racer.planner.planning import make_plan
from gate_racer.planner.problem import step
from gate_racer.planner.task import PlanOptions, Task
from gate_racer.tracks.track import Obstacle, load_track
from gate_racer.vehicle.dynamics import flat
from gate_racer.vehicle.rotation import conjugate, exp, log, product
from gate_racer.vehicle.vehicle import Vehicle, load_vehicle
from tests.planner.test_planner import SOLVED, gate, straight

BLIND = PlanOptions(see=0.0, fast=True, guesses=1)


@pytest.mark.parametrize("track", [random_track(0), winding(40, 1)], ids=["random", "forty gates"])
def test_a_course_is_certified_and_not_faster_than_the_point_mass(track, dcl):
    _, certificate = make_plan(track, dcl, BLIND)
    assert certificate.ok, certificate.verdict
    mass = solve_point_mass(resolve(Task(track, dcl, BLIND)))
    assert mass.solved and certificate.total_time_s > (1 - 1e-3) * mass.total_time


@pytest.mark.parametrize("see", [0.0, 0.2])
def test_it_is_within_three_percent_of_the_optimum(see, vq1, dcl):
    """With gates in view below a plate in the air: the first guess looks to them at a time that costs 4 %."""
    gates = gate(12.0, z=-3.0), gate(32.0, -2.5, -6.6, yaw=18.0), gate(48.0, z=-3.0)
    plate = Obstacle((22.3, -15.0, -11.4), (23.0, 15.0, -7.4))
    below = replace(straight(*gates, start=(0.0, 0.0, -1.0)), obstacles=(plate,))
    track = below if see else replace(vq1, gates=vq1.gates[:3])
    quick, best = (make_plan(track, dcl, replace(BLIND, see=see, fast=fast))[1] for fast in (True, False))
    assert quick.ok and quick.total_time_s < 1.03 * best.total_time_s
    assert see or best.total_time_s < quick.total_time_s


def test_it_stops_at_rest(dcl):
    track = straight(gate(15.0, 2.0, -1.0, yaw=20.0))
    plan, certificate = make_plan(track, dcl, replace(BLIND, stop_m=(25.0, 6.0, -2.0)))
    assert certificate.ok, certificate.verdict
    assert plan.x[-1, P] == pytest.approx(np.array([25.0, 6.0, -2.0]), abs=1e-3)


def test_what_it_cannot_do_is_refused_in_one_line():
    figure8, cpc = load_track("figure8"), load_vehicle("cpc")
    for options in (replace(BLIND, flying_lap=True), replace(BLIND, model="rotors")):
        with pytest.raises(UserError, match=r"^.*fast: plans the rates model from a start[^\n]*$"):
            make_plan(figure8, cpc, options)


def test_derivatives_of_a_stage_are_those_of_its_flow():
    """With drag along each axis and lift, by differences of each tangent and input."""
    par, rng, n, h = np.array(flat(load_vehicle("kolibri").rates_parameters)), np.random.default_rng(5), 3, 0.015
    par[7] = 0.02  # 1/m, quadratic drag
    x = np.concatenate(
        [rng.normal(0, 5, 3), exp(rng.normal(0, 1, 3)), rng.normal(0, 9, 3), rng.normal(0, 2, 3), [15.0]]
    )
    u = np.append(rng.normal(0, 2, 3), 20.0)

    def flown(tangent, du):
        start = np.concatenate([x[:3] + tangent[:3], product(x[3:7], exp(tangent[3:6])), x[7:] + tangent[6:13]])
        way = np.empty((n + 1, 14))
        stages.flow(start, u + du, h, n, par, way)
        return way

    way, S = flown(np.zeros(13), np.zeros(4)), np.empty((n + 1, stages.NX, stages.NZ))
    stages.spread(x, u, h, 0.0, n, par, way, S)
    for column in [*range(13), *range(14, 18)]:
        step = 1e-5 * np.eye(stages.NZ)[column]
        up, down = (flown(sign * step[:13], sign * step[14:]) for sign in (1, -1))
        for k in range(1, n + 1):
            turned = log(product(conjugate(down[k, 3:7]), up[k, 3:7]))
            change = np.concatenate([up[k, :3] - down[k, :3], turned, up[k, 7:] - down[k, 7:]]) / 2e-5
            assert change == pytest.approx(S[k, :, column], abs=5e-4), (column, k)


def test_derivatives_of_the_torque_against_the_air_are_right():
    rng, given = np.random.default_rng(3), np.array([0.02, -0.03, 0.8, 0.01])
    x, G, none = (
        np.concatenate([np.zeros(3), exp(rng.normal(0, 1, 3)), rng.normal(0, 9, 7)]),
        np.empty(13),
        np.empty(13),
    )
    stages.state_row(stages.HOLD, given, x, G)
    for column in range(13):
        up, down = (np.empty(14), np.empty(14))
        for moved, sign in ((up, 1), (down, -1)):
            stages.moved(x, np.eye(13)[column], 1e-5 * sign, moved)
        change = stages.state_row(stages.HOLD, given, up, none) - stages.state_row(stages.HOLD, given, down, none)
        assert change / 2e-5 == pytest.approx(G[column], abs=1e-5), column


@pytest.mark.parametrize("fast", [True, False])
def test_the_air_takes_no_more_of_the_torque_than_its_share(fast, monkeypatch):
    kolibri, options, pillars = load_vehicle("kolibri"), replace(BLIND, fast=fast), load_track("pillars")
    track = replace(pillars, gates=pillars.gates[:3])
    plan, certificate = make_plan(track, kolibri, options)
    assert certificate.ok
    monkeypatch.setattr(Vehicle, "air_torque_1_ms", (0.0, 0.0))
    quicker, _ = make_plan(track, replace(kolibri), options)
    monkeypatch.undo()
    refused = certify(quicker, Task(track, kolibri, options), SOLVED)
    assert quicker.total_time < 0.98 * plan.total_time and "torque that the air takes" in refused.status


def test_lift_makes_the_point_mass_faster_and_a_downforce_not_slower():
    swift, times = load_vehicle("swift"), []
    for sqr in (-0.05, 0.0, 0.05):
        vehicle = replace(swift, aero=replace(swift.aero, fz=replace(swift.aero.fz, vxy_sqr=sqr)))
        times.append(solve_point_mass(resolve(Task(load_track("figure8"), vehicle, BLIND))).total_time)
    assert times[0] == pytest.approx(times[1], abs=1e-9) and times[2] < times[1] - 0.01


# Derivatives that are put together from blocks are those of the whole.


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
