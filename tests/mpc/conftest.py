"""The problem, its solver, and controllers on it."""

import pytest

from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.problem import Problem, load_settings
from gate_racer.mpc.solvers.acados import AcadosSolver


@pytest.fixture(scope="module")
def problem():
    return Problem(load_settings("tracking"))


@pytest.fixture(scope="module")
def solver(problem, dcl):
    return AcadosSolver(problem, dcl)


@pytest.fixture
def control(plan, dcl, vq1, problem):
    """Make a controller on a solver."""
    return lambda solver, spare=None: PlanController(plan, dcl, problem, solver, vq1.course(1), spare)
