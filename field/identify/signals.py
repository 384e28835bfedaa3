"""`Signals`: a vehicle's motion and commands from a log of any kind, on a uniform time grid."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gate_racer.common.files import reading
from gate_racer.link.logs.reader import read_log_signals
from gate_racer.link.logs.rows import SignalError, SignalRows, calibrated, fresh, interpolated
from gate_racer.vehicle.dynamics import G_W, GRAVITY
from gate_racer.vehicle.rotation import Array, matrix

STEP_S = 0.01  # s, grid spacing: finer than any lag of interest
STANDING_M_S = 0.3  # m/s, speed below which the vehicle may rest on a support, whose force no command explains (chosen)
PUSHED_M_S2 = 1.0  # m/s^2, deviation of the specific force from gravity that shows flight (chosen)
LONGEST_S = 4 * 3600.0  # s, longest log for the grid
BEYOND = 0.02  # -, throttle beyond 0..1 by rounding or by a radio that was calibrated by hand (chosen)
LEAST_SAMPLES = 20  # samples, least number of any signal (chosen)
GAP_S = 0.1  # s, gaps in the samples above this are not used


@dataclass(frozen=True)
class Signals:
    """N samples STEP_S apart, world NED and body FRD; `valid` is False at rest and in gaps of the log."""

    source: str
    t: Array  # (N,) s
    throttle: Array  # (N,) 0..1, command at that time
    omega_cmd: Array  # (N, 3) rad/s, NaN where attitudes were commanded
    force_b: Array  # (N, 3) specific force, m/s^2
    omega_b: Array  # (N, 3) rad/s, NaN where unknown
    v_b: Array  # (N, 3) m/s
    valid: np.ndarray  # (N,)
    note: str = ""  # part of the log that was not used
    velocity_only: bool = False  # forces are differences of velocities


def read_signals(path: Path) -> Signals:
    """Read one log.

    Raises:
        UserError: the log cannot be read, or lacks commands or motion.
    """
    log = read_log_signals(path)
    with reading(path):
        rows = fresh(calibrated(log.rows))
        log.require(path, ("throttle",) if rows.get("force") else ("throttle", "v"), "identify-vehicle")
        for name, what in (("throttle", "commanded throttle"), ("v", "velocity")):
            if 0 < len(rows.get(name, ())) < LEAST_SAMPLES:
                raise SignalError(
                    f"{path}: holds {len(rows[name])} samples of the {what}, but at least {LEAST_SAMPLES} are needed"
                )
        return replace(_even(rows, str(path)), note="; ".join(filter(None, (log.note, _unknown(rows)))))


def _unknown(rows: SignalRows) -> str:
    return (
        "" if rows.get("v") else "holds no velocity: drag is that of --base, and thrust is best fitted to slow flights"
    )


def _even(rows: SignalRows, source: str) -> Signals:
    moved = rows.get("v") or rows["force"]
    begin, end = max(rows["throttle"][0][0], moved[0][0]), min(rows["throttle"][-1][0], moved[-1][0])
    if end - begin > LONGEST_S:
        raise SignalError(
            f"{source}: lasts {(end - begin) / 3600:.1f} h, but at most {LONGEST_S / 3600:g} h can be used"
        )
    _require_throttle(np.array([u for _, u in rows["throttle"]]), source)
    t = np.arange(begin, end, STEP_S)
    if len(t) < 100:
        raise SignalError(f"{source}: commands and motion overlap for {max(0.0, end - begin):.1f} s, but 1 s is needed")
    v_w = interpolated(rows["v"], t) if rows.get("v") else np.zeros((len(t), 3))
    q = interpolated(rows["q"], t) if rows.get("q") else np.tile([1.0, 0.0, 0.0, 0.0], (len(t), 1))
    q /= np.linalg.norm(q, axis=1)[:, None]
    R = np.array([matrix(one) for one in q])
    if rows.get("force"):
        force_b = interpolated(rows["force"], t)
    else:
        force_b = np.einsum("nji,nj->ni", R, np.gradient(_smooth(v_w), STEP_S, axis=0) - G_W)
    unknown = np.full((len(t), 3), np.nan)
    flying = np.linalg.norm(v_w, axis=1) > STANDING_M_S if rows.get("v") else _airborne(force_b)
    return Signals(
        source,
        t,
        _held(rows["throttle"], t)[:, 0],
        _held(rows["omega_cmd"], t) if rows.get("omega_cmd") else unknown,
        force_b,
        interpolated(rows["omega"], t) if rows.get("omega") else unknown,
        np.einsum("nji,nj->ni", R, v_w),
        _covered(moved, t) & _covered(rows["throttle"], t) & flying,
        velocity_only=not rows.get("force"),
    )


UNITS = {  # throttle's range, and how it becomes 0..1
    "per cent": (0.0, 100.0, "divide it by 100"),
    "pulses in us": (900.0, 2100.0, "use (throttle - 1000) / 1000"),
    "DShot units": (0.0, 2048.0, "use (throttle - 48) / 1999"),
    "16-bit counts": (0.0, 65535.0, "divide it by 65535"),
}


def _require_throttle(throttle: Array, source: str) -> None:
    """Raise SignalError for a throttle that is not 0..1, with the unit that its range suggests."""
    low, high = float(throttle.min()), float(throttle.max())
    if low >= -BEYOND and high <= 1.0 + BEYOND:
        return
    unit = next((f"; in {unit}? {cure}" for unit, (a, b, cure) in UNITS.items() if a <= low and 2.0 < high <= b), "")
    raise SignalError(f"{source}: the throttle lies between {low:g} and {high:g}, but 0..1 is expected{unit}")


def _airborne(force_b: Array) -> np.ndarray:
    """Return where (N,) it flies, without velocity: from the first to the last force that differs from rest."""
    pushed = np.flatnonzero(np.abs(np.linalg.norm(_smooth(force_b), axis=1) - GRAVITY) > PUSHED_M_S2)
    inside = np.zeros(len(force_b), bool)
    if len(pushed):
        inside[pushed[0] : pushed[-1] + 1] = True
    return inside


def _held(samples: list[tuple[float, Array]], t: Array) -> Array:
    stamps, values = np.array([s for s, _ in samples]), np.array([v for _, v in samples])
    return values[np.maximum(np.searchsorted(stamps, t, side="right") - 1, 0)]


def _covered(samples: list[tuple[float, Array]], t: Array) -> np.ndarray:
    stamps = np.array([s for s, _ in samples])
    k = np.clip(np.searchsorted(stamps, t), 1, len(stamps) - 1)
    return stamps[k] - stamps[k - 1] < GAP_S


def _smooth(v: Array) -> Array:
    """Return means over five samples, since differences of a sampled velocity are noisy."""
    return np.column_stack([np.convolve(np.pad(column, 2, mode="edge"), np.ones(5) / 5, "valid") for column in v.T])
