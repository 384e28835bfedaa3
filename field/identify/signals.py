"""`Signals`: what a log of any kind tells of a vehicle's motion and of its commands, on one even clock.

Read are this project's MCAP logs (`run-mpc`, `race-sim --record`), CSV files with named columns, and MAVLink's .tlog and .bin.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from link.record_reader import Losses, read_records
from vehicle.dynamics import GRAVITY
from vehicle.errors import UserError
from vehicle.files import read_csv, reading
from vehicle.rotation import Array, from_euler, matrix

STEP_S = 0.01  # of the even clock: finer than any lag of interest
STANDING_M_S = 0.3  # slower than that it may stand on something, whose force no command explains
SHUFFLED_S, LEAP_S = 0.05, 20.0  # stamps may come out of order by so much; a longer pause is another clock
LATEST_S = 1e10  # beyond it a stamp is no time, in whatever epoch
LONGEST_S = 4 * 3600.0  # of a log: more is not laid on an even clock
GAP_S = 0.1  # without samples for longer, the time between is not used
REST_SAMPLES, REST_M_S2 = 40, 0.5  # of a rest: how many, and how even and near to gravity
DOWN = np.array([0.0, 0.0, 1.0])
# What public logs call the columns of `_csv`.
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


@dataclass(frozen=True)
class Signals:
    """N samples STEP_S apart, world NED and body FRD; `valid` is False at rest and in gaps of the log."""

    source: str
    t: Array  # (N,) s
    throttle: Array  # (N,) 0..1, as commanded at that time
    omega_cmd: Array  # (N, 3) rad/s, NaN where attitudes were commanded
    force_b: Array  # (N, 3) specific force, m/s^2
    omega_b: Array  # (N, 3) rad/s, NaN where unknown
    v_b: Array  # (N, 3) m/s
    valid: np.ndarray  # (N,)
    note: str = ""  # what of the log was not used


Rows = dict[str, list[tuple[float, Array]]]  # per signal, (t, value)


def read_signals(path: Path) -> Signals:
    """One log.

    Raises:
        UserError: it cannot be read, or lacks commands or motion.
    """
    losses: list[str] = []
    readers: dict[str, Callable[[Path], Rows]] = {
        ".mcap": partial(_mcap, report=lambda _, lost: losses.append(str(lost))),
        ".csv": _csv,
        ".tlog": _tlog,
        ".bin": _dataflash,
    }
    if path.suffix.lower() not in readers:
        raise SignalError(f"{path}: logs end in {', '.join(readers)}")
    if not path.is_file():
        raise SignalError(f"{path}: no such file")
    with reading(path):
        rows, note = _one_clock(_finite(readers[path.suffix.lower()](path)))
        for name, what in (("throttle", "commanded throttle"), ("v", "velocity")):
            if len(rows.get(name, ())) < 20:
                raise SignalError(
                    f"{path}: holds {len(rows.get(name, ()))} samples of the {what}, at least 20 are needed"
                )
        return replace(_even(rows, str(path)), note="; ".join(filter(None, (note, *losses))))


def _finite(rows: Rows) -> Rows:
    """Without what no clock and no sensor gives: stamps that are no number, values of another width than their like."""
    for name, samples in rows.items():
        width = next((value.shape for _, value in samples), ())
        sound = [(t, value) for t, value in samples if abs(t) < LATEST_S and value.shape == width]
        rows[name] = [(t, value) for t, value in sound if name == "omega_cmd" or np.isfinite(value).all()]
    return rows


def _one_clock(rows: Rows) -> tuple[Rows, str]:
    """The longest part of a log whose clock was not set meanwhile, and a line about the rest."""
    parts = {name: _stretches(samples) for name, samples in rows.items() if samples}
    if all(len(part) == 1 for part in parts.values()):
        return rows, ""
    spans = [samples[-1][0] - samples[0][0] for samples in parts.get("v", [])] or [0.0]
    longest = int(np.argmax(spans))
    kept = {
        name: part[longest]
        if len(part) == len(spans)
        else max(part, key=lambda samples: samples[-1][0] - samples[0][0])
        for name, part in parts.items()
    }
    return kept, f"its clock was set {len(spans) - 1} times: {spans[longest]:.1f} s of {sum(spans):.1f} s are used"


def _stretches(samples: list[tuple[float, Array]]) -> list[list[tuple[float, Array]]]:
    """Parts between which time runs back or leaps."""
    cuts = [k for k, (a, b) in enumerate(pairwise(samples), 1) if not -SHUFFLED_S < b[0] - a[0] < LEAP_S]
    parts = [samples[a:b] for a, b in pairwise([0, *cuts, len(samples)])]
    return [sorted(part, key=lambda sample: sample[0]) for part in parts]


def _even(rows: Rows, source: str) -> Signals:
    begin = max(rows["throttle"][0][0], rows["v"][0][0])
    end = min(rows["throttle"][-1][0], rows["v"][-1][0])
    if end - begin > LONGEST_S:
        raise SignalError(f"{source}: goes on for {(end - begin) / 3600:.1f} h, at most {LONGEST_S / 3600:g} are used")
    t = np.arange(begin, end, STEP_S)
    if len(t) < 100:
        raise SignalError(f"{source}: commands and motion overlap for {max(0.0, end - begin):.1f} s, 1 s is needed")
    v_w = _interpolated(rows["v"], t)
    q = _interpolated(rows["q"], t) if rows.get("q") else np.tile([1.0, 0.0, 0.0, 0.0], (len(t), 1))
    q /= np.linalg.norm(q, axis=1)[:, None]
    R = np.array([matrix(one) for one in q])
    if rows.get("force"):
        force_b = _interpolated(rows["force"], t)
    else:
        force_b = np.einsum("nji,nj->ni", R, np.gradient(_smooth(v_w), STEP_S, axis=0) - GRAVITY * DOWN)
    unknown = np.full((len(t), 3), np.nan)
    return Signals(
        source,
        t,
        _held(rows["throttle"], t)[:, 0],
        _held(rows["omega_cmd"], t) if rows.get("omega_cmd") else unknown,
        force_b,
        _interpolated(rows["omega"], t) if rows.get("omega") else unknown,
        np.einsum("nji,nj->ni", R, v_w),
        _covered(rows["v"], t) & _covered(rows["throttle"], t) & (np.linalg.norm(v_w, axis=1) > STANDING_M_S),
    )


def _interpolated(samples: list[tuple[float, Array]], t: Array) -> Array:
    stamps, values = np.array([s for s, _ in samples]), np.array([v for _, v in samples])
    if values.shape[1] == 4:  # quaternions: the same sign throughout
        flips = np.cumprod(np.append(1.0, np.where((values[1:] * values[:-1]).sum(axis=1) < 0, -1.0, 1.0)))
        values = values * flips[:, None]
    return np.column_stack([np.interp(t, stamps, column) for column in values.T])


def _held(samples: list[tuple[float, Array]], t: Array) -> Array:
    stamps, values = np.array([s for s, _ in samples]), np.array([v for _, v in samples])
    return values[np.maximum(np.searchsorted(stamps, t, side="right") - 1, 0)]


def _covered(samples: list[tuple[float, Array]], t: Array) -> np.ndarray:
    stamps = np.array([s for s, _ in samples])
    k = np.clip(np.searchsorted(stamps, t), 1, len(stamps) - 1)
    return stamps[k] - stamps[k - 1] < GAP_S


def _smooth(v: Array) -> Array:
    """Means over five samples: differences of a sampled velocity are rough."""
    return np.column_stack([np.convolve(np.pad(column, 2, mode="edge"), np.ones(5) / 5, "valid") for column in v.T])


def _mcap(path: Path, report: Callable[[Path, Losses], None]) -> Rows:
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


def _csv(path: Path) -> Rows:
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


def _tlog(path: Path) -> Rows:
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


def _dataflash(path: Path) -> Rows:
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
