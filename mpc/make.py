"""A controller by its name: settings, problem, solver and what is learned in flight, put together."""

import sys

from mpc.acados import AcadosMissingError, AcadosSolver
from mpc.adaptation import load_adaptation
from mpc.controller import Controller
from mpc.portable import CasadiSolver
from mpc.problem import Problem, load_settings
from mpc.solver import AUTO, SOLVERS, Solver
from planner.plan import Plan
from tracks.gate import Gate
from vehicle.errors import UserError
from vehicle.vehicle import Vehicle


def make_solver(name: str, problem: Problem, vehicle: Vehicle) -> tuple[Solver, Solver | None]:
    """The solver of a name, and a spare one. `auto` is acados, or CasADi with a line that says so where acados is missing.

    Raises:
        UserError: no such solver, or acados was asked for and is missing.
    """
    if name not in SOLVERS:
        raise UserError(f"no solver {name!r}; known: {', '.join(SOLVERS)}")
    portable = CasadiSolver(problem, vehicle)
    if name == "casadi":
        return portable, None
    try:
        return AcadosSolver(problem, vehicle), portable
    except AcadosMissingError as error:
        if name != AUTO:
            raise
        print(f"flying with CasADi, which takes ten times as long: {error}", file=sys.stderr)
        return portable, None


def make_controller(
    name: str, plan: Plan, vehicle: Vehicle, course: tuple[Gate, ...], solver: str = AUTO
) -> Controller:
    """The controller of a name (tracking, mpcc) or of a settings file, for a plan through the gates of `course`.

    Raises:
        UserError: no such controller or solver, a malformed file, or no usable solver.
    """
    problem = Problem(load_settings(name))
    first, spare = make_solver(solver, problem, vehicle)
    return Controller(plan, vehicle, problem, first, load_adaptation(), course, spare)
