"""Races on the true state, with a vehicle that differs from the nominal one."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.benchmarks.true_state import fly
from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.problem import Problem, load_settings
from gate_racer.mpc.registry import make_controller
from gate_racer.mpc.solvers.acados import AcadosSolver
from gate_racer.planner.planning import make_plan
from gate_racer.planner.task import PlanOptions
from gate_racer.sim.worlds.world import AirDeviation, Deviations, PlantDeviation, World, as_believed
from gate_racer.tracks.track import Bounds, Start, Track
from tests.planner.test_planner import gate

NOMINAL, WEAK, DRAGGED, SLOW = (
    Deviations(PlantDeviation(**off)) for off in ({}, {"thrust_scale": 0.85}, {"drag_scale": 1.5}, {"slew_scale": 0.67})
)
GUSTS = Deviations(air=AirDeviation(gust_m_s=2.0))
CASES = {  # controller, what differs from the model, greatest time over the plan's, least margin, by rates
    "nominal, in the plan's time": ("tracking", NOMINAL, 1.02, 0.4, True),
    "by attitude targets": ("tracking", NOMINAL, 1.03, 0.3, False),
    "a sixth of the thrust missing": ("tracking", WEAK, 1.05, 0.4, True),
    "half as much drag again": ("tracking", DRAGGED, 1.14, 0.4, True),
    "gusts": ("tracking", GUSTS, 1.04, 0.2, True),
    "rotors that turn it two thirds as fast": ("tracking", SLOW, 1.02, 0.4, True),
    "contouring does not lose to the plan": ("mpcc", NOMINAL, 1.0, 0.4, True),
    "contouring takes the reserve of thrust": ("mpcc", WEAK, 1.03, 0.4, True),
    "contouring loses less to drag": ("mpcc", DRAGGED, 1.1, 0.4, True),
}


@pytest.fixture(scope="module")
def course(vq1):
    return replace(vq1, gates=vq1.gates[:3])


@pytest.fixture(scope="module")
def reserved(course, dcl):
    """A plan that leaves a quarter of the thrust to who flies it."""
    plan, certificate = make_plan(course, dcl, PlanOptions(reserve=0.75, see=0.5, fast=True))
    assert certificate.ok, certificate.status
    return plan


@pytest.mark.parametrize("name, wrong, slowest, margin, by_rates", CASES.values(), ids=CASES)
def test_races_on_the_true_state(reserved, course, dcl, name, wrong, slowest, margin, by_rates):
    problem = Problem(load_settings(name))
    controller = PlanController(reserved, dcl, problem, AcadosSolver(problem, dcl), course.course(1))
    flight = fly(controller, reserved, World.of("wrong", wrong, course, dcl), dcl, seed=3, by_rates=by_rates)
    assert flight.finished, flight.cause
    assert flight.time_s < slowest * reserved.total_time and flight.margin_m > margin and flight.fallbacks == 0


def test_a_gate_that_faces_away_is_flown_by_contouring(dcl):
    bounds = Bounds((-20.0, -20.0, -20.0), (40.0, 20.0, 3.0))
    away = Track("away", Start((0.0, 0.0, 0.0), 0.0), bounds, (gate(10.0, yaw=180.0),), False, None)
    plan, certificate = make_plan(away, dcl, PlanOptions(see=0.0, margin_m=0.15, fast=True))
    assert certificate.ok, certificate.status
    controller = make_controller("mpcc", plan, dcl, away)
    flight = fly(controller, plan, as_believed(away, dcl), dcl, seed=3, scatter=False)
    assert flight.finished, flight.cause
    assert flight.margin_m > dcl.contact_radius_m
    assert flight.time_s - dcl.command_delay_s < 1.03 * plan.total_time


def test_slightly_late_commands_do_not_slow_the_plan_down(reserved, course, dcl, problem, solver):
    pilot = PlanController(reserved, dcl, problem, solver, course.course(1))
    rng, period, t0 = np.random.default_rng(2), 1 / 60, 1.5
    pilot.progress.theta, late_s = t0, rng.uniform(0, 0.4 / 60, 60)
    for k, late in enumerate(late_s):
        t = t0 + k * period + late
        at = pilot.theta - dcl.command_delay_s  # the vehicle follows: when the command acts it is where it should be
        x = np.array([np.interp(at, reserved.t, column) for column in reserved.x.T])
        pilot.step(t, x, t0 + (k + 1) * period - t)
    assert pilot.theta == pytest.approx(t0 + len(late_s) * period, abs=0.05)
