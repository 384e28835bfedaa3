"""Both back-ends solve one problem, within the vehicle's limits."""

from dataclasses import replace

import numpy as np
import pytest

from gate_racer.benchmarks.true_state import fly
from gate_racer.mpc.model import nominal_parameters
from gate_racer.mpc.problem import Problem, load_settings
from gate_racer.mpc.reference import TARGET_PACE, U_W, Reference
from gate_racer.mpc.registry import make_controller
from gate_racer.mpc.solvers.acados import AcadosSolver
from gate_racer.mpc.solvers.portable import CasadiSolver
from gate_racer.planner.plan import read_plan
from gate_racer.sim.worlds.world import as_believed
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.dynamics import RATES_X

P, Q = (RATES_X[name].at for name in "pq")


def test_inputs_stay_within_the_vehicles_limits(plan, dcl, problem, solver, control):
    controller = control(solver)
    low, high = problem.input_limits(dcl)
    x = plan.x[40].copy()
    x[P] += 3.0
    for k in range(20):
        u = controller.step(k / 60, x, 1 / 60).u
        assert (u >= low - 1e-9).all() and (u <= high + 1e-9).all()


@pytest.mark.parametrize(("used", "granted"), [(0.5, 0.9), (0.9, 0.9), (0.95, 0.95), (1.0, 0.97)])
def test_a_plan_is_granted_the_thrust_it_uses(plan, dcl, vq1, used, granted):
    u = plan.u.copy()
    u[:, 3] *= used / plan.thrust_share(dcl)
    controller = make_controller("mpcc", replace(plan, u=u), dcl, vq1, "casadi")
    assert controller.allocated(np.array([0, 0, 0, 2 * dcl.thrust_max]), np.full(14, np.nan))[3] == pytest.approx(
        granted * dcl.thrust_max, abs=1e-9
    )


@pytest.mark.parametrize("name", ["tracking", "mpcc"])
def test_both_solvers_find_the_same(plan, vq1, dcl, name):
    problem = Problem(load_settings(name))
    row = Reference(plan, dcl, vq1.course(1)).sample(1.6 + np.arange(21) * 0.05)
    parameters = np.hstack([row, np.tile(nominal_parameters(dcl), (21, 1))])
    parameters[:, TARGET_PACE] = problem.settings.pace_max
    x0 = np.concatenate([row[0, :10], row[0, U_W], [30.0], [1.6, 1.0]])[: problem.formulation.x.size]
    x0[P] += [0.5, -0.8, 0.6]
    found = []
    for solver in (AcadosSolver(problem, dcl), CasadiSolver(problem, dcl)):
        guess = np.tile(x0, (21, 1)), np.tile(np.zeros(problem.formulation.u.size), (20, 1))
        solver.start(*guess)
        solver.prepare(parameters)
        found.append(solver.solve(x0))
        assert found[-1].status == 0
    low, high = problem.input_limits(dcl)
    assert (np.isclose(found[1].u, low) | np.isclose(found[1].u, high)).any()
    assert np.allclose(found[0].u, found[1].u, atol=5e-3) and np.allclose(found[0].x, found[1].x, atol=5e-3)


def test_casadi_flies_a_race_alone(sprint, dcl):
    track, plan = load_track(sprint / "sprint.yaml"), read_plan(sprint / "sprint.csv")
    controller = make_controller("tracking", plan, dcl, track, "casadi")
    flight = fly(controller, plan, as_believed(track, dcl), dcl, seed=5)
    assert flight.finished and flight.fallbacks == 0
    assert flight.time_s < plan.total_time + 0.1 and flight.margin_m > 0.35
