"""`read_log_signals`: the signals of a log of any kind. Its first bytes tell the kind, and only where they do not, its name."""

import re
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.files import read_start, reading
from gate_racer.link.logs.inertial import layout_of
from gate_racer.link.logs.samples import LoggedSignals, Samples, SignalError, usable
from gate_racer.link.record import MAGIC, read_records

OWN, TABLE, ROS, INERTIAL = "record", "table", "ros", "inertial"
KINDS: dict[str, tuple[str, tuple[bytes, ...], tuple[str, ...]]] = {  # module and function, first bytes, suffixes
    OWN: ("reader.record_signals", (MAGIC,), (".mcap",)),
    TABLE: ("tables.table_signals", (), (".csv",)),
    ROS: ("ros.ros_signals", (b"#ROSBAG V2.0", b"SQLite format 3\0"), (".bag", ".db3")),
    INERTIAL: ("inertial.inertial_signals", (), ()),
    "ulog": ("ulog.ulog_signals", (b"ULog\x01\x12\x35",), (".ulg",)),
    "tlog": ("mavlink.tlog_signals", (), (".tlog",)),
    "dataflash": ("mavlink.dataflash_signals", (b"\xa3\x95",), (".bin",)),
    "betaflight": ("betaflight.betaflight_signals", (b"H Product:Blackbox",), (".bbl", ".bfl")),
}
TLOG_MARK, TLOG_MARKS = 8, (0xFD, 0xFE)  # the first packet's, behind its stamp
READ = "MCAP, ULog, DataFlash, .tlog, Betaflight's blackbox, bags of ROS, CSV, folders of ROS 2, TII-RATM, EuRoC and UZH-FPV"
UNITS_BY_HABIT = ROS, INERTIAL  # kinds whose drivers may give forces in g
START_BYTES = 64
TIME = r"(?:t|time|timestamp)(?:_(s|sec|ms|us|usec|ns))?|time(us|ms)"  # a column of times, its unit behind the name
TIME_FIRST = re.compile(rb"(\xef\xbb\xbf)?[# ]*(" + TIME.encode() + rb")\s*[,;\t\[(]", re.I)  # of a table's header
UNREAD = (  # first bytes, and what to do
    (rb"PK\x03\x04", "is a zip archive: unpack it, and give the log inside"),
    (rb"ULogEnc", "is an encrypted ULog: decrypt it with the key of its autopilot, and give the result"),
    (rb"\xbc[\1-\x0f]\0", "is a log of a Crazyflie's SD card, which is not read: make a table of it, with units"),
    (rb"[\d\s]*(Ardu\w+ V|FMT, )", "is a log of ArduPilot as text, which is not read: give its .bin, or its .tlog"),
)
ROS_PROFILES = (b"ros1", b"ros2")  # of an MCAP, in the record that follows its first bytes


def log_kind(path: Path) -> str:
    """Return the kind of a log. Raises FileError, or SignalError if it is empty, or no log that is read."""
    if path.is_dir():
        if layout_of(path):
            return INERTIAL
        if not (path / "metadata.yaml").is_file():
            raise SignalError(f"{path}: is a folder without a flight; name a log in it: read are {READ}")
        return ROS
    start = read_start(path, START_BYTES)
    if not start:
        raise SignalError(f"{path}: is empty, as after a flight that was killed before it began")
    if told := next((told for first, told in UNREAD if re.match(first, start)), ""):
        raise SignalError(f"{path}: {told}")
    kind = next((kind for kind, (_, starts, _) in KINDS.items() if start.startswith(starts)), "")
    if kind == OWN and any(profile in start for profile in ROS_PROFILES):
        return ROS
    if not kind and len(start) > TLOG_MARK and start[0] == 0 and start[TLOG_MARK] in TLOG_MARKS:
        return "tlog"
    named = next((kind for kind, (_, _, suffixes) in KINDS.items() if path.suffix.lower() in suffixes), "")
    kind = kind or named or (TABLE if TIME_FIRST.match(start) else "")
    if not kind:
        raise SignalError(f"{path}: is no log that is read: read are {READ}")
    return kind


def read_log_signals(path: Path) -> LoggedSignals:
    """Read one log; damaged parts are skipped and noted. Raises UserError for an unknown kind, or if it cannot be read."""
    kind = log_kind(path)
    with reading(path):
        module, _, function = KINDS[kind][0].partition(".")
        # Loaded when needed, since pymavlink alone takes half a second.
        read: Callable[[Path], LoggedSignals] = getattr(import_module(f"{__package__}.{module}"), function)
        log = usable(read(path))
    if kind in UNITS_BY_HABIT:
        log.require_gravity(path)
    return log


STATES = {"p": "p", "v": "v", "q": "q", "omega": "w", "force": "accel"}  # signal and key in /state and /truth
NAN3 = (np.nan,) * 3


def record_signals(path: Path) -> LoggedSignals:
    """Return the signals of one of this project's records, of `run-mpc` or `race-sim --record`. Raises FileError."""
    rows: dict[str, list[tuple[float, Any]]] = defaultdict(list)
    losses: list[str] = []
    for topic, record in read_records(path, without=("/camera",), report=lambda _, lost: losses.append(str(lost))):
        # The referee's truth in a pilot's log, which a pilot never has, is without `accel`.
        if topic == "/state" or (topic == "/truth" and "accel" in record):
            for name, key in STATES.items():
                if key in record:
                    rows[name].append((record["t"], record[key]))
        elif topic == "/imu":
            rows["force"].append((record["t"], record["accel"]))
            rows["gyro"].append((record["t"], record["gyro"]))
        elif topic == "/command":
            values = record.get("values", record)
            if "throttle" in values:
                rows["throttle"].append((record["t"], [values["throttle"]]))
                rates = values.get("omega", values.get("w")) if values.get("by_rates", True) else NAN3
                rows["omega_cmd"].append((record["t"], rates))
    rows["omega"] = rows.pop("gyro", rows["omega"])
    signals = {name: _samples(samples) for name, samples in rows.items() if samples}
    return LoggedSignals(signals, tuple(filter(None, losses)))


def _samples(rows: list[tuple[float, Any]]) -> Samples:
    """Return samples of the usual width; a damaged record may have another."""
    width = len(rows[0][1])
    kept = [(t, value) for t, value in rows if len(value) == width]
    return Samples(np.array([t for t, _ in kept], float), np.array([value for _, value in kept], float))
