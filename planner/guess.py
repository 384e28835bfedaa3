"""Initial guess: the time-optimal point mass through the same gates, with attitudes that follow from its thrust, |a_t| <= c.

It omits the attitude dynamics, so its time bounds the full problem's from below on the same sides of all solids.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Any

import casadi as ca
import numpy as np

from gate_racer.planner.course import Course, Side, along, try_sides, way_to
from gate_racer.planner.mesh import Mesh, Point, intervals
from gate_racer.planner.models import Model, P, Q, V
from gate_racer.planner.nlp import ENDLESS, Block, Blocks, Deadline, Nlp, Rows
from gate_racer.planner.terms import ClearOfSolids, LegEnds, Nodes, WithinPrisms
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, aligned, conjugate, exp, from_euler, log, matrix, product
from gate_racer.vehicle.vehicle import Vehicle

NODES, SPACING_M = 12, 10.0  # least number of nodes per leg; m, largest spacing (chosen)
INSIDE_NODES = 2  # nodes per leg within a gate
NEAR_M = 5.0  # m, distance from the initial guess above which a solid is ignored
# m/s, speed of the initial guess on legs up to LONG_M, m; on longer legs it grows with the square root of the length (chosen)
CRUISE, LONG_M = 8.0, 30.0
FAST_SHARE = 0.7  # -, largest speed of the guess over the speed limit (chosen)
SHORTEST_S, SHORTEST_INSIDE_S = 0.01, 0.001  # s, least duration of a leg, and of one within a gate
SLOWEST = 4.0  # -, largest duration of a leg over the guessed one plus 1 s: longer intervals could skip obstacles
SPEED_BOUND = 1e3  # m/s, if the vehicle gives no limit
VELOCITY = slice(3, 6)  # indices of v in the state p, v
SETTINGS = {"ipopt.max_iter": 400, "ipopt.tol": 1e-5}


@dataclass(frozen=True)
class PointMass:
    """Trajectory of the point mass, per leg of n intervals; the initial guess if it is not solved."""

    durations: Array  # (L,) s
    p: list[Array]  # (3, n + 1) m, world NED
    v: list[Array]  # (3, n + 1) m/s, world NED
    thrust: list[Array]  # (3, n) m/s^2, world NED
    solved: bool

    @property
    def total_time(self) -> float:
        return float(self.durations.sum())


def _step(vehicle: Vehicle) -> Block:
    """Build the RK4 step of p' = v, v' = a_t + g - drag."""
    p, v, a, dt = ca.SX.sym("p", 3), ca.SX.sym("v", 3), ca.SX.sym("a", 3), ca.SX.sym("dt")
    # Linear drag acts in body axes; with the smallest of the three coefficients the result remains a bound.
    linear = min(vehicle.drag_linear_1_s)

    def acceleration(v: Any) -> Any:
        return a + ca.vertcat(0, 0, GRAVITY) - (linear + vehicle.drag_quadratic_1_m * ca.sqrt(ca.dot(v, v) + 1e-8)) * v

    k1 = acceleration(v)
    k2 = acceleration(v + dt / 2 * k1)
    k3 = acceleration(v + dt / 2 * k2)
    k4 = acceleration(v + dt * k3)
    p_next = p + dt * v + dt**2 / 6 * (k1 + k2 + k3)
    v_next = v + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return Block.of("point_mass", ca.vertcat(p, v, a, dt), ca.SX(0, 1), ca.vertcat(p_next, v_next))


SAME = 1e-4  # -, relative difference of times below which two ways are the same


def ways_past_solids(course: Course, deadline: Deadline = ENDLESS) -> list[PointMass]:
    """Return the point masses on different sides of the solids in the way, fastest first. Errors as `solve_point_mass`."""
    first = solve_point_mass(course, deadline)
    found = [first]

    def solve(sides: tuple[Side, ...]) -> float:
        one = solve_point_mass(course, deadline, sides)
        if not one.solved:
            return math.inf
        if all(abs(one.total_time / other.total_time - 1) > SAME for other in found):
            found.append(one)
        return one.total_time

    if first.solved:
        try_sides(course, first.total_time, solve)
    return sorted(found, key=lambda one: one.total_time)


def solve_point_mass(course: Course, deadline: Deadline = ENDLESS, sides: tuple[Side, ...] = ()) -> PointMass:
    """Solve the relaxed problem on these sides of solids; if that fails, return the guess along the free path, marked unsolved.

    Raises NoWayError: there is no way to a gate. UserError: the deadline has passed.
    """
    guess, task, nlp = _first_guess(course, sides), course.task, Nlp()
    c, speed = task.options.reserve * task.vehicle.thrust_max, min(task.model.speed_max, SPEED_BOUND)
    counts = [one.shape[1] for one in guess.thrust]
    n = sum(counts)
    X, U, T = ca.MX.sym("X", 6, n), ca.MX.sym("U", 3, n), ca.MX.sym("T", len(course.legs))
    states = np.hstack([np.vstack([p, v])[:, 1:] for p, v in zip(guess.p, guess.v, strict=True)])
    bounds = task.track.bounds
    low, high = np.array([*bounds.low_m, *[-speed] * 3]), np.array([*bounds.high_m, *[speed] * 3])
    nlp.variable(X, states, low[:, None], high[:, None])
    lift = max(task.vehicle.lift_1_m, 0.0)
    most = np.array([[c + lift * speed**2]])
    nlp.variable(U, np.hstack(guess.thrust), -most, most)
    shortest = np.array([SHORTEST_INSIDE_S if leg.inside else SHORTEST_S for leg in course.legs])
    longest = SLOWEST * (1.0 + guess.durations)
    nlp.variable(T, guess.durations[:, None], shortest[:, None], longest[:, None])
    x0 = course.x0
    first = X[:, -1] if x0 is None else ca.DM([*x0[P], *x0[V]])
    nodes = Nodes(
        mesh=[np.full(count, 1 / count) for count in counts],
        durations=guess.durations,
        path=np.hstack([guess.p[0][:, :1], states[:3]]).T,
        before=ca.horzcat(first, X[:, :-1]),
        after=X,
        u=U,
        dt=ca.vertcat(*[ca.repmat(T[i] / count, count, 1) for i, count in enumerate(counts)]).T,
        velocity=VELOCITY,
        still=ca.MX(0, n),
    )
    flown = Blocks(_step(task.vehicle), ca.vertcat(nodes.before, U, nodes.dt), ca.DM(0, n))
    nlp.rows.append(Rows.zero(-X, flown))
    gained = lift * ca.sum1(nodes.before[3:, :] ** 2)  # at most, as all of the speed may be across the rotors
    nlp.rows.append(Rows((ca.sum1(U**2) - gained * (2 * c + gained)).T / c, np.full(n, -ca.inf), np.full(n, c)))
    edge_on = [k for k, i in enumerate(nodes.legs) if course.legs[i].in_slot]
    if edge_on:  # in a slot thrust is across its width
        across = [ca.DM(course.legs[nodes.legs[k]].slot_axes[1:]) @ U[:, k] for k in edge_on]
        nlp.rows.append(Rows.zero(ca.vertcat(*across)))
    for term in (ClearOfSolids(course, NEAR_M), WithinPrisms(course), LegEnds(course)):
        nlp.rows += term.rows(nodes)
    found = nlp.minimise(ca.sum1(T), SETTINGS, {}, deadline)
    if not found.success:
        return guess
    before, after, thrust, durations = nlp.values([nodes.before, X, U, T], found.w)
    x, ends = np.column_stack([before, after[:, -1]]), np.cumsum(counts)
    parts = [slice(end - count, end + 1) for end, count in zip(ends, counts, strict=True)]
    forces = [thrust[:, part.start : part.stop - 1] for part in parts]
    return PointMass(durations.ravel(), [x[:3, part] for part in parts], [x[3:, part] for part in parts], forces, True)


def _first_guess(course: Course, sides: tuple[Side, ...]) -> PointMass:
    """Return a guess along the shortest free path, leg by leg, at a cruising speed. Errors as `way_to`."""
    most = min(course.task.model.speed_max, SPEED_BOUND)
    previous = course.legs[-1].target if course.x0 is None else course.x0[P]
    legs = []
    for i, leg in enumerate(course.legs):
        way = way_to(course, i, previous, sides)
        length = float(np.linalg.norm(np.diff(way, axis=0), axis=1).sum())
        speed = min(CRUISE * max(1.0, np.sqrt(length / LONG_M)), FAST_SHARE * most)
        n = INSIDE_NODES if leg.inside else max(NODES, ceil(length / SPACING_M))
        places, directions = along(way, np.linspace(0, 1, n + 1))
        legs.append((max(length, 0.01) / speed, places, speed * directions, np.tile([[0.0], [0.0], [-GRAVITY]], n)))
        previous = leg.target
    durations, p, v, thrust = map(list, zip(*legs, strict=True))
    return PointMass(np.array(durations), p, v, thrust, False)


def leaning(course: Course, way: PointMass) -> Course:
    """Return the course with the side to which the body leans in each slot, that of the point mass's thrust."""
    legs, lean = list(course.legs), 0.0
    for k, leg in enumerate(legs):
        if leg.in_slot:
            if leg.passes:
                lean = -math.copysign(1.0, leg.slot_axes[0] @ way.thrust[k].sum(axis=1))
            legs[k] = replace(leg, lean=lean)
    return replace(course, legs=tuple(legs))


TURN_SHARE = 0.5  # -, largest body rates of the guess over their limits (chosen)


@dataclass(frozen=True)
class Guess:
    """Variant of the initial guess. The best one depends on the course; their optima differ by 0.1 % on published courses."""

    nose: str  # heading: "forward" along the velocity, "kept" as at the start, "tilted" by the shortest rotation from level
    slack: float  # -, durations over those of the point mass, which is faster than a rigid body

    @property
    def name(self) -> str:
        return f"{self.nose} x{self.slack:g}"


def guesses(gates_in_view: bool) -> tuple[Guess, ...]:
    """Return all variants, the most promising first: heading forward if gates shall be in view."""
    first, second, third = ("forward", "kept", "tilted") if gates_in_view else ("tilted", "kept", "forward")
    order = (first, 1.1), (second, 1.1), (first, 1.5), (third, 1.1), (second, 1.5), (third, 1.5)
    return tuple(Guess(*one) for one in order)


def first_guess(course: Course, point_mass: PointMass, mesh: Mesh, guess: Guess) -> Point:
    x0, model, durations = course.x0, course.task.model, guess.slack * point_mass.durations
    p, v, thrust = _path(point_mass, mesh)
    dt = intervals(mesh, durations)
    c = np.linalg.norm(thrust, axis=0)
    down = np.where(c > 1e-3, -thrust / np.maximum(c, 1e-3), np.array([[0.0], [0.0], [1.0]]))
    nose = matrix(x0[Q])[:, 0] if x0 is not None else v[:, 0]
    level = from_euler(0.0, 0.0, math.atan2(nose[1], nose[0]))
    q = np.empty((4, len(dt) + 1))
    for k in range(len(dt)):
        fast = np.linalg.norm(v[:, k + 1]) > 1.0
        ahead = v[:, k + 1] if guess.nose == "forward" and fast else nose
        q[:, k + 1] = tilted(down[:, k], level) if guess.nose == "tilted" else aligned(down[:, k], ahead)
    q[:, 0] = x0[Q] if x0 is not None else q[:, -1]
    q, w = turning(q, dt, model)
    after = model.state(p[:, 1:], q[:, 1:], v[:, 1:], w, c)
    first = model.state(p[:, :1], q[:, :1], v[:, :1], 0 * w[:, :1], c[:1])
    return Point(np.hstack([first, after]), model.inputs(w, c), durations)


def turning(q: Array, dt: Array, model: Model) -> tuple[Array, Array]:
    """Return attitudes (4, N + 1) with continuous signs, and body rates (3, N), rad/s, within limits, from one to the next."""
    limit, result, turns = TURN_SHARE * model.w_high[:, None], q.copy(), []
    for before, after in pairwise(result.T):
        after *= -1 if before @ after < 0 else 1
        turns.append(log(product(conjugate(before), after)))
    return result, np.clip(np.array(turns).T / dt, -limit, limit)


def _path(point_mass: PointMass, mesh: Mesh) -> tuple[Array, Array, Array]:
    """Return the point mass's p and v (3, N + 1) at the nodes and thrust (3, N), m/s^2, in the intervals of a mesh."""
    x, thrust = [np.vstack([point_mass.p[0], point_mass.v[0]])[:, :1]], []
    for k, fractions in enumerate(mesh):
        coarse, fine = np.vstack([point_mass.p[k], point_mass.v[k]]), np.cumsum(fractions)
        count = coarse.shape[1] - 1
        x.append(np.array([np.interp(fine, np.linspace(0, 1, count + 1), row) for row in coarse]))
        thrust.append(point_mass.thrust[k][:, np.minimum((fine * count).astype(int), count - 1)])
    p, v = np.split(np.hstack(x), 2)
    return p, v, np.hstack(thrust)


def tilted(down: Array, level: Array) -> Array:
    """Return q_wb (4,) with the body's z axis along `down` (3,), by the shortest rotation from a level attitude (4,)."""
    axis = np.cross([0.0, 0.0, 1.0], down)
    sine = math.sqrt(axis @ axis)
    if sine < 1e-9:
        axis, sine = np.array([1.0, 0.0, 0.0]), 1.0
    return np.array(product(exp(axis / sine * math.acos(np.clip(down[2], -1.0, 1.0))), level))
