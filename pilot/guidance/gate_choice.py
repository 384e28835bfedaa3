"""Choice of the next gate of an unknown course: the nearest ahead, from the vehicle's side, that was not flown through.

Both sides of a gate look alike, and where gates stand close together the nearest need not be the next. Where the simulator
reports the gates it credits, a way through a gate that was not credited is excluded until another one is; the opposite way
through each gate is then a candidate too. Otherwise order and directions are those of this rule.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gate_racer.estimation.estimator import Landmark
from gate_racer.vehicle.rotation import Array

SAME_M = 1.5  # m, side of an opening: landmarks closer than this are one gate, first seen from far away
STALE_S = 20.0  # s since the last view of a gate, after which it is ignored
KEPT = 0.7  # -, factor on the cost of the gate that is approached, against switching
OPPOSITE_M = 15.0  # m, detour that an approach from the other side is worth (chosen)


class GateChoice:
    """Gates flown through, ways excluded, and the present target; `passed` holds numbers of landmarks in order."""

    def __init__(self, counted: bool):
        """Create it; `counted`: the simulator reports the number of gates credited."""
        self.passed = list[int]()
        self.target: int | None = None
        self._way = 1  # of the target: along the landmark's yaw, or against it (-1)
        self._counted, self._credited = counted, 0
        self._wrong = set[tuple[int, int]]()  # ways through gates that were not credited
        self._doubted: int | None = None  # newest gate taken back

    def credit(self, gates: int) -> None:
        """Process the number of gates that the simulator has credited."""
        if gates > self._credited:
            self._credited = gates
            self._wrong.clear()
            if self._doubted is not None and gates > len(self.passed):  # credited late
                self.passed.append(self._doubted)
            self._doubted = None

    def flown_through(self) -> None:
        """Record the target as passed."""
        if self.target is not None:
            self.passed.append(self.target)
            self.target = None

    def check_credit(self) -> None:
        """Take back the newest passage, if the simulator had time to credit it and did not."""
        if self._counted and len(self.passed) > self._credited:
            self._doubted = self.passed.pop()
            self._wrong.add((self._doubted, self._way))

    def choose(self, gates: Sequence[Landmark], p_w: Array, course_yaw: float, t: float) -> Landmark | None:
        """Return the next gate, with its yaw in the direction of flight; None without a candidate.

        Args:
            p_w: (3,) m, vehicle.
            course_yaw: rad, direction of the course so far.
        """
        course_w = np.array([math.cos(course_yaw), math.sin(course_yaw), 0.0])
        behind = [gate.p_w for gate in gates if gate.number in self.passed]
        best, chosen, least = None, 1, math.inf
        for gate in gates:
            if t - gate.last_t > STALE_S or any(np.linalg.norm(gate.p_w - passed) < SAME_M for passed in behind):
                continue
            to_gate = gate.p_w - p_w
            distance = float(np.linalg.norm(to_gate))
            cost = distance * (1.5 - 0.5 * float(to_gate @ course_w) / max(distance, 1e-9))
            facing = 1 if to_gate @ gate.ahead > 0 else -1
            kept = gate.number == self.target
            for way in (self._way,) if kept else (1, -1):
                opposite = way != facing and not kept
                if (gate.number, way) in self._wrong or (opposite and not self._wrong):
                    continue
                whole = KEPT * cost if kept else cost + OPPOSITE_M * opposite
                if whole < least:
                    best, chosen, least = gate, way, whole
        if best is None:
            self.target = None
            return None
        self.target, self._way = best.number, chosen
        return best if chosen > 0 else replace(best, yaw=math.remainder(best.yaw + math.pi, 2 * math.pi))
