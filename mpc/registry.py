"""The controllers by name: along a plan, or without one; by a file of settings, a learned policy, or the class of a user."""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

from gate_racer.common.errors import UserError, meant
from gate_racer.common.files import read_bytes
from gate_racer.common.parts import PATIENCE_S, Part, is_part, load_part, part_content
from gate_racer.common.process import never_swallowed
from gate_racer.mpc.controller import PlanController
from gate_racer.mpc.names import AUTO, CONTOURING, CONTROLLERS, SOLVERS, TRACKING
from gate_racer.mpc.part import CONTROLLER, NEEDED, FreePart, PartController, PartSolver
from gate_racer.mpc.policy.policy import BYTES, PolicyController, is_policy, load_policy, names, path_of
from gate_racer.mpc.problem import Problem, load_settings
from gate_racer.mpc.solvers.acados import AcadosMissingError, AcadosSolver
from gate_racer.mpc.solvers.portable import CasadiSolver
from gate_racer.planner.plan import Plan
from gate_racer.tracks.gate import has_slot
from gate_racer.tracks.track import Track
from gate_racer.vehicle.vehicle import Vehicle

problem_of = cache(Problem)  # whose symbols and weights are derived once for all flights of a process
IN_SLOTS = 400.0  # 1/rad^2, weight of the attitude in tracking where there is a slot: with 20, the body touched its edge (flown)
DEFAULT = CONTOURING  # faster at equal margins (benchmarks/README.md), and within a command period with either solver


def needs_plan(name: str) -> bool:
    """Return whether a controller flies a plan, unlike policies and classes with `steer`. Raises UserError as `load_part`."""
    if is_part(name):
        return hasattr(load_part(name, "controller", NEEDED), CONTROLLER)
    return not is_policy(name)


def controller_content(name: str) -> object:
    """Return what a name stands for: settings, or the content of a file. Raises UserError for an unknown or unusable one."""
    if is_part(name):
        needs_plan(name)
        return part_content(name)
    if is_policy(name):
        return read_bytes(path_of(name), BYTES)
    if not Path(name).suffix:
        name = meant(name, (*CONTROLLERS, *names()), "controller", "a file or a class")
    return load_settings(name)


@never_swallowed()  # CasADi drops what strikes within its conversions, and a solver of acados compiles for a minute
def make_controller(
    name: str, plan: Plan, vehicle: Vehicle, track: Track, solver: str = AUTO, patience_s: float = PATIENCE_S
) -> PlanController:
    """Make the controller of a name (tracking, mpcc), of a settings file, or of a user's class, for a plan of a track.

    The controller `auto` is mpcc, or tracking, which holds the plan's attitude, where there is a slot; the solver `auto` is
    acados, or CasADi, with a line on stderr, if acados is missing.

    Args:
        patience_s: longest step of a user's class, s.

    Raises:
        UserError: no such controller or solver, a malformed file, a class that cannot be made, or no usable solver.

    Examples:
        >>> from gate_racer import make_controller
        >>> controller = make_controller("tracking", plan, vehicle, track, solver="casadi")
        >>> control = controller.step(t=0.0, x=plan.x[0], dt=1 / 60)
        >>> control.u.shape  # body rates, rad/s, and thrust, m/s^2
        (4,)
    """
    if solver not in SOLVERS:
        raise UserError(f"no solver {solver!r}; known: {', '.join(SOLVERS)}")
    part = Part(name, "controller", NEEDED, (plan, vehicle, track), patience_s) if is_part(name) else None
    if solver == AUTO and part is None:
        try:
            return make_controller(name, plan, vehicle, track, "acados")
        except AcadosMissingError as error:
            print(f"using the CasADi solver, which takes ten times as long: {error}", file=sys.stderr)
            return make_controller(name, plan, vehicle, track, "casadi")
    slots = has_slot(track.gates, vehicle.radius_m)
    usual = TRACKING if slots or part is not None else DEFAULT
    settings = load_settings(usual if part is not None or name == AUTO else name)
    if slots and name in (AUTO, TRACKING):
        settings = replace(settings, weights=replace(settings.weights, attitude=IN_SLOTS, gate_visibility=0.0))
    problem = problem_of(settings.granting(plan.thrust_share(vehicle)))
    course, floor_m = track.course(plan.laps), track.bounds.high_m[2]
    if part is not None:
        own = PartSolver(part, settings.horizon.step_s)
        return PartController(plan, vehicle, problem, own, course, None, floor_m)
    portable = CasadiSolver(problem, vehicle)
    first, spare = (AcadosSolver(problem, vehicle), portable) if solver == "acados" else (portable, None)
    return PlanController(plan, vehicle, problem, first, course, spare, floor_m)


def free_controller(
    name: str, track: Track, vehicle: Vehicle, command_hz: float, patience_s: float = PATIENCE_S
) -> PolicyController | FreePart:
    """Make a controller that needs no plan: a learned policy by name or file, or a user's class.

    Raises:
        UserError: none such, a malformed file, a class that cannot be made, or a policy for another vehicle or command rate.
    """
    if is_part(name):
        return FreePart(Part(name, "controller", NEEDED, (track, vehicle), patience_s), vehicle)
    policy = load_policy(name)
    policy.require(vehicle, command_hz)
    return PolicyController(policy, vehicle)
