"""`Plan`: a trajectory with its inputs, and its file format.

CSV columns follow CPC, TOGT and Agilicious: t, p, q (wxyz), v, w, a, then the inputs; row k's inputs are held over
[t_k, t_k+1]. World NED, body FRD, SI. Metadata (track, vehicle, gate rows, certificate) is in the JSON file beside it.
"""

import contextlib
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.common.files import CAUSES, FileError, read_csv, read_json, write_file
from gate_racer.planner.models import MODELS, Model
from gate_racer.planner.task import Task
from gate_racer.tracks.track import Track
from gate_racer.vehicle.dynamics import RATES_U, RATES_X, rk4
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

ACCELERATION = ("a_x", "a_y", "a_z")  # m/s^2, world NED; derived columns, for readers of the file
NUMBER_MOST = 1e9  # largest magnitude accepted from a file, so that products cannot overflow (chosen)
AT_PAD = 0.1  # m and m/s, tolerance of a start at rest on the pad (chosen)
BODY = 13  # number of entries of p, q, v, w, which come first in both states
COLUMNS = {
    name: ("t", *model.x.columns[:BODY], *ACCELERATION, *model.x.columns[BODY:], *model.u.columns)
    for name, model in MODELS.items()
}


@dataclass(frozen=True)
class SolverStatistics:
    solver_status: str
    success: bool
    iterations: int
    build_s: float
    solve_s: float
    point_mass_bound_s: float | None
    guesses_s: dict[str, float | None]  # s, per initial guess the time of its optimum; None without one


class PlanError(UserError):
    """A plan that cannot be read, or that is of another track or vehicle."""


@dataclass(frozen=True)
class Plan:
    """Trajectory of N intervals of the `rates` or `rotors` model; gate i of the course is passed at node `gate_nodes[i]`.

    Examples:
        >>> from gate_racer import Plan
        >>> isinstance(plan, Plan), plan.model, len(plan.gate_nodes)
        (True, 'rates', 6)
        >>> plan.x.shape == (len(plan.t), 14)
        True
        >>> plan.plot(folder / "vq1.png", track, vehicle)
    """

    track_name: str
    track_file: str  # path of the track's file
    track_hash: str
    vehicle_name: str
    vehicle_hash: str
    model: str
    laps: int
    t: Array  # (N + 1,) s
    x: Array  # (N + 1, NX), RATES_X or ROTORS_X
    u: Array  # (N + 1, 4), RATES_U or ROTORS_U; the last row repeats the previous one
    gate_nodes: tuple[int, ...]

    @staticmethod
    def of(task: Task, model: str, t: Array, x: Array, u: Array, gate_nodes: tuple[int, ...]) -> "Plan":
        """Return a trajectory through the course of a task, not yet certified."""
        track, vehicle = task.track, task.vehicle
        laps = task.options.laps
        return Plan(track.name, track.file, track.hash, vehicle.name, vehicle.hash, model, laps, t, x, u, gate_nodes)

    @property
    def total_time(self) -> float:
        """Time in s to the last gate, or to rest if the course ends at rest."""
        return float(self.t[-1])

    @property
    def gate_times_s(self) -> Array:
        """Times (G,), s, at which the gates of the course are passed and the final stop, if any, is reached."""
        return self.t[list(self.gate_nodes)]

    def plot(self, path: Path, track: Track, vehicle: Vehicle) -> None:
        """Write a PNG: top and side view, and profiles over time. Raises UserError where it cannot be written."""
        from gate_racer.planner.plot import draw_plan  # matplotlib only when something is drawn

        draw_plan(path, self, track, vehicle)

    def passage_times_s(self, track: Track) -> list[float]:
        """Return the times, s, at which a plan from the track's pad passes the gates, without a final stop."""
        passages: list[float] = self.gate_times_s[: len(track.course(self.laps))].tolist()
        return passages

    @cached_property
    def hash(self) -> str:
        """Hash of the trajectory, 16 hex digits."""
        return hashlib.sha256(np.hstack([self.t[:, None], self.x, self.u]).tobytes()).hexdigest()[:16]

    def require(self, track: Track, vehicle: Vehicle) -> None:
        """Check that the plan is of this vehicle and track and begins at rest on the pad. Raises PlanError if not."""
        for what, name, own, given in (
            ("track", self.track_name, self.track_hash, track),
            ("vehicle", self.vehicle_name, self.vehicle_hash, vehicle),
        ):
            if own != given.hash:
                mend = f"run plan-track {track.name} --vehicle {vehicle.name}"
                made = f"the plan was made for {what} {name} ({own})"
                raise PlanError(f"{made}, not for {given.name} ({given.hash}); {mend}")
        p, v = self.x[0, RATES_X["p"].at], self.x[0, RATES_X["v"].at]
        if np.linalg.norm(p - track.start.p_wb) > AT_PAD or np.linalg.norm(v) > AT_PAD:
            raise PlanError("the plan does not begin at rest on the track's pad, so it cannot be flown from there")

    def flight_model(self, vehicle: Vehicle) -> Model:
        """Return the flight model of this trajectory, with the vehicle's full limits."""
        return MODELS[self.model](vehicle)

    def thrust_share(self, vehicle: Vehicle) -> float:
        """Return the largest commanded thrust over the vehicle's, -; missing parts of a plan do not count."""
        commands = self.flight_model(vehicle).commands(self.x, self.u)
        return float(np.nanmax(commands[:, RATES_U["u_c"].at])) / vehicle.thrust_max

    def dense(self, vehicle: Vehicle, parts: int) -> tuple[Array, Array, Array]:
        """Sample t (M,), x (M, NX) with continuous quaternions, and u (M, 4), `parts` times per interval, by integration."""
        h, model, q = np.diff(self.t) / parts, self.flight_model(vehicle), RATES_X["q"].at
        x, u = list(self.x[:-1].T), list(self.u[:-1].T)
        fine = [np.array(x)]
        for _ in range(parts - 1):
            x = rk4(model.f, x, u, model.parameters, h)
            fine.append(np.array(x))
        states = np.vstack([np.stack(fine, 1).transpose(2, 1, 0).reshape(-1, self.x.shape[1]), self.x[-1]])
        flips = np.where((states[1:, q] * states[:-1, q]).sum(axis=1) < 0, -1.0, 1.0)
        states[1:, q] *= np.cumprod(flips)[:, None]
        times = (self.t[:-1, None] + h[:, None] * np.arange(parts)).ravel()
        inputs = np.repeat(self.u[:-1], parts, axis=0)
        return np.append(times, self.t[-1]), states, np.vstack([inputs, self.u[-1]])


def gate_shift(t: Array, knots_s: Array, offsets: Array) -> tuple[Array, Array]:
    """Return the shift of a plan's line at plan times t (M,), s, and its derivative, m and m/s, (M, 3).

    Between knots_s (K,), with shifts o_k (K, 3) m, it is o_k + (o_k+1 - o_k) (3 s^2 - 2 s^3) at the fraction s.
    """
    k = np.minimum(np.maximum(knots_s.searchsorted(t, side="right") - 1, 0), len(knots_s) - 2)
    span_s = (knots_s[k + 1] - knots_s[k])[:, None]
    s = np.minimum(np.maximum((t - knots_s[k])[:, None] / span_s, 0.0), 1.0)
    step = offsets[k + 1] - offsets[k]
    return offsets[k] + step * (s * s * (3 - 2 * s)), step * (6 * s * (1 - s) / span_s)


def seal(about: dict[str, Any]) -> str:
    """Return the hash, 16 hex digits, of all entries of a plan's JSON except the seal itself."""
    said = {name: value for name, value in about.items() if name != "seal"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def require_certified(path: str | Path, plan: Plan) -> None:
    """Check that a plan read from this path is the one that was certified. Raises PlanError if not."""
    about = json.loads(Path(path).with_suffix(".json").read_text(encoding="utf-8"))
    if about.get("status") != "certified":
        why = f"its status is {str(about.get('status'))[:200]!r}, not 'certified'"
    elif about.get("plan_hash") != plan.hash or about.get("seal") != seal(about):
        why = "its rows or its certificate were changed after it was certified"
    else:
        return
    again = f"plan-track {plan.track_file} --vehicle {plan.vehicle_name}"
    raise PlanError(f"{path}: {why}; plan again with {again}, or fly it with --set plan.uncertified=true")


def write_plan(path: Path, plan: Plan, vehicle: Vehicle, certificate: dict[str, Any]) -> None:
    """Write the CSV at `path` and the certificate beside it, each atomically.

    Numbers are written with full precision, so that the plan read back is the certified one.

    Examples:
        >>> from gate_racer import write_plan
        >>> write_plan(folder / "vq1.csv", plan, vehicle, certificate.as_dict())
    """
    a_w = np.array(plan.flight_model(vehicle).derivative(list(plan.x.T), list(plan.u.T))[7:10]).T
    table = np.hstack([plan.t[:, None], plan.x[:, :BODY], a_w, plan.x[:, BODY:], plan.u])
    lines = [",".join(COLUMNS[plan.model]), *(",".join(map(repr, row)) for row in table.tolist())]
    about = {
        "track": plan.track_name,
        "track_file": plan.track_file,
        "vehicle": plan.vehicle_name,
        "laps": plan.laps,
        "gate_nodes": [int(node) for node in plan.gate_nodes],
        **certificate,
    }
    about["seal"] = seal(about)
    write_file(path, "\n".join(lines) + "\n")
    write_file(path.with_suffix(".json"), json.dumps(about, indent=2) + "\n")


def numbers(rows: list[list[str]], least: int) -> Array:
    """Parse the rows of a CSV file, the first of which names the columns, into an array (M, columns).

    Raises ValueError: fewer than `least` rows, one of wrong length, a cell that is no number, or time that does not increase.
    """
    names, table = rows[0], np.empty((len(rows) - 1, len(rows[0])))
    if len(table) < least:
        raise ValueError(f"the table has {len(table)} rows, at least {least} are needed")
    for k, row in enumerate(rows[1:]):
        if len(row) != len(names):
            raise ValueError(f"row {k + 1}: has {len(row)} columns, but the header has {len(names)}")
        for i, cell in enumerate(row):
            table[k, i] = np.nan
            with contextlib.suppress(ValueError):
                table[k, i] = float(cell)
            if not abs(table[k, i]) <= NUMBER_MOST:
                most = f"{-NUMBER_MOST:g} to {NUMBER_MOST:g}"
                raise ValueError(f"row {k + 1}: {names[i]} is {cell[:40]!r}, must be a number from {most}")
    t = table[:, names.index("t")]
    for k in np.flatnonzero(np.diff(t) <= 0)[:1]:
        raise ValueError(f"row {k + 2}: t is {t[k + 1]:g}, must be later than the {t[k]:g} of the row before")
    return table


def read_plan(path: str | Path) -> Plan:
    """Read a plan from its CSV and the JSON beside it.

    Raises:
        PlanError: one of the files is missing or malformed.

    Examples:
        >>> from gate_racer import read_plan
        >>> read_plan(folder / "vq1.csv").hash == plan.hash
        True
    """
    path = Path(path)
    try:
        rows, about = read_csv(path), read_json(path.with_suffix(".json"))
    except FileError as error:
        raise PlanError(str(error)) from None
    try:
        models = {columns: name for name, columns in COLUMNS.items()}
        if not rows or tuple(rows[0]) not in models:
            raise ValueError(f"the header must be {' or '.join(map(','.join, models))}")
        table = numbers(rows, least=2)
        nodes = tuple(int(node) for node in about["gate_nodes"])
        if not all(0 <= node < len(table) for node in nodes):
            raise ValueError(f"gate_nodes must lie within the {len(table)} rows")
        keys = ("track", "track_file", "track_hash", "vehicle", "vehicle_hash")
        track, file, track_hash, vehicle, vehicle_hash = (str(about[key]) for key in keys)
        model, laps, t, u = models[tuple(rows[0])], int(about["laps"]), table[:, 0], table[:, -4:]
        x = np.hstack([table[:, 1 : 1 + BODY], table[:, 4 + BODY : -4]])
        return Plan(track, file, track_hash, vehicle, vehicle_hash, model, laps, t, x, u, nodes)
    except CAUSES as error:
        raise PlanError(f"{path}: malformed ({error})") from None
