"""`Signals`: what a log of any kind tells of a vehicle's motion and of its commands, on one even clock."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from field.identify.log_rows import Rows, SignalError, csv_rows, dataflash_rows, mcap_rows, tlog_rows
from vehicle.dynamics import GRAVITY
from vehicle.files import reading
from vehicle.rotation import Array, matrix

STEP_S = 0.01  # of the even clock: finer than any lag of interest
STANDING_M_S = 0.3  # slower than that it may stand on something, whose force no command explains
SHUFFLED_S, LEAP_S = 0.05, 20.0  # stamps may come out of order by so much; a longer pause is another clock
LATEST_S = 1e10  # beyond it a stamp is no time, in whatever epoch
LONGEST_S = 4 * 3600.0  # of a log: more is not laid on an even clock
GAP_S = 0.1  # without samples for longer, the time between is not used
DOWN = np.array([0.0, 0.0, 1.0])


@dataclass(frozen=True)
class Signals:
    """N samples STEP_S apart, world NED and body FRD; `valid` is False at rest and in gaps of the log."""

    source: str
    t: Array  # (N,) s
    throttle: Array  # (N,) 0..1, as commanded at that time
    omega_cmd: Array  # (N, 3) rad/s, NaN where attitudes were commanded
    force_b: Array  # (N, 3) specific force, m/s^2
    omega_b: Array  # (N, 3) rad/s, NaN where unknown
    v_b: Array  # (N, 3) m/s
    valid: np.ndarray  # (N,)
    note: str = ""  # what of the log was not used


def read_signals(path: Path) -> Signals:
    """One log.

    Raises:
        UserError: it cannot be read, or lacks commands or motion.
    """
    losses: list[str] = []
    readers: dict[str, Callable[[Path], Rows]] = {
        ".mcap": partial(mcap_rows, report=lambda _, lost: losses.append(str(lost))),
        ".csv": csv_rows,
        ".tlog": tlog_rows,
        ".bin": dataflash_rows,
    }
    if path.suffix.lower() not in readers:
        raise SignalError(f"{path}: logs end in {', '.join(readers)}")
    if not path.is_file():
        raise SignalError(f"{path}: no such file")
    with reading(path):
        rows, note = _one_clock(_finite(readers[path.suffix.lower()](path)))
        for name, what in (("throttle", "commanded throttle"), ("v", "velocity")):
            if len(rows.get(name, ())) < 20:
                raise SignalError(
                    f"{path}: holds {len(rows.get(name, ()))} samples of the {what}, at least 20 are needed"
                )
        return replace(_even(rows, str(path)), note="; ".join(filter(None, (note, *losses))))


def _finite(rows: Rows) -> Rows:
    """Without what no clock and no sensor gives: stamps that are no number, values of another width than their like."""
    for name, samples in rows.items():
        width = next((value.shape for _, value in samples), ())
        sound = [(t, value) for t, value in samples if abs(t) < LATEST_S and value.shape == width]
        rows[name] = [(t, value) for t, value in sound if name == "omega_cmd" or np.isfinite(value).all()]
    return rows


def _one_clock(rows: Rows) -> tuple[Rows, str]:
    """The longest part of a log whose clock was not set meanwhile, and a line about the rest."""
    parts = {name: _stretches(samples) for name, samples in rows.items() if samples}
    if all(len(part) == 1 for part in parts.values()):
        return rows, ""
    spans = [samples[-1][0] - samples[0][0] for samples in parts.get("v", [])] or [0.0]
    longest = int(np.argmax(spans))
    kept = {
        name: part[longest]
        if len(part) == len(spans)
        else max(part, key=lambda samples: samples[-1][0] - samples[0][0])
        for name, part in parts.items()
    }
    return kept, f"its clock was set {len(spans) - 1} times: {spans[longest]:.1f} s of {sum(spans):.1f} s are used"


def _stretches(samples: list[tuple[float, Array]]) -> list[list[tuple[float, Array]]]:
    """Parts between which time runs back or leaps."""
    cuts = [k for k, (a, b) in enumerate(pairwise(samples), 1) if not -SHUFFLED_S < b[0] - a[0] < LEAP_S]
    parts = [samples[a:b] for a, b in pairwise([0, *cuts, len(samples)])]
    return [sorted(part, key=lambda sample: sample[0]) for part in parts]


def _even(rows: Rows, source: str) -> Signals:
    begin = max(rows["throttle"][0][0], rows["v"][0][0])
    end = min(rows["throttle"][-1][0], rows["v"][-1][0])
    if end - begin > LONGEST_S:
        raise SignalError(f"{source}: goes on for {(end - begin) / 3600:.1f} h, at most {LONGEST_S / 3600:g} are used")
    t = np.arange(begin, end, STEP_S)
    if len(t) < 100:
        raise SignalError(f"{source}: commands and motion overlap for {max(0.0, end - begin):.1f} s, 1 s is needed")
    v_w = _interpolated(rows["v"], t)
    q = _interpolated(rows["q"], t) if rows.get("q") else np.tile([1.0, 0.0, 0.0, 0.0], (len(t), 1))
    q /= np.linalg.norm(q, axis=1)[:, None]
    R = np.array([matrix(one) for one in q])
    if rows.get("force"):
        force_b = _interpolated(rows["force"], t)
    else:
        force_b = np.einsum("nji,nj->ni", R, np.gradient(_smooth(v_w), STEP_S, axis=0) - GRAVITY * DOWN)
    unknown = np.full((len(t), 3), np.nan)
    return Signals(
        source,
        t,
        _held(rows["throttle"], t)[:, 0],
        _held(rows["omega_cmd"], t) if rows.get("omega_cmd") else unknown,
        force_b,
        _interpolated(rows["omega"], t) if rows.get("omega") else unknown,
        np.einsum("nji,nj->ni", R, v_w),
        _covered(rows["v"], t) & _covered(rows["throttle"], t) & (np.linalg.norm(v_w, axis=1) > STANDING_M_S),
    )


def _interpolated(samples: list[tuple[float, Array]], t: Array) -> Array:
    stamps, values = np.array([s for s, _ in samples]), np.array([v for _, v in samples])
    if values.shape[1] == 4:  # quaternions: the same sign throughout
        flips = np.cumprod(np.append(1.0, np.where((values[1:] * values[:-1]).sum(axis=1) < 0, -1.0, 1.0)))
        values = values * flips[:, None]
    return np.column_stack([np.interp(t, stamps, column) for column in values.T])


def _held(samples: list[tuple[float, Array]], t: Array) -> Array:
    stamps, values = np.array([s for s, _ in samples]), np.array([v for _, v in samples])
    return values[np.maximum(np.searchsorted(stamps, t, side="right") - 1, 0)]


def _covered(samples: list[tuple[float, Array]], t: Array) -> np.ndarray:
    stamps = np.array([s for s, _ in samples])
    k = np.clip(np.searchsorted(stamps, t), 1, len(stamps) - 1)
    return stamps[k] - stamps[k - 1] < GAP_S


def _smooth(v: Array) -> Array:
    """Means over five samples: differences of a sampled velocity are rough."""
    return np.column_stack([np.convolve(np.pad(column, 2, mode="edge"), np.ones(5) / 5, "valid") for column in v.T])
