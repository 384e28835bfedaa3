"""Logs of MAVLink: ground stations' .tlog, and ArduPilot's DataFlash. Damaged bytes are skipped up to the next intact record.

A .tlog is a set of packets of several senders. Used are those of one autopilot, the first that sends a heartbeat, and the
set-points that are addressed to it; the others are named. Its times are those of reception.

Outputs 1 to 4 are read as motors unless the log tells of another vehicle, whose rudders they move.
"""

import math
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pymavlink.dialects.v20 import common as dialect

from gate_racer.common.files import read_bytes
from gate_racer.link.logs import samples
from gate_racer.link.logs.samples import RAD, Source, eulers, masked, mean, pulses, scaled, share, xyz
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array

STAMP = struct.Struct(">Q")  # us, in front of each packet of a .tlog
MAGICS = {dialect.PROTOCOL_MARKER_V1: 8, dialect.PROTOCOL_MARKER_V2: 12}  # bytes around the payload
HEAD, HEAD_BYTES = b"\xa3\x95", 3  # start of a DataFlash record; its type follows
FORMAT_TYPE, FORMAT = 0x80, struct.Struct("<BB4s16s64s")  # type, length, name, kinds of the fields, their names
# DataFlash field types: letter, struct code, factor.
KINDS: dict[str, tuple[str, float]] = {
    **{letter: (letter, 1.0) for letter in "bBhHiIfdqQ"},
    **{"a": ("64s", 1.0), "n": ("4s", 1.0), "N": ("16s", 1.0), "Z": ("64s", 1.0), "M": ("b", 1.0), "g": ("e", 1.0)},
    **{"c": ("h", 0.01), "C": ("H", 0.01), "e": ("i", 0.01), "E": ("I", 0.01), "L": ("i", 1e-7)},
}
CENTI_VOLTS = ("CURR", "Volt")  # before Copter 3.3 in whole numbers of 0.01 V
# R of RATE over GyrX of IMU: 57.3 in deg/s, 5730 in 0.01 deg/s as before Copter 3.4; between them.
CENTIDEG = 573.0
MILLI, CM_S = 1e-3, 0.01
ATTITUDE_IGNORED, RATES_IGNORED = 128, 7  # bits of type_mask
EARTH_M = 6378137.0  # m, radius: a degree more or less does not matter to a room


def _north_east(values: Array) -> Array:
    """Return metres north, east and down of the first position, from latitude, longitude (1e-7 deg) and height (mm)."""
    angles, known = values[:, :2] * 1e-7 * RAD, values[:, :2].any(axis=1)
    if known.any():  # before the first fix both are 0
        angles[~known] = np.nan
    first = angles[known.argmax()]
    north_east = (angles - first) * EARTH_M * [1.0, math.cos(first[0])]
    return np.column_stack([north_east, -values[:, 2] * MILLI])


RATES = ("type_mask", "body_roll_rate", "body_pitch_rate", "body_yaw_rate")
SERVOS = tuple(f"servo{k}_raw" for k in range(1, 5))
SCALED = ("SCALED_IMU", "SCALED_IMU2", "SCALED_IMU3", "RAW_IMU")  # ArduPilot's RAW_IMU is scaled as well
TLOG = (
    Source("force", "HIGHRES_IMU", xyz("{}acc")),
    *(Source("force", name, xyz("{}acc"), scaled(MILLI * GRAVITY)) for name in SCALED),
    Source("omega", "HIGHRES_IMU", xyz("{}gyro")),
    *(Source("omega", name, xyz("{}gyro"), scaled(MILLI)) for name in SCALED),
    Source("omega", "ATTITUDE", ("rollspeed", "pitchspeed", "yawspeed")),
    Source("q", "ATTITUDE_QUATERNION", ("q1", "q2", "q3", "q4")),
    Source("q", "ATTITUDE", ("roll", "pitch", "yaw"), eulers()),
    Source("p", "LOCAL_POSITION_NED", xyz()),
    Source("p", "GLOBAL_POSITION_INT", ("lat", "lon", "relative_alt"), _north_east),
    Source("v", "LOCAL_POSITION_NED", xyz("v{}")),
    Source("v", "GLOBAL_POSITION_INT", xyz("v{}"), scaled(CM_S)),
    Source("throttle", "ATTITUDE_TARGET", ("thrust",)),
    Source("throttle", "SET_ATTITUDE_TARGET", ("thrust",)),
    Source("throttle", "SERVO_OUTPUT_RAW", SERVOS, mean(pulses)),
    Source("throttle", "VFR_HUD", ("throttle",), scaled(0.01)),
    Source("omega_cmd", "ATTITUDE_TARGET", RATES, masked(RATES_IGNORED, False)),
    Source("omega_cmd", "SET_ATTITUDE_TARGET", RATES, masked(ATTITUDE_IGNORED, True)),
    Source("motors", "SERVO_OUTPUT_RAW", SERVOS, pulses),
    Source("voltage", "SYS_STATUS", ("voltage_battery",), scaled(MILLI)),
    Source("landed", "EXTENDED_SYS_STATE", ("landed_state",), lambda state: 1.0 * (state == 1)),
)
# Vehicles whose first four outputs are rotors, or of unknown type; and how the messages of ArduPilot's others begin.
MULTIROTORS = {dialect.MAV_TYPE_GENERIC, dialect.MAV_TYPE_QUADROTOR, dialect.MAV_TYPE_HEXAROTOR,
               dialect.MAV_TYPE_OCTOROTOR, dialect.MAV_TYPE_DODECAROTOR, dialect.MAV_TYPE_DECAROTOR}  # fmt: skip
NO_MULTIROTOR = re.compile(r"(Ardu|APM:?)?(Plane|Rover2?|Sub|Blimp) v|Frame: HELI", re.I)
OUTPUTS = tuple(tuple(f"{name}{k}" for k in range(1, 5)) for name in ("C", "Ch", "Chan"))  # the last before 3.3
FILTERS = ("XKF1", "NKF1", "EKF1")
DATAFLASH = (
    Source("force", "IMU", xyz("Acc{}", "XYZ")),
    Source("omega", "IMU", xyz("Gyr{}", "XYZ")),
    Source("q", "ATT", ("Roll", "Pitch", "Yaw"), eulers(RAD)),
    *(Source("q", name, ("Roll", "Pitch", "Yaw"), eulers(RAD)) for name in (*FILTERS, "AHR2")),
    *(Source("p", name, ("PN", "PE", "PD")) for name in FILTERS),
    *(Source("v", name, ("VN", "VE", "VD")) for name in FILTERS),
    Source("true_p", "SIM2", ("PN", "PE", "PD")),
    Source("true_v", "SIM2", ("VN", "VE", "VD")),
    Source("throttle", "CTUN", ("ThO",), share),
    Source("throttle", "CTUN", ("ThrOut",), share),
    Source("throttle", "RATE", ("AOut",), share),
    *(Source("throttle", "RCOU", names, mean(pulses)) for names in OUTPUTS),
    Source("omega_cmd", "RATE", ("RDes", "PDes", "YDes"), scaled(RAD)),
    *(Source("motors", "RCOU", names, pulses) for names in OUTPUTS),
    *(Source("voltage", name, ("Volt",)) for name in ("BAT", "CURR", "BAT1")),
    Source("landed", "EV", ("Id",), lambda event: _landed(event)),
)
LANDED, AIRBORNE = (11, 17, 18), (28,)  # ArduPilot's events: disarmed, landed maybe, landed; not landed


def _landed(event: Array) -> Array:
    """Return 1 after an event of landing and 0 after one of flight, which holds until the next."""
    told = np.where(np.isin(event, LANDED), 1.0, np.where(np.isin(event, AIRBORNE), 0.0, np.nan))[:, 0]
    last = np.maximum.accumulate(np.where(np.isnan(told), -1, np.arange(len(told))))
    return np.where(last < 0, 1.0, told[np.maximum(last, 0)])[:, None]


def tlog_messages(path: Path) -> Iterator[tuple[float, Any]]:
    """Yield time (s) and pymavlink message of every packet of the common dialect. Raises FileError."""
    data, at, mavlink = read_bytes(path, samples.LOG_BYTES), 0, dialect.MAVLink(None)
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


def tlog_signals(path: Path) -> samples.LoggedSignals:
    """Return the signals of one autopilot in a ground station's log. Raises FileError."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for source in TLOG:
        wanted[source.message] |= {*source.fields}
    rows: dict[tuple[int, int], dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    autopilots: dict[tuple[int, int], int] = {}  # type of the vehicle, by sender
    for t, m in tlog_messages(path):
        name, sender = m.get_type(), (m.get_srcSystem(), m.get_srcComponent())
        if name == "HEARTBEAT" and m.autopilot != dialect.MAV_AUTOPILOT_INVALID:
            autopilots.setdefault(sender, m.type)
        elif name in wanted:
            to = (m.target_system, m.target_component) if name == "SET_ATTITUDE_TARGET" else sender
            rows[to][name].append({"t": t, **{field: getattr(m, field) for field in wanted[name]}})
    sensed = [sender for sender, kinds in rows.items() if kinds.keys() - {"SET_ATTITUDE_TARGET"}]
    senders = [one for one in autopilots if one in sensed] or sensed or [(0, 0)]
    used, notes = senders[0], []
    if others := sorted({*sensed, *autopilots} - {used}):
        named = ", ".join(f"{system}/{component}" for system, component in others)
        notes = [f"holds several senders: system/component {used[0]}/{used[1]} is used, not {named}"]
    tables: dict[str, samples.Table] = {}
    # A set-point may be addressed to all components, or all systems.
    for to in ((0, 0), (used[0], 0), used):
        tables |= {name: samples.table(records) for name, records in rows[to].items()}
    kind, known = autopilots.get(used, dialect.MAV_TYPE_GENERIC), dialect.enums["MAV_TYPE"]
    if kind not in MULTIROTORS:
        notes.append(_no_motors(tables, "SERVO_OUTPUT_RAW", known[kind].name if kind in known else f"of type {kind}"))
    return samples.found(tables, TLOG, notes)


def _no_motors(tables: dict[str, samples.Table], outputs: str, vehicle: str) -> str:
    """Remove the outputs of a vehicle that is no multirotor; return a remark."""
    tables.pop(outputs, None)
    return f"its vehicle is {vehicle}: {outputs} is not read as its motors"


def dataflash_records(path: Path) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """Yield time (s since the start), name and fields of every record with a time. Raises FileError."""
    data, at = read_bytes(path, samples.LOG_BYTES), 0
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
        scaled = zip(columns, values, factors, strict=True)
        fields = {column: value * factor if factor != 1.0 else value for column, value, factor in scaled}
        for clock, unit in (("TimeUS", 1e-6), ("TimeMS", 1e-3)):
            if isinstance(fields.get(clock), int):
                yield fields[clock] * unit, name, fields
                break


def _text(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("ascii", "replace")


def _format(kind: int, length: int, name: bytes, letters: bytes, columns: bytes) -> dict[int, Any]:
    texts = [_text(raw) for raw in (name, letters, columns)]
    names = tuple(texts[2].split(","))
    if kind == FORMAT_TYPE or not texts[0] or len(names) != len(texts[1]) or not set(texts[1]) <= KINDS.keys():
        return {}
    layout = struct.Struct("<" + "".join(KINDS[letter][0] for letter in texts[1]))
    factors = tuple(
        0.01 if (texts[0], one) == CENTI_VOLTS and letter in "hH" else KINDS[letter][1]
        for one, letter in zip(names, texts[1], strict=True)
    )
    return {kind: (texts[0], layout, names, factors)} if layout.size + HEAD_BYTES == length else {}


def dataflash_signals(path: Path) -> samples.LoggedSignals:
    """Return the signals of ArduPilot's first IMU, first filter and outputs. Raises FileError."""
    wanted, vehicle = {source.message for source in DATAFLASH}, ""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for t, name, fields in dataflash_records(path):
        first = not any(fields.get(instance) for instance in ("I", "C", "Instance", "Inst"))
        if name in wanted and first:
            rows[name].append({"t": t, **fields})
        elif name == "MSG" and NO_MULTIROTOR.match(text := _text(fields.get("Message", b""))):
            vehicle = text
    if not rows:
        raise samples.SignalError(
            f"{path}: holds no record of ArduPilot's DataFlash that is read: {', '.join(sorted(wanted))}"
        )
    tables = {name: samples.table(records) for name, records in rows.items()}
    rates, gyro = tables.get("RATE", {}), np.std(tables.get("IMU", {}).get("GyrX", np.zeros(1)))
    if gyro > 0 and np.std(rates.get("R", np.zeros(1))) / gyro > CENTIDEG:
        tables["RATE"] = {**rates, **{name: 0.01 * rates[name] for name in ("RDes", "PDes", "YDes") if name in rates}}
    return samples.found(tables, DATAFLASH, [_no_motors(tables, "RCOU", vehicle)] if vehicle else [])
