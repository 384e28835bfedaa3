"""Vehicle signals of a log: rows by signal, each with its own time.

| signal      | shape  | unit, frame                                        |
|-------------|--------|----------------------------------------------------|
| `force`     | (3,)   | m/s^2, specific force, body FRD                    |
| `omega`     | (3,)   | rad/s, body FRD                                    |
| `q`         | (4,)   | body FRD to world NED, wxyz, as the autopilot had it |
| `p`, `v`    | (3,)   | m and m/s, world NED, as the autopilot had them    |
| `true_p`    | (3,)   | m, world NED, measured from outside                |
| `throttle`  | (1,)   | 0..1, collective, as commanded                     |
| `omega_cmd` | (3,)   | rad/s, body FRD; NaN where attitudes are commanded |
| `motors`    | (n,)   | 0..1, as commanded                                 |
| `voltage`   | (1,)   | V, of the battery                                  |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array

REST_SAMPLES, REST_M_S2 = 40, 0.5  # samples in a rest at least; its largest standard deviation and error of gravity
LOG_BYTES = 512 << 20  # largest log; an hour of ArduPilot at 400 Hz has 400 MB

WORDS = {
    "force": "accelerometer samples",
    "omega": "gyro samples",
    "q": "attitude",
    "p": "position",
    "v": "velocity",
    "throttle": "commanded throttle",
}

SignalRows = dict[str, list[tuple[float, Array]]]  # (t, value) by signal, t in s of the log's own clock


class SignalError(UserError):
    """A log without the required signals, or unreadable."""


@dataclass(frozen=True)
class LoggedSignals:
    """Signals of a log. A signal that it lacks has no rows."""

    rows: SignalRows
    note: str = ""  # damage found
    sources: Mapping[str, str] = field(default_factory=dict)  # name in the log by signal, to report what is missing

    def require(self, path: Path, names: Sequence[str], command: str) -> None:
        """Check that the signals exist. Raises SignalError that names the first missing one, and its name in the log."""
        for name in names:
            if not self.rows.get(name):
                called = f" ({self.sources[name]})" if name in self.sources else ""
                raise SignalError(f"{path}: holds no {WORDS[name]}{called}, which {command} needs")


def add(rows: SignalRows, name: str, t: float, *values: Any) -> None:
    """Append one row."""
    rows.setdefault(name, []).append((t, np.array(values, float)))


def extend(rows: SignalRows, name: str, t: Array, values: Array) -> None:
    """Append rows at times t (N,) s of values (N, n) or (N,)."""
    table = np.asarray(values, float).reshape(len(t), -1)
    rows.setdefault(name, []).extend(zip(np.asarray(t, float).tolist(), table, strict=True))


def calibrated(rows: SignalRows) -> SignalRows:
    """Return the rows without the accelerometer's error along gravity, if a rest before the first command shows it."""
    begin = rows["throttle"][0][0] if rows.get("throttle") else -np.inf
    rest = np.array([value for t, value in rows.get("force", []) if t < begin])
    if len(rest) < REST_SAMPLES or rest.std(axis=0).max() > REST_M_S2:
        return rows
    mean = rest.mean(axis=0)
    weight = float(np.linalg.norm(mean))
    if abs(weight - GRAVITY) >= REST_M_S2:
        return rows
    error = mean * (1 - GRAVITY / weight)
    return rows | {"force": [(t, value - error) for t, value in rows["force"]]}


def fresh(rows: SignalRows) -> SignalRows:
    """Return the rows without samples that repeat the last values under a new stamp, as in the real builds and many logs."""
    news = {}
    for name in ("force", "omega", "v"):
        samples = rows.get(name, [])
        news[name] = samples[:1] + [b for a, b in zip(samples, samples[1:], strict=False) if (a[1] != b[1]).any()]
    return rows | news


def interpolated(samples: list[tuple[float, Array]], t: Array) -> Array:
    """Return a signal (N, n) at times t (N,), quaternions not normalised, held constant beyond its ends."""
    stamps, values = np.array([s for s, _ in samples]), np.array([v for _, v in samples])
    if values.shape[1] == 4:  # quaternions: the same sign throughout
        flips = np.cumprod(np.append(1.0, np.where((values[1:] * values[:-1]).sum(axis=1) < 0, -1.0, 1.0)))
        values = values * flips[:, None]
    return np.column_stack([np.interp(t, stamps, column) for column in values.T])
