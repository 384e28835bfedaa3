"""One-to-one assignments of detections to gates that no rival comes near to."""

import math

import numpy as np
from scipy.optimize import linear_sum_assignment

from vehicle.rotation import Array

RIVAL = 2 * math.log(
    20.0
)  # -2 log likelihood; a rival less than 20 times less likely makes a pair ambiguous (chosen odds)
FORBIDDEN = 1e9  # cost of an impossible pair, above any sum of possible ones


def unambiguous(cost: Array, unassigned: float) -> list[tuple[int, int]]:
    """The pairs (row, column) of the likeliest one-to-one assignment that no rival assignment comes near to.

    Args:
        cost: (D, G), -2 log likelihood of each pair, infinite where impossible.
        unassigned: what a row that is left out costs more than the dearest possible pair.
    """
    possible = np.isfinite(cost)
    if not possible.any():
        return []
    D, G = cost.shape
    alone = cost[possible].max() + unassigned
    table = np.hstack([np.where(possible, cost, FORBIDDEN), np.full((D, D), alone)])
    rows, columns = linear_sum_assignment(table)
    best = table[rows, columns].sum()
    pairs = []
    for row, column in zip(rows, columns, strict=True):
        if column < G:
            without = table.copy()
            without[row, column] = FORBIDDEN
            if without[linear_sum_assignment(without)].sum() - best > RIVAL:
                pairs.append((int(row), int(column)))
    return pairs
