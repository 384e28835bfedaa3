"""Signals of Betaflight's blackbox logs. Its body axes are x forward, y left, z up; its world is z up.

| signal      | field                            | unit there, and what becomes of it                                    |
|-------------|----------------------------------|-----------------------------------------------------------------------|
| `omega`     | gyroADC[0..2]                    | deg/s times `gyro_scale` (10 times with high resolution); y, z turned |
| `force`     | accSmooth[0..2]                  | `acc_1G` counts per g; y, z turned                                    |
| `q`         | imuQuaternion[0..2]              | x, y, z of 32767 parts, w positive; y, z turned (since 2025.12)       |
| `omega_cmd` | setpoint[0..2]                   | as gyroADC                                                            |
| `throttle`  | setpoint[3], else rcCommand[3]   | 0..1000 of the mixer; else 1000..2000 us of the stick                 |
| `motors`    | motor[0..n]                      | from `motorOutput` low to high                                        |
| `voltage`   | vbatLatest                       | 0.01 V                                                                |

Position and velocity are not available: GPS frames are skipped, since they are too coarse and late for a vehicle's dynamics.
"""

import math
from pathlib import Path

import numpy as np

from gate_racer.common.files import read_bytes
from gate_racer.link.logs.blackbox import BlackboxFlight, flights, header_float
from gate_racer.link.logs.samples import LOG_BYTES, LoggedSignals, SignalError
from gate_racer.link.logs.sources import FRD, RAD, Source, found, indexed, pulses, scaled
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array

HIGH_RESOLUTION = 10.0  # factor on rates and sticks in that mode
QUATERNION_PARTS, THROTTLE_PARTS, VOLTAGE_V = 32767.0, 1000.0, 0.01
LEAST_FRAMES = 2  # frames, least number in a log


def betaflight_signals(path: Path) -> LoggedSignals:
    """Return the signals of the longest flight in a file.

    Raises:
        FileError: the file cannot be read.
        SignalError: the file holds no flight.
    """
    found_flights = [flight for flight in flights(read_bytes(path, LOG_BYTES)) if len(flight.values) >= LEAST_FRAMES]
    if not found_flights:
        raise SignalError(f"{path}: holds no flight of a Betaflight blackbox")
    longest = max(found_flights, key=lambda flight: len(flight.values))
    notes = [f"holds {len(found_flights)} flights, of which the longest is used"] if len(found_flights) > 1 else []
    if longest.damaged:
        notes.append(f"{longest.damaged} stretches damaged; the undamaged parts are used")
    columns: dict[str, Array] = dict(zip(longest.names, longest.values.T, strict=True))
    log = found({"": {**columns, "t": columns["time"] * 1e-6}}, _sources(longest), notes)
    return LoggedSignals(log.signals, log.notes, {**log.names, "p": "not logged", "v": "not logged"})


def _sources(flight: BlackboxFlight) -> dict[str, tuple[Source, ...]]:
    fine = HIGH_RESOLUTION if flight.number("blackbox_high_resolution", 0) else 1.0
    rate = math.radians(header_float(flight.headers.get("gyro_scale", ""), 1.0)) / fine
    low, _, high = flight.headers.get("motorOutput", "").partition(",")
    span = (float(low), float(high) - float(low)) if low and high else (0.0, 0.0)
    motors = tuple(name for name in flight.names if name.startswith("motor["))

    return {
        "omega": (Source("", indexed("gyroADC"), scaled(*(FRD * rate))),),
        "force": (Source("", indexed("accSmooth"), scaled(*(FRD * GRAVITY / flight.number("acc_1G", 1.0)))),),
        "q": (Source("", indexed("imuQuaternion"), _quaternions),),
        "omega_cmd": (Source("", indexed("setpoint"), scaled(*(FRD * RAD / fine))),),
        "throttle": (
            Source("", ("setpoint[3]",), lambda parts: np.clip(parts / THROTTLE_PARTS, 0.0, 1.0)),
            Source("", ("rcCommand[3]",), lambda us: pulses(us / fine)),
        ),
        "motors": (Source("", motors, lambda raw: (raw - span[0]) / span[1]),) if motors and span[1] > 0 else (),
        "voltage": (Source("", ("vbatLatest",), scaled(VOLTAGE_V)),),
        "p": (),
        "v": (),
    }


def _quaternions(xyz: Array) -> Array:
    xyz = xyz * FRD / QUATERNION_PARTS
    return np.column_stack([np.sqrt(np.clip(1.0 - np.sum(xyz * xyz, axis=1), 0.0, 1.0)), xyz])
