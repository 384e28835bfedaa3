"""Where the map stands in the world, gate by gate. A map may be wrong: each gate stands by m off where the scaled map has it.

Offsets along a course are taken for a Gauss-Markov process from gate to gate, m_k = m_k-1 / 2 + n, n ~ N(0, sigma^2), and the
pad, m = 0, is where it begins. A gate first seen continues that of the nearest one in the course that has a slot, d gates away:

    m = s m_near + n',   s = 2^-d,   n' ~ N(0, sigma^2 (1 - s^2) / (1 - 1/4))

So a map that is bent is followed as it is flown, and a gate that stands wrong by itself is found by looking at it. The state has
slots for a few gates at a time; when all are taken, the gate that was used least recently gives its own away.
"""

from collections.abc import Sequence

import numpy as np

from estimation.eskf.filter_state import FilterState
from estimation.eskf.states import EDGE_M, EYE3, GATES, GATES_KEPT, POSE, SCALE, TURN, Nominal, P
from vehicle.rotation import Array

SHARED = 0.5  # -, of the offset of the gate before: a map drawn from gate to gate
PAD = -1  # as a gate's index


def block(slot: int) -> slice:
    """Of a gate's offset in the error state."""
    return slice(GATES.start + 3 * slot, GATES.start + 3 * slot + 3)


class GateOffsets:
    """Gates by their index in the course, the one that was used least recently first."""

    def __init__(self, sigma_m: float, turn_sigma: float, edge_sigma_m: float, pad_w: Array):
        """On a map scaled about the pad (3,): standard deviations of a gate's own offset, each axis, its turn and its edges."""
        self._sigma_m, self._turn_sigma, self._edge_sigma_m, self._pad_w = sigma_m, turn_sigma, edge_sigma_m, pad_w
        self._slot_of: dict[int, int] = {}
        self._last: int | None = None  # slot of the gate used last

    def slots(self, gates: Sequence[int]) -> np.ndarray:
        """Those of gates (G,) that have one."""
        return np.array([self._slot_of[gate] for gate in gates])

    def offset(self, gate: int, at_w: Array, x: Nominal) -> Array:
        """(3,) m, by which a gate stands elsewhere than at_w (3,) on the map: as far as is known, if it has not been seen."""
        near, shared = self._nearest(gate)
        own = np.zeros(3) if near is None else shared * x.gates[near]
        return np.asarray(own + x[SCALE] * (at_w - self._pad_w))

    def on_map(self, x: Nominal) -> Array:
        """(3,) m, the position in the map frame: as the map has the gate used last about the vehicle."""
        p_wb = x.p_wb - x[SCALE] * (x.p_wb - self._pad_w)
        return np.asarray(p_wb if self._last is None else p_wb - x.gates[self._last])

    def cov_on_map(self, x: Nominal, cov: Array) -> Array:
        """Covariance (9, 9) of the position in the map frame, of velocity and attitude: p - scale (p - pad) - gate."""
        last, from_pad = self._last, x.p_wb - self._pad_w
        rows = cov[POSE].copy()
        rows[P] -= np.outer(from_pad, cov[SCALE])
        if last is not None:
            rows[P] -= cov[block(last)]
        about = rows[:, POSE].copy()
        about[:, P] -= np.outer(rows[:, SCALE], from_pad)
        if last is not None:
            about[:, P] -= rows[:, block(last)]
        return about

    def doubt(self, gate: int, at_w: Array, cov: Array) -> Array:
        """Covariance (3, 3) m^2 of the position to a gate that the map has at at_w (3,), whether it has been seen or not."""
        near, shared = self._nearest(gate)
        H = np.zeros((3, len(cov)))
        H[:, P], H[:, SCALE] = EYE3, self._pad_w - at_w
        if near is not None:
            H[:, block(near)] = -shared * EYE3
        return np.asarray(H @ cov @ H.T + self._own_variance(shared) * EYE3)

    def _own_variance(self, shared: float) -> float:
        """m^2, of a gate's offset beyond the share that it has of another one's."""
        return self._sigma_m**2 * (1 - shared**2) / (1 - SHARED**2)

    def _nearest(self, gate: int) -> tuple[int | None, float]:
        """Slot of the gate with a slot that is nearest in the course, None for the pad, and the share of its offset."""
        near = min((PAD, *self._slot_of), key=lambda known: abs(known - gate))
        return self._slot_of.get(near), SHARED ** abs(near - gate)

    def admit(self, gates: Sequence[int], state: FilterState) -> FilterState:
        """Give slots to gates, at most `GATES_KEPT`."""
        for gate in gates:
            if gate not in self._slot_of:
                slot = self._free_slot(gates)
                near, shared = self._nearest(gate)
                state = self._begin(slot, near, shared, self._own_variance(shared) * EYE3, state)
                self._slot_of[gate] = slot
        return state

    def relocate(self, gate: int, cov: Array, state: FilterState) -> FilterState:
        """Begin a gate anew, whatever its neighbours are off: it stands on the map, as that lies about the vehicle, to within a
        covariance (3, 3) m^2."""
        about = np.zeros(3) if self._last is None else state.x.gates[self._last].copy()
        if gate not in self._slot_of:
            self._slot_of[gate] = self._free_slot([gate])
        state = self._begin(self._slot_of[gate], None, 0.0, cov, state)
        state.x.values[block(self._slot_of[gate])] = about
        return state

    def _free_slot(self, kept: Sequence[int]) -> int:
        """One that no gate has, or that of a gate which is not to be kept."""
        slot = len(self._slot_of)
        return slot if slot < GATES_KEPT else self._slot_of.pop(next(old for old in self._slot_of if old not in kept))

    def _begin(self, slot: int, near: int | None, shared: float, own_cov: Array, state: FilterState) -> FilterState:
        """Continue a share of the offset in the slot `near`, and be off by oneself with a covariance (3, 3) m^2."""
        x, cov, own, edge = state.x, state.cov.copy(), block(slot), EDGE_M.start + slot
        turn = slice(TURN.start + 2 * slot, TURN.start + 2 * slot + 2)
        values = x.values.copy()
        if near is None:
            values[own], cov[own], cov[:, own] = 0.0, 0.0, 0.0
        else:
            known = block(near)
            values[own] = shared * values[known]
            cov[own], cov[:, own] = shared * cov[known], shared * cov[:, known]
            cov[own, own] = shared**2 * cov[known, known]
        cov[own, own] += own_cov
        for at in (edge, turn):
            values[at], cov[at], cov[:, at] = 0.0, 0.0, 0.0
        cov[edge, edge] = self._edge_sigma_m**2
        cov[turn, turn] = self._turn_sigma**2 * np.eye(2)
        return FilterState(Nominal(x.t, x.q_wb, values), cov, state.reading)

    def used(self, gate: int) -> None:
        """Make it the last one to be given up."""
        self._last = self._slot_of[gate] = self._slot_of.pop(gate)
