"""Signals of this project's MCAP records: `run-mpc`'s of state, command and IMU, and those of `race-sim --record`."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.link.logs.samples import LoggedSignals, Samples
from gate_racer.link.record import read_records

STATES = {"p": "p", "v": "v", "q": "q", "omega": "w", "force": "accel"}  # signal and key in /state and /truth
NAN3 = (np.nan,) * 3


def record_signals(path: Path) -> LoggedSignals:
    """Return the signals of a record; damaged parts are skipped and noted. Raises FileError."""
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
