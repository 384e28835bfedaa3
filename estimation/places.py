"""Which gate's offset and swell stand where in the state. A map may be wrong: each gate stands by m off where the map has it.

Offsets along a course are taken for a Gauss-Markov process from gate to gate, m_k = m_k-1 / 2 + n, n ~ N(0, sigma^2), and the
pad, m = 0, is where it begins. A gate first seen continues that of the nearest one in the course that has a place, d gates away:

    m = s m_near + n',   s = 2^-d,   n' ~ N(0, sigma^2 (1 - s^2) / (1 - 1/4))

So a map that is bent is followed as it is flown, and a gate that stands wrong by itself is found by looking at it. When all
places are taken, the gate that was used least recently gives its own away.
"""

from collections.abc import Sequence

import numpy as np

from estimation.eskf import Belief
from estimation.states import EYE3, GATES, PLACES, SWELL, Nominal
from vehicle.rotation import Array

SHARED = 0.5
PAD = -1  # as a gate's index


def block(place: int) -> slice:
    """Of a gate's offset in the error state."""
    return slice(GATES.start + 3 * place, GATES.start + 3 * place + 3)


class Places:
    """Gates by their index in the course, the one that was used least recently first."""

    def __init__(self, sigma_m: float, swell_m: float):
        """Standard deviations of what a gate is off by itself, each axis, and of where its edges lie."""
        self._sigma_m, self._swell_m = sigma_m, swell_m
        self._of: dict[int, int] = {}
        self.last: int | None = None  # place of the gate used last

    def of(self, gates: Sequence[int]) -> np.ndarray:
        """Their places (G,)."""
        return np.array([self._of[gate] for gate in gates])

    def offset(self, gate: int, offsets: Array) -> Array:
        """(3,) m of a gate, from `Nominal.gates`: as far as is known, if it has not been seen."""
        near, shared = self._nearest(gate)
        return np.zeros(3) if near is None else shared * offsets[near]

    def _nearest(self, gate: int) -> tuple[int | None, float]:
        """Place of the gate with a place that is nearest in the course, None for the pad, and the share of its offset."""
        near = min((PAD, *self._of), key=lambda known: abs(known - gate))
        return self._of.get(near), SHARED ** abs(near - gate)

    def given(self, gates: Sequence[int], belief: Belief) -> Belief:
        """The belief with places for gates, at most `PLACES`."""
        for gate in gates:
            if gate not in self._of:
                place = len(self._of)
                if place == PLACES:
                    place = self._of.pop(next(old for old in self._of if old not in gates))
                belief = self._begun(place, *self._nearest(gate), belief)
                self._of[gate] = place
        return belief

    def _begun(self, place: int, near: int | None, shared: float, belief: Belief) -> Belief:
        x, cov, own, swell = belief.x, belief.cov.copy(), block(place), SWELL.start + place
        values = x.values.copy()
        if near is None:
            values[own], cov[own], cov[:, own] = 0.0, 0.0, 0.0
        else:
            known = block(near)
            values[own] = shared * values[known]
            cov[own], cov[:, own] = shared * cov[known], shared * cov[:, known]
            cov[own, own] = shared**2 * cov[known, known]
        cov[own, own] += self._sigma_m**2 * (1 - shared**2) / (1 - SHARED**2) * EYE3
        values[swell], cov[swell], cov[:, swell] = 0.0, 0.0, 0.0
        cov[swell, swell] = self._swell_m**2
        return Belief(Nominal(x.t, x.q_wb, values), cov, belief.reading)

    def used(self, gate: int) -> None:
        """It is the last one to be given up."""
        self.last = self._of[gate] = self._of.pop(gate)
