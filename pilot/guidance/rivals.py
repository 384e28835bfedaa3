"""Giving way: whoever is behind keeps clear of the one ahead, and falls back until there is room on the line.

Where a rival is has to be told (`RivalState`). The one ahead flies as if alone. Side by side, who stands farther right on the
start yields.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from estimation.estimator import State
from link.messages import RivalState
from mpc.giving_way import Tube
from tracks.grid import MOST
from vehicle.rotation import Array

LEVEL_M = 0.3  # along the way to the next gate, within which both count as side by side
NEAR_M = 8.0  # who is farther is no concern
ROOM_M = 1.5  # ahead, that is enough to share the line
CLEAR_M = 0.4  # between the bodies' balls: errors of estimate, control and prediction
FALL_BACK_1_S = 2.0  # closing speed over what is missing of that room
LEAST = 0.5  # of the plan's pace: no slower for anybody
SPEED_FLOOR = 3.0  # m/s, below which a ratio of speeds says too little
OLD_S = 0.2  # age beyond which a place is no longer believed
ACCELERATION_S = 0.05  # time constant of what is made of the velocities told


@dataclass(frozen=True, slots=True)
class Way:
    """What to leave to others."""

    tubes: Sequence[Tube] = ()
    pace: float = math.inf  # the most


class RivalWatch:
    """Remembers what was told of each rival."""

    def __init__(self, place: int, radius_m: float):
        """`place` on the start, from 1; `radius_m` of the body, the rivals' as well."""
        self._place, self._reach_m = place, 2 * radius_m + CLEAR_M
        self._told: dict[int, RivalState] = {}
        self._accelerations: dict[int, Array] = {}

    def hear(self, told: RivalState) -> None:
        """Where one of them was; a place that there is not is not believed."""
        if told.place == self._place or not 1 <= told.place <= MOST:
            return
        last = self._told.get(told.place)
        if last is not None and told.t > last.t:
            dt = told.t - last.t
            known = self._accelerations.get(told.place, np.zeros(3))
            now = (np.array(told.v_w) - last.v_w) / dt
            self._accelerations[told.place] = known + (now - known) * dt / (dt + ACCELERATION_S)
        self._told[told.place] = told

    def way(self, state: State, goal_w: Array, pace: float) -> Way:
        """What is left to whom on the way to the next gate, goal_w (3,), by a pilot that flies at a pace now."""
        ahead = goal_w - state.p_wb
        ahead /= max(float(np.linalg.norm(ahead)), 1e-6)
        tubes, most = list[Tube](), math.inf
        for place, told in self._told.items():
            p_w, v_w = np.array(told.p_w), np.array(told.v_w)
            off = p_w + (state.t - told.t) * v_w - state.p_wb
            lead = float(off @ ahead)
            yields = lead > LEVEL_M or (lead > -LEVEL_M and place < self._place)
            if not yields or state.t - told.t > OLD_S or off @ off > NEAR_M**2:
                continue
            across = lead * ahead - off
            side = across / max(float(np.linalg.norm(across)), 1e-6)
            push = self._accelerations.get(place, np.zeros(3))
            tubes.append(Tube(told.t, p_w, v_w, push, self._reach_m, side))
            if lead < ROOM_M:
                wanted = float(v_w @ ahead) - FALL_BACK_1_S * (ROOM_M - lead)
                share = wanted / max(float(state.v_w @ ahead), SPEED_FLOOR)
                most = min(most, max(share * pace, LEAST))
        return Way(tubes, most)
