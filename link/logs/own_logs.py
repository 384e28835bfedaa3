"""Signals of this project's MCAP records (`run-mpc`, `race-sim --record`) and of CSV files with named columns."""

from pathlib import Path

import numpy as np

from gate_racer.link.logs.rows import LoggedSignals, SignalError, SignalRows, add
from gate_racer.link.record_reader import read_records
from gate_racer.vehicle.files import read_csv
from gate_racer.vehicle.rotation import from_euler, matrix

# Column names of public logs, mapped to those of `csv_signals`.
NAMES = {
    **dict.fromkeys(("t_s", "time_s", "time"), "t"),
    **dict.fromkeys(("cmd_thrust", "thrust_cmd", "thrust"), "throttle"),
    **{f"vel_{axis}": f"v_{axis}" for axis in "xyz"},
    **{"phi": "roll", "theta": "pitch", "psi": "yaw"},
    **{"p": "w_x", "q": "w_y", "q_raw": "w_y", "r": "w_z", "cmd_p": "w_cmd_x", "cmd_q": "w_cmd_y", "cmd_r": "w_cmd_z"},
}
ANGLES, BODY_VELOCITY = {"roll", "pitch", "yaw"}, {"u_b", "v_b", "w_b"}


def mcap_signals(path: Path) -> LoggedSignals:
    """Return the signals of `run-mpc`'s records of state, command and IMU, or of those of `race-sim --record`."""
    rows: SignalRows = {}
    losses: list[str] = []
    for topic, record in read_records(path, without=("/camera",), report=lambda _, lost: losses.append(str(lost))):
        if topic in ("/state", "/truth"):
            if topic == "/truth" and "accel" not in record:
                continue  # the referee's truth in a pilot's log, which a pilot never has
            for name, key in (("p", "p"), ("v", "v"), ("q", "q"), ("omega", "w"), ("force", "accel")):
                if key in record:
                    add(rows, name, record["t"], *record[key])
        elif topic == "/imu":
            add(rows, "force", record["t"], *record["accel"])
            add(rows, "gyro", record["t"], *record["gyro"])
        elif topic == "/command":
            values = record.get("values", record)
            if "throttle" not in values:
                continue
            add(rows, "throttle", record["t"], values["throttle"])
            by_rates = values.get("by_rates", True)
            add(rows, "omega_cmd", record["t"], *(values.get("omega", values.get("w")) if by_rates else [np.nan] * 3))
    rows["omega"] = rows.pop("gyro", rows.get("omega", []))
    return LoggedSignals(rows, "; ".join(filter(None, losses)))


def csv_signals(path: Path) -> LoggedSignals:
    """Return the columns t, throttle, v_z and, where present, v_x, v_y, q_w..q_z or roll, pitch, yaw, a_x.. (body), w_x..,
    w_cmd_x..

    Names of `NAMES` are accepted as well. The velocity may be in body axes if the attitude is given.
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
    t = columns["t"].tolist()
    return LoggedSignals({name: list(zip(t, values, strict=True)) for name, values in groups.items()})
