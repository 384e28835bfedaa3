"""Allocation of a risk to edges: P(any collision) <= sum of P(collision with edge j) (Boole), with a share r_j for each edge.

    margin_j = z(r_j) sigma_j,   z(r) = -Phi^-1(r),   sum_j r_j = P

Iterative risk allocation (Ono and Williams, "Iterative risk allocation: a new approach to robust model predictive control with a
joint chance constraint", CDC 2008): edges with an inactive margin give most of their share to those with an active one.
"""

import numpy as np

from vehicle.rotation import Array

KEPT = 0.1  # -, fraction of its unused risk that an inactive edge keeps, so that the next plan may come nearer to it
# Excess over the margin, m, up to which it is active, since a frame has depth and distances are measured in its middle plane.
ACTIVE_M = 1e-2


def quantile(risk: Array) -> Array:
    """Return z, the number of standard deviations that a normal variable exceeds on one side with this probability."""
    from scipy.special import ndtri  # slow to load, and not needed to fly a plan

    return np.asarray(-ndtri(risk))


def risk_of(room_m: Array, sigma_m: Array) -> Array:
    """Return the probability that a normal error towards an edge exceeds the distance to it."""
    from scipy.special import ndtr  # slow to load, as above

    return np.asarray(ndtr(-np.asarray(room_m) / sigma_m))


def uniform(total: float, count: int) -> Array:
    """Return equal shares (count,) of a total risk."""
    return np.full(count, total / count)


def reallocated(shares: Array, room_m: Array, sigma_m: Array) -> Array:
    """Return shares (J,) of the same sum, with the unused risk of inactive edges divided equally among the active ones."""
    active = room_m <= quantile(shares) * sigma_m + ACTIVE_M
    if active.all() or not active.any():
        return shares
    used = np.minimum(risk_of(room_m, sigma_m), shares)
    kept = np.where(active, shares, KEPT * shares + (1 - KEPT) * used)
    kept[active] += (shares.sum() - kept.sum()) / active.sum()
    return np.asarray(kept)
