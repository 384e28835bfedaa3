"""Chi-square test of residuals against their covariance, which gates all measurements (Bar-Shalom et al. 2001, sec. 5.4)."""

import math
from functools import cache

import numpy as np

from gate_racer.vehicle.rotation import Array

Z95 = 1.959963984540054  # -, two-sided 95 % quantile of the normal distribution


def mahalanobis2(r: Array, S: Array) -> float:
    """Return r' S^-1 r of a residual (M,), chi-square of M degrees. Raises LinAlgError: S is not positive definite."""
    whitened = np.linalg.solve(np.linalg.cholesky(S), r)
    return float(whitened @ whitened)


def greatest_sigma(cov: Array) -> float:
    """Return the largest standard deviation over all directions of a covariance (M, M); infinite if it is not finite."""
    return math.sqrt(max(float(np.linalg.eigvalsh(cov)[-1]), 0.0)) if np.isfinite(cov).all() else math.inf


@cache
def chi2_limit(dof: int, false_alarm: float) -> float:
    """Return the chi-square quantile exceeded with a probability, to 1e-12, by bisection: SciPy takes 0.25 s to import."""
    low, high = 0.0, 1.0
    while chi2_survival(dof, high) > false_alarm:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if chi2_survival(dof, middle) > false_alarm else (low, middle)
    return high


def chi2_survival(dof: int, d2: float) -> float:
    """Return the chi-square survival function at d2, for `dof` degrees of freedom (Abramowitz and Stegun 1964, 26.4.4-5)."""
    h = d2 / 2
    total, term = 0.0, math.exp(-h)
    if dof % 2:
        total, term = math.erfc(math.sqrt(h)), term * 2 * math.sqrt(h / math.pi)
    for k in range(dof // 2):
        total, term = total + term, term * h / (k + 1 + dof % 2 / 2)
    return total
