"""A truth with a clock and axes of its own: its offset in time from the IMU, and the rigid motion that lays an estimate on it."""

import numpy as np

from gate_racer.vehicle.rotation import Array

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
    likeness = np.array([_correlation(gyro[most - k : len(gyro) - most - k], inner) for k in range(-most, most + 1)])
    best = int(likeness.argmax())
    if likeness[best] < LEAST_LIKENESS or not 0 < best < 2 * most:
        return float("nan")
    low, mid, high = likeness[best - 1 : best + 2]
    bend = low - 2 * mid + high
    return float(STEP_S * (best - most + (0.5 * (low - high) / bend if bend else 0.0)))


def _smooth(x: Array) -> Array:
    n = round(SMOOTH_S / STEP_S)
    return np.convolve(x, np.ones(n) / n, "same")


def _correlation(a: Array, b: Array) -> float:
    a = a - a.mean()
    return float(a @ b / max(float(np.sqrt((a @ a) * (b @ b))), 1e-12))


def rigid(p: Array, onto: Array) -> tuple[Array, Array]:
    """Return R (3, 3) and shift (3,), m, with which p (N, 3) lies on other positions best (Umeyama, PAMI 1991, without scale)."""
    centre, other = p.mean(axis=0), onto.mean(axis=0)
    U, _, Vt = np.linalg.svd((onto - other).T @ (p - centre))
    R = U @ np.diag([1.0, 1.0, np.sign(np.linalg.det(U @ Vt))]) @ Vt
    return R, other - R @ centre
