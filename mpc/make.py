"""Factory of controllers by name: settings, problem, solver and estimators of the model's errors."""

import sys
from functools import cache

from gate_racer.mpc.adaptation import load_adaptation
from gate_racer.mpc.controller import Controller
from gate_racer.mpc.problem.problem import Problem
from gate_racer.mpc.problem.settings import load_settings
from gate_racer.mpc.solvers.acados import AcadosMissingError, AcadosSolver
from gate_racer.mpc.solvers.portable import CasadiSolver
from gate_racer.mpc.solvers.solver import AUTO, SOLVERS
from gate_racer.planner.plan import Plan
from gate_racer.tracks.track import Track
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.vehicle import Vehicle

problem_of = cache(Problem)  # whose symbols and weights are derived once for all flights of a process
DEFAULT = "mpcc"  # faster at equal margins (benchmarks/README.md), and within a command period with either solver


def make_controller(name: str, plan: Plan, vehicle: Vehicle, track: Track, solver: str = AUTO) -> Controller:
    """Make the controller of a name (tracking, mpcc) or of a settings file, for a plan of a track.

    The controller `auto` is mpcc; the solver `auto` is acados, or CasADi, with a line on stderr, if acados is missing.

    Raises:
        UserError: no such controller or solver, a malformed file, or no usable solver.

    Examples:
        >>> from gate_racer import make_controller
        >>> controller = make_controller("tracking", plan, vehicle, track, solver="casadi")
        >>> control = controller.step(t=0.0, x=plan.x[0], dt=1 / 60)
        >>> control.u.shape  # body rates, rad/s, and thrust, m/s^2
        (4,)
    """
    if solver not in SOLVERS:
        raise UserError(f"no solver {solver!r}; known: {', '.join(SOLVERS)}")
    if solver == AUTO:
        try:
            return make_controller(name, plan, vehicle, track, "acados")
        except AcadosMissingError as error:
            print(f"using the CasADi solver, which takes ten times as long: {error}", file=sys.stderr)
            return make_controller(name, plan, vehicle, track, "casadi")
    settings = load_settings(DEFAULT if name == AUTO else name)
    problem = problem_of(settings.granting(plan.thrust_share(vehicle)))
    portable = CasadiSolver(problem, vehicle)
    first, spare = (AcadosSolver(problem, vehicle), portable) if solver == "acados" else (portable, None)
    course, floor_m = track.course(plan.laps), track.bounds.high_m[2]
    return Controller(plan, vehicle, problem, first, load_adaptation(), course, spare, floor_m)
