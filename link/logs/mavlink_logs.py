"""Signals of logs of ground stations and ArduPilot: MAVLink's .tlog and DataFlash's .bin.

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
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.logs.rows import LOG_BYTES, LoggedSignals, SignalRows, add
from gate_racer.vehicle.files import read_bytes
from gate_racer.vehicle.rotation import from_euler

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
