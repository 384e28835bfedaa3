"""How a risk is shared out: P(touching anything) <= sum of P(touching each edge) (Boole), each edge with a share of its own.

    margin_j = z(r_j) sigma_j,   z(r) = -Phi^-1(r),   sum_j r_j = P

Iterative risk allocation (Ono and Williams, "Iterative risk allocation: a new approach to robust model predictive control with a
joint chance constraint", CDC 2008): edges that a plan keeps more than their margin away from give most of their share to those
that it touches.
"""

import numpy as np

from vehicle.rotation import Array

KEPT = 0.1  # of what it does not use, that an edge keeps which is not touched: so the next plan may come nearer to it
# Room beyond the margin, within which a plan touches it: a frame has depth, and rooms are of its middle.
ACTIVE_M = 1e-2


def quantile(risk: Array) -> Array:
    """z: the standard deviations that a normal error exceeds on one side with this probability."""
    from scipy.special import ndtri  # slow to load, and who flies a plan shares out no risk

    return np.asarray(-ndtri(risk))


def risk_of(room_m: Array, sigma_m: Array) -> Array:
    """The probability that an error towards an edge takes all of its room."""
    from scipy.special import ndtr  # likewise

    return np.asarray(ndtr(-np.asarray(room_m) / sigma_m))


def uniform(total: float, count: int) -> Array:
    """(count,) equal shares."""
    return np.full(count, total / count)


def reallocated(shares: Array, room_m: Array, sigma_m: Array) -> Array:
    """(J,) shares of the same sum: what edges with room to spare do not use goes to those without, in equal parts."""
    active = room_m <= quantile(shares) * sigma_m + ACTIVE_M
    if active.all() or not active.any():
        return shares
    used = np.minimum(risk_of(room_m, sigma_m), shares)
    kept = np.where(active, shares, KEPT * shares + (1 - KEPT) * used)
    kept[active] += (shares.sum() - kept.sum()) / active.sum()
    return np.asarray(kept)
