"""Replay of a plan, and the checks of its rows and its path, by integrators and geometry that the problem does not use.

The intervals are independent, hence one system of equations in the fraction s of each interval, dx_k/ds = dt_k f(x_k, u_k), which
DOP853 integrates. A frame is a square ring with a depth, an opening an outline with signed distances to its sides.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gate_racer.planner.models import HOLDING, C, P, Q, V, W
from gate_racer.planner.plan import Plan, PlanError
from gate_racer.planner.task import Task
from gate_racer.tracks.gate import Gate
from gate_racer.tracks.track import SAME_LEVEL, Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, conjugate, rotate
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
HOLD_TOLERANCE = 5e-2  # the same, of a state between nodes
SPEED_TOLERANCE = 1e-3  # relative, for limits that are imposed at the nodes and evaluated between them


def broken_rows(plan: Plan, defects: dict[str, Array], drifts: dict[str, float]) -> list[str]:
    """Return sentences on states whose defects exceed their tolerances, with the first such interval's leg."""
    failures = []
    for name, values in defects.items():
        (state, unit), most = name.split("_", 1), TOLERANCES[name]
        unit, broken = unit.replace("_s", "/s").replace("s2", "s^2"), ~(values <= most.defect)
        if broken.any():
            leg = int(np.searchsorted(plan.gate_nodes, broken.argmax(), side="right"))
            defect = f"a defect of {np.max(values):.1e} {unit} in {state}"
            failures.append(f"an interval on leg {leg} has {defect}, the tolerance is {most.defect:g}")
        if not drifts[name] <= most.drift_per_s:
            drift = f"by {drifts[name]:.2g} {unit} per s in {state}"
            failures.append(f"its inputs lead away from its rows {drift}, the tolerance is {most.drift_per_s:g}")
    return failures


def broken_form(plan: Plan, task: Task) -> list[str]:
    """Return sentences on metadata that do not match the plan or the task."""
    options, nodes = task.options, np.array(plan.gate_nodes)
    count = len(task.gates) + (task.end_m is not None)
    unmarked = len(nodes) != count or (np.diff(nodes, prepend=0) < 0).any() or nodes[-1] != len(plan.t) - 1
    own, asked = (plan.laps, plan.model), (options.laps, options.model)
    foreign = (plan.track_hash, plan.vehicle_hash) != (task.track.hash, task.vehicle.hash)
    faults = {
        f"gate_nodes {list(plan.gate_nodes)} do not mark the ends of the course's {count} legs": unmarked,
        f"it has {own[0]} laps of the {own[1]} model instead of {asked[0]} of {asked[1]}": own != asked,
        "it was made for another track or vehicle": foreign,
        "the inputs of the last row differ from those of the row before": not np.array_equal(plan.u[-1], plan.u[-2]),
    }
    return [fault for fault, found in faults.items() if found]


def broken_limits(x: Array, plan: Plan, task: Task) -> list[str]:
    """Return a sentence per limit that the path x (M, NX) or the plan's inputs exceed."""
    limits, vehicle, bounds = task.model, task.vehicle, task.track.bounds
    radius = task.vehicle.radius_m if task.options.bounds_clear else 0.0
    low, high = np.array(bounds.low_m) + radius, np.array(bounds.high_m) - radius
    outside = np.maximum(low - x[:, P], x[:, P] - high)
    outside -= np.maximum(np.maximum(low - x[0, P], x[0, P] - high), 0.0)  # the pad may lie outside these
    span = limits.u_high - limits.u_low
    rate = np.abs(np.array(limits.thrust_rates(plan.x[:-1].T, plan.u[:-1].T, np.diff(plan.t)[None]))).max(initial=0.0)
    outside_inputs = np.maximum((limits.u_low - plan.u) / span, (plan.u - limits.u_high) / span)
    excesses = {  # limit: (excess, tolerance)
        "input, relative to its range": (outside_inputs, LIMIT_TOLERANCE),
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
    if limits.held.any():
        speed_b = np.array(rotate(conjugate(x[:, Q].T), x[:, V].T))[:2]
        taken = limits.held @ np.abs(speed_b) - np.minimum(limits.holding(x[:, C].ravel()), HOLDING)
        excesses["torque that the air takes, relative to that at half thrust"] = (taken, HOLD_TOLERANCE)
    if "c" in limits.x:
        excesses["thrust, relative"] = (x[:, C] / vehicle.thrust_max - 1, LIMIT_TOLERANCE)
    return [
        f"limit exceeded by {np.max(excess):.2g}: {name}"
        for name, (excess, tolerance) in excesses.items()
        if not np.max(excess) <= tolerance
    ]


def broken_ends(plan: Plan, task: Task) -> list[str]:
    """Return sentences on a start or an end that deviates from the task in any state."""
    first, last = plan.x[:1], plan.x[-1:]
    if task.x0 is None:
        return _apart("the lap does not end in its initial state", first - _in_hemisphere(last, first))
    begin = task.x0[None]
    failures = _apart("the plan does not begin in the requested initial state", first - _in_hemisphere(begin, first))
    if task.end_m is not None:
        off = last.copy()
        off[:, P] -= task.end_m
        off[:, [Q.start, Q.stop - 1]], off[:, W.stop :] = 0.0, 0.0  # free: yaw, thrust
        failures += _apart("the plan does not end at rest and level in its place", off)
    return failures


def _apart(what: str, off: Array) -> list[str]:
    """Return a sentence with the blocks in which a difference of states (1, NX) is not tolerated, if there are any."""
    far = [(name, one[0]) for name, one in state_errors(off).items() if not one[0] <= TOLERANCES[name].end]
    return [f"{what}: " + ", ".join(f"{name} by {size:.2g}" for name, size in far)] if far else []


TOLERANCE = 1e-11  # relative and absolute tolerance of the integrator, for the RMS over all intervals
SPACING_M = 0.02  # m, largest spacing of points of the path, subject to
POINTS_LEAST, POINTS_MOST = 8, 2**22  # points of an interval; of the whole path
WINDOW_S = 0.1  # s, least length of a window over which defects are summed


@dataclass(frozen=True)
class ReplayedPath:
    """Integrated path, and the defect of each interval."""

    t: Array  # (M,) s
    x: Array  # (M, NX)
    off: Array  # (N, NX) end of each interval minus the next node, quaternions in one hemisphere


def replay(plan: Plan, vehicle: Vehicle) -> ReplayedPath:
    """Integrate every interval from its node, with points about SPACING_M apart. Raises PlanError: rows are too far apart."""
    from scipy.integrate import solve_ivp  # takes half a second to load, and is not needed to fly a plan

    dt, start, u, model = np.diff(plan.t), plan.x[:-1].T, list(plan.u[:-1].T), plan.flight_model(vehicle)

    def slope(_: float, flat: Array) -> Array:
        return (dt * np.array(model.derivative(list(flat.reshape(start.shape)), u))).ravel()

    with np.errstate(all="ignore"):
        done = solve_ivp(slope, (0.0, 1.0), start.ravel(), "DOP853", dense_output=True, rtol=TOLERANCE, atol=TOLERANCE)
    if not done.success or not np.isfinite(done.y[:, -1]).all():
        return ReplayedPath(plan.t, plan.x, np.full(start.T.shape, np.inf))

    def path(points: int) -> Array:
        """Return the states (N, points + 1, NX) along all intervals."""
        return done.sol(np.linspace(0.0, 1.0, points + 1)).reshape(*start.shape, -1).transpose(1, 2, 0)

    lengths = np.linalg.norm(np.diff(path(POINTS_LEAST)[..., P], axis=1), axis=2).sum(axis=1)
    points = max(int(np.ceil(lengths.max() / SPACING_M)), POINTS_LEAST)
    if points * len(dt) > POINTS_MOST:
        k = int(lengths.argmax())
        raise PlanError(f"rows {k} and {k + 1} of the plan are {lengths[k]:.0f} m apart: too far to be checked")
    fine = path(points)
    t = plan.t[:-1, None] + dt[:, None] * np.arange(points) / points
    x = np.vstack([fine[:, :-1].reshape(-1, len(start)), plan.x[-1:]])
    return ReplayedPath(np.append(t, plan.t[-1]), x, fine[:, -1] - _in_hemisphere(plan.x[1:], fine[:, -1]))


def defect_rates(t: Array, defects: dict[str, Array]) -> dict[str, float]:
    """Return by state the largest sum of the defects (N,) per second, over windows along all rows at t (N + 1,), s.

    So no number of rows, each within its interval's tolerance, adds up to a force or a step aside.
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


class Near(NamedTuple):
    distance_m: float
    at: int  # index of the nearest point of the path
    solid: str
    frame: bool  # whether the solid is a gate's frame

    @staticmethod
    def of(distances: Array, solid: str, frame: bool = False) -> "Near":
        at = int(distances.argmin())
        return Near(float(distances[at]), at, solid, frame)


class Passage(NamedTuple):
    t: float  # s
    edges_m: Array  # (E,) m, from the vehicle's centre to each side of the opening, or to the ball's surface
    fault: str = ""  # violation; empty if there is none

    @property
    def margin_m(self) -> float:
        return float(self.edges_m.min())


def local(gate: Gate, p_w: Array) -> Array:
    """Transform world points (M, 3) into gate axes: x through the gate, y right, z down."""
    from scipy.spatial.transform import Rotation  # slow to load, and not needed to fly a plan

    turn = Rotation.from_euler("ZYX", [gate.yaw_deg, gate.pitch_deg, 0.0], degrees=True)
    return (p_w - np.array(gate.centre_m)) @ turn.as_matrix()


def frame_distance(gate: Gate, p_g: Array) -> Array:
    """Return distances (M,), m, from points (M, 3) in gate axes to the four bars of the frame; 0 inside them."""
    x, y, z = np.abs(p_g).T
    inner, outer = gate.opening_m / 2, gate.outer_m / 2
    outside = np.hypot(np.maximum(y - outer, 0.0), np.maximum(z - outer, 0.0))
    across = np.where(np.maximum(y, z) < inner, inner - np.maximum(y, z), outside)
    return np.hypot(across, np.maximum(x - gate.depth_m / 2, 0.0))


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
        found.append(Near.of(frame_distance(gate, local(gate, p_w)), f"the frame of gates[{i}]", True))
        if gate.stand_m > 0 and (post := _stand_distance(track, gate, p_w)) is not None:
            found.append(Near.of(post, f"the stand of gates[{i}]"))
    for i, obstacle in enumerate(track.obstacles):
        centre, half = (np.add(obstacle.low_m, obstacle.high_m)) / 2, np.subtract(obstacle.high_m, obstacle.low_m) / 2
        distance = np.sqrt((np.maximum(np.abs(p_w - centre) - half, 0.0) ** 2).sum(axis=1))
        found.append(Near.of(distance, f"obstacles[{i}]"))
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


def _stand_distance(track: Track, gate: Gate, p_w: Array) -> Array | None:
    """Return distances (M,), m, to the post below a frame; None if another frame or the floor carries it."""
    floor, top = track.bounds.high_m[2], gate.centre_m[2] + gate.outer_m / 2 * np.cos(np.radians(gate.pitch_deg))
    lower = [g for g in track.gates if g.outer_m > 0 and g.centre_m[2] - gate.centre_m[2] > SAME_LEVEL * gate.outer_m]
    if top >= floor or any(np.hypot(*np.subtract(g.centre_m, gate.centre_m)[:2]) < gate.outer_m / 2 for g in lower):
        return None
    north, east = (p_w - np.array(gate.centre_m)).T[:2]
    cos, sin = np.cos(np.radians(gate.yaw_deg)), np.sin(np.radians(gate.yaw_deg))
    off = (
        np.abs(cos * north + sin * east) - gate.depth_m / 2,
        np.abs(cos * east - sin * north) - gate.stand_m / 2,
        np.maximum(top - p_w[:, 2], p_w[:, 2] - floor),
    )
    return np.linalg.norm(np.maximum(off, 0.0), axis=0)


def passage(gate: Gate, t: Array, p_w: Array, after: float, when: float, length_m: float, body_m: float) -> Passage:
    """Check the passage of a path (M, 3) through a planar gate near the time `when`, s, and later than `after`, s.

    The path must run from `length_m` before the plane, or its beginning, to `length_m` behind it, `body_m` inside the prism.
    """
    p_g = local(gate, p_w)
    x, sides = p_g[:, 0], from_sides(gate, p_g)
    room = sides.min(axis=1)
    forward = np.flatnonzero((x[:-1] < 0) & (x[1:] >= 0) & (t[1:] > after))
    if not len(forward):
        return Passage(when, np.array([-np.inf]), "is not passed")
    k = int(forward[np.abs(t[forward] - when).argmin()])
    s = -x[k] / (x[k + 1] - x[k])
    first, last = k, k + 1
    while first > 0 and -length_m < x[first] < 0 and room[first] >= body_m:
        first -= 1
    while last < len(x) - 1 and 0 <= x[last] < length_m and room[last] >= body_m:
        last += 1
    within = sides[first : last + 1][np.abs(x[first : last + 1]) <= gate.tunnel_m / 2]
    edges = np.vstack([(1 - s) * sides[k] + s * sides[k + 1], within]).min(axis=0)
    fault = ""
    if edges.min() < 0:
        fault = "is not passed"
    elif room[first] < body_m or room[last] < body_m:
        side, off = ("before", x[first]) if room[first] < body_m else ("behind", x[last])
        fault = f"is not passed straight: the body leaves the prism of the opening {abs(off):.2f} m {side} its plane"
    elif x[first] >= 0 or x[last] < length_m:
        fault = "is not passed straight: the path does not lead from its near side to its far side"
    return Passage(float(t[k] + s * (t[k + 1] - t[k])), edges, fault)


def _touched(ball: Gate, t: Array, p_w: Array) -> Passage:
    distance = np.linalg.norm(p_w - np.array(ball.centre_m), axis=1)
    margin = ball.half - float(distance.min())
    fault = "" if margin >= -MARGIN_TOLERANCE else "is not passed"
    return Passage(float(t[distance.argmin()]), np.array([margin]), fault)


COAST_MOST_M = 5.0  # m, longest straight extension behind the last gate, on which leaving it is checked
COAST_STEP_M = 0.02  # m, spacing of points on that extension
NODE_TOLERANCE_S = 1e-3  # s, between a gate's node and the crossing of its plane


def beyond(path: ReplayedPath, task: Task) -> tuple[Array, Array]:
    """Return times (M,), s, and positions (M, 3), m; a path that ends in a gate goes on: as a lap's beginning, or straight."""
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
    found, failures, before, end = list[Passage](), list[str](), -1.0, len(plan.t) - 1
    for i, (gate, node) in enumerate(zip(task.gates, plan.gate_nodes, strict=False)):
        when, planned = float(plan.t[min(max(node, 0), end)]), task.keeps_m(i)
        if gate.is_ball:
            low, high = np.searchsorted(t, plan.t[[max(node - 1, 0), min(node + 1, end)]])
            one = _touched(gate, t[low : high + 1], p_w[low : high + 1])
        else:
            wall = planned.min() if task.is_slot(gate) else task.body_m
            one = passage(gate, t, p_w, before, when, task.passage_m, wall)
            if not one.fault and abs(one.t - when) > NODE_TOLERANCE_S:
                failures.append(f"gate {i} is passed {one.t - when:+.3f} s from the time of its row")
        if one.fault:
            failures.append(f"gate {i} {one.fault}")
        elif len(short := np.flatnonzero(one.edges_m < planned - MARGIN_TOLERANCE)):
            off, needed = one.edges_m[short[0]], planned[short[0]]
            failures.append(f"gate {i} is passed with a margin of {off:.3f} m instead of {needed:.3f} m")
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
        half, opening = gate.tunnel_m / 2, from_sides(gate, p_g).min(axis=1) > 0
        near = np.flatnonzero((np.abs(p_g[:, 0]) < half + task.vehicle.half_diagonal) & opening)
        turned = Rotation.from_quat(path.x[near][:, Q], scalar_first=True)
        corners_w = np.stack([turned.apply(sign * task.vehicle.body_m) for sign in signs], 1) + path.x[near][:, None, P]
        corners_g = local(gate, corners_w.reshape(-1, 3)).reshape(-1, 8, 3)
        through = (corners_g[..., 0].min(1) < half) & (corners_g[..., 0].max(1) > -half)
        room = from_sides(gate, corners_g[through].reshape(-1, 3)).min(initial=np.inf)
        if not room >= (need := task.slot_margin_m(gate)) - MARGIN_TOLERANCE:
            failures.append(f"gate {i} is passed with {room:.3f} m from the body to an edge instead of {need:.3f} m")
    return failures


def out_of_turn(t: Array, p_w: Array, passed: list[Passage], task: Task) -> list[str]:
    """Return sentences on openings that are passed out of order, or backwards."""
    meant = [(mark, one.t) for mark, one in zip(task.landmarks, passed, strict=False)]
    if task.begin is None:
        meant.append((task.landmarks[-1], float(t[0])))
    if task.options.start is not None:  # the start may lie within any gate
        meant += [(mark, float(t[0])) for mark in set(task.track.landmarks)]
    faults = []
    for i in sorted(set(task.track.landmarks)):
        gate = task.track.gates[i]
        if gate.is_ball:
            continue
        p_g = local(gate, p_w)
        through = np.flatnonzero((p_g[:-1, 0] < 0) != (p_g[1:, 0] < 0))
        for k in through[from_sides(gate, p_g[through]).min(axis=1) > 0]:
            if not any(mark == i and t[k] - 1e-3 <= when <= t[k + 1] + 1e-3 for mark, when in meant):
                faults.append(f"gates[{i}] is passed out of order at {t[k]:.2f} s")
    return faults


def too_near(t: Array, p_w: Array, task: Task) -> tuple[Near | None, list[str]]:
    """Return the nearest solid to the path, and sentences on all that are too near; frames may take up the margin."""
    found, failures = clearances(task.track, p_w), []
    for near in found:
        need = task.vehicle.radius_m if near.frame else task.clear_m(near.solid)
        if not near.distance_m >= need - MARGIN_TOLERANCE:
            place = f"{near.distance_m:.3f} m of {near.solid} at {t[near.at]:.2f} s"
            failures.append(f"it comes within {place}, the least is {need:.3f} m")
    return min(found, key=lambda near: near.distance_m, default=None), failures


def seen(path: ReplayedPath, times: list[float], task: Task) -> list[tuple[float | None, float | None]]:
    """Return per gate the share of its leg, and the time, s, on it and the leg before, in view and in range, or None."""
    begins, found = [float(path.t[0])] * 2 + times, []
    for i, (gate, crossed) in enumerate(zip(task.gates, times, strict=False)):
        leg, both = (_seen(path, gate, begin, crossed, task) for begin in (begins[i + 1], begins[i]))
        found.append((leg and leg[0] / leg[1], both and both[0]))
    return found


def _seen(path: ReplayedPath, gate: Gate, begin: float, crossed: float, task: Task) -> tuple[float, float] | None:
    """Return the time in s in view, and that within detection range, from `begin` until a gate is crossed; or None."""
    leg = (path.t[1:] > begin) & (path.t[1:] <= crossed + 1e-9)
    off = np.linalg.norm(path.x[1:, P] - np.array(gate.centre_m), axis=1)
    leg[: np.flatnonzero(leg & (off > task.view_range_m(gate))).max(initial=-1) + 1] = False
    if gate.is_ball or not gate.visible or not leg.any():
        return None
    points = gate.corners() if task.options.see_corners else np.array(gate.centre_m)[None]
    dt, x = np.diff(path.t)[leg], path.x[1:][leg]
    seen = _in_view(task.vehicle.camera, points, x)
    for point in points:
        seen &= ~hidden(task.track, x[:, P], point)
    return float(dt @ seen), float(dt.sum())


def _in_view(camera: Camera, points_w: Array, x: Array) -> np.ndarray:
    """Return for each state x (M, NX), (M,), whether all world points (K, 3) are in the image."""
    from scipy.spatial.transform import Rotation  # slow to load, and not needed to fly a plan

    turn = Rotation.from_quat(x[:, Q], scalar_first=True)
    result = np.ones(len(x), dtype=bool)
    for point in points_w:
        p_c = (turn.inv().apply(point - x[:, P]) - camera.p_bc) @ camera.R_bc
        ahead = p_c[:, 2] > 1e-3
        p_c[~ahead] = [0.0, 0.0, 1.0]
        result &= ahead & camera.sees(camera.project(p_c))
    return result
