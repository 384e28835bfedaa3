"""Offsets of the gates from the map: gate k stands at its place on the scaled map plus m_k, world NED.

Offsets along a course are modelled as a Gauss-Markov process from gate to gate, m_k = m_k-1 / 2 + n, n ~ N(0, sigma^2), which
begins at the pad with m = 0. A gate seen for the first time is initialised from the nearest gate in the course that has a slot,
d gates away:

    m = s m_near + n',   s = 2^-d,   n' ~ N(0, sigma^2 (1 - s^2) / (1 - 1/4))

A distorted map is thus followed along the course, and a single displaced gate is estimated once it is seen. The state has slots
for a few gates at a time; when all are taken, the least recently used gate loses its own.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gate_racer.model.kalman import FilterState
from gate_racer.model.states import EDGE_M, EYE3, GATES, GATES_KEPT, POSE, SCALE, TURN, N, Nominal, P
from gate_racer.vehicle.rotation import Array

SHARED = 0.5  # -, share of the previous gate's offset: a map measured from gate to gate (chosen)
PAD = -1  # index of the pad in the course


def block(slot: int) -> slice:
    """Return the slice of the error state with the gate offset in `slot`."""
    return slice(GATES.start + 3 * slot, GATES.start + 3 * slot + 3)


class Constants(NamedTuple):
    """M combinations of states, constant and zero by their independent priors."""

    H: Array  # (M, N)
    sigma: Array  # (M,) standard deviations of the priors


class GateSlots:
    """Slots of gates, by their index in the course, in order of use, and the covariance of their offsets."""

    def __init__(self, sigma_m: float, turn_sigma: float, edge_sigma_m: float, pad_w: Array):
        """Set the standard deviations of a gate's own offset (each axis), rotation and edges, and the pad's place (3,) m."""
        self._sigma_m, self._turn_sigma, self._edge_sigma_m, self._pad_w = sigma_m, turn_sigma, edge_sigma_m, pad_w
        self._slot_of: dict[int, int] = {}
        self.width = 1.0  # of the priors of offsets and rotations, as a ratio of their standard deviations

    def slots(self, gates: Sequence[int]) -> np.ndarray:
        """Return the slots (G,) of gates that all have one."""
        return np.array([self._slot_of[gate] for gate in gates])

    def relative_covariance(self, gate: int, at_w: Array, cov: Array) -> Array:
        """Return the covariance (3, 3) m^2 of the position relative to a gate at at_w (3,) m on the map, seen or not."""
        near, shared = self._nearest(gate)
        H = np.zeros((3, len(cov)))
        H[:, P], H[:, SCALE] = EYE3, self._pad_w - at_w
        if near is not None:
            H[:, block(near)] = -shared * EYE3
        return np.asarray(H @ cov @ H.T + self._own_variance(shared) * EYE3)

    def _own_variance(self, shared: float) -> float:
        """Return the variance (m^2) of a gate's offset beyond the `shared` part of another's."""
        return (self.width * self._sigma_m) ** 2 * (1 - shared**2) / (1 - SHARED**2)

    def _nearest(self, gate: int) -> tuple[int | None, float]:
        """Return the slot of the nearest gate in the course that has one (None for the pad), and the share of its offset."""
        near = min((PAD, *self._slot_of), key=lambda known: abs(known - gate))
        return self._slot_of.get(near), SHARED ** abs(near - gate)

    def _free_slot(self, kept: Sequence[int]) -> int:
        """Return an unused slot, or free that of the least recently used gate outside `kept`."""
        slot = len(self._slot_of)
        return slot if slot < GATES_KEPT else self._slot_of.pop(next(old for old in self._slot_of if old not in kept))

    def _begun(self, slot: int, near: int | None, shared: float, own_cov: Array, cov: Array) -> Array:
        """Return the covariance with `slot` at a share of the offset in slot `near`, and an own part (3, 3) m^2."""
        cov, own, (edge, turn) = cov.copy(), block(slot), edge_and_turn(slot)
        if near is None:
            cov[own], cov[:, own] = 0.0, 0.0
        else:
            known = block(near)
            cov[own], cov[:, own] = shared * cov[known], shared * cov[:, known]
            cov[own, own] = shared**2 * cov[known, known]
        cov[own, own] += own_cov
        for at in (edge, turn):
            cov[at], cov[:, at] = 0.0, 0.0
        cov[edge, edge] = self._edge_sigma_m**2
        cov[turn, turn] = (self.width * self._turn_sigma) ** 2 * np.eye(2)
        return cov


def edge_and_turn(slot: int) -> tuple[int, slice]:
    """Return the index of the edges' offset of the gate in `slot`, and the slice of its rotation."""
    return EDGE_M.start + slot, slice(TURN.start + 2 * slot, TURN.start + 2 * slot + 2)


class GateOffsets(GateSlots):
    """Offsets of the filter's gates, and the map frame about the gate used last."""

    def __init__(self, sigma_m: float, turn_sigma: float, edge_sigma_m: float, pad_w: Array):
        super().__init__(sigma_m, turn_sigma, edge_sigma_m, pad_w)
        self._last: int | None = None  # slot of the gate used last
        self._begun_from: dict[int, tuple[int | None, float]] = {}  # by slot: of which it has a share, and the share
        self._relocated: dict[int, Array] = {}  # (3, 3) m^2, covariances of the places of relocated gates
        self.reference_cov = np.zeros((3, 3))  # m^2, of the place of the gate used last, if it was relocated

    def offset(self, gate: int, at_w: Array, x: Nominal) -> Array:
        """Return the displacement (3,) m of a gate from at_w (3,) m on the map, extrapolated if it has no slot."""
        near, shared = self._nearest(gate)
        own = np.zeros(3) if near is None else shared * x.gates[near]
        return np.asarray(own + x[SCALE] * (at_w - self._pad_w))

    def on_map(self, x: Nominal) -> Array:
        """Return the position (3,) m in the map frame: relative to the gate used last, at its place on the map."""
        p_wb = x.p_wb - x[SCALE] * (x.p_wb - self._pad_w)
        return np.asarray(p_wb if self._last is None else p_wb - x.gates[self._last])

    def cov_on_map(self, x: Nominal, cov: Array) -> Array:
        """Return the covariance (9, 9) of map-frame position p - scale (p - pad) - gate, velocity and attitude."""
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

    def admit(self, gates: Sequence[int], state: FilterState) -> FilterState:
        """Give slots to gates, at most `GATES_KEPT`."""
        for gate in gates:
            if gate not in self._slot_of:
                slot = self._free_slot(gates)
                near, shared = self._nearest(gate)
                state = self._begin(slot, near, shared, self._own_variance(shared) * EYE3, state)
                self._slot_of[gate] = slot
                self._begun_from[slot] = near, shared
        return state

    def constants(self) -> Constants:
        """Return the own offsets and the rotations of the gates that have slots, with the priors of width 1."""
        H, sigma = [np.zeros((0, N))], list[float]()
        for slot, (near, shared) in self._begun_from.items():
            rows = np.zeros((5, N))
            rows[:3, block(slot)], rows[3:, edge_and_turn(slot)[1]] = EYE3, np.eye(2)
            if near is not None:
                rows[:3, block(near)] = -shared * EYE3
            H.append(rows)
            sigma += [math.sqrt(self._own_variance(shared)) / self.width] * 3 + [self._turn_sigma] * 2
        return Constants(np.concatenate(H), np.array(sigma))

    def relocate(self, gate: int, cov: Array, state: FilterState) -> FilterState:
        """Reset a gate whose place on the map, as that lies about the vehicle, has covariance (3, 3) m^2; its neighbours' offsets
        are independent of it."""
        about = np.zeros(3) if self._last is None else state.x.gates[self._last].copy()
        if gate not in self._slot_of:
            self._slot_of[gate] = self._free_slot([gate])
        state = self._begin(self._slot_of[gate], None, 0.0, cov, state)
        state.x.values[block(self._slot_of[gate])] = about
        self._relocated[gate] = cov
        return state

    def _begin(self, slot: int, near: int | None, shared: float, own_cov: Array, state: FilterState) -> FilterState:
        """Initialise `slot` with a share of the offset in slot `near`, and an own part of covariance (3, 3) m^2."""
        self._begun_from = {k: begun for k, begun in self._begun_from.items() if slot not in (k, begun[0])}
        values, (edge, turn) = state.x.values.copy(), edge_and_turn(slot)
        values[block(slot)] = 0.0 if near is None else shared * values[block(near)]
        values[edge], values[turn] = 0.0, 0.0
        cov = self._begun(slot, near, shared, own_cov, state.cov)
        return FilterState(replace(state.x, values=values), cov, state.reading)

    def used(self, gate: int) -> None:
        """Mark a gate as most recently used: it becomes the reference of the map frame."""
        self._last = self._slot_of[gate] = self._slot_of.pop(gate)
        self.reference_cov = self._relocated.get(gate, np.zeros((3, 3)))
