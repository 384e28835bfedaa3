"""Signals of tables (CSV with a header). A unit may follow a column's name in brackets: `a_x [g]`, `w_x [deg/s]`.

NanoBench's columns are known by their names: Crazyflie, x forward, y left, z up, quaternions xyzw, with Vicon's motion.
"""

import re
from pathlib import Path

import numpy as np

from gate_racer.common.files import read_csv
from gate_racer.link.logs.samples import (
    RAD,
    LoggedSignals,
    SignalError,
    Source,
    eulers,
    found,
    mean,
    same,
    scaled,
    turned,
    turned_gravities,
    xyz,
)
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, from_euler, matrix

# Column names of public logs, mapped to those below.
OTHER_NAMES = {
    **dict.fromkeys(("t_s", "time_s", "time", "timestamp"), "t"),
    **dict.fromkeys(("cmd_thrust", "thrust_cmd", "thrust"), "throttle"),
    **{f"vel_{axis}": f"v_{axis}" for axis in "xyz"},
    **{f"{name}_{axis}": f"a_{axis}" for name in ("acc", "accel") for axis in "xyz"},
    **{f"gyro_{axis}": f"w_{axis}" for axis in "xyz"},
    **{"phi": "roll", "theta": "pitch", "psi": "yaw", "vbat": "voltage", "battery": "voltage"},
    **{"p": "w_x", "q": "w_y", "q_raw": "w_y", "r": "w_z", "cmd_p": "w_cmd_x", "cmd_q": "w_cmd_y", "cmd_r": "w_cmd_z"},
}
COLUMN = re.compile(r"([^\[\]()]*?)\s*(?:\[([^\[\]()]*)\]|\(([^\[\]()]*)\))?")  # name, name [unit] or name (unit)
UNITS = {
    **dict.fromkeys(("", "-", "s", "m", "m/s", "m/s^2", "m/s2", "rad", "rad/s", "V"), 1.0),
    **{"g": GRAVITY, "mg": 1e-3 * GRAVITY, "deg": RAD, "deg/s": RAD, "mrad/s": 1e-3},
    **{"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "mm": 1e-3, "cm": 0.01, "mm/s": 1e-3, "cm/s": 0.01, "%": 0.01, "mV": 1e-3},
}
ANGLES = ("roll", "pitch", "yaw")


def _from_body(columns: Array) -> Array:
    """Return the velocity in the world, from that in body axes and the angles."""
    return np.array([matrix(from_euler(*row[3:])) @ row[:3] for row in columns]).reshape(-1, 3)


def _vertical(v_z: Array) -> Array:
    return v_z * [0.0, 0.0, 1.0]


COLUMNS: dict[str, tuple[Source, ...]] = {
    "throttle": (Source("", ("throttle",), same),),
    "v": (
        Source("", xyz("v_{}"), same),
        Source("", ("v_z",), _vertical),
        Source("", ("u_b", "v_b", "w_b", *ANGLES), _from_body),
    ),
    "p": (Source("", xyz("p_{}"), same),),
    "q": (Source("", ("q_w", "q_x", "q_y", "q_z"), same), Source("", ANGLES, eulers())),
    "force": (Source("", xyz("a_{}"), same),),
    "omega": (Source("", xyz("w_{}"), same),),
    "omega_cmd": (Source("", xyz("w_cmd_{}"), same),),
    "voltage": (Source("", ("voltage",), same),),
}
PWM = scaled(1 / 65535)
MOTORS = tuple(f"motor_motor_m{k}" for k in range(1, 5))
TURNED_Q = scaled(1.0, 1.0, -1.0, -1.0)
NANOBENCH: dict[str, tuple[Source, ...]] = {
    "force": (Source("", xyz("imu_acc_{}"), turned_gravities),),
    "omega": (Source("", xyz("imu_gyro_{}"), turned),),
    "q": (Source("", xyz("att_stateEstimate_q{}", "wxyz"), TURNED_Q),),
    "p": (Source("", xyz("est_stateEstimate_{}"), turned),),
    "v": (Source("", xyz("est_stateEstimate_v{}"), turned),),
    "true_q": (Source("", xyz("q{}", "wxyz"), TURNED_Q),),
    "true_p": (Source("", xyz("p{}"), turned),),
    "true_v": (Source("", xyz("v{}"), turned),),
    "motors": (Source("", MOTORS, PWM),),
    "throttle": (Source("", MOTORS, mean(PWM)),),
    "voltage": (Source("", ("pwr_pm_vbat",), same),),
}


def table_signals(path: Path) -> LoggedSignals:
    """Return the signals of a table.

    Raises:
        FileError: the file cannot be read.
        SignalError: it has no header, no time, or a unit that is not known.
    """
    header, *rows = read_csv(path) or [[]]
    names = [_named(path, column) for column in header]
    if not {"t", *(name for name, ours in OTHER_NAMES.items() if ours == "t")} & dict(names).keys():
        raise SignalError(f"{path}: is no log that is read: neither its first bytes nor a column t tell what it is")
    columns = {}
    for k, (name, factor) in enumerate(names):
        columns[name] = factor * np.array([float(row[k] or "nan") if k < len(row) else np.nan for row in rows])
    if set(MOTORS) <= columns.keys():
        return found({"": columns}, NANOBENCH)
    return found({"": {OTHER_NAMES.get(name, name): column for name, column in columns.items()}}, COLUMNS)


def _named(path: Path, column: str) -> tuple[str, float]:
    """Return a column's name, and its unit in SI. Raises SignalError for a bracket that is not closed, or an unknown unit."""
    parts = COLUMN.fullmatch(column)
    if parts is None:
        raise SignalError(f"{path}: column {column}: expected a unit in brackets behind the name only, as in a_x [g]")
    unit = (parts[2] or parts[3] or "").strip()
    if unit not in UNITS:
        known = ", ".join(filter(None, UNITS))
        raise SignalError(f"{path}: column {column}: the unit {unit} is not known; known are {known}")
    return parts[1], UNITS[unit]
