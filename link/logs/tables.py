"""Signals of tables (CSV with a header). A unit may follow a column's name in brackets: `a_x [g]`, `w_x [deg/s]`.

NanoBench's columns are known by their names: Crazyflie, x forward, y left, z up, quaternions xyzw, with Vicon's motion.
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from gate_racer.common.files import read_csv, read_start
from gate_racer.link.logs import samples
from gate_racer.link.logs.reader import TIME, TIME_FIRST
from gate_racer.link.logs.samples import LoggedSignals, SignalError, Source, scaled, turned, turned_q, xyz
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, from_euler, matrix

# Column names of public logs, mapped to those below.
PREFIXES = {"pos": "p", "vel": "v", "quat": "q", "acc": "a", "accel": "a", "gyro": "w", "ang_vel": "w"}
OTHER_NAMES = {
    **dict.fromkeys(("cmd_thrust", "thrust_cmd", "thrust"), "throttle"),
    **{f"{name}_{axis}": f"{ours}_{axis}" for name, ours in PREFIXES.items() for axis in "wxyz"},
    **{f"{ours}{axis}": f"{ours}_{axis}" for ours in "apqvw" for axis in "wxyz"},
    **{f"a{axis}_b": f"a_{axis}" for axis in "xyz"},
    **{"vx_b": "u_b", "vy_b": "v_b", "vz_b": "w_b"},
    **{"phi": "roll", "theta": "pitch", "psi": "yaw", "vbat": "voltage"},
    **{"p": "w_x", "q": "w_y", "q_raw": "w_y", "r": "w_z", "cmd_p": "w_cmd_x", "cmd_q": "w_cmd_y", "cmd_r": "w_cmd_z"},
}
COLUMN = re.compile(r"([^\[\]()]*?)\s*(?:\[([^\[\]()]*)\]|\(([^\[\]()]*)\))?")  # name, name [unit] or name (unit)
UNITS = {
    **dict.fromkeys(("", "-", "s", "m", "m/s", "m/s^2", "m/s2", "rad", "rad/s", "V"), 1.0),
    **{"g": GRAVITY, "mg": 1e-3 * GRAVITY, "deg": samples.RAD, "deg/s": samples.RAD, "mrad/s": 1e-3},
    **{"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "mm": 1e-3, "cm": 0.01, "mm/s": 1e-3, "cm/s": 0.01, "%": 0.01, "mV": 1e-3},
}
ANGLES, OMEGA, FORCE = ("roll", "pitch", "yaw"), xyz("w_{}"), xyz("a_{}")
# rad/s and rad, largest values of usual gyros (2000 deg/s) and of angles; beyond, they are in degrees.
LARGEST = {**dict.fromkeys(OMEGA, (35.0, "rad/s", "deg/s")), **dict.fromkeys(ANGLES, (7.0, "rad", "deg"))}
SPIKES = 0.05  # of the samples, that may exceed it (chosen)


def _from_body(columns: Array) -> Array:
    return np.array([matrix(from_euler(*row[3:])) @ row[:3] for row in columns]).reshape(-1, 3)


COLUMNS = (
    Source("throttle", "", ("throttle",)),
    Source("v", "", xyz("v_{}")),
    Source("v", "", ("v_z",), scaled(0.0, 0.0, 1.0)),
    Source("v", "", ("u_b", "v_b", "w_b", *ANGLES), _from_body),
    Source("p", "", xyz("p_{}")),
    Source("q", "", ("q_w", "q_x", "q_y", "q_z")),
    Source("q", "", ANGLES, samples.eulers()),
    Source("force", "", FORCE),
    Source("omega", "", OMEGA),
    Source("omega_cmd", "", xyz("w_cmd_{}")),
    Source("voltage", "", ("voltage",)),
)  # axes FRD and NED, or with z up, as their forces tell
PWM = scaled(1 / 65535)
MOTORS = tuple(f"motor_motor_m{k}" for k in range(1, 5))
NANOBENCH = (
    Source("force", "", xyz("imu_acc_{}"), samples.turned_gravities),
    Source("omega", "", xyz("imu_gyro_{}"), turned),
    Source("q", "", xyz("att_stateEstimate_q{}", "wxyz"), turned_q),
    Source("p", "", xyz("est_stateEstimate_{}"), turned),
    Source("v", "", xyz("est_stateEstimate_v{}"), turned),
    Source("true_q", "", xyz("q{}", "wxyz"), turned_q),
    Source("true_p", "", xyz("p{}"), turned),
    Source("true_v", "", xyz("v{}"), turned),
    Source("motors", "", MOTORS, PWM),
    Source("throttle", "", MOTORS, samples.mean(PWM)),
    Source("voltage", "", ("pwr_pm_vbat",)),
)

CHANGE_S, CHANGED_M_S = 0.5, 0.3  # s, over which changes of velocity are compared; m/s, least rms to tell (chosen)
HEAD_BYTES = 4096  # bytes, longest header that is looked at for its separator
# Tables of programs that convert logs, by the end of a column's name, with what they were made from.
CONVERTED = {"loopIteration": "blackbox_decode from a .bbl or .bfl"}
CONVERTED |= dict.fromkeys(("timestamp_sample", "[0]"), "ulog2csv from a .ulg")


def table_signals(path: Path) -> LoggedSignals:
    """Return the signals of a table, with `,`, tabs or `;` between columns (then also decimal commas).

    Raises FileError, or SignalError: it has no header or time, or a used column holds a text or has an unknown unit.
    """
    header, rows = _rows(path)
    if made := next((made for end, made in CONVERTED.items() if any(name.endswith(end) for name in header)), ""):
        raise SignalError(f"{path}: was made by {made}, which is read itself: give that file")
    parsed = [_parsed(path, column) for column in header]
    nanobench = set(MOTORS) <= {name for name, _ in parsed}
    sources = NANOBENCH if nanobench else COLUMNS
    used = {"t", *(field for source in sources for field in source.fields)}
    columns, units, notes = dict[str, Array](), dict[str, str](), list[str]()
    # The column of times: `t`, else the first whose unit is known, else the first.
    times = [k for k, (name, _) in enumerate(parsed) if re.fullmatch(TIME, _plain(name))]
    time = min(times, key=lambda k: (parsed[k][0] != "t", not parsed[k][1]), default=None)
    for k, (column, (name, unit)) in enumerate(zip(header, parsed, strict=True)):
        plain = _plain(name)
        ours = "t" if k == time else name if nanobench else OTHER_NAMES.get(plain, plain)
        if ours not in used or (ours in columns and name != ours):  # an alias counts less than the name itself
            continue
        if [known for known, _ in parsed].count(name) > 1:
            raise SignalError(f"{path}: column {column} comes twice; leave one")
        values = _numbers(path, column, [row[k] if k < len(row) else "" for row in rows])
        if k == time and not unit and (unit := _tick(path, column, values)):
            notes.append(f"column {column} is taken in {unit}, by its steps")
        most, ours_unit, other = LARGEST.get(ours, (np.inf, "", ""))
        if not unit and (share := (np.abs(values) > most).sum() / max(len(values), 1)) > SPIKES:
            beyond = f"has no unit and exceeds {most:g} {ours_unit} in {100 * share:.2g} % of its rows"
            raise SignalError(f"{path}: column {column} {beyond}: name it, as in {column} [{other}] or [{ours_unit}]")
        if unit not in UNITS:
            known = ", ".join(filter(None, UNITS))
            raise SignalError(f"{path}: column {column}: the unit {unit} is not known; known are {known}")
        columns[ours], units[ours] = UNITS[unit] * values, unit
    if "t" not in columns:
        raise SignalError(f"{path}: is no log that is read: neither its first bytes nor a column t tell what it is")
    log = samples.found({"": columns}, sources, notes)
    if not any(units.get(name) for name in FORCE):
        log.require_gravity(path)
    return log if nanobench else _compared(_down(path, log))


def _down(path: Path, log: LoggedSignals) -> LoggedSignals:
    """Return a log in FRD and NED, by its forces. Raises SignalError where body and world disagree."""
    force = log.get("force")
    f_z = float(np.nanmedian(force.values[:, 2])) if len(force) else -GRAVITY
    if "q" in log.signals and len(force):
        w, x, y, z = log.get("q").values.T
        down = np.column_stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x**2 + y**2)])  # last row of R_wb
        world_f_z = float(np.nanmedian((down * force.values).sum(axis=1)))
        if f_z * world_f_z < 0 and min(abs(f_z), abs(world_f_z)) > GRAVITY / 2:
            told = f"z is {'up' if f_z > 0 else 'down'} by a_z, but the other way in the world by the attitude"
            raise SignalError(f"{path}: {told}; expected are FRD and NED, or x forward, y left, z up in both")
    if f_z < GRAVITY / 2:
        return log
    turns = {4: turned_q, 3: turned, 1: samples.same}
    signals = {name: replace(one, values=turns[one.values.shape[1]](one.values)) for name, one in log.signals.items()}
    note = "a_z is positive for most of the log: z is taken as up, y as left, in all columns"
    return replace(log, signals=signals, notes=(*log.notes, note))


def _compared(log: LoggedSignals) -> LoggedSignals:
    """Return a log with a note where its velocities are not those of its forces by its attitudes: axes that disagree."""
    from scipy.spatial.transform import Rotation  # slow to load

    names = ("force", "v", "q")
    force, v, q = (one.where(np.flatnonzero(np.isfinite(one.values).all(axis=1))) for one in map(log.get, names))
    q = q.where(np.linalg.norm(q.values, axis=1) > 0.5)
    if min(len(force), len(v), len(q)) < samples.LEAST_STEPS:
        return log
    t = force.t[:: max(1, round(CHANGE_S / max(float(np.median(np.diff(force.t))), 1e-6)))]
    if len(t) < samples.LEAST_STEPS:
        return log
    f_w = Rotation.from_quat(q.at(force.t), scalar_first=True).apply(force.values) + [0.0, 0.0, GRAVITY]
    summed = np.concatenate([np.zeros((1, 3)), np.cumsum(f_w[:-1] * np.diff(force.t)[:, None], axis=0)])
    felt, told = (np.diff(samples.Samples(*one).at(t), axis=0) for one in ((force.t, summed), (v.t, v.values)))
    moved, off = float(np.sqrt(np.nanmean(told**2))), float(np.sqrt(np.nanmean((told - felt) ** 2)))
    if not (moved > CHANGED_M_S and off > moved):
        return log
    note = "its velocity changes otherwise than its force and attitude say: check the axes of v, a and q (NED and FRD)"
    return replace(log, notes=(*log.notes, note))


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    lines = read_start(path, HEAD_BYTES).splitlines()
    commented = next((line for line in lines if line.startswith(b"#") and TIME_FIRST.match(line)), b"")
    first = next((line for line in lines if line.strip() and not line.startswith(b"#")), b"")
    separator = ";" if b";" in first else "\t" if b"\t" in first else ","
    rows = read_csv(path, separator=separator) or [[]]
    if separator == ";":
        rows = [[cell.replace(",", ".") for cell in row] for row in rows]
    if commented and rows[0] and rows[0][0][:1] in "-.0123456789":  # and no other header follows
        return [name.strip() for name in commented.decode("utf-8", "replace").lstrip("# ").split(separator)], rows
    return rows[0], rows[1:]


def _parsed(path: Path, column: str) -> tuple[str, str]:
    """Return a column's name and unit. Raises SignalError for an open bracket, or another unit in the name of a time."""
    parts = COLUMN.fullmatch(column.lstrip("\ufeff"))
    if parts is None:
        raise SignalError(f"{path}: column {column}: expected a unit in brackets behind the name only, as in a_x [g]")
    name, unit = parts[1], (parts[2] or parts[3] or "").strip()
    time = re.fullmatch(TIME, _plain(name))
    told = (time[1] or time[2] or "").replace("sec", "s") if time else ""
    if told and unit not in ("", told):
        raise SignalError(f"{path}: column {column}: is the time in {told} or in {unit}?")
    return name, unit or told


def _plain(name: str) -> str:
    """Return a name without spaces, and without capitals, which do not matter but in single letters: T is a temperature."""
    return name.lower().replace(" ", "_") if len(name) > 1 else name


def _numbers(path: Path, column: str, cells: list[str]) -> Array:
    """Return the numbers (N,) of a column, NaN where it is empty. Raises SignalError that names the first text."""
    values = list[float]()
    for cell in cells:
        try:
            values.append(float(cell or "nan"))
        except ValueError:
            raise SignalError(f"{path}: column {column}, row {len(values) + 1}: {cell} is no number") from None
    return np.array(values)


def _tick(path: Path, column: str, t: Array) -> str:
    """Return the unit of times without one; empty: s. Raises SignalError where none gives the steps of an IMU."""
    steps = np.diff(t)
    step = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    if step < 1.0:
        return ""
    for unit in ("ms", "us", "ns"):
        if samples.IMU_STEPS_S[0] <= step * UNITS[unit] <= samples.IMU_STEPS_S[1]:
            return unit
    raise SignalError(f"{path}: column {column} has no unit and steps of {step:g}: name it, as in t [ms]")
