"""One-to-one assignment of detections to gates, restricted to unambiguous pairs."""

import math

import numpy as np

from gate_racer.perception.common.types import compiled
from gate_racer.vehicle.rotation import Array, Indices

RIVAL = 2 * math.log(20.0)  # -, -2 log of the least likelihood ratio of a pair to its alternatives (chosen odds)
FORBIDDEN = 1e9  # cost of an impossible pair, above any sum of possible ones


def unambiguous(cost: Array, unassigned: float) -> list[tuple[int, int]]:
    """Return the unambiguous pairs (row, column) of the likeliest one-to-one assignment.

    A pair is unambiguous if the best assignment without it costs at least `RIVAL` more.

    Args:
        cost: (D, G), -2 log likelihood of each pair, infinite where impossible.
        unassigned: cost of leaving a row unassigned, in excess of the most expensive possible pair.
    """
    possible = np.isfinite(cost)
    if not possible.any():
        return []
    D, G = cost.shape
    alone = cost[possible].max() + unassigned
    table = np.hstack([np.where(possible, cost, FORBIDDEN), np.full((D, D), alone)])
    rows, columns = np.arange(D), assign(table)
    best = table[rows, columns].sum()
    pairs = []
    for row, column in zip(rows, columns, strict=True):
        if column < G:
            without = table.copy()
            without[row, column] = FORBIDDEN
            if without[rows, assign(without)].sum() - best > RIVAL:
                pairs.append((int(row), int(column)))
    return pairs


def assign(cost: Array) -> Indices:
    """Return the column (D,) of each row in the one-to-one assignment of least total cost.

    Shortest augmenting paths (Jonker and Volgenant 1987) as in Crouse, "On implementing 2D rectangular assignment algorithms"
    (2016). SciPy's gives the same result, but costs half a second of import at the start of each process.

    Args:
        cost: (D, G), finite, D <= G.
    """
    return _assign(np.ascontiguousarray(cost, dtype=float))


@compiled("i8[:](f8[:,::1])")
def _assign(cost: Array) -> Indices:
    D, G = cost.shape
    of_row, of_column = np.full(D, -1), np.full(G, -1)
    row_price, column_price = np.zeros(D), np.zeros(G)
    for first in range(D):
        # Dijkstra over reduced costs, from a row without a column to the nearest column without a row.
        far, before, reached = np.full(G, np.inf), np.full(G, -1), np.zeros(G, dtype=np.bool_)
        row, length, column = first, 0.0, -1
        while row >= 0:
            nearest = -1
            for k in range(G):
                if not reached[k]:
                    through = length + cost[row, k] - row_price[row] - column_price[k]
                    if through < far[k]:
                        far[k], before[k] = through, row
                    if nearest < 0 or far[k] < far[nearest]:
                        nearest = k
            column, length, reached[nearest] = nearest, far[nearest], True
            row = of_column[column]
        row_price[first] += length
        for k in range(G):
            if reached[k] and k != column:
                row_price[of_column[k]] += length - far[k]
                column_price[k] -= length - far[k]
        while column >= 0:  # each row on the path takes the column after it
            row = before[column]
            of_column[column], of_row[row], column = row, column, of_row[row]
    return of_row
