"""Files of other planners: trajectories (CPC, TOGT, Agilicious) by the names of their columns, and planning problems.

Their frames, world z up and body FLU, are converted to NED and FRD; row k's rotor thrusts are held over [t_k, t_k+1] in both.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gate_racer.common.config import ConfigError, load
from gate_racer.common.files import FileError, read_csv
from gate_racer.planner.plan import COLUMNS, Plan, PlanError, SolverStatistics, numbers
from gate_racer.planner.task import Initial, PlanOptions, Task
from gate_racer.tracks.gate import Crossing, Gate
from gate_racer.tracks.track import Bounds, Start, Track
from gate_racer.vehicle.dynamics import GRAVITY, ROTORS_X, drag
from gate_racer.vehicle.rotation import Array, Quaternion, Vector, exp, matrix, product, to_euler
from gate_racer.vehicle.vehicle import Rotors, Vehicle, load_vehicle

AS_PUBLISHED = PlanOptions(model="rotors", reserve=1.0, margin_m=0.0, see=0.0)
IMPORTED = SolverStatistics("imported", True, 0, 0.0, 0.0, None, {})
HALF_TURN = np.array([1.0, -1.0, -1.0])  # half turn about x: FLU to FRD, and z up to z down
STATE = ROTORS_X.columns
PASSED_M = 0.01  # m outside an opening up to which its gate is taken as passed; the certificate checks the margin


def read_peer_plan(path: Path, task: Task) -> Plan:
    """Read a published trajectory as a plan through the track's gates. Raises PlanError: malformed, or a gate is not passed.

    Without rotor thrusts it is one of the `rates` model, whose commands follow from the samples: u = (w_k+1 - w_k e) / (1 -
    e), e = exp(-dt / lag), and likewise for the thrust.
    """
    (columns, ours), vehicle = _columns(path), task.vehicle
    t = columns["t"]
    p, v, w = (np.column_stack([columns[f"{name}_{axis}"] for axis in "xyz"]) for name in "pvw")
    q = np.column_stack([columns[f"q_{part}"] for part in "wxyz"])
    if not ours:
        # Some files hold x, y, z, w under these names.
        q = min((q, q[:, [3, 0, 1, 2]]), key=lambda q: _turning_error(t, q, w))
        p, v, w, q = p * HALF_TURN, v * HALF_TURN, w * HALF_TURN, q * [1, 1, -1, -1]
    if not np.linalg.norm(q, axis=1).all():
        raise PlanError(f"{path}: q_w to q_z of row {int(np.linalg.norm(q, axis=1).argmin()) + 1} are zero")
    q = q / np.linalg.norm(q, axis=1)[:, None]  # rounded in the file
    thrusts = np.column_stack([columns.get(name, 0 * t) for name in ("u_1", "u_2", "u_3", "u_4")])
    if thrusts.any() and vehicle.rotors is not None:
        model, x, u = "rotors", np.hstack([p, q, v, w]), thrusts
    else:
        model, x, u = "rates", *_commanded(t, p, q, v, w, vehicle)
    nodes = _gate_nodes(p, v, task.gates, path)
    if task.end_m is not None:
        nodes.append(len(t) - 1)
    end = nodes[-1] + 1  # without a stop the race ends at the last gate
    t, x, u = t[:end], x[:end], u[:end]
    return Plan.of(task, model, t - t[0], x, np.vstack([u[:-1], u[-2]]), tuple(nodes))


def _columns(path: Path) -> tuple[dict[str, Array], bool]:
    try:
        rows = read_csv(path)
        names = rows[0] if rows else []
        missing = [name for name in ("t", *STATE) if name not in names]
        if missing:
            raise ValueError(f"column {missing[0]} is missing; the columns t, {', '.join(STATE)}")
        table = numbers(rows, least=3)
    except (FileError, ValueError) as error:
        raise PlanError(f"{path}: {error}" if isinstance(error, ValueError) else str(error)) from None
    return dict(zip(names, table.T, strict=True)), tuple(names) in COLUMNS.values()


def _turning_error(t: Array, q: Array, w: Array) -> float:
    """Return the inconsistency of attitudes q (M, 4) with body rates w (M, 3): sum of 1 - |cosine of the half angle|."""
    turned = np.array([product(a, exp(rate * dt)) for a, rate, dt in zip(q, w, np.diff(t), strict=False)])
    return float((1 - np.abs((turned * q[1:]).sum(axis=1))).sum())


def _commanded(t: Array, p: Array, q: Array, v: Array, w: Array, vehicle: Vehicle) -> tuple[Array, Array]:
    acceleration = np.gradient(v, t, axis=0)
    par = vehicle.rates_parameters
    dragged = np.array([drag(q[k], v[k], par.drag_linear, par.drag_quadratic) for k in range(len(t))])
    force = acceleration - dragged - [0.0, 0.0, GRAVITY]
    c = np.array([-matrix(q[k])[:, 2] @ force[k] for k in range(len(t))])
    x = np.column_stack([p, q, v, w, c])
    lagged = np.column_stack([w, c])
    decay = np.exp(-np.diff(t)[:, None] / np.array([*par.rate_lag, par.thrust_lag]))
    u = (lagged[1:] - lagged[:-1] * decay) / (1 - decay)
    return x, np.vstack([u, u[-1]])


def _gate_nodes(p: Array, v: Array, course: tuple[Gate, ...], path: Path) -> list[int]:
    """Return the row at which each gate is passed, in order. Raises PlanError for one that is not passed."""
    nodes, k = [], 0
    for i, gate in enumerate(course):
        for j in range(k, len(p) - 1):
            crossing = gate.crossing(p[j], p[j + 1], v[j], v[j + 1])
            if crossing is None and gate.is_ball and j + 2 == len(p):  # a flight may end before it is nearest
                crossing = Crossing(1.0, gate.margin(p[-1]))
            if crossing is not None and crossing.margin >= -PASSED_M:
                k = max(j + (crossing.s > 0.5), 1)
                break
        else:
            raise PlanError(f"{path}: gates[{i}] is not passed after the gates before it")
        nodes.append(k)
    return nodes


REACH_M = 100.0  # m, free space around the course, since the files give the floor only (chosen)
GRAVITY_TOLERANCE = 0.02  # m/s^2, between published values of the earth's


@dataclass(frozen=True)
class _Start:
    position: Vector
    velocity: Vector
    attitude: Quaternion
    omega: Vector


@dataclass(frozen=True)
class _End:
    position: Vector
    condition: str


@dataclass(frozen=True)
class _Gate:
    position: Vector
    yaw_deg: float | None = None
    width: float | None = None
    height: float | None = None
    margin: float | None = None


@dataclass(frozen=True)
class _Problem:
    name: str
    start: _Start
    end: _End
    gates: tuple[_Gate, ...]
    pass_tolerance: float | None = None  # m, radius within which each position is passed, whatever the gate's size


@dataclass(frozen=True)
class _Quad:
    mass: float
    inertia: Vector
    arm_length: float
    moment_arm: float
    torque_coeff: float
    thrust_min: float
    thrust_max: float
    omega_max_xy: float
    omega_max_z: float
    drag: Vector
    gravity: float
    z_min: float


def read_problem(path: str | Path) -> tuple[Track, Vehicle, PlanOptions]:
    """Read a planning problem and the quadrotor in the `quad_*.yaml` beside it, with hover at the end. Raises ConfigError.

    Gates are balls of the radius `pass_tolerance`, or rectangles of whose edges the vehicle's centre keeps half the `margin`.
    """
    problem = load(path, _Problem)
    quads = sorted(Path(path).parent.glob("quad_*.yaml"))
    if len(quads) != 1:
        raise ConfigError(f"{path}: needs one quad_*.yaml beside it, found {len(quads)}")
    quad = load(quads[0], _Quad)
    if not problem.end.condition.lower().startswith("hover"):
        raise ConfigError(f"{path}: end.condition: {problem.end.condition!r} is not supported, only hover is")
    if abs(quad.gravity - GRAVITY) > GRAVITY_TOLERANCE:
        raise ConfigError(f"{quads[0]}: gravity: {quad.gravity:g} m/s^2 is not supported, only {GRAVITY:g} is")
    if problem.pass_tolerance is not None and not problem.pass_tolerance > 0:
        raise ConfigError(f"{path}: pass_tolerance: {problem.pass_tolerance:g}: must be positive, in m")
    if not math.hypot(*problem.start.attitude) > 0:
        raise ConfigError(f"{path}: start.attitude: must be a quaternion, wxyz, found {problem.start.attitude}")
    gates = tuple(_gate(one, problem.pass_tolerance, f"{path}: gates[{i}]") for i, one in enumerate(problem.gates))
    begin, (q_w, q_x, q_y, q_z) = problem.start, problem.start.attitude
    roll, pitch, yaw = (math.degrees(angle) for angle in to_euler((q_w, q_x, -q_y, -q_z)))
    start = Initial(_ned(begin.position), _ned(begin.velocity), roll, pitch, yaw, _ned(begin.omega))
    pad, end = Start(start.position_m, yaw, pitch), _ned(problem.end.position)
    points = np.array([start.position_m, end, *(gate.centre_m for gate in gates)])
    low, high = points.min(axis=0) - REACH_M, points.max(axis=0) + REACH_M
    bounds = Bounds((low[0], low[1], low[2]), (high[0], high[1], -quad.z_min))
    track = Track(problem.name, pad, bounds, gates, False, end, str(Path(path).resolve()))
    try:
        vehicle = _vehicle(quad, quads[0].stem)
    except ValueError as error:
        raise ConfigError(f"{quads[0]}: {error}") from None
    options = replace(AS_PUBLISHED, bounds_clear=False, start=start, guesses=1)  # the floor is one for the centre
    if problem.pass_tolerance is None:
        margins = tuple(((one.margin or 0.0) / 2 - vehicle.radius_m,) * 4 for one in problem.gates)
        options = replace(options, edge_margins_m=margins)
    return track, vehicle, options


def _gate(gate: _Gate, radius_m: float | None, where: str) -> Gate:
    if radius_m is not None:
        return Gate(_ned(gate.position), radius_m=radius_m, visible=False)
    if gate.yaw_deg is None or gate.width is None or gate.height is None:
        raise ConfigError(f"{where}: needs yaw_deg, width and height, or the problem pass_tolerance")
    y, z = gate.width / 2, gate.height / 2
    return Gate(_ned(gate.position), -gate.yaw_deg, visible=False, polygon_m=((-y, -z), (y, -z), (y, z), (-y, z)))


def _ned(p: Vector) -> Vector:
    """Convert a vector from world z up to z down, or body FLU to FRD: a half turn about x."""
    return (p[0], -p[1], -p[2])


def _vehicle(quad: _Quad, name: str) -> Vehicle:
    """Return the vehicle `cpc` with this quadrotor's rotors; camera and lags do not enter a rotor-level plan."""
    a, c = quad.moment_arm, quad.torque_coeff
    # Rotors 1 front right, 2 rear left, 3 rear right, 4 front left, as in rpg_time_optimal and TOGT.
    arms = (a, -a, -a, a), (a, -a, a, -a), (c, c, -c, -c)
    rotors = Rotors(quad.mass, quad.inertia, *arms, quad.thrust_max, quad.thrust_min)
    linear = tuple(d / quad.mass for d in quad.drag)
    base = load_vehicle("cpc")
    curve = replace(base.throttle, thrust_m_s2=(0.0, 4 * quad.thrust_max / quad.mass))
    return replace(
        base,
        name=name,
        rotors=rotors,
        throttle=curve,
        speed_max_m_s=math.inf,
        drag_linear_1_s=(linear[0], linear[1], linear[2]),
        rate_max_rad_s=(quad.omega_max_xy, quad.omega_max_xy, quad.omega_max_z),
    )
