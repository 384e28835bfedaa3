"""`LoggedSignals`: what a log of any kind tells of a vehicle, as samples by signal, each with its own times.

| signal      | shape  | unit, frame                                                    |
|-------------|--------|----------------------------------------------------------------|
| `force`     | (3,)   | m/s^2, specific force, body FRD                                |
| `omega`     | (3,)   | rad/s, body FRD                                                |
| `q`         | (4,)   | body FRD to world NED, wxyz, as the autopilot had it           |
| `p`, `v`    | (3,)   | m and m/s, world NED, as the autopilot had them                |
| `true_q`, `true_p`, `true_v` |  | likewise, measured from outside                     |
| `throttle`  | (1,)   | 0..1, collective, as commanded                                 |
| `omega_cmd` | (3,)   | rad/s, body FRD; NaN where attitudes are commanded             |
| `motors`    | (n,)   | 0..1, as commanded                                             |
| `voltage`   | (1,)   | V, of the battery                                              |
| `landed`    | (1,)   | 1 on the ground, 0 in the air, as the autopilot detected it    |

A log is a set of tables, one for each of its messages: columns by field, with the times in `t`, s. A format lists the
`Source`s that may carry a signal in order of preference, of which `found` takes the first valid one. What a log holds
decides, not which firmware wrote it: a source is passed over where its fields are absent, or where all its values are equal and a
later source is alive.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gate_racer.common.errors import UserError
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, Mask, from_euler

Indices = NDArray[np.intp]

REST_SAMPLES, REST_M_S2 = 40, 0.5  # samples in a rest at least; its largest standard deviation and error of gravity
LOG_BYTES = 512 << 20  # largest log; an hour of ArduPilot at 400 Hz has 400 MB
LEAST_STEPS = 20  # of a signal's stamps, by which the direction of a clock is judged (chosen)
SHUFFLED_S, LEAP_S = 0.05, 20.0  # s, largest disorder of stamps; s, longest pause within a part (chosen)
IMU_STEPS_S = 1 / 8000, 1 / 20  # s, between samples of an IMU: they tell the unit of times
LATEST_S = 1e10  # s, largest valid stamp, in any epoch
ROUNDING_S = 1e-4  # s, by which equal times may differ; a value that is held would differ by a whole sample
FORCE_UNITS = (("g", 1.0, "multiply it by 9.81"), ("mg", 1000.0, "multiply it by 0.00981"),
               ("m/s^2, multiplied by 9.81 twice", GRAVITY**2, "divide it by 9.81"))  # fmt: skip
BATTERY_V = 2.5, 70.0  # V, of one empty cell and of 16 full ones: the median of a battery in flight lies between
# rad/s, exceeded for a tenth of a log, and rad, turned in all: with both no attitude stays the same (chosen).
TURNING_RAD_S, TURNED_RAD = 0.3, 3.0
MEAN_S = 0.25  # s (chosen)
TILTED_RAD = 0.1  # rad, exceeded for a tenth of a log: with it nothing moves straight up and down only (chosen)
MAY_BE_NAN, ATTITUDES = ("omega_cmd",), ("q", "true_q")
QUATERNION = 4  # values of one; motors are not interpolated

WORDS = {
    "force": "accelerometer samples",
    "omega": "gyro samples",
    "q": "attitude",
    "p": "position",
    "v": "velocity",
    "throttle": "commanded throttle",
}


class SignalError(UserError):
    """A log without the required signals, or unreadable."""


@dataclass(frozen=True)
class Samples:
    """N values of one signal."""

    t: Array  # (N,) s, of the log's own clock
    values: Array  # (N, n)

    def __len__(self) -> int:
        return len(self.t)

    def where(self, kept: Mask | Indices) -> "Samples":
        """Return the samples of a mask (N,), or by index."""
        return Samples(self.t[kept], self.values[kept])

    def at(self, t: Array) -> Array:
        """Return the signal (M, n) at times (M,), linear between samples and constant beyond; quaternions are normalised."""
        values = self.values
        if values.shape[1] != QUATERNION:
            return np.column_stack([np.interp(t, self.t, column) for column in values.T])
        flips = np.cumprod(np.append(1.0, np.where((values[1:] * values[:-1]).sum(axis=1) < 0, -1.0, 1.0)))
        q = np.column_stack([np.interp(t, self.t, column) for column in (values * flips[:, None]).T])
        return q / np.linalg.norm(q, axis=1)[:, None]

    def held(self, t: Array) -> Array:
        """Return the last values (M, n) at or before times (M,), as of commands."""
        return self.values[np.maximum(np.searchsorted(self.t, t + ROUNDING_S, side="right") - 1, 0)]


NOTHING = Samples(np.zeros(0), np.zeros((0, 1)))


@dataclass(frozen=True)
class LoggedSignals:
    signals: Mapping[str, Samples]
    notes: tuple[str, ...] = ()  # damage found, and what else was in the file and is not used
    names: Mapping[str, str] = field(default_factory=dict)  # what carries a signal in logs of the kind

    def get(self, *names: str) -> Samples:
        """Return the first of these signals that the log holds; without samples if it holds none."""
        return next((self.signals[name] for name in names if name in self.signals), NOTHING)

    def require(self, path: Path, names: Sequence[str], command: str) -> None:
        """Check that the signals exist. Raises SignalError that names all missing ones, and their names in the log."""
        lacking = [name for name in names if name not in self.signals]
        missing = [WORDS[name] + (f" ({self.names[name]})" if name in self.names else "") for name in lacking]
        if missing:
            raise SignalError(f"{path}: holds no {' and no '.join(missing)}, which {command} needs")

    def require_gravity(self, path: Path) -> None:
        """Check that the median force is near gravity. Raises SignalError with the unit that it suggests."""
        sizes = np.linalg.norm(self.get("force").values, axis=1)
        sizes = sizes[np.isfinite(sizes)]
        weight = float(np.median(sizes)) if len(sizes) else GRAVITY
        for unit, size, cure in FORCE_UNITS:
            if abs(weight / size - 1) < 0.2:
                raise SignalError(f"{path}: the specific force is {weight:.3g} for most of the log; in {unit}? {cure}")
        if weight < GRAVITY / 2:
            raise SignalError(
                f"{path}: the specific force is {weight:.3g} m/s^2 for most of the log: is gravity subtracted? expected is"
                " what an accelerometer measures"
            )


def usable(log: LoggedSignals) -> LoggedSignals:
    """Return the valid samples on one clock: the longest part where it was set or pauses. Raises ValueError: it runs back."""
    finite = {name: _finite(name, samples) for name, samples in log.signals.items()}
    for samples in finite.values():
        steps = np.sign(np.diff(samples.t))
        if len(steps) >= LEAST_STEPS and (steps < 0).sum() > (steps > 0).sum():
            raise ValueError("its clock runs backwards")
    finite = {name: samples for name, samples in finite.items() if len(samples)}
    reference = _stretches(finite.get("v", finite.get("force", NOTHING)))
    spans = [_span(part) for part in reference]
    longest = int(np.argmax(spans))
    onward = all(later.t[0] > one.t[-1] for one, later in pairwise(reference))
    # What pauses while the reference runs on, such as events, is on one clock, as is a log that only pauses.
    parts = {name: _stretches(one, math.inf if onward else LEAP_S) for name, one in finite.items()}
    kept = {name: part[longest] if len(part) == len(spans) else max(part, key=_span) for name, part in parts.items()}
    if onward and len(spans) > 1:
        begin, end = reference[longest].t[[0, -1]]
        kept = {name: one.where((one.t >= begin) & (one.t <= end)) for name, one in kept.items()}
        kept = {name: one for name, one in kept.items() if len(one)}
    event = "it pauses" if onward else "its clock was set"
    told = f"{event} {len(spans) - 1} times: {spans[longest]:.1f} s of {sum(spans):.1f} s are used"
    return _measured(LoggedSignals(kept, (*log.notes, told) if len(spans) > 1 else log.notes, log.names))


def _span(samples: Samples) -> float:
    return float(np.ptp(samples.t)) if len(samples) else 0.0


def _measured(log: LoggedSignals) -> LoggedSignals:
    """Return a log without signals that were filled in, or that are of another unit; it says so."""
    attitude, voltage = log.get("q", "true_q").values, log.get("voltage").values
    lean = 2 * np.arcsin(np.clip(np.linalg.norm(attitude[:, 1:3], axis=1), 0.0, 1.0))
    tilts = len(lean) and float(np.percentile(lean, 90)) > TILTED_RAD
    left_out = {
        name: f"its {WORDS[name]} is 0 along north and east throughout though it tilts, which is none and is left out"
        for name in ("p", "v")
        if tilts and name in log.signals and not log.signals[name].values[:, :2].any()
    }
    gyro = log.get("omega")
    rates = np.linalg.norm(mean_over(gyro.values, gyro.t), axis=1)
    turned = len(gyro) and np.percentile(rates, 90) > TURNING_RAD_S and np.trapezoid(rates, gyro.t) > TURNED_RAD
    for name in ATTITUDES:
        if turned and name in log.signals and not np.ptp(log.signals[name].values, axis=0).any():
            left_out[name] = "its attitude does not turn though its gyro does, which is none and is left out"
    volts = float(np.median(voltage[voltage > 0])) if (voltage > 0).any() else 0.0
    if len(voltage) and not BATTERY_V[0] <= volts <= BATTERY_V[1]:
        left_out["voltage"] = f"its battery's voltage of {volts:.4g} V is none and is left out"
    kept = {name: samples for name, samples in log.signals.items() if name not in left_out}
    return LoggedSignals(kept, (*log.notes, *left_out.values()), log.names)


def mean_over(values: Array, t: Array) -> Array:
    """Return the means (N, n) of values over MEAN_S about each time (N,) s, against the noise of a sensor."""
    if len(t) < 2:
        return values
    n = min(max(1, round(MEAN_S / max(float(np.median(np.diff(t))), 1e-6))), len(t))
    return np.column_stack([_smooth(column, n) for column in values.T])


def _finite(name: str, samples: Samples) -> Samples:
    kept = np.abs(samples.t) < LATEST_S
    if name in ATTITUDES:
        kept &= (np.abs(samples.values) <= 2.0).all(axis=1) & (np.abs(samples.values).max(axis=1, initial=0.0) > 0.5)
    return samples.where(kept if name in MAY_BE_NAN else kept & np.isfinite(samples.values).all(axis=1))


def _stretches(samples: Samples, leap_s: float = LEAP_S) -> list[Samples]:
    """Split samples where time runs back or leaps; each part in order of time, a time that repeats once."""
    steps = np.diff(samples.t)
    cuts = np.flatnonzero((steps <= -SHUFFLED_S) | (steps >= leap_s)) + 1
    parts = np.split(np.arange(len(samples)), cuts)
    return [samples.where(part[np.unique(samples.t[part], return_index=True)[1]]) for part in parts]


def calibrated(force: Samples, before: float) -> Samples:
    """Return the forces without the accelerometer's error along gravity, if a rest before a time, s, shows it."""
    rest = force.values[force.t < before]
    if len(rest) < REST_SAMPLES or rest.std(axis=0).max() > REST_M_S2:
        return force
    mean = rest.mean(axis=0)
    weight = float(np.linalg.norm(mean))
    if abs(weight - GRAVITY) >= REST_M_S2:
        return force
    return Samples(force.t, force.values - mean * (1 - GRAVITY / weight))


def fresh(samples: Samples) -> Samples:
    """Return the samples without those that repeat the last values under a new stamp, as in the real builds and many logs."""
    return samples.where(np.append(True, (samples.values[1:] != samples.values[:-1]).any(axis=1))[: len(samples)])


Table = Mapping[str, Array]  # columns (N,) by field, and `t`, s
Tables = Mapping[str, Table]  # by message

FRD = np.array([1.0, -1.0, -1.0])  # factors on axes x forward, y left, z up, of world or body
PULSE_LOW_US, PULSE_US = 1000.0, 1000.0  # of radio sticks and motor outputs
RAD = math.radians(1.0)


def scaled(*factors: float) -> Callable[[Array], Array]:
    """Return a conversion that multiplies by a factor, or by one for each column."""
    by = np.array(factors)
    return lambda values: values * by


turned, turned_gravities, turned_q = scaled(*FRD), scaled(*(GRAVITY * FRD)), scaled(1.0, *FRD)


def same(values: Array) -> Array:
    return values


class Source(NamedTuple):
    """Fields of a message that carry a signal, and what makes them SI values (N, n) in this project's axes."""

    signal: str
    message: str
    fields: tuple[str, ...]
    convert: Callable[[Array], Array] = same

    @property
    def called(self) -> str:
        return self.message or "..".join(dict.fromkeys((self.fields[0], self.fields[-1])))


def pulses(values: Array) -> Array:
    return np.clip((values - PULSE_LOW_US) / PULSE_US, 0.0, 1.0)


def eulers(factor: float = 1.0) -> Callable[[Array], Array]:
    """Return the conversion of roll, pitch and yaw, times a factor in rad, to quaternions."""
    return lambda angles: np.array([from_euler(*one) for one in angles * factor]).reshape(-1, 4)


def mean(convert: Callable[[Array], Array] = same) -> Callable[[Array], Array]:
    return lambda values: convert(values).mean(axis=1, keepdims=True)


def share(values: Array) -> Array:
    """Return 0..1 of what may be logged in per cent or per mille."""
    largest = float(np.nanmax(values, initial=0.0))
    return values / next(unit for unit in (1.0, 100.0, 1000.0, largest) if largest <= 1.5 * unit or unit == largest)


def masked(bits: int, wanted: bool, convert: Callable[[Array], Array] = same) -> Callable[[Array], Array]:
    """Return a conversion of the columns behind a type_mask: NaN where having any of these bits is not as `wanted`."""
    return lambda columns: np.where(
        ((columns[:, :1].astype(int) & bits) > 0) == wanted, convert(columns[:, 1:]), np.nan
    )


def indexed(name: str, size: int = 3) -> tuple[str, ...]:
    return tuple(f"{name}[{k}]" for k in range(size))


def xyz(name: str = "{}", axes: str = "xyz") -> tuple[str, ...]:
    return tuple(name.format(axis) for axis in axes)


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the numbers of rows by column; NaN where a row has none."""
    names = [name for name, value in rows[0].items() if isinstance(value, int | float)]
    return {name: np.array([row.get(name, np.nan) for row in rows], float) for name in names}


def found(tables: Tables, sources: Iterable[Source], notes: Sequence[str] = ()) -> LoggedSignals:
    signals, names = dict[str, Samples](), dict[str, list[str]]()
    still = dict[str, Samples]()
    for one in sources:
        names.setdefault(one.signal, []).append(one.called)
        columns = tables.get(one.message, {})
        if one.signal in signals or not columns.keys() >= {*one.fields, "t"} or not len(columns["t"]):
            continue
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # damaged values
            values = one.convert(np.column_stack([np.asarray(columns[name], float) for name in one.fields]))
        samples = Samples(columns["t"], values)
        alive = np.ptp(samples.values, axis=0).any()
        (signals if alive else still).setdefault(one.signal, samples)
    called = {name: " or ".join(dict.fromkeys(of)) for name, of in names.items()}
    return LoggedSignals(still | signals, tuple(notes), called)


STEP_S, MOST_S = 2e-3, 0.5  # s, grid of the correlation, and largest offset
LEAST_LIKENESS = 0.8  # correlation of the rotation rates from which an offset is believed (chosen)
SMOOTH_S = 0.03  # s, over which rates from attitudes are averaged


def clock_offset(t: Array, omega_b: Array, t_true: Array, q_true: Array) -> float:
    """Return by how much a truth's stamps are later than those of an IMU, s; NaN if its rotation does not resemble the gyro's.

    Args:
        omega_b: rad/s, (N, 3) at times (N,); axes do not matter, since magnitudes are compared.
        q_true: attitudes (M, 4) at times (M,).
    """
    grid = np.arange(max(t[0], t_true[0]), min(t[-1], t_true[-1]), STEP_S)
    if len(grid) < 4 * MOST_S / STEP_S:
        return float("nan")
    gyro = _smooth(np.interp(grid, t, np.linalg.norm(omega_b, axis=1)))
    cosines = np.clip(np.abs((q_true[1:] * q_true[:-1]).sum(axis=1)), 0.0, 1.0)
    rates = 2 * np.arccos(cosines) / np.maximum(np.diff(t_true), 1e-6)
    true = _smooth(np.interp(grid, (t_true[1:] + t_true[:-1]) / 2, rates))
    most = round(MOST_S / STEP_S)
    inner = true[most:-most] - true[most:-most].mean()
    ours = (gyro[most - k : len(gyro) - most - k] for k in range(-most, most + 1))
    ours = (one - one.mean() for one in ours)
    likeness = np.array([one @ inner / max(np.sqrt((one @ one) * (inner @ inner)), 1e-12) for one in ours])
    best = int(likeness.argmax())
    if likeness[best] < LEAST_LIKENESS or not 0 < best < 2 * most:
        return float("nan")
    low, mid, high = likeness[best - 1 : best + 2]
    bend = low - 2 * mid + high
    return float(STEP_S * (best - most + (0.5 * (low - high) / bend if bend else 0.0)))


def _smooth(x: Array, n: int = round(SMOOTH_S / STEP_S)) -> Array:
    return np.convolve(x, np.ones(n) / n, "same")


def rigid(p: Array, onto: Array) -> tuple[Array, Array]:
    """Return R (3, 3) and shift (3,), m, with which p (N, 3) lies on other positions best (Umeyama, PAMI 1991, without scale)."""
    centre, other = p.mean(axis=0), onto.mean(axis=0)
    U, _, Vt = np.linalg.svd((onto - other).T @ (p - centre))
    R = U @ np.diag([1.0, 1.0, np.sign(np.linalg.det(U @ Vt))]) @ Vt
    return R, other - R @ centre
