"""The plan as the controller's reference: dense, with continuous quaternions, sampled by progress along the plan."""

import math

import numpy as np

from gate_racer.mpc.course_belief import CourseBelief
from gate_racer.mpc.problem.stage import NR, REFERENCE
from gate_racer.planner.plan import Plan
from gate_racer.tracks import corridor
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import Vehicle

PARTS = 8  # points per interval of the plan: 5 ms apart, so that linear interpolation is good to 0.2 mm
HOLE_S = 0.5  # s, node spacing of a plan above which the interval counts as missing (chosen)
CORRIDOR_S = 0.06  # s of plan time before and after a gate during which its opening is a constraint
OPEN_M = 1e3  # m, half width that stands for "no constraint"
CROSSING_M_S = 0.5  # m/s, lower bound of the normal speed through an opening, against division by zero
LEVEL_M = 0.5  # m above the lowest height of the vehicle's centre, where the line beyond the plan's end levels out
LOW_M = 1.0  # m, half width of the layer above the floor to which low parts of a plan are constrained
P, Q, V, U_W, U_C, A = (REFERENCE[name].at for name in ("p", "q", "v", "u_w", "u_c", "a"))
THETA, PACE, TARGET_PACE = (REFERENCE[name].at.start for name in ("theta", "pace", "target_pace"))
LOOK, GATE, ACROSS, DOWN = (REFERENCE[name].at for name in ("look", "gate", "across", "down"))
LINEAR = slice(0, V.stop)  # columns interpolated linearly; the others are held over an interval, like the inputs


class Reference:
    """Samples of a plan at any progress theta, in s of plan time; after its end the line is extended straight.

    `belief` holds the estimated offsets of the gates, with which the line moves; the floor does not move.
    """

    def __init__(self, plan: Plan, vehicle: Vehicle, course: tuple[Gate, ...] = (), floor_m: float = math.inf):
        """Sample a plan densely.

        Args:
            course: the plan's gates in the order of flight; without it no opening is a constraint and the camera has
                no gate to look at.
            floor_m: m, world z of the floor (NED, down).
        """
        with np.errstate(all="ignore"):  # missing parts of the plan hold NaN
            self._t, x, inputs = plan.dense(vehicle, PARTS)
        x[:-1][np.repeat(np.diff(plan.t) > HOLE_S, PARTS)] = np.nan
        model = plan.flight_model(vehicle)
        u = model.commands(x, inputs)
        qx = RATES_X["q"].at
        flips = np.cumprod(np.where(np.sum(x[1:, qx] * x[:-1, qx], axis=1) < 0, -1.0, 1.0))
        x[1:, qx] *= flips[:, None]
        self.end = float(self._t[-1])
        self._table = table = np.zeros((len(self._t), NR))
        table[:, P], table[:, Q], table[:, V] = x[:, RATES_X["p"].at], x[:, qx], x[:, RATES_X["v"].at]
        table[:, U_W], table[:, U_C] = u[:, :3], u[:, 3:]
        table[:, A] = np.array(model.derivative(list(x.T), list(inputs.T))[RATES_X["v"].at]).T
        table[:, [PACE, TARGET_PACE]] = 1.0
        table[:, LOOK] = table[:, P] + table[:, V]
        table[:, ACROSS], table[:, DOWN] = np.eye(3)[1] / OPEN_M, np.eye(3)[2] / OPEN_M
        table[:, GATE] = table[:, P]
        self._free = np.ones(len(self._t), bool)  # where no opening is a constraint
        self._lowest_m = floor_m - vehicle.contact_radius_m
        self._gates_s = plan.gate_times_s
        passed = self._gates_s[: len(course)]  # a stop after the last gate is no gate
        self.belief = CourseBelief(passed)
        self._ahead = passed.searchsorted(self._t, side="right")  # number of the next gate
        self._binding = self._ahead.copy()  # number of the gate whose opening is a constraint
        self._rooms_m = np.full(len(passed) + 1, OPEN_M)  # m, half width left to the vehicle's centre
        if course:
            self._mark(passed, course, vehicle)

    def _mark(self, passed: Array, course: tuple[Gate, ...], vehicle: Vehicle) -> None:
        """Set the columns of the point to look at and of the opening that is a constraint."""
        for i, (t, gate) in enumerate(zip(passed, course, strict=True)):
            before = self._t < t if i == 0 else (self._t >= passed[i - 1]) & (self._t < t)
            self._table[before, LOOK] = gate.p_wg
            if gate.is_ball:
                continue
            near = np.abs(self._t - t) <= CORRIDOR_S
            self._rooms_m[i] = room = corridor.room(gate, vehicle.contact_radius_m)
            self._table[near, GATE], self._free[near], self._binding[near] = gate.p_wg, False, i
            # Project along the plan's direction onto the gate's plane, which may be crossed at any angle.
            through, v = gate.R_wg[:, 0], self._table[near, V]
            slope = v @ gate.R_wg[:, 1:] / np.maximum(v @ through, CROSSING_M_S)[:, None]
            for k, side in enumerate((ACROSS, DOWN)):
                self._table[near, side] = (gate.R_wg[:, k + 1] - slope[:, k : k + 1] * through) / room

    @property
    def gate_times_s(self) -> Array:
        """Plan times (G,), s, at which the gates of the course are passed."""
        return self._gates_s

    def gate_time(self, number: int) -> float:
        """Return the plan time, s, at which gate `number` of the course is passed."""
        return float(self._gates_s[number])

    def sample(self, theta: Array) -> Array:
        """Return rows (M, NR), laid out as `REFERENCE`, at theta (M,), s of plan time."""
        t, table = self._t, self._table
        k = np.minimum(np.maximum(t.searchsorted(theta, side="right") - 1, 0), len(t) - 2)
        s = np.minimum(np.maximum((theta - t[k]) / (t[k + 1] - t[k]), 0.0), 1.0)[:, None]
        rows = table[k]
        rows[:, LINEAR] += s * (table[k + 1, LINEAR] - rows[:, LINEAR])
        q = rows[:, Q]
        q /= np.sqrt(np.einsum("ij,ij->i", q, q))[:, None]
        rows[:, THETA] = theta
        self._lead(rows, k)
        if theta[-1] > self.end:
            self._extend(rows, np.maximum(theta - self.end, 0.0)[:, None])
        self._bind_floor(rows, self._free[k], self._lowest_m)
        return rows

    def _extend(self, rows: Array, beyond: Array) -> None:
        """Extend rows, `beyond` (M, 1) s after the plan's end, straight, and level where they would approach the floor.

        A descent too steep to be stopped by one g in the height left stays straight: turning earlier would cost the finish time.
        """
        z, v_z = P.stop - 1, V.stop - 1
        steep = rows[:, v_z] ** 2 > 2 * GRAVITY * (self._lowest_m - rows[:, z])
        level = np.where(steep, np.inf, np.maximum(rows[:, z], self._lowest_m - LEVEL_M))
        rows[:, P] += beyond * rows[:, V]
        rows[:, A] *= beyond == 0
        low = rows[:, z] > level
        rows[low, z], rows[low, v_z] = level[low], 0.0

    def _lead(self, rows: Array, k: np.ndarray) -> None:
        """Shift rows, at indices k (M,) of the table, with the gates, and narrow openings by their position uncertainty."""
        moved, moving = self.belief.line(rows[:, THETA])
        offsets, sigmas_m = self.belief.gates(self._binding[k])
        free, rooms_m = self._free[k, None], self._rooms_m[self._binding[k]]
        rows[:, P] += moved
        rows[:, V] += moving
        rows[:, LOOK] += self.belief.gates(self._ahead[k])[0]
        rows[:, GATE] += np.where(free, moved, offsets)
        narrowed = rooms_m / corridor.narrowed(rooms_m, sigmas_m)
        for side in (ACROSS, DOWN):
            rows[:, side] *= np.where(free, 1.0, narrowed[:, None])

    @staticmethod
    def _bind_floor(rows: Array, free: np.ndarray, lowest_m: float) -> None:
        """Constrain free rows of a low plan to a layer above z = lowest_m."""
        low = free & (rows[:, P.start + 2] > lowest_m - 1.5 * LOW_M)
        rows[low, GATE.start + 2], rows[low, DOWN.start + 2] = lowest_m - LOW_M, 1 / LOW_M

    def distance(self, theta: float, p_w: Array) -> float:
        """Return the distance, m, from p_w (3,) to the plan's tangent at theta."""
        row = self.sample(np.array([theta]))[0]
        off, v = p_w - row[P], row[V]
        return float(np.linalg.norm(off - v * (off @ v) / max(v @ v, 1e-6)))
