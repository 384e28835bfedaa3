"""A controller by its name: settings, problem, solver and what is learned in flight, put together."""

from mpc.acados import AcadosSolver
from mpc.adaptation import load_adaptation
from mpc.controller import Controller
from mpc.problem import Problem, load_settings
from planner.plan import Plan
from tracks.gate import Gate
from vehicle.vehicle import Vehicle


def make_controller(name: str, plan: Plan, vehicle: Vehicle, course: tuple[Gate, ...]) -> Controller:
    """The controller of a name (tracking, mpcc) or of a settings file, for a plan through the gates of `course`.

    Raises:
        UserError: no such controller, a malformed file, or no usable solver.
    """
    problem = Problem(load_settings(name))
    return Controller(plan, vehicle, problem, AcadosSolver(problem, vehicle), load_adaptation(), course)
