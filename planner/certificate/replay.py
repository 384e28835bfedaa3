"""Replay of a plan by integrators that the problem does not use, and checks of the path: limits, gate passages, clearances.

Each interval is integrated from its node. The intervals are independent, hence one system of
equations in the fraction s of each interval, dx_k/ds = dt_k f(x_k, u_k), and DOP853 integrates them together.

The geometry shares nothing with the problem's constraints: a frame is a square ring with a depth, an opening is an outline with
signed distances to its sides, and gate axes come from the track file's angles.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gate_racer.planner.models import C, P, Q, V, W
from gate_racer.planner.plan import Plan, PlanError
from gate_racer.planner.task import Task
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import SAME_LEVEL, Track
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle


class StateTolerance(NamedTuple):
    """Tolerated errors of a block of the state."""

    block: slice
    defect: float  # of an interval: difference between integrators, and the solver's tolerance of 1e-6
    # Sum of defects per second, over windows: five times those of solved plans (8e-5, 3e-3, 3e-3, 0.1, 0.07) or more, and less
    # than a thousandth of the thrust.
    drift_per_s: float

    @property
    def end(self) -> float:
        """Tolerated deviation of the first and the last node."""
        return max(self.defect, 1e-3)


TOLERANCES = {
    "position_m": StateTolerance(P, 1e-5, 1e-3),
    "velocity_m_s": StateTolerance(V, 1e-3, 2e-2),
    "attitude_rad": StateTolerance(Q, 1e-3, 2e-2),
    "rates_rad_s": StateTolerance(W, 2e-2, 0.5),
    "thrust_m_s2": StateTolerance(C, 2e-2, 0.5),
}
LIMIT_TOLERANCE = 1e-4  # relative, for the optimiser's constraint tolerance
MARGIN_TOLERANCE = 2e-3  # m, of gate margins, clearances and bounds
TURN_TOLERANCE = 1e-2  # relative to the angular acceleration at half thrust
SPEED_TOLERANCE = 1e-3  # relative, for limits that are imposed at the nodes and evaluated between them


def broken_limits(x: Array, plan: Plan, task: Task) -> list[str]:
    """Return a sentence per limit that the path x (M, NX) or the plan's inputs exceed."""
    limits, vehicle, bounds = task.model, task.vehicle, task.track.bounds
    radius = task.radius_m if task.options.bounds_clear else 0.0
    low, high = np.array(bounds.low_m) + radius, np.array(bounds.high_m) - radius
    outside = np.maximum(low - x[:, P], x[:, P] - high)
    outside -= np.maximum(np.maximum(low - x[0, P], x[0, P] - high), 0.0)  # the pad may lie outside these
    span = limits.u_high - limits.u_low
    rate = np.abs(np.array(limits.thrust_rates(plan.x[:-1].T, plan.u[:-1].T, np.diff(plan.t)[None]))).max(initial=0.0)
    excesses = {  # limit: (excess, tolerance)
        "input, relative to its range": (
            np.maximum((limits.u_low - plan.u) / span, (plan.u - limits.u_high) / span),
            LIMIT_TOLERANCE,
        ),
        "body rate, relative": (np.abs(x[:, W]) / limits.x_high[W] - 1, LIMIT_TOLERANCE),
        "speed, relative": (np.linalg.norm(x[:, V], axis=1) / limits.speed_max - 1, SPEED_TOLERANCE),
        "thrust rate, relative": (rate / limits.thrust_rate_max - 1, SPEED_TOLERANCE),
        "track bounds, m": (outside, MARGIN_TOLERANCE),
        "quaternion norm": (np.abs(np.linalg.norm(x[:, Q], axis=1) - 1), 1e-6),
    }
    if np.isfinite(limits.slew_max).all():
        turn = np.abs(np.diff(plan.x[:, W], axis=0) / np.diff(plan.t)[:, None] / limits.slew_max).sum(axis=1)
        room = limits.turning(np.maximum(plan.x[:-1, C], plan.x[1:, C]).ravel())
        excesses["angular acceleration, relative to that at half thrust"] = (turn - room, TURN_TOLERANCE)
    largest = {name: (float(np.max(excess)), tolerance) for name, (excess, tolerance) in excesses.items()}
    if "c" in limits.x:
        thrust = x[:, C] / vehicle.thrust_max - 1
        largest["thrust, relative"] = (float(thrust.max()), LIMIT_TOLERANCE)
    return [
        f"limit exceeded by {size:.2g}: {name}" for name, (size, tolerance) in largest.items() if not size <= tolerance
    ]


def broken_ends(plan: Plan, task: Task) -> list[str]:
    """Return sentences on a start or an end that deviates from the task in any state."""
    if task.x0 is None:
        far = _apart(plan.x[0], plan.x[-1])
        return [f"the lap does not end in its initial state: {far}"] if far else []
    failures = []
    if far := _apart(plan.x[0], task.x0):
        failures.append(f"the plan does not begin in the requested initial state: {far}")
    if task.end_m is not None:
        off = np.linalg.norm(plan.x[-1, P] - task.end_m), np.linalg.norm(plan.x[-1, V])
        if not (off[0] <= TOLERANCES["position_m"].end and off[1] <= TOLERANCES["velocity_m_s"].end):
            failures.append("the plan does not come to rest at its end")
        elif not np.linalg.norm(plan.x[-1, W]) <= TOLERANCES["rates_rad_s"].end:
            failures.append("the plan still turns at its end")
        elif (tilt := 2 * np.arcsin(min(np.hypot(*plan.x[-1, Q][1:3]), 1.0))) > TOLERANCES["attitude_rad"].end:
            failures.append(f"the plan ends tilted by {np.degrees(tilt):.0f} deg, in which no vehicle rests")
    return failures


def _apart(a: Array, b: Array) -> str:
    """Return the blocks in which two states (NX,) differ, with the differences; "" if none."""
    off = state_errors(a[None] - _in_hemisphere(b[None], a[None]))
    return ", ".join(f"{name} by {one[0]:.2g}" for name, one in off.items() if not one[0] <= TOLERANCES[name].end)


TOLERANCE = 1e-11  # relative and absolute tolerance of the integrator, for the RMS over all intervals
SPACING_M = 0.02  # m, largest spacing of points of the path, subject to
POINTS_LEAST, POINTS_MOST = 8, 8192  # points per interval
WINDOW_S = 0.1  # s, least length of a window over which defects are summed


@dataclass(frozen=True)
class ReplayedPath:
    """Integrated path, and the defect of each interval."""

    t: Array  # (M,) s
    x: Array  # (M, NX)
    off: Array  # (N, NX) end of each interval minus the next node, quaternions in one hemisphere


def replay(plan: Plan, vehicle: Vehicle) -> ReplayedPath:
    """Integrate every interval from its node, with points at most about SPACING_M apart.

    Intervals of similar length are integrated together.

    Raises:
        PlanError: rows too far apart for that.
    """
    dt = np.diff(plan.t)
    ends, rough = _integrated(plan, vehicle, np.arange(len(dt)), POINTS_LEAST)
    steps = np.diff(np.concatenate([rough, ends[:, None]], axis=1)[:, :, P], axis=1)
    lengths = np.linalg.norm(steps, axis=2).sum(axis=1)
    if not np.isfinite(ends).all():
        return ReplayedPath(plan.t, plan.x, np.full(ends.shape, np.inf))
    needed = np.maximum(lengths / SPACING_M, POINTS_LEAST)
    if needed.max() > POINTS_MOST:
        k = int(needed.argmax())
        raise PlanError(
            f"rows {k} and {k + 1} of the plan are {lengths[k]:.0f} m apart: at most {POINTS_MOST * SPACING_M:g} m can be checked"
        )
    points = 2 ** np.ceil(np.log2(needed)).astype(int)
    t, x = [np.empty(0)] * len(dt), [np.empty(0)] * len(dt)
    for count in set(points.tolist()):
        these = np.flatnonzero(points == count)
        fine = rough[these] if count == POINTS_LEAST else _integrated(plan, vehicle, these, count)[1]
        for i, path in zip(these, fine, strict=True):
            t[i], x[i] = plan.t[i] + dt[i] * np.arange(count) / count, path
    off = ends - _in_hemisphere(plan.x[1:], ends)
    return ReplayedPath(np.append(np.concatenate(t), plan.t[-1]), np.vstack([*x, plan.x[-1:]]), off)


def _integrated(plan: Plan, vehicle: Vehicle, these: np.ndarray, points: int) -> tuple[Array, Array]:
    """Return of K intervals the ends (K, NX), and states (K, points, NX) from each beginning on; inf where it fails."""
    from scipy.integrate import solve_ivp  # takes half a second to load, and is not needed to fly a plan

    dt, start, u = np.diff(plan.t)[these], plan.x[these].T, list(plan.u[these].T)
    model = plan.flight_model(vehicle)

    def slope(_: float, flat: Array) -> Array:
        return (dt * np.array(model.derivative(list(flat.reshape(start.shape)), u))).ravel()

    grid = np.linspace(0.0, 1.0, points + 1)
    with np.errstate(all="ignore"):
        done = solve_ivp(slope, (0.0, 1.0), start.ravel(), "DOP853", grid, rtol=TOLERANCE, atol=TOLERANCE)
    if not done.success:
        return np.full(start.T.shape, np.inf), np.full((len(these), points, len(start)), np.inf)
    fine = done.y.reshape(*start.shape, points + 1).transpose(1, 2, 0)
    return fine[:, -1], fine[:, :-1]


def defect_rates(t: Array, defects: dict[str, Array]) -> dict[str, float]:
    """Return by state the largest sum of the defects (N,) per second, over windows that follow each other along all rows.

    From its first state to its last, a plan leaves the motion by its inputs by no more than that, so that no number of rows,
    each within its interval's tolerance, adds up to a force or a step aside.

    Args:
        t: (N + 1,) s, times of the nodes.
    """
    begins = [0]
    for k in range(1, len(t) - 1):
        if t[k] - t[begins[-1]] >= WINDOW_S:
            begins.append(k)
    lengths = np.maximum(np.diff(t[[*begins, -1]]), WINDOW_S)
    return {name: float(np.max(np.add.reduceat(one, begins) / lengths)) for name, one in defects.items()}


def state_errors(off: Array) -> dict[str, Array]:
    """Return by state the norms (M,) of differences of states (M, NX); for attitudes the angle, rad."""
    return {
        name: np.linalg.norm(off[:, one.block], axis=1) * (2.0 if one.block == Q else 1.0)
        for name, one in TOLERANCES.items()
        if one.block.stop <= off.shape[1]
    }


def _in_hemisphere(x: Array, like: Array) -> Array:
    """Return states (M, NX) with their quaternions in the hemisphere of other states'."""
    result = x.copy()
    result[:, Q] *= np.where((like[:, Q] * x[:, Q]).sum(axis=1) < 0, -1.0, 1.0)[:, None]
    return result


@dataclass(frozen=True)
class Near:
    """Least distance from a path to a solid."""

    distance_m: float
    solid: str
    at: int  # index of the nearest point of the path
    frame: bool  # whether the solid is a gate's frame


@dataclass(frozen=True)
class Passage:
    """Passage of a gate."""

    t: float  # s
    margin_m: float  # m, from the vehicle's centre to the nearest side of the opening
    at: int  # index of the path's point before the crossing
    fault: str = ""  # violation; empty if there is none
    edges_m: tuple[float, ...] = ()  # m, from the vehicle's centre to each side of the opening, at the crossing


def local(gate: Gate, p_w: Array) -> Array:
    """Transform world points (M, 3) into gate axes: x through the gate, y right, z down."""
    from scipy.spatial.transform import Rotation  # slow to load, and not needed to fly a plan

    turn = Rotation.from_euler("ZYX", [gate.yaw_deg, gate.pitch_deg, 0.0], degrees=True)
    return (p_w - np.array(gate.centre_m)) @ turn.as_matrix()


def frame_distance(gate: Gate, p_g: Array) -> Array:
    """Return distances (M,), m, from points (M, 3) in gate axes to the four bars of the frame; 0 inside them."""
    x, y, z = np.abs(p_g).T
    inner, outer = gate.opening_m / 2, gate.outer_m / 2
    across = np.where(
        np.maximum(y, z) < inner,
        inner - np.maximum(y, z),
        np.hypot(np.maximum(y - outer, 0.0), np.maximum(z - outer, 0.0)),
    )
    return np.hypot(across, np.maximum(x - gate.depth_m / 2, 0.0))


def inside(gate: Gate, p_g: Array) -> Array:
    """Return distances (M,), m, from points (M, 3) to the nearest side of the opening, in its plane; negative outside."""
    return np.asarray(from_sides(gate, p_g).min(axis=1))


def from_sides(gate: Gate, p_g: Array) -> Array:
    """Return distances (M, E), m, from points (M, 3) to each side of the opening, in its plane; negative outside."""
    h = gate.opening_m / 2
    corners = np.array(gate.polygon_m or ((-h, -h), (h, -h), (h, h), (-h, h)))
    after = np.roll(corners, -1, axis=0)
    area = float((corners[:, 0] * after[:, 1] - corners[:, 1] * after[:, 0]).sum())
    found = []
    for a, b in zip(corners, after, strict=True):
        side = (b - a) / np.linalg.norm(b - a)
        found.append(np.sign(area) * (side[0] * (p_g[:, 2] - a[1]) - side[1] * (p_g[:, 1] - a[0])))
    return np.column_stack(found)


def clearances(track: Track, p_w: Array) -> list[Near]:
    """Return the least distance from a path (M, 3) to each solid of a track."""
    found = []
    for i in sorted(set(track.landmarks)):
        gate = track.gates[i]
        if gate.is_ball or gate.polygon_m is not None or gate.outer_m <= gate.opening_m:
            continue
        close = _close(gate, p_w)
        near = _near(frame_distance(gate, local(gate, p_w[close])), f"the frame of gates[{i}]", True)
        found.append(replace(near, at=int(close[near.at])))
        if gate.stand_m > 0 and (post := _stand_distance(track, gate, p_w)) is not None:
            found.append(_near(post, f"the stand of gates[{i}]", False))
    for i, obstacle in enumerate(track.obstacles):
        centre, half = (np.add(obstacle.low_m, obstacle.high_m)) / 2, np.subtract(obstacle.high_m, obstacle.low_m) / 2
        distance = np.sqrt((np.maximum(np.abs(p_w - centre) - half, 0.0) ** 2).sum(axis=1))
        found.append(_near(distance, f"obstacles[{i}]", False))
    return found


def hidden(track: Track, p_w: Array, point_w: Array) -> np.ndarray:
    """Return for each position (M, 3), (M,), whether an obstacle lies on the line from it to a point (3,)."""
    result, step = np.zeros(len(p_w), bool), point_w - p_w
    step = np.where(np.abs(step) < 1e-9, 1e-9, step)
    for obstacle in track.obstacles:
        faces = [(np.array(face) - p_w) / step for face in (obstacle.low_m, obstacle.high_m)]
        begin, end = np.minimum(*faces).max(axis=1), np.maximum(*faces).min(axis=1)
        result |= (begin < end) & (begin < 1) & (end > 0)
    return result


def _close(gate: Gate, p_w: Array) -> np.ndarray:
    """Return indices of points that may be the nearest to a frame: at most its size farther from its centre than the nearest."""
    off = np.linalg.norm(p_w - np.array(gate.centre_m), axis=1)
    size = float(np.linalg.norm([gate.outer_m, gate.outer_m, gate.depth_m]))
    return np.flatnonzero(off <= off.min() + size)


def _near(distance: Array, name: str, frame: bool) -> Near:
    at = int(distance.argmin())
    return Near(float(distance[at]), name, at, frame)


def _stand_distance(track: Track, gate: Gate, p_w: Array) -> Array | None:
    """Return distances (M,), m, to the post below a frame; None if another frame or the floor carries it."""
    floor, top = track.bounds.high_m[2], gate.centre_m[2] + gate.outer_m / 2 * np.cos(np.radians(gate.pitch_deg))
    lower = [g for g in track.gates if g.outer_m > 0 and g.centre_m[2] - gate.centre_m[2] > SAME_LEVEL * gate.outer_m]
    if top >= floor or any(np.hypot(*np.subtract(g.centre_m, gate.centre_m)[:2]) < gate.outer_m / 2 for g in lower):
        return None
    off = p_w - np.array(gate.centre_m)
    cos, sin = np.cos(np.radians(gate.yaw_deg)), np.sin(np.radians(gate.yaw_deg))
    along, across = np.abs(cos * off[:, 0] + sin * off[:, 1]), np.abs(cos * off[:, 1] - sin * off[:, 0])
    beside = np.maximum(along - gate.depth_m / 2, 0.0), np.maximum(across - gate.stand_m / 2, 0.0)
    return np.sqrt(
        beside[0] ** 2 + beside[1] ** 2 + np.maximum(np.maximum(top - p_w[:, 2], p_w[:, 2] - floor), 0.0) ** 2
    )


def passage(gate: Gate, t: Array, p_w: Array, after: float, when: float, length_m: float, body_m: float) -> Passage:
    """Check the passage of a path (M, 3) through a planar gate near the time `when`, s.

    The path must run from `length_m` before the plane to `length_m` behind it, at least `body_m` inside the opening's
    prism. A path that begins within that distance is checked from its beginning.

    Args:
        after: s, crossings up to this time are ignored.
    """
    p_g = local(gate, p_w)
    x, room = p_g[:, 0], inside(gate, p_g)
    forward = np.flatnonzero((x[:-1] < 0) & (x[1:] >= 0) & (t[1:] > after))
    if not len(forward):
        return Passage(when, -np.inf, int(np.searchsorted(t, when)), "is not passed")
    k = int(forward[np.abs(t[forward] - when).argmin()])
    s = -x[k] / (x[k + 1] - x[k])
    first, last = k, k + 1
    while first > 0 and -length_m < x[first] < 0 and room[first] >= body_m:
        first -= 1
    while last < len(x) - 1 and 0 <= x[last] < length_m and room[last] >= body_m:
        last += 1
    within = np.abs(x[first : last + 1]) <= gate.tunnel_m / 2
    margin = float(min((1 - s) * room[k] + s * room[k + 1], room[first : last + 1][within].min(initial=np.inf)))
    fault = ""
    if margin < 0:
        fault = "is not passed"
    elif room[first] < body_m or room[last] < body_m:
        side, off = ("before", x[first]) if room[first] < body_m else ("behind", x[last])
        fault = f"is not passed straight: the body leaves the prism of the opening {abs(off):.2f} m {side} its plane"
    elif x[first] >= 0 or x[last] < length_m:
        fault = "is not passed straight: the path does not lead from its near side to its far side"
    edges = (1 - s) * from_sides(gate, p_g[k : k + 1])[0] + s * from_sides(gate, p_g[k + 1 : k + 2])[0]
    return Passage(float(t[k] + s * (t[k + 1] - t[k])), margin, k, fault, tuple(edges.tolist()))


def touched(ball: Gate, t: Array, p_w: Array, low: int, high: int) -> Passage:
    """Return the passage of a path (M, 3) at a ball, between its points `low` and `high`."""
    distance = np.linalg.norm(p_w[low : high + 1] - np.array(ball.centre_m), axis=1)
    at = low + int(distance.argmin())
    return Passage(float(t[at]), ball.half - float(distance.min()), at)


def out_of_turn(track: Track, t: Array, p_w: Array, passages: list[tuple[int, float]]) -> list[str]:
    """Return sentences on openings that are passed out of order, or backwards.

    Args:
        passages: (landmark, s) of each passage of the course.
    """
    faults = []
    for i in sorted(set(track.landmarks)):
        gate = track.gates[i]
        if gate.is_ball:
            continue
        before = local(gate, p_w)[:, 0] < 0
        through = np.flatnonzero(before[:-1] != before[1:])
        for k in through[inside(gate, local(gate, p_w[through])) > 0]:
            meant = any(mark == i and t[k] - 1e-3 <= when <= t[k + 1] + 1e-3 for mark, when in passages)
            if not meant:
                faults.append(f"gates[{i}] is passed out of order at {t[k]:.2f} s")
    return faults


COAST_MOST_M = 5.0  # m, longest straight extension behind the last gate, on which leaving it is checked
COAST_STEP_M = 0.02  # m, spacing of points on that extension
NODE_TOLERANCE_S = 1e-3  # s, between a gate's node and the crossing of its plane


def beyond(path: ReplayedPath, task: Task) -> tuple[Array, Array]:
    """Return times (M,), s, and positions (M, 3), m, of the path, extended if it ends in a gate.

    A flying lap continues with its beginning; otherwise the vehicle flies straight on, as with both controllers.
    """
    p_w, v, last, length = path.x[:, P], path.x[-1, V], task.gates[-1], task.passage_m
    if task.end_m is not None or last.is_ball:
        return path.t, p_w
    if task.begin is None:
        leaves = np.flatnonzero(local(last, p_w)[:, 0] > length)
        count = int(leaves[0]) + 1 if len(leaves) else len(p_w)
        return np.append(path.t, path.t[-1] + path.t[1:count] - path.t[0]), np.vstack([p_w, p_w[1:count]])
    through = local(last, p_w[-1:] + v)[0, 0] - local(last, p_w[-1:])[0, 0]
    reach = min(1.01 * length * np.linalg.norm(v) / max(through, 1e-3), COAST_MOST_M) + COAST_STEP_M
    steps = np.arange(1, int(reach / COAST_STEP_M) + 2)[:, None] * COAST_STEP_M
    speed = max(float(np.linalg.norm(v)), 1e-3)
    return np.append(path.t, path.t[-1] + steps[:, 0] / speed), np.vstack([p_w, p_w[-1] + steps * v / speed])


def passages(t: Array, p_w: Array, plan: Plan, task: Task) -> tuple[list[Passage], list[str]]:
    """Return the passages of the gates, in order, and sentences on violations."""
    found, failures, before = list[Passage](), list[str](), -1.0
    for i, (gate, node) in enumerate(zip(task.gates, plan.gate_nodes, strict=False)):
        when, planned = float(plan.t[min(max(node, 0), len(plan.t) - 1)]), task.keeps_m(i)
        if gate.is_ball:
            ends = plan.t[[max(node - 1, 0), min(node + 1, len(plan.t) - 1)]]
            one = touched(gate, t, p_w, *np.searchsorted(t, ends).tolist())
        else:
            wall = planned.min() if task.is_slot(gate) else task.body_m
            one = passage(gate, t, p_w, before, when, task.passage_m, wall)
            if not one.fault and abs(one.t - when) > NODE_TOLERANCE_S:
                failures.append(f"gate {i} is passed {one.t - when:+.3f} s from the time of its row")
        if one.fault or one.margin_m < (-MARGIN_TOLERANCE if gate.is_ball else 0.0):
            failures.append(f"gate {i} {one.fault or 'is not passed'}")
        elif len(short := np.flatnonzero(np.array(one.edges_m) < planned - MARGIN_TOLERANCE)):
            off, needed = one.edges_m[short[0]], planned[short[0]]
            failures.append(f"gate {i} is passed with {off:.3f} m to an edge instead of {needed:.3f} m")
        elif one.margin_m < planned.min(initial=np.inf) - MARGIN_TOLERANCE and len(planned):
            failures.append(
                f"gate {i} is passed with a margin of {one.margin_m:.3f} m instead of {planned.min():.3f} m"
            )
        found.append(one)
        before = one.t
    return found, failures


def scraped(path: ReplayedPath, task: Task) -> list[str]:
    """Return sentences on slots of which the corners of the body, where it is in their plane, come too near to an edge."""
    from scipy.spatial.transform import Rotation  # slow to load, and not needed to fly a plan

    failures, signs = [], np.stack(np.meshgrid(*[(-0.5, 0.5)] * 3), -1).reshape(-1, 3)
    for i, gate in enumerate(task.gates):
        if not task.is_slot(gate):
            continue
        p_g = local(gate, path.x[:, P])
        half = gate.tunnel_m / 2
        near = np.flatnonzero((np.abs(p_g[:, 0]) < half + task.vehicle.half_diagonal) & (inside(gate, p_g) > 0))
        turned = Rotation.from_quat(path.x[near][:, Q], scalar_first=True)
        corners_w = np.stack([turned.apply(sign * task.vehicle.body_m) for sign in signs], 1) + path.x[near][:, None, P]
        corners_g = local(gate, corners_w.reshape(-1, 3)).reshape(-1, 8, 3)
        through = (corners_g[..., 0].min(1) < half) & (corners_g[..., 0].max(1) > -half)
        room = inside(gate, corners_g[through].reshape(-1, 3)).min(initial=np.inf)
        if not room >= (need := task.slot_margin_m(gate)) - MARGIN_TOLERANCE:
            failures.append(
                f"gate {i} is passed with {room:.3f} m from the body's corners to an edge instead of {need:.3f} m"
            )
    return failures


def broken_turns(t: Array, p_w: Array, passed: list[Passage], task: Task) -> list[str]:
    """Return sentences on openings that are passed out of order."""
    begin = float(t[0])
    meant = [(mark, one.t) for mark, one in zip(task.landmarks, passed, strict=False)]
    if task.begin is None:
        meant.append((task.landmarks[-1], begin))
    if task.options.start is not None:  # the start may lie within any gate
        meant += [(mark, begin) for mark in set(task.track.landmarks)]
    return out_of_turn(task.track, t, p_w, meant)


def too_near(t: Array, p_w: Array, task: Task) -> tuple[Near | None, list[str]]:
    """Return the nearest solid to the path, and sentences on all solids that are too near.

    At an oblique passage the depth of a frame may reduce the margin, but never the contact radius.
    """
    found, failures = clearances(task.track, p_w), []
    for near in found:
        need = task.radius_m if near.frame else task.clear_m(near.solid)
        if not near.distance_m >= need - MARGIN_TOLERANCE:
            failures.append(
                f"it comes within {near.distance_m:.3f} m of {near.solid} at {t[near.at]:.2f} s, the least is {need:.3f} m"
            )
    return min(found, key=lambda near: near.distance_m, default=None), failures
