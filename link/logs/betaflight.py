"""Signals of Betaflight's blackbox logs (.bbl, .bfl). Its body axes are x forward, y left, z up; its world is z up.

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
"""

import math
from pathlib import Path

import numpy as np

from gate_racer.link.logs.blackbox import BlackboxFlight, flights, header_float
from gate_racer.link.logs.rows import LOG_BYTES, LoggedSignals, SignalError, SignalRows, extend
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.files import read_bytes
from gate_racer.vehicle.rotation import Array

FRD = np.array([1.0, -1.0, -1.0])  # factors on axes x forward, y left, z up
HIGH_RESOLUTION = 10.0  # factor on rates and sticks in that mode
QUATERNION_PARTS, THROTTLE_PARTS, VOLTAGE_V = 32767.0, 1000.0, 0.01
STICK_LOW_US, STICK_US = 1000.0, 1000.0
LEAST_FRAMES = 2  # frames, least number in a log
SOURCES = {
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
    return LoggedSignals(_rows(longest), "; ".join(notes), SOURCES)


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
