"""The plan as the controller reads it: dense, continuous in attitude, and sampled by progress along it."""

import numpy as np

from mpc.problem import NR, REFERENCE
from planner.plan import Plan
from tracks.gate import Gate
from vehicle.dynamics import RATES_X
from vehicle.rotation import Array
from vehicle.vehicle import Vehicle

PARTS = 8  # points per interval of the plan: 5 ms apart, so that linear interpolation is good to 0.2 mm
PULL = 6.0  # 1/s, how fast progress follows the vehicle's place along the path
SLOWEST, FASTEST = 0.3, 1.5  # limits of d(progress)/dt: never at rest, or a vehicle on its pad would wait for itself
AMBITION = 0.05  # -, by which the pace exceeds what is flown, as long as that is less than planned
PACE_S = 0.2  # time constant of the pace
SPEED_FLOOR = 3.0  # m/s, below which a place along the path is too uncertain to steer by
TUNNEL_S = 0.1  # of plan time before and after a gate in which its opening binds
OPEN_M = 1e3  # half width of an opening that does not bind
ROOM_M = 0.1  # least half width, for openings hardly wider than the vehicle
P, Q, V, U_W, U_C, A = (REFERENCE[name].at for name in ("p", "q", "v", "u_w", "u_c", "a"))
THETA, PACE = (REFERENCE[name].at.start for name in ("theta", "pace"))
LOOK, GATE, ACROSS, DOWN = (REFERENCE[name].at for name in ("look", "gate", "across", "down"))
LINEAR = slice(0, V.stop)  # interpolated; what follows is held, as the inputs are


class Reference:
    """Samples of a plan at any progress theta, in s of plan time. After the end it flies straight on."""

    def __init__(self, plan: Plan, vehicle: Vehicle, course: tuple[Gate, ...] = ()):
        """`course`: the plan's gates in the order of flight; without it no opening binds and nothing is looked at."""
        self._t, x, inputs = plan.dense(vehicle, PARTS)
        u = plan.commands(vehicle, x, inputs)
        qx = RATES_X["q"].at
        flips = np.cumprod(np.where(np.sum(x[1:, qx] * x[:-1, qx], axis=1) < 0, -1.0, 1.0))
        x[1:, qx] *= flips[:, None]
        self.end = float(self._t[-1])
        self._table = table = np.zeros((len(self._t), NR))
        table[:, P], table[:, Q], table[:, V] = x[:, RATES_X["p"].at], x[:, qx], x[:, RATES_X["v"].at]
        table[:, U_W], table[:, U_C] = u[:, :3], u[:, 3:]
        table[:, A] = np.array(plan.derivative(vehicle, list(x.T), list(inputs.T))[RATES_X["v"].at]).T
        table[:, PACE] = 1.0
        table[:, LOOK] = table[:, P] + table[:, V]
        table[:, ACROSS], table[:, DOWN] = np.eye(3)[1] / OPEN_M, np.eye(3)[2] / OPEN_M
        table[:, GATE] = table[:, P]
        if course:
            self._mark(plan.t[list(plan.gate_nodes)], course, vehicle)

    def _mark(self, passed: Array, course: tuple[Gate, ...], vehicle: Vehicle) -> None:
        """Where to look, and which opening binds."""
        for k, (t, gate) in enumerate(zip(passed, course, strict=True)):
            before = self._t < t if k == 0 else (self._t >= passed[k - 1]) & (self._t < t)
            self._table[before, LOOK] = gate.p_wg
            if gate.is_ball:
                continue
            near = np.abs(self._t - t) <= TUNNEL_S
            room = max(gate.half - vehicle.contact_radius_m, ROOM_M)
            self._table[near, GATE] = gate.p_wg
            self._table[near, ACROSS], self._table[near, DOWN] = gate.R_wg[:, 1] / room, gate.R_wg[:, 2] / room

    def sample(self, theta: Array) -> Array:
        """Rows (M, NR) as `REFERENCE` at theta (M,)."""
        t, table = self._t, self._table
        k = np.minimum(np.maximum(t.searchsorted(theta, side="right") - 1, 0), len(t) - 2)
        s = np.minimum(np.maximum((theta - t[k]) / (t[k + 1] - t[k]), 0.0), 1.0)[:, None]
        rows = table[k]
        rows[:, LINEAR] += s * (table[k + 1, LINEAR] - rows[:, LINEAR])
        q = rows[:, Q]
        q /= np.sqrt(np.einsum("ij,ij->i", q, q))[:, None]
        rows[:, THETA] = theta
        if theta[-1] > self.end:
            beyond = np.maximum(theta - self.end, 0.0)[:, None]
            rows[:, P] += beyond * rows[:, V]
            rows[:, A] *= beyond == 0
        return rows

    def lead(self, theta: float, p_w: Array) -> float:
        """s of plan time by which a position (3,) is ahead of progress theta."""
        row = self.sample(np.array([theta]))[0]
        v = row[V]
        return float((p_w - row[P]) @ v / max(v @ v, SPEED_FLOOR**2))

    def advance(self, theta: float, p_w: Array, dt: float, pace: float = 1.0) -> float:
        """Progress dt later: driven by its pace, drawn to where the vehicle is along the path, so that lost time is lost.

        Args:
            theta: s of plan time now.
            p_w: (3,) the vehicle's position now.
        """
        return theta + dt * min(max(pace + PULL * self.lead(theta, p_w), SLOWEST), FASTEST)

    def keep_pace(self, pace: float, theta: float, v_w: Array, dt: float) -> float:
        """The pace dt later, from the velocity (3,): a plan that cannot be flown as fast is flown as fast as can be.

        It strives for a little more than what is flown, at most for the plan's own, so that it recovers.
        """
        v = self.sample(np.array([theta]))[0, V]
        flown = (float(v_w @ v) + SPEED_FLOOR**2) / (float(v @ v) + SPEED_FLOOR**2)
        change = (flown + AMBITION - pace) * dt / PACE_S
        return min(max(pace + change, SLOWEST), 1.0)

    def distance(self, theta: float, p_w: Array) -> float:
        """m between a position and the plan's line near theta."""
        row = self.sample(np.array([theta]))[0]
        off, v = p_w - row[P], row[V]
        return float(np.linalg.norm(off - v * (off @ v) / max(v @ v, 1e-6)))
