"""Residuals against their covariance, the one test by which all measurements are accepted (Bar-Shalom et al. 2001, sec. 5.4)."""

import math
from functools import cache

import numpy as np
from scipy.special import chdtri

from vehicle.rotation import Array


def mahalanobis2(r: Array, S: Array) -> float:
    """Squared distance r' S^-1 r of a residual (M,): chi-square with M degrees of freedom if all is as modelled.

    Raises:
        numpy.linalg.LinAlgError: S (M, M) is no covariance.
    """
    whitened = np.linalg.solve(np.linalg.cholesky(S), r)
    return float(whitened @ whitened)


def greatest_sigma(cov: Array) -> float:
    """Standard deviation along the worst direction of a covariance (M, M); infinite where that is no number."""
    return math.sqrt(max(float(np.linalg.eigvalsh(cov)[-1]), 0.0)) if np.isfinite(cov).all() else math.inf


@cache
def chi2_limit(dof: int, false_alarm: float) -> float:
    """The squared distance that a share `false_alarm` of true residuals with `dof` degrees of freedom exceeds."""
    return float(chdtri(dof, false_alarm))
