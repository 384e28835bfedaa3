"""Import of published trajectories: the CSV files of CPC, TOGT and Agilicious, by the names of their columns.

Their frames, world z up and body FLU, are converted to NED and FRD; row k's rotor thrusts are held over [t_k, t_k+1] in both.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np

from gate_racer.planner.options import PlanOptions
from gate_racer.planner.plan import COLUMNS, Plan, PlanError, SolverStatistics, numbers
from gate_racer.planner.task import Task
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.dynamics import GRAVITY, ROTORS_X, drag
from gate_racer.vehicle.files import FileError, read_csv
from gate_racer.vehicle.rotation import Array, exp, matrix, product
from gate_racer.vehicle.vehicle import Vehicle

AS_PUBLISHED = PlanOptions(model="rotors", reserve=1.0, margin_m=0.0, see=0.0, bounds_clear=False)
IMPORTED = SolverStatistics("imported", True, 0, 0.0, 0.0, None, {})
HALF_TURN = np.array([1.0, -1.0, -1.0])  # half turn about x: FLU to FRD, and z up to z down
STATE = ROTORS_X.columns
THRUSTS = ("u_1", "u_2", "u_3", "u_4")
PASSED_M = 0.01  # m outside an opening up to which its gate is taken as passed; the certificate checks the margin


def read_peer_plan(path: Path, task: Task) -> Plan:
    """Read a published trajectory as a plan through the track's gates.

    With rotor thrusts it is a plan of the `rotors` model; without them (or all zero) of the `rates` model, whose commands follow
    from the samples: u = (w_k+1 - w_k e) / (1 - e), e = exp(-dt / lag), and likewise for the thrust.

    Raises:
        PlanError: a missing or malformed file, or a gate that the trajectory does not pass.
    """
    (columns, ours), track, vehicle = _columns(path), task.track, task.vehicle
    t = columns["t"]
    p, v, w = (np.column_stack([columns[f"{name}_{axis}"] for axis in "xyz"]) for name in "pvw")
    q = np.column_stack([columns[f"q_{part}"] for part in "wxyz"])
    if not ours:
        # Some files hold x, y, z, w under these names.
        q = min((q, q[:, [3, 0, 1, 2]]), key=lambda q: _turning_error(t, q, w))
        p, v, w, q = p * HALF_TURN, v * HALF_TURN, w * HALF_TURN, q * [1, 1, -1, -1]
    q = q / np.linalg.norm(q, axis=1)[:, None]  # rounded in the file
    thrusts = np.column_stack([columns.get(name, 0 * t) for name in THRUSTS])
    if thrusts.any() and vehicle.rotors is not None:
        model, x, u = "rotors", np.hstack([p, q, v, w]), thrusts
    else:
        model, x, u = "rates", *_commanded(t, p, q, v, w, vehicle)
    nodes = _gate_nodes(p, task.gates, path)
    if task.end_m is not None:
        nodes.append(len(t) - 1)
    elif nodes[-1] < len(t) - 1:  # the race ends at the last gate
        t, x, u = t[: nodes[-1] + 1], x[: nodes[-1] + 1], u[: nodes[-1] + 1]
    u = np.vstack([u[:-1], u[-2]])
    return Plan(
        track_name=track.name,
        track_file=track.file,
        track_hash=track.hash,
        vehicle_name=vehicle.name,
        vehicle_hash=vehicle.hash,
        model=model,
        laps=task.options.laps,
        t=t - t[0],
        x=x,
        u=u,
        gate_nodes=tuple(nodes),
    )


def _columns(path: Path) -> tuple[dict[str, Array], bool]:
    """Read the named columns, and whether the file was written by this project."""
    try:
        rows = read_csv(path)
    except FileError as error:
        raise PlanError(str(error)) from None
    names = rows[0] if rows else []
    missing = [name for name in ("t", *STATE) if name not in names]
    if missing:
        raise PlanError(f"{path}: column {missing[0]} is missing; the columns t, {', '.join(STATE)}")
    try:
        table = numbers(rows, least=3)
    except ValueError as error:
        raise PlanError(f"{path}: malformed ({error})") from None
    return dict(zip(names, table.T, strict=True)), tuple(names) in COLUMNS.values()


def _turning_error(t: Array, q: Array, w: Array) -> float:
    """Return the inconsistency of attitudes q (M, 4) with body rates w (M, 3): sum of 1 - |cosine of the half angle|."""
    turned = np.array([product(a, exp(rate * dt)) for a, rate, dt in zip(q, w, np.diff(t), strict=False)])
    return float((1 - np.abs((turned * q[1:]).sum(axis=1))).sum())


def _commanded(t: Array, p: Array, q: Array, v: Array, w: Array, vehicle: Vehicle) -> tuple[Array, Array]:
    """Return states and inputs of the `rates` model along samples of the motion."""
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


def _gate_nodes(p: Array, course: tuple[Gate, ...], path: Path) -> list[int]:
    """Return the row at which each gate is passed, in order.

    Raises:
        PlanError: a gate is not passed.
    """
    nodes, k = [], 0
    for i, gate in enumerate(course):
        near = _near(gate, p[k:])
        if not near.any():
            raise PlanError(f"{path}: gates[{i}] is not passed after the gates before it")
        first = k + int(near.argmax())
        past = np.flatnonzero(near[first - k :] == 0)
        last = first + int(past[0]) if len(past) else len(p) - 1
        distance = np.linalg.norm(p[first : last + 1] - gate.p_wg, axis=1)
        along = np.abs(gate.local(p[first : last + 1])[:, 0])
        k = max(first + int((distance if gate.is_ball else along).argmin()), 1)
        nodes.append(k)
    return nodes


def _near(gate: Gate, p: Array) -> Array:
    """Return for each step of a path, (M - 1,), whether it passes an opening or touches a ball."""
    if not gate.is_ball:
        found = [gate.crossing(a, b) for a, b in pairwise(p)]
        return np.array([crossing is not None and crossing.margin >= -PASSED_M for crossing in found])
    step, d = np.diff(p, axis=0), gate.p_wg - p[:-1]
    s = np.clip((d * step).sum(axis=1) / (step**2).sum(axis=1), 0.0, 1.0)
    return np.linalg.norm(d - s[:, None] * step, axis=1) <= gate.half + PASSED_M
