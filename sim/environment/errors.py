"""Realisations of an observation model, tabulated over the position along its data, for many vehicles at each step.

A realisation is a function of the whole state. Where vehicles race, velocity and attitude follow from the position: a node of
the table has those of the nearest state of the data. Between nodes the errors are interpolated linearly.
"""

import numpy as np
from numpy.typing import NDArray

from gate_racer.sim.physics.jit import njit
from gate_racer.sim.physics.plant import P
from gate_racer.sim.physics.residual import ERRORS, ObservationModel
from gate_racer.vehicle.rotation import Array, Indices

SPACING_M = 2.0  # m, of the nodes; errors of an odometry correlate over the distance between gates (chosen)
NODES = 2000  # most nodes of a realisation; on a larger course they lie farther apart (chosen)
AROUND_M = 2.0  # m, range of the table beyond the data, on whose border vehicles farther away are taken to be (chosen)
AT_ONCE = 1000  # nodes, which bounds the memory


class ErrorTables:
    """Tables (realisations, x, y, z, 9) of observation errors, over positions in the world."""

    def __init__(self, model: ObservationModel, realisations: int, rng: np.random.Generator):
        """Sample the realisations, which takes about a second for each."""
        from scipy.spatial import KDTree  # slow to load, and most environments have no such errors

        self._low = model.x[:, P].min(axis=0) - AROUND_M
        size = model.x[:, P].max(axis=0) + AROUND_M - self._low
        self._spacing_m = max(SPACING_M, float(np.prod(size) / NODES) ** (1 / 3))
        counts = np.ceil(size / self._spacing_m).astype(int) + 1
        at = self._low + self._spacing_m * np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1).reshape(
            -1, 3
        )
        x = model.x[KDTree(model.x[:, P]).query(at)[1]].copy()
        x[:, P] = at
        parts = [x[i : i + AT_ONCE] for i in range(0, len(x), AT_ONCE)]
        drawn = [model.sample(rng) for _ in range(realisations)]
        self._tables = np.array([np.concatenate([one.errors(part) for part in parts]) for one in drawn])
        self._tables = self._tables.reshape(realisations, *counts, ERRORS)

    def __len__(self) -> int:
        return len(self._tables)

    def errors(self, x: Array, drawn: Indices) -> Array:
        """Return errors (N, 9) at states (N, >= 10) under realisations drawn (N,)."""
        found = np.empty((len(x), ERRORS))
        interpolate(x, drawn, self._tables, self._low, self._spacing_m, found)
        return found


@njit
def interpolate(x: Array, drawn: Indices, tables: NDArray[np.float64], low: Array, spacing: float, out: Array) -> None:
    """Fill errors (N, 9) by trilinear interpolation; an axis that is not finite counts as the lower border."""
    cell, share = np.zeros(3, np.int64), np.zeros(3)
    for i in range(len(x)):
        for k in range(3):
            last = tables.shape[1 + k] - 1
            at = (x[i, k] - low[k]) / spacing
            at = min(max(at, 0.0), float(last)) if np.isfinite(at) else 0.0
            cell[k] = min(int(at), last - 1)
            share[k] = at - cell[k]
        out[i] = 0.0
        for corner in range(8):
            weight = 1.0
            for k in range(3):
                weight *= share[k] if corner >> k & 1 else 1.0 - share[k]
            node = tables[drawn[i], cell[0] + (corner & 1), cell[1] + (corner >> 1 & 1), cell[2] + (corner >> 2)]
            for k in range(len(node)):
                out[i, k] += weight * node[k]
