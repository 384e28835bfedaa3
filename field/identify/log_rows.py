"""What logs of each kind hold of a vehicle's signals, as rows with their stamps.

Read are this project's MCAP logs (`run-mpc`, `race-sim --record`), CSV files with named columns, and MAVLink's .tlog and .bin.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from link.record_reader import Losses, read_records
from vehicle.dynamics import GRAVITY
from vehicle.errors import UserError
from vehicle.files import read_csv
from vehicle.rotation import Array, from_euler, matrix

REST_SAMPLES, REST_M_S2 = 40, 0.5  # of a rest: how many, and how even and near to gravity
# What public logs call the columns of `csv_rows`.
NAMES = {
    **dict.fromkeys(("t_s", "time_s", "time"), "t"),
    **dict.fromkeys(("cmd_thrust", "thrust_cmd", "thrust"), "throttle"),
    **{f"vel_{axis}": f"v_{axis}" for axis in "xyz"},
    **{"phi": "roll", "theta": "pitch", "psi": "yaw"},
    **{"p": "w_x", "q": "w_y", "q_raw": "w_y", "r": "w_z", "cmd_p": "w_cmd_x", "cmd_q": "w_cmd_y", "cmd_r": "w_cmd_z"},
}
ANGLES, BODY_VELOCITY = {"roll", "pitch", "yaw"}, {"u_b", "v_b", "w_b"}


class SignalError(UserError):
    """A log that cannot be used."""


Rows = dict[str, list[tuple[float, Array]]]  # per signal, (t, value)


def mcap_rows(path: Path, report: Callable[[Path, Losses], None]) -> Rows:
    """`run-mpc`'s records of state, command and IMU, or those of `race-sim --record`."""
    rows: Rows = {}

    def add(name: str, t: float, *values: Any) -> None:
        rows.setdefault(name, []).append((t, np.array(values, float)))

    for topic, record in read_records(path, without=("/camera",), report=report):
        if topic in ("/state", "/truth"):
            if topic == "/truth" and "accel" not in record:
                continue  # the referee's truth beside a pilot's log: a pilot never has it
            for name, key in (("v", "v"), ("q", "q"), ("omega", "w"), ("force", "accel")):
                if key in record:
                    add(name, record["t"], *record[key])
        elif topic == "/imu":
            add("force", record["t"], *record["accel"])
            rows.setdefault("gyro", []).append((record["t"], np.array(record["gyro"], float)))
        elif topic == "/command":
            values = record.get("values", record)
            if "throttle" not in values:
                continue
            add("throttle", record["t"], values["throttle"])
            by_rates = values.get("by_rates", True)
            add("omega_cmd", record["t"], *(values.get("omega", values.get("w")) if by_rates else [np.nan] * 3))
    rows["omega"] = rows.pop("gyro", rows.get("omega", []))
    return _calibrated(_news(rows))


def csv_rows(path: Path) -> Rows:
    """Columns t, throttle, v_z; and where there are: v_x, v_y, q_w..q_z or roll, pitch, yaw, a_x.. (body), w_x.., w_cmd_x..

    They may have the names of `NAMES` as well. The velocity may be in body axes, where the attitude is told.
    """
    names, *table = read_csv(path) or [[]]
    given = {NAMES.get(name, name): k for k, name in enumerate(names) if name}
    in_body = given.keys() >= BODY_VELOCITY and given.keys() >= ANGLES
    for needed in ("t", "throttle", *(() if in_body else ("v_z",))):
        if needed not in given:
            raise SignalError(f"{path}: column {needed} is missing; needed are t, throttle and v_z (down, m/s)")
    columns = {name: np.array([float(row[k]) for row in table]) for name, k in given.items()}
    zero = np.zeros(len(table))
    groups = {
        "v": np.column_stack([columns.get(name, zero) for name in ("v_x", "v_y", "v_z")]),
        "throttle": columns["throttle"][:, None],
    }
    for name, parts in (
        ("q", ("q_w", "q_x", "q_y", "q_z")),
        ("force", ("a_x", "a_y", "a_z")),
        ("omega", ("w_x", "w_y", "w_z")),
        ("omega_cmd", ("w_cmd_x", "w_cmd_y", "w_cmd_z")),
    ):
        if given.keys() >= set(parts):
            groups[name] = np.column_stack([columns[part] for part in parts])
    if given.keys() >= ANGLES:
        angles = zip(columns["roll"], columns["pitch"], columns["yaw"], strict=True)
        groups["q"] = np.array([from_euler(*one) for one in angles])
    if in_body and "v_z" not in given:
        v_b = np.column_stack([columns[name] for name in ("u_b", "v_b", "w_b")])
        groups["v"] = np.array([matrix(q) @ v for q, v in zip(groups["q"], v_b, strict=True)])
    return _news({name: list(zip(columns["t"].tolist(), values, strict=True)) for name, values in groups.items()})


def tlog_rows(path: Path) -> Rows:
    """HIGHRES_IMU, ATTITUDE, LOCAL_POSITION_NED and SET_ATTITUDE_TARGET."""
    from field.identify.autopilot_logs import tlog_messages  # pymavlink takes half a second to import

    rows: Rows = {}

    def add(name: str, t: float, *values: float) -> None:
        rows.setdefault(name, []).append((t, np.array(values, float)))

    for t, m in tlog_messages(path):
        match m.get_type():
            case "HIGHRES_IMU":
                add("force", t, m.xacc, m.yacc, m.zacc)
                add("omega", t, m.xgyro, m.ygyro, m.zgyro)
            case "ATTITUDE":
                add("q", t, *from_euler(m.roll, m.pitch, m.yaw))
            case "LOCAL_POSITION_NED":
                add("v", t, m.vx, m.vy, m.vz)
            case "SET_ATTITUDE_TARGET":
                add("throttle", t, m.thrust)
                rates = (m.body_roll_rate, m.body_pitch_rate, m.body_yaw_rate)
                add("omega_cmd", t, *(rates if m.type_mask & 128 else (np.nan,) * 3))
    return _calibrated(_news(rows))


def dataflash_rows(path: Path) -> Rows:
    """IMU, ATT, XKF1 and CTUN of ArduPilot, of the first IMU and the first filter."""
    from field.identify.autopilot_logs import dataflash_messages

    rows: Rows = {}

    def add(name: str, t: float, *values: float) -> None:
        rows.setdefault(name, []).append((t, np.array(values, float)))

    for t, name, m in dataflash_messages(path):
        if name == "IMU" and getattr(m, "I", 0) == 0:
            add("force", t, m.AccX, m.AccY, m.AccZ)
            add("omega", t, m.GyrX, m.GyrY, m.GyrZ)
        elif name == "ATT":
            add("q", t, *from_euler(*np.radians([m.Roll, m.Pitch, m.Yaw])))
        elif name == "XKF1" and getattr(m, "C", 0) == 0:
            add("v", t, m.VN, m.VE, m.VD)
        elif name == "CTUN":
            add("throttle", t, m.ThO)
    return _calibrated(_news(rows))


def _calibrated(rows: Rows) -> Rows:
    """Without the accelerometer's error along gravity, where a rest before the first command shows it."""
    begin = rows["throttle"][0][0] if rows.get("throttle") else -np.inf
    rest = np.array([value for t, value in rows["force"] if t < begin])
    if len(rest) < REST_SAMPLES or rest.std(axis=0).max() > REST_M_S2:
        return rows
    mean = rest.mean(axis=0)
    weight = float(np.linalg.norm(mean))
    if abs(weight - GRAVITY) < REST_M_S2:
        error = mean * (1 - GRAVITY / weight)
        rows["force"] = [(t, value - error) for t, value in rows["force"]]
    return rows


def _news(rows: Rows) -> Rows:
    """Without samples that only repeat the last values under a new stamp, as the real builds' and many logs' do."""
    for name in ("force", "omega", "v"):
        samples = rows.get(name, [])
        rows[name] = samples[:1] + [b for a, b in zip(samples, samples[1:], strict=False) if (a[1] != b[1]).any()]
    return rows
