"""Vehicle signals of a log: rows by signal, on one clock.

Selection of samples on one clock: logs hold invalid stamps, and clocks that were set during the log.

Vehicle signals of a log: rows by signal, each with its own time.

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
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.vehicle.dynamics import GRAVITY
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


SHUFFLED_S, LEAP_S = 0.05, 20.0  # s, largest disorder of stamps; s, pause beyond which the clock was set
LATEST_S = 1e10  # s, largest valid stamp, in any epoch


def finite(rows: SignalRows) -> SignalRows:
    """Return the rows without invalid samples: stamps that are no time, values of another shape, values not finite."""
    for name, samples in rows.items():
        width = next((value.shape for _, value in samples), ())
        sound = [(t, value) for t, value in samples if abs(t) < LATEST_S and value.shape == width]
        rows[name] = [(t, value) for t, value in sound if name == "omega_cmd" or np.isfinite(value).all()]
    return rows


def one_clock(rows: SignalRows) -> tuple[SignalRows, str]:
    """Return the longest part of a log without a change of the clock, in order of time, and a line on the rest."""
    parts = {name: _stretches(samples) for name, samples in rows.items() if samples}
    if all(len(part) == 1 for part in parts.values()):
        return rows | {name: part[0] for name, part in parts.items()}, ""
    spans = [samples[-1][0] - samples[0][0] for samples in parts.get("v") or parts.get("force", [])] or [0.0]
    longest = int(np.argmax(spans))
    kept = {
        name: part[longest]
        if len(part) == len(spans)
        else max(part, key=lambda samples: samples[-1][0] - samples[0][0])
        for name, part in parts.items()
    }
    return kept, f"its clock was set {len(spans) - 1} times: {spans[longest]:.1f} s of {sum(spans):.1f} s are used"


def _stretches(samples: list[tuple[float, Array]]) -> list[list[tuple[float, Array]]]:
    """Split samples where time runs back or leaps."""
    cuts = [k for k, (a, b) in enumerate(pairwise(samples), 1) if not -SHUFFLED_S < b[0] - a[0] < LEAP_S]
    parts = [samples[a:b] for a, b in pairwise([0, *cuts, len(samples)])]
    return [sorted(part, key=lambda sample: sample[0]) for part in parts]
