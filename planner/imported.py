"""Files of other planners: trajectories (CPC, TOGT, Agilicious) by the names of their columns, and planning problems.

Their frames, world z up and body FLU, are converted to NED and FRD; row k's rotor thrusts are held over [t_k, t_k+1] in both.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gate_racer.common.command import remark
from gate_racer.common.config import ConfigError, from_dict, read_fields
from gate_racer.common.files import FileError, read_csv
from gate_racer.planner.plan import COLUMNS, Plan, PlanError, SolverStatistics, numbers
from gate_racer.planner.task import Initial, PlanOptions, Task
from gate_racer.tracks.gate import Crossing, Gate
from gate_racer.tracks.track import Bounds, Start, Track
from gate_racer.vehicle.dynamics import GRAVITY, ROTORS_X, drag, lifted
from gate_racer.vehicle.rotation import Array, Quaternion, Vector, exp, from_euler, matrix, product, to_euler
from gate_racer.vehicle.vehicle import Rotors, Vehicle, load_vehicle

T = TypeVar("T")
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
    c = np.array([-matrix(q[k])[:, 2] @ force[k] - lifted(q[k], v[k], par.lift) for k in range(len(t))])
    x = np.column_stack([p, q, v, w, c])
    lagged = np.column_stack([w, c])
    decay = np.exp(-np.diff(t)[:, None] / np.array([*par.rate_lag, par.thrust_lag]))
    u = (lagged[1:] - lagged[:-1] * decay) / (1 - decay)
    return x, np.vstack([u, u[-1]])


def _gate_nodes(p: Array, v: Array, course: tuple[Gate, ...], path: Path) -> list[int]:
    """Return the row at which each gate is passed, in order. Raises PlanError for one that is not passed."""
    nodes, k = [], 0
    for i, gate in enumerate(course):
        begun = k
        for j in range(k, len(p) - 1):
            crossing = gate.crossing(p[j], p[j + 1], v[j], v[j + 1])
            if crossing is None and gate.is_ball and j + 2 == len(p):  # a flight may end before it is nearest
                crossing = Crossing(1.0, gate.margin(p[-1]))
            if crossing is not None and crossing.margin >= -PASSED_M:
                k = max(j + (crossing.s > 0.5), 1)
                break
        else:
            off_m = np.linalg.norm(p[begun:] - gate.p_wg, axis=1).min()
            after = "after the gates before it" if i else "at all"
            raise PlanError(
                f"{path}: gates[{i}] is not passed {after}: no row is closer to its centre than {off_m:.2f} m"
            )
        nodes.append(k)
    return nodes


REACH_M = 100.0  # m, free space around the course, since the files give the floor at most (chosen)
FLOOR_M = 0.5  # m, height of the floor without `z_min`, as in CPC's code, or of the lowest point of the course if that is less
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
    radius: float | None = None  # m, of a ball


@dataclass(frozen=True)
class _Problem:
    name: str
    start: _Start
    gates: tuple[_Gate, ...]
    end: _End | None = None  # else it ends in the last gate
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
    z_min: float | None = None  # m, height of the floor


@dataclass(frozen=True)
class _CpcStart:
    position: Vector
    attitude: Quaternion = (1.0, 0.0, 0.0, 0.0)
    velocity: Vector = (0.0, 0.0, 0.0)
    omega: Vector = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class _CpcEnd:
    position: Vector  # m; without more it is one more waypoint


@dataclass(frozen=True)
class _CpcTrack:
    """`track.yaml` of rpg_time_optimal; waypoints are passed within `CPC_TOLERANCE_M`."""

    gates: tuple[Vector, ...]
    initial: _CpcStart
    end: _CpcEnd | None = None


@dataclass(frozen=True)
class _CpcQuad:
    """`quad.yaml` of rpg_time_optimal."""

    mass: float
    arm_length: float  # m, taken as moment arm by its code
    inertia: tuple[Vector, Vector, Vector]
    torque_coeff: float
    omega_max_xy: float
    omega_max_z: float
    thrust_min: float
    TWR_max: float
    rampup_dist: float = 0.0
    TWR_ramp_start: float | None = None
    omega_ramp_start: float | None = None


@dataclass(frozen=True)
class _TogtState:
    pos: Vector
    vel: Vector
    cthrustmass: float
    euler: Vector  # deg, roll, pitch and yaw
    acc: Vector | None = None  # not read by TOGT, like the following
    jer: Vector | None = None
    rot: Quaternion | None = None


@dataclass(frozen=True)
class _TogtGate:
    type: str
    position: Vector
    name: str = ""
    stationary: bool = True
    radius: float = 0.0
    margin: float = 0.0
    rpy: Vector = (0.0, 0.0, 0.0)  # deg; the axis of a prism is its z
    width: float = 0.0
    height: float = 0.0
    marginW: float = 0.0  # noqa: N815
    marginH: float = 0.0  # noqa: N815
    length: float = 0.0
    midpoints: int = 0
    side: float = 0.0


@dataclass(frozen=True)
class _TogtQuad:
    mass: float
    gravity: float
    inertia: Vector
    armLength: float  # noqa: N815
    beta: float  # deg, angle of the arms from the body's x
    torCoeff: float  # noqa: N815
    thrust_min: float
    thrust_max: float
    omega_max: Vector


CPC_TOLERANCE_M = 0.3  # default of rpg_time_optimal
CPC_GRAVITY = 9.81  # m/s^2, of its ratio of thrust to weight
DIAGONAL_DEG = 45.0  # of the arms
NO_DRAG = (0.0, 0.0, 0.0)


def _read_course(path: Path) -> _Problem:
    fields, where = read_fields(path), str(path)
    if "initial" in fields:
        cpc = from_dict(fields, _CpcTrack, where)
        begin, points = cpc.initial, [*cpc.gates, *([cpc.end.position] if cpc.end is not None else [])]
        start = _Start(begin.position, begin.velocity, begin.attitude, begin.omega)
        return _Problem(path.stem, start, tuple(_Gate(p) for p in points), pass_tolerance=CPC_TOLERANCE_M)
    if "initState" in fields:
        return _of_togt(fields, path)
    return from_dict(fields, _Problem, where)


def _part(fields: dict[str, Any], name: str, cls: type[T], path: Path) -> T:
    if name not in fields:
        raise ConfigError(f"{path}: {name}: missing")
    return from_dict(fields[name], cls, f"{path}: {name}")


def _of_togt(fields: dict[str, Any], path: Path) -> _Problem:
    first, last = (_part(fields, name, _TogtState, path) for name in ("initState", "endState"))
    if any(last.vel) or any(last.euler[:2]) or abs(last.cthrustmass - GRAVITY) > GRAVITY_TOLERANCE:
        raise ConfigError(f"{path}: endState: must be a hover: vel, roll and pitch of 0, cthrustmass of {GRAVITY:g}")
    orders = fields.get("orders")
    if not (isinstance(orders, list) and all(isinstance(name, str) for name in orders)):
        raise ConfigError(f"{path}: orders: must list the names of the gates in order of flight")
    named = [(f"{path}: {name}", _part(fields, name, _TogtGate, path)) for name in orders]
    places = np.array([first.pos, *(gate.position for _, gate in named), last.pos])
    legs = zip(named, places[2:] - places[:-2], strict=True)
    gates = tuple(_togt_gate(gate, along, where) for (where, gate), along in legs)
    roll, pitch, yaw = np.radians(first.euler)
    w, x, y, z = from_euler(roll, pitch, yaw).tolist()
    start = _Start(first.pos, first.vel, (w, x, y, z), (0.0, 0.0, 0.0))
    return _Problem(path.stem, start, gates, _End(last.pos, "hover"))


def _togt_gate(gate: _TogtGate, along: Array, where: str) -> _Gate:
    """Return a gate; TOGT passes it either way, here it faces along (3,), m, from the place before it to the one after it."""
    if gate.type == "SingleBall":
        return _Gate(gate.position, radius=gate.radius - gate.margin / 2)
    roll, pitch, yaw = gate.rpy
    if gate.type != "RectanglePrisma" or gate.length or roll or abs(pitch) != 90.0:  # a quarter turn: the axis is level
        raise ConfigError(
            f"{where}: only SingleBall, and RectanglePrisma with a length of 0 and rpy [0, -90, yaw], are supported"
        )
    back = math.cos(math.radians(yaw)) * along[0] + math.sin(math.radians(yaw)) * along[1] < 0
    margin = min(gate.marginW, gate.marginH)
    size = gate.width - gate.marginW + margin, gate.height - gate.marginH + margin
    return _Gate(gate.position, yaw + 180.0 * back, *size, margin)


def _read_quad(path: Path) -> _Quad:
    fields, where = read_fields(path), str(path)
    if "TWR_max" in fields:
        cpc = from_dict(fields, _CpcQuad, where)
        if cpc.rampup_dist > 0:
            remark(f"{path}: rampup_dist: is left out, the limits hold from the start")
        inertia, least = np.diag(cpc.inertia).tolist(), cpc.thrust_min
        if not np.array_equal(np.diag(inertia), cpc.inertia):
            raise ConfigError(f"{path}: inertia: must be diagonal, kg m^2")
        rates, most = (cpc.omega_max_xy, cpc.omega_max_z), cpc.TWR_max * CPC_GRAVITY * cpc.mass / 4
        arms = cpc.arm_length, cpc.arm_length, cpc.torque_coeff
        return _Quad(cpc.mass, tuple(inertia), *arms, least, most, *rates, NO_DRAG, GRAVITY)
    if "armLength" in fields:
        togt = from_dict(fields, _TogtQuad, where)
        if togt.beta != DIAGONAL_DEG or togt.omega_max[0] != togt.omega_max[1]:
            raise ConfigError(f"{path}: only a beta of {DIAGONAL_DEG:g} and equal omega_max of x and y are supported")
        arms = togt.armLength, togt.armLength * math.sqrt(0.5), togt.torCoeff
        thrusts, rates = (togt.thrust_min, togt.thrust_max), togt.omega_max[1:]
        return _Quad(togt.mass, togt.inertia, *arms, *thrusts, *rates, NO_DRAG, togt.gravity)
    return from_dict(fields, _Quad, where)


def read_problem(path: str | Path) -> tuple[Track, Vehicle, PlanOptions]:
    """Read a planning problem and the one `*quad*.yaml` beside it, also those of CPC and TOGT. Raises ConfigError.

    It ends in hover, or in its last gate. Gates are balls, or rectangles of whose edges the vehicle's centre keeps half the
    `margin`.
    """
    problem = _read_course(Path(path))
    quads = sorted(set(Path(path).parent.glob("*quad*.yaml")) - {Path(path)})
    if len(quads) != 1:
        raise ConfigError(f"{path}: needs its quadrotor, one *quad*.yaml, beside it, found {len(quads)}")
    quad = _read_quad(quads[0])
    if problem.end is not None and not problem.end.condition.lower().startswith("hover"):
        raise ConfigError(f"{path}: end.condition: {problem.end.condition!r} is not supported, only hover is")
    if abs(quad.gravity - GRAVITY) > GRAVITY_TOLERANCE:
        raise ConfigError(f"{quads[0]}: gravity: {quad.gravity:g} m/s^2 is not supported, only {GRAVITY:g} is")
    if problem.pass_tolerance is not None and not problem.pass_tolerance > 0:
        raise ConfigError(f"{path}: pass_tolerance: {problem.pass_tolerance:g}: must be positive, in m")
    if not problem.gates:
        raise ConfigError(f"{path}: gates: must have at least one gate")
    if not math.hypot(*problem.start.attitude) > 0:
        raise ConfigError(f"{path}: start.attitude: must be a quaternion, wxyz, found {problem.start.attitude}")
    gates = tuple(_gate(one, problem.pass_tolerance, f"{path}: gates[{i}]") for i, one in enumerate(problem.gates))
    begin, (q_w, q_x, q_y, q_z) = problem.start, problem.start.attitude
    roll, pitch, yaw = (math.degrees(angle) for angle in to_euler((q_w, q_x, -q_y, -q_z)))
    start = Initial(_ned(begin.position), _ned(begin.velocity), roll, pitch, yaw, _ned(begin.omega))
    pad, end = Start(start.position_m, yaw, pitch), _ned(problem.end.position) if problem.end is not None else None
    points = np.array([start.position_m, *([end] if end else []), *(gate.centre_m for gate in gates)])
    low, high = points.min(axis=0) - REACH_M, points.max(axis=0) + REACH_M
    floor = -quad.z_min if quad.z_min is not None else max(-FLOOR_M, points[:, 2].max())
    bounds = Bounds((low[0], low[1], low[2]), (high[0], high[1], floor))
    track = Track(problem.name, pad, bounds, gates, False, end, str(Path(path).resolve()))
    try:
        vehicle = _vehicle(quad, quads[0].stem)
    except ValueError as error:
        raise ConfigError(f"{quads[0]}: {error}") from None
    options = replace(AS_PUBLISHED, bounds_clear=False, start=start, guesses=1)  # the floor is one for the centre
    if not all(gate.is_ball for gate in gates):
        margins = tuple(((one.margin or 0.0) / 2 - vehicle.radius_m,) * 4 for one in problem.gates)
        options = replace(options, edge_margins_m=margins)
    return track, vehicle, options


def _gate(gate: _Gate, tolerance_m: float | None, where: str) -> Gate:
    radius_m = tolerance_m or gate.radius
    if radius_m is not None:
        if not radius_m > 0:
            raise ConfigError(f"{where}: radius: {radius_m:g}: must be positive, in m")
        return Gate(_ned(gate.position), radius_m=radius_m, visible=False)
    if gate.yaw_deg is None or gate.width is None or gate.height is None:
        raise ConfigError(f"{where}: needs yaw_deg, width and height, or a radius, or the problem pass_tolerance")
    if not min(gate.width, gate.height) > (gate.margin or 0.0):
        size = f"{gate.width:g} x {gate.height:g} m"
        raise ConfigError(f"{where}: width, height: {size}: must exceed the margin of {gate.margin or 0.0:g} m")
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
