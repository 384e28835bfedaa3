"""Which gate's offset stands where in the state. A map may be wrong: it is believed from gate to gate only.

The offset m of a gate that is first seen is that of the gate last used, which was seen beside it or before it, and a step of
its own, m_new = m_last + n, n ~ N(0, sigma^2). So a map that is too large by a percent is followed for as long as one likes,
and a gate that stands wrong by itself is found by looking at it. The place of the gate that was used least recently is given
away. That of the pad, m = 0, is where it begins.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from estimation.eskf import Belief
from estimation.strapdown import EYE3, GATES, PLACES
from vehicle.rotation import Array


def block(place: int) -> slice:
    """Of the error state."""
    return slice(GATES.start + 3 * place, GATES.start + 3 * place + 3)


class Places:
    """Gates by their index in the course, the one that was used least recently first."""

    def __init__(self, sigma_m: float):
        """`sigma_m`: standard deviation of the map's error from gate to gate, each axis."""
        self._sigma_m = sigma_m
        self._of: dict[int, int] = {}
        self.last: int | None = None  # place of the gate used last

    def of(self, gates: Sequence[int]) -> np.ndarray:
        """Their places (G,)."""
        return np.array([self._of[gate] for gate in gates])

    def offset(self, gate: int, offsets: Array) -> Array:
        """(3,) m of a gate, from `Nominal.gates`: as far as is known, if it has not been seen."""
        place = self._of.get(gate, self.last)
        return np.zeros(3) if place is None else offsets[place]

    def given(self, gates: Sequence[int], belief: Belief) -> Belief:
        """The belief with places for gates, at most `PLACES`."""
        for gate in gates:
            if gate not in self._of:
                place = len(self._of)
                if place == PLACES:
                    place = self._of.pop(next(old for old in self._of if old not in gates))
                belief = self._begun(place, belief)
                self._of[gate] = place
        return belief

    def _begun(self, place: int, belief: Belief) -> Belief:
        offsets, cov, own = belief.x.gates.copy(), belief.cov.copy(), block(place)
        if self.last is None or self.last == place:
            offsets[place], cov[own], cov[:, own] = 0.0, 0.0, 0.0
        else:
            known = block(self.last)
            offsets[place], cov[own], cov[:, own] = offsets[self.last], cov[known], cov[:, known]
            cov[own, own] = cov[known, known]
        cov[own, own] += self._sigma_m**2 * EYE3
        return Belief(replace(belief.x, gates=offsets), cov, belief.reading)

    def used(self, gate: int) -> None:
        """It is the last one to be given up."""
        self.last = self._of[gate] = self._of.pop(gate)
