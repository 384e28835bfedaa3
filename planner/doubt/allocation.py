"""Allocation of a risk to edges: P(any collision) <= sum of P(collision with edge j) (Boole), with a share r_j for each edge.

    P(deviation towards edge j > margin_j) = r_j,   sum_j r_j = P

Iterative risk allocation (Ono and Williams, "Iterative risk allocation: a new approach to robust model predictive control with a
joint chance constraint", CDC 2008): edges with an inactive margin give most of their share to those with an active one.
"""

import numpy as np

from gate_racer.planner.doubt.tails import Tails
from gate_racer.vehicle.rotation import Array

REPEATS = 5  # determinations of the active edges
KEPT = 0.1  # -, fraction of its unused risk that an inactive edge keeps, so that the next plan may come nearer to it
# Excess over the margin, m, up to which it is active, since a frame has depth and distances are measured in its middle plane.
ACTIVE_M = 1e-2


def uniform(total: float, count: int) -> Array:
    """Return equal shares (count,) of a total risk."""
    return np.full(count, total / count)


def allocated(total: float, room_m: Array, tails: Tails) -> Array:
    """Return shares (J,) of a total risk, equal among the active edges; inactive ones keep `KEPT` of an equal share."""
    shares = equal = uniform(total, len(room_m))
    for _ in range(REPEATS):
        active = room_m <= tails.rooms(shares) + ACTIVE_M
        if active.all() or not active.any():
            break
        shares = np.where(active, 0.0, KEPT * equal)
        shares[active] = (total - shares.sum()) / active.sum()
    return shares


def reallocated(shares: Array, room_m: Array, tails: Tails) -> Array:
    """Return shares (J,) of the same sum, with the unused risk of inactive edges divided equally among the active ones."""
    active = room_m <= tails.rooms(shares) + ACTIVE_M
    if active.all() or not active.any():
        return shares
    used = np.minimum(tails.risks(room_m), shares)
    kept = np.where(active, shares, KEPT * shares + (1 - KEPT) * used)
    kept[active] += (shares.sum() - kept.sum()) / active.sum()
    return np.asarray(kept)
