"""Signals of PX4's ULog files (.ulg). PX4's axes are those of this project: body FRD, world NED, quaternions wxyz.

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
"""

import contextlib
import io
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from pyulog.core import ULog
from pyulog.exceptions import ULogException

from gate_racer.link.logs.rows import LOG_BYTES, LoggedSignals, SignalError, SignalRows, extend
from gate_racer.vehicle.files import CAUSES, read_bytes
from gate_racer.vehicle.rotation import Array

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
NAMES = sorted({topic for choices in TOPICS.values() for topic, _, _ in choices})
SOURCES = {signal: " or ".join(topic for topic, _, _ in choices) for signal, choices in TOPICS.items()}

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
    return LoggedSignals(rows, "is damaged; the undamaged part is used" if corrupt else "", SOURCES)


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
            log = ULog(_Finite(data), NAMES)
    except (*CAUSES, ULogException, struct.error, EOFError) as error:
        raise SignalError(f"{path}: cannot be read as a ULog file ({error or type(error).__name__})") from None
    tables = {one.name: one.data for one in reversed(log.data_list) if len(one.data.get("timestamp", ()))}
    return tables, bool(log.file_corruption or output.getvalue())
