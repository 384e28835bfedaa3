"""Signals of logs: Betaflight, MAVLink, DataFlash, ULog, and this project's own.

Signals of Betaflight's blackbox logs (.bbl, .bfl). Its body axes are x forward, y left, z up; its world is z up.

| signal      | field                            | unit there, and what becomes of it                                |
|-------------|----------------------------------|-------------------------------------------------------------------|
| `omega`     | gyroADC[0..2]                    | deg/s times `gyro_scale` (10 times with high resolution); y, z turned |
| `force`     | accSmooth[0..2]                  | `acc_1G` counts per g; y, z turned                                |
| `q`         | imuQuaternion[0..2]              | x, y, z of 32767 parts, w positive; y, z turned (since 2025.12)   |
| `omega_cmd` | setpoint[0..2]                   | as gyroADC                                                        |
| `throttle`  | setpoint[3], else rcCommand[3]   | 0..1000 of the mixer; else 1000..2000 us of the stick             |
| `motors`    | motor[0..n]                      | from `motorOutput` low to high                                    |
| `voltage`   | vbatLatest                       | 0.01 V                                                            |

Position and velocity are not available: GPS frames are skipped, since they are too coarse and late for a vehicle's dynamics.

Signals of logs of ground stations and ArduPilot: MAVLink's .tlog and DataFlash's .bin.

| signal      | .tlog                                 | .bin, of the first IMU and the first filter   |
|-------------|---------------------------------------|-----------------------------------------------|
| `force`     | HIGHRES_IMU xacc.., m/s^2             | IMU AccX.., m/s^2                             |
| `omega`     | HIGHRES_IMU xgyro.., rad/s            | IMU GyrX.., rad/s                             |
| `q`         | ATTITUDE roll.., rad                  | ATT Roll.., deg                               |
| `p`         | LOCAL_POSITION_NED x.., m             | XKF1 PN, PE, PD, m                            |
| `v`         | LOCAL_POSITION_NED vx.., m/s          | XKF1 VN, VE, VD, m/s                          |
| `throttle`  | SET_ATTITUDE_TARGET thrust            | CTUN ThO                                      |
| `omega_cmd` | SET_ATTITUDE_TARGET body_roll_rate..  | -                                             |

Damaged bytes are skipped one at a time, up to the next record that looks intact.

Signals of PX4's ULog files (.ulg). PX4's axes are those of this project: body FRD, world NED, quaternions wxyz.

| signal      | topic: fields                                     | unit, and what becomes of it                 |
|-------------|---------------------------------------------------|----------------------------------------------|
| `force`     | sensor_combined: accelerometer_m_s2[0..2],        | m/s^2                                        |
|             | else vehicle_acceleration: xyz                    |                                              |
| `omega`     | vehicle_angular_velocity: xyz,                    | rad/s                                        |
|             | else sensor_combined: gyro_rad                    |                                              |
| `q`         | vehicle_attitude: q[0..3]                         | -                                            |
| `p`, `v`    | vehicle_local_position: x, y, z; vx, vy, vz       | m, m/s                                       |
| `true_p`    | vehicle_local_position_groundtruth: x, y, z       | m; of a simulator                            |
| `throttle`  | vehicle_thrust_setpoint: xyz[2], else             | 0..-1 upward, sign turned                    |
|             | vehicle_rates_setpoint: thrust_body[2], else      |                                              |
|             | vehicle_attitude_setpoint: thrust_body[2]         |                                              |
| `omega_cmd` | vehicle_rates_setpoint: roll, pitch, yaw          | rad/s                                        |
| `motors`    | actuator_motors: control[0..3]                    | 0..1                                         |
| `voltage`   | battery_status: voltage_v                         | V                                            |

Times are `timestamp_sample` (the sensor's sampling) where a topic has it, else `timestamp`: us since PX4 started.

Signals of this project's MCAP records (`run-mpc`, `race-sim --record`) and of CSV files with named columns.
"""

import contextlib
import io
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from pymavlink.dialects.v20 import common as dialect
from pyulog.core import ULog
from pyulog.exceptions import ULogException

from gate_racer.common.files import CAUSES, read_bytes, read_csv
from gate_racer.link.logs.blackbox import BlackboxFlight, flights, header_float
from gate_racer.link.logs.rows import LOG_BYTES, LoggedSignals, SignalError, SignalRows, add, extend
from gate_racer.link.record_reader import read_records
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, from_euler, matrix

FRD = np.array([1.0, -1.0, -1.0])  # factors on axes x forward, y left, z up
HIGH_RESOLUTION = 10.0  # factor on rates and sticks in that mode
QUATERNION_PARTS, THROTTLE_PARTS, VOLTAGE_V = 32767.0, 1000.0, 0.01
STICK_LOW_US, STICK_US = 1000.0, 1000.0
LEAST_FRAMES = 2  # frames, least number in a log
BETAFLIGHT_SOURCES = {
    "omega": "gyroADC",
    "force": "accSmooth",
    "q": "imuQuaternion",
    "throttle": "setpoint or rcCommand",
    "p": "not logged by Betaflight",
    "v": "not logged by Betaflight",
}


def betaflight_signals(path: Path) -> LoggedSignals:
    """Return the signals of the longest flight in a file.

    Raises:
        FileError: the file cannot be read.
        SignalError: the file holds no flight.
    """
    found = [flight for flight in flights(read_bytes(path, LOG_BYTES)) if len(flight.values) >= LEAST_FRAMES]
    if not found:
        raise SignalError(f"{path}: holds no flight of a Betaflight blackbox")
    longest = max(found, key=lambda flight: len(flight.values))
    notes = [f"holds {len(found)} flights, of which the longest is used"] if len(found) > 1 else []
    if longest.damaged:
        notes.append(f"{longest.damaged} stretches damaged; the undamaged parts are used")
    return LoggedSignals(_rows(longest), "; ".join(notes), BETAFLIGHT_SOURCES)


def _rows(flight: BlackboxFlight) -> SignalRows:
    rows: SignalRows = {}
    t = flight.values[:, flight.names.index("time")] * 1e-6
    fine = HIGH_RESOLUTION if flight.number("blackbox_high_resolution", 0) else 1.0
    rate = math.radians(header_float(flight.headers.get("gyro_scale", ""), 1.0)) / fine
    gyro, accel, q_xyz = (_columns(flight, name, 3) for name in ("gyroADC", "accSmooth", "imuQuaternion"))
    rates_cmd = _columns(flight, "setpoint", 3)
    if gyro is not None:
        extend(rows, "omega", t, gyro * FRD * rate)
    if accel is not None:
        extend(rows, "force", t, accel * FRD * GRAVITY / flight.number("acc_1G", 1.0))
    if q_xyz is not None:
        xyz = q_xyz * FRD / QUATERNION_PARTS
        w = np.sqrt(np.clip(1.0 - np.sum(xyz * xyz, axis=1), 0.0, 1.0))
        extend(rows, "q", t, np.column_stack([w, xyz]))
    if rates_cmd is not None:
        extend(rows, "omega_cmd", t, rates_cmd * FRD * math.radians(1.0) / fine)
    throttle, stick, voltage = (flight.column(name) for name in ("setpoint[3]", "rcCommand[3]", "vbatLatest"))
    if throttle is not None:
        extend(rows, "throttle", t, np.clip(throttle / THROTTLE_PARTS, 0.0, 1.0))
    elif stick is not None:
        extend(rows, "throttle", t, np.clip((stick / fine - STICK_LOW_US) / STICK_US, 0.0, 1.0))
    if voltage is not None:
        extend(rows, "voltage", t, voltage * VOLTAGE_V)
    motors = _columns(flight, "motor", sum(name.startswith("motor[") for name in flight.names))
    low, _, high = flight.headers.get("motorOutput", "").partition(",")
    if motors is not None and high and float(high) > float(low):
        extend(rows, "motors", t, (motors - float(low)) / (float(high) - float(low)))
    return rows


def _columns(flight: BlackboxFlight, name: str, count: int) -> Array | None:
    """Return the fields NAME[0] to NAME[count - 1], (N, count); None where one was not logged."""
    columns = [flight.column(f"{name}[{k}]") for k in range(count)]
    known = [column for column in columns if column is not None]
    return np.column_stack(known) if known and len(known) == count else None


STAMP = struct.Struct(">Q")  # us, in front of each packet of a .tlog
MAGICS = {dialect.PROTOCOL_MARKER_V1: 8, dialect.PROTOCOL_MARKER_V2: 12}  # bytes around the payload
HEAD, HEAD_BYTES = b"\xa3\x95", 3  # start of a DataFlash record; its type follows
FORMAT_TYPE, FORMAT = 0x80, struct.Struct("<BB4s16s64s")  # type, length, name, kinds of the fields, their names
TLOG_SOURCES = {
    **dict.fromkeys(("force", "omega"), "HIGHRES_IMU"),
    **{"q": "ATTITUDE", "p": "LOCAL_POSITION_NED", "v": "LOCAL_POSITION_NED", "throttle": "SET_ATTITUDE_TARGET"},
}
DATAFLASH_SOURCES = {"force": "IMU", "omega": "IMU", "q": "ATT", "p": "XKF1", "v": "XKF1", "throttle": "CTUN"}
# DataFlash field types: letter, struct code, factor.
KINDS: dict[str, tuple[str, float]] = {
    **{letter: (letter, 1.0) for letter in "bBhHiIfdqQ"},
    **{"a": ("64s", 1.0), "n": ("4s", 1.0), "N": ("16s", 1.0), "Z": ("64s", 1.0), "M": ("b", 1.0), "g": ("e", 1.0)},
    **{"c": ("h", 0.01), "C": ("H", 0.01), "e": ("i", 0.01), "E": ("I", 0.01), "L": ("i", 1e-7)},
}


def tlog_messages(path: Path) -> Iterator[tuple[float, Any]]:
    """Yield time (s) and pymavlink message of every packet of the common dialect. Raises FileError."""
    data, at, mavlink = read_bytes(path, LOG_BYTES), 0, dialect.MAVLink(None)
    while at + STAMP.size + min(MAGICS.values()) <= len(data):
        begin = at + STAMP.size
        around = MAGICS.get(data[begin])
        if around is None:
            at += 1
            continue
        size = around + data[begin + 1]
        if data[begin] == dialect.PROTOCOL_MARKER_V2 and data[begin + 2] & dialect.MAVLINK_IFLAG_SIGNED:
            size += dialect.MAVLINK_SIGNATURE_BLOCK_LEN
        try:
            message = mavlink.decode(bytearray(data[begin : begin + size]))
        except (dialect.MAVError, struct.error, TypeError, ValueError):
            # Another dialect if a packet follows at its stated end; else not a packet.
            after = begin + size + STAMP.size
            at = begin + size if data[after : after + 1] in (b"\xfd", b"\xfe") else at + 1
            continue
        yield STAMP.unpack_from(data, at)[0] * 1e-6, message
        at = begin + size


def dataflash_messages(path: Path) -> Iterator[tuple[float, str, SimpleNamespace]]:
    """Yield time (s since the start), name and fields of every record with a time. Raises FileError."""
    data, at = read_bytes(path, LOG_BYTES), 0
    formats = {FORMAT_TYPE: ("FMT", FORMAT, ("Type", "Length", "Name", "Format", "Columns"), (1.0,) * 5)}
    while (at := data.find(HEAD, at)) >= 0 and at + HEAD_BYTES <= len(data):
        name, layout, columns, factors = formats.get(data[at + 2], ("", FORMAT, (), ()))
        if not name or at + HEAD_BYTES + layout.size > len(data):
            at += 1
            continue
        values = layout.unpack_from(data, at + HEAD_BYTES)
        at += HEAD_BYTES + layout.size
        if name == "FMT":
            formats |= _format(*values)
            continue
        fields = {
            column: value * factor if factor != 1.0 else value
            for column, value, factor in zip(columns, values, factors, strict=True)
        }
        for clock, unit in (("TimeUS", 1e-6), ("TimeMS", 1e-3)):
            if isinstance(fields.get(clock), int):
                yield fields[clock] * unit, name, SimpleNamespace(**fields)
                break


def _format(kind: int, length: int, name: bytes, letters: bytes, columns: bytes) -> dict[int, Any]:
    """Return the layout of a record type; empty if it is inconsistent."""
    texts = [raw.split(b"\0")[0].decode("ascii", "replace") for raw in (name, letters, columns)]
    names = tuple(texts[2].split(","))
    if kind == FORMAT_TYPE or not texts[0] or len(names) != len(texts[1]) or not set(texts[1]) <= KINDS.keys():
        return {}
    layout = struct.Struct("<" + "".join(KINDS[letter][0] for letter in texts[1]))
    factors = tuple(KINDS[letter][1] for letter in texts[1])
    return {kind: (texts[0], layout, names, factors)} if layout.size + HEAD_BYTES == length else {}


def tlog_signals(path: Path) -> LoggedSignals:
    """Return the signals of HIGHRES_IMU, ATTITUDE, LOCAL_POSITION_NED and SET_ATTITUDE_TARGET. Raises FileError."""
    rows: SignalRows = {}
    for t, m in tlog_messages(path):
        match m.get_type():
            case "HIGHRES_IMU":
                add(rows, "force", t, m.xacc, m.yacc, m.zacc)
                add(rows, "omega", t, m.xgyro, m.ygyro, m.zgyro)
            case "ATTITUDE":
                add(rows, "q", t, *from_euler(m.roll, m.pitch, m.yaw))
            case "LOCAL_POSITION_NED":
                add(rows, "p", t, m.x, m.y, m.z)
                add(rows, "v", t, m.vx, m.vy, m.vz)
            case "SET_ATTITUDE_TARGET":
                add(rows, "throttle", t, m.thrust)
                rates = (m.body_roll_rate, m.body_pitch_rate, m.body_yaw_rate)
                add(rows, "omega_cmd", t, *(rates if m.type_mask & 128 else (np.nan,) * 3))
    return LoggedSignals(rows, sources=TLOG_SOURCES)


def dataflash_signals(path: Path) -> LoggedSignals:
    """Return the signals of ArduPilot's IMU, ATT, XKF1 and CTUN. Raises FileError."""
    rows: SignalRows = {}
    for t, name, m in dataflash_messages(path):
        if name == "IMU" and getattr(m, "I", 0) == 0:
            add(rows, "force", t, m.AccX, m.AccY, m.AccZ)
            add(rows, "omega", t, m.GyrX, m.GyrY, m.GyrZ)
        elif name == "ATT":
            add(rows, "q", t, *from_euler(*np.radians([m.Roll, m.Pitch, m.Yaw])))
        elif name == "XKF1" and getattr(m, "C", 0) == 0:
            add(rows, "v", t, m.VN, m.VE, m.VD)
            if hasattr(m, "PN"):
                add(rows, "p", t, m.PN, m.PE, m.PD)
        elif name == "CTUN":
            add(rows, "throttle", t, m.ThO)
    return LoggedSignals(rows, sources=DATAFLASH_SOURCES)


XYZ = ("xyz[0]", "xyz[1]", "xyz[2]")
# Topics by signal in order of preference, with fields and a factor.
TOPICS: dict[str, tuple[tuple[str, tuple[str, ...], float], ...]] = {
    "force": (
        ("sensor_combined", tuple(f"accelerometer_m_s2[{k}]" for k in range(3)), 1.0),
        ("vehicle_acceleration", XYZ, 1.0),
    ),
    "omega": (
        ("vehicle_angular_velocity", XYZ, 1.0),
        ("sensor_combined", tuple(f"gyro_rad[{k}]" for k in range(3)), 1.0),
    ),
    "q": (("vehicle_attitude", tuple(f"q[{k}]" for k in range(4)), 1.0),),
    "p": (("vehicle_local_position", ("x", "y", "z"), 1.0),),
    "v": (("vehicle_local_position", ("vx", "vy", "vz"), 1.0),),
    "true_p": (("vehicle_local_position_groundtruth", ("x", "y", "z"), 1.0),),
    "throttle": (
        ("vehicle_thrust_setpoint", ("xyz[2]",), -1.0),
        ("vehicle_rates_setpoint", ("thrust_body[2]",), -1.0),
        ("vehicle_attitude_setpoint", ("thrust_body[2]",), -1.0),
    ),
    "omega_cmd": (("vehicle_rates_setpoint", ("roll", "pitch", "yaw"), 1.0),),
    "motors": (("actuator_motors", tuple(f"control[{k}]" for k in range(4)), 1.0),),
    "voltage": (("battery_status", ("voltage_v",), 1.0),),
}
ULOG_NAMES = sorted({topic for choices in TOPICS.values() for topic, _, _ in choices})
ULOG_SOURCES = {signal: " or ".join(topic for topic, _, _ in choices) for signal, choices in TOPICS.items()}

STALLED_READS = 140_000  # reads without progress: over damage pyulog goes byte by byte, up to 64 kB back each time
MOST_VOLUME, FREE_BYTES = 64, 64 << 20  # bound of the bytes read: ratio to the file, plus bytes

Table = Mapping[str, Array]


def ulog_signals(path: Path) -> LoggedSignals:
    """Return all signals of a log, each from the first instance of its topic.

    Raises:
        FileError: the file cannot be read.
        SignalError: the file is not an ULog file.
    """
    tables, corrupt = _tables(path)
    rows: SignalRows = {}
    for signal, choices in TOPICS.items():
        for topic, names, factor in choices:
            table = tables.get(topic, {})
            if table.keys() >= {*names, "timestamp"}:
                stamps = table.get("timestamp_sample", table["timestamp"])
                with np.errstate(invalid="ignore", over="ignore"):  # damaged values
                    values = factor * np.column_stack([table[name].astype(float) for name in names])
                extend(rows, signal, stamps * 1e-6, values)
                break
    return LoggedSignals(rows, "is damaged; the undamaged part is used" if corrupt else "", ULOG_SOURCES)


class _Finite(io.BytesIO):
    """File that raises EOFError on endless reading, since pyulog loops at the end of some damaged files."""

    def __init__(self, data: bytes):
        super().__init__(data)
        self._room, self._furthest, self._stalled = MOST_VOLUME * len(data) + FREE_BYTES, 0, 0

    def read(self, size: int | None = -1, /) -> bytes:
        data, at = super().read(size), self.tell()
        self._room -= len(data)
        self._stalled = 0 if at > self._furthest else self._stalled + 1
        self._furthest = max(self._furthest, at)
        if self._stalled > STALLED_READS or self._room < 0:
            raise EOFError("damaged")
        return data


def _tables(path: Path) -> tuple[dict[str, Table], bool]:
    """Return the columns of the wanted topics by name, and whether the file is damaged."""
    data = read_bytes(path, LOG_BYTES)
    output = io.StringIO()  # pyulog's messages on damage, line by line
    try:
        with contextlib.redirect_stdout(output):
            log = ULog(_Finite(data), ULOG_NAMES)
    except (*CAUSES, ULogException, struct.error, EOFError) as error:
        raise SignalError(f"{path}: cannot be read as a ULog file ({error or type(error).__name__})") from None
    tables = {one.name: one.data for one in reversed(log.data_list) if len(one.data.get("timestamp", ()))}
    return tables, bool(log.file_corruption or output.getvalue())


# Column names of public logs, mapped to those of `csv_signals`.
OWN_NAMES = {
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
    given = {OWN_NAMES.get(name, name): k for k, name in enumerate(names) if name}
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
