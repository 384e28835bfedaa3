"""The plan as the controller's reference, dense and sampled by progress along it, and that progress with its pace.

The pace is the smaller of two bounds. The first is slightly above the pace flown at present. The second is predictive: at the
pace s, with the estimated drag and wind, the specific thrust along the plan is, for accelerations that scale with s^2,

    T(s) = s^2 b + n,    b = a - drag(v),    n = -g - a_res,    |T(s)| <= k c_max + s^2 lift(v)

which has a largest s in closed form at every point, or none where lift grows faster than what the plan needs (time-optimal path
tracking; Bobrow et al. 1985, Hollerbach 1984). Thrust points along the body's up axis, so the next gate, in the direction d, is
at most an angle e above the body's x axis, and stays in the image of a vehicle with more drag than planned, while

    d . T(s) <= sin(e) |T(s)|
"""

import math

import casadi as ca
import numpy as np

from gate_racer.mpc.control import CourseOffsets
from gate_racer.mpc.model import Buffered, thrust_needed, unpack
from gate_racer.mpc.terms import NP, NR, REFERENCE
from gate_racer.planner.plan import Plan
from gate_racer.tracks import gate as corridor
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.dynamics import GRAVITY, RATES_X, lifted
from gate_racer.vehicle.rotation import Array, rotate
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

    `offsets` holds the estimated offsets of the gates, with which the line moves; the floor does not move.
    """

    def __init__(self, plan: Plan, vehicle: Vehicle, course: tuple[Gate, ...] = (), floor_m: float = math.inf):
        """Sample a plan densely. course: its gates in order, constraints and to be looked at; floor_m: m, the floor's z."""
        with np.errstate(all="ignore"):  # missing parts of the plan hold NaN
            self._t, x, inputs = plan.dense(vehicle, PARTS)
        x[:-1][np.repeat(np.diff(plan.t) > HOLE_S, PARTS)] = np.nan
        model = plan.flight_model(vehicle)
        u = model.commands(x, inputs)
        qx = RATES_X["q"].at
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
        self.gate_times_s = plan.gate_times_s  # (G,) s of plan time, at which the gates of the course are passed
        passed = self.gate_times_s[: len(course)]  # a stop after the last gate is no gate
        self.offsets = CourseOffsets(passed)
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
        # Free rows of a low plan are constrained to a layer above the floor.
        low = self._free[k] & (rows[:, P.start + 2] > self._lowest_m - 1.5 * LOW_M)
        rows[low, GATE.start + 2], rows[low, DOWN.start + 2] = self._lowest_m - LOW_M, 1 / LOW_M
        return rows

    def _extend(self, rows: Array, beyond: Array) -> None:
        """Extend rows straight, `beyond` (M, 1) s after the plan's end, and level above the floor, where one g suffices."""
        z, v_z = P.stop - 1, V.stop - 1
        steep = rows[:, v_z] ** 2 > 2 * GRAVITY * (self._lowest_m - rows[:, z])
        level = np.where(steep, np.inf, np.maximum(rows[:, z], self._lowest_m - LEVEL_M))
        rows[:, P] += beyond * rows[:, V]
        rows[:, A] *= beyond == 0
        low = rows[:, z] > level
        rows[low, z], rows[low, v_z] = level[low], 0.0

    def _lead(self, rows: Array, k: np.ndarray) -> None:
        """Shift rows, at indices k (M,) of the table, with the gates, and narrow openings by their position uncertainty."""
        moved, moving = self.offsets.line(rows[:, THETA])
        offsets, sigmas_m = self.offsets.gates(self._binding[k])
        free, rooms_m = self._free[k, None], self._rooms_m[self._binding[k]]
        rows[:, P] += moved
        rows[:, V] += moving
        rows[:, LOOK] += self.offsets.gates(self._ahead[k])[0]
        rows[:, GATE] += np.where(free, moved, offsets)
        narrowed = rooms_m / corridor.narrowed(rooms_m, sigmas_m)
        for side in (ACROSS, DOWN):
            rows[:, side] *= np.where(free, 1.0, narrowed[:, None])

    def distance(self, theta: float, p_w: Array) -> float:
        """Return the distance, m, from p_w (3,) to the plan's tangent at theta."""
        row = self.sample(np.array([theta]))[0]
        off, v = p_w - row[P], row[V]
        return float(np.linalg.norm(off - v * (off @ v) / max(v @ v, 1e-6)))


SLOWEST = 0.3  # -, least pace
AMBITION = 0.05  # -, excess of the commanded pace over the pace flown, while that is below the plan's
PACE_S = 0.2  # s, time constant of the pace
SPEED_FLOOR = 3.0  # m/s, speed below which the position along the path is too uncertain to be fed back
PULL = 6.0  # 1/s, gain with which progress follows the vehicle's position along the path
FASTEST = 1.5  # -, largest d(progress)/dt; the least is SLOWEST, since a vehicle on its pad needs a moving reference
SEEING = 0.5  # -, least pace to which gate visibility may slow the flight
EDGE = 0.9  # -, fraction of the half image within which a gate's centre counts as in view
FREE = 1e3  # -, squared pace that stands for "no limit"


class PlanProgress:
    """Progress `theta`, in s of plan time, and its rate, the `pace`: 1.0 as planned."""

    def __init__(
        self,
        thrust_max: float,
        stages: int,
        most: float = 1.0,
        camera: Camera | None = None,
        slowing: Array | float = 0.0,
    ):
        """Start at the beginning of the plan.

        Args:
            thrust_max: m/s^2, largest specific thrust for flying the plan's line.
            most: largest pace, 1.0 as planned.
            camera: for the limit that keeps gates in view; None for no such limit.
            slowing: (stages,), by how much the pace can fall until each stage.
        """
        self.theta = 0.0
        self.pace = self.limit = 1.0
        self.most = most
        # Mean pace over the horizon that the thrust limit allows on the plan's own line, at most 1.
        self.attainable = 1.0
        self.allowed = most  # largest pace at present, set from outside
        self._slowing = slowing
        self.looking = False  # whether the pace is limited to keep the next gate in view
        p = ca.SX.sym("p", NP)
        model, row = unpack(p[NR:]), {name: ca.vertsplit(p[field.at]) for name, field in REFERENCE.items()}
        n = ca.vertcat(*thrust_needed((1, 0, 0, 0), (0, 0, 0), (0, 0, 0), model))
        b = ca.vertcat(*thrust_needed(row["q"], row["v"], row["a"], model)) - n
        c, lift = model.thrust_scale * thrust_max, lifted(row["q"], row["v"], model.lift)
        square = _first_root(ca.sumsqr(b) - lift**2, ca.dot(b, n) - c * lift, ca.sumsqr(n) - c**2)
        in_view = ca.SX(FREE) if camera is None else ca.fmax(_in_view(camera, row, b, n), SEEING**2)
        squares = ca.vertcat(ca.fmin(ca.fmax(square, SLOWEST**2), most**2), in_view)
        fastest = ca.Function("fastest", [p], [ca.sqrt(squares)])
        self._fastest = Buffered(fastest.map(stages))

    def advance(self, row: Array, p_w: Array, dt: float) -> None:
        """Advance progress by dt, s, by the plan's row (NR,) and the position p_w (3,) m, not finite if unknown."""
        lead = float((p_w - row[P]) @ row[V]) / max(float(row[V] @ row[V]), SPEED_FLOOR**2)  # s of plan time
        lead = lead if math.isfinite(lead) else 0.0
        self.theta += dt * min(max(self.pace + PULL * lead, SLOWEST), FASTEST)

    def keep(self, v_plan: Array, v_w: Array, dt: float) -> None:
        """Update the pace over dt, s, from the plan's velocity (3,) at the present progress and the vehicle's v_w (3,)."""
        square = float(v_plan @ v_plan) + SPEED_FLOOR**2
        flown = (float(v_w @ v_plan) + SPEED_FLOOR**2) / square
        self.pace += (min(flown + AMBITION, self.limit) - self.pace) * dt / PACE_S
        self.pace = min(max(self.pace, SLOWEST), 1.0)

    def drive(self, pace: float) -> None:
        self.pace = min(max(pace, SLOWEST), self.most)

    def look_ahead(self, parameters: Array, length_ratio: Array | float = 1.0) -> Array:
        """Return the largest pace (N + 1,) by stage parameters (N + 1, NP) and `avoidance.length_ratios`; updates `limit`."""
        fastest = self._fastest
        fastest.arguments[0][:] = parameters
        fastest()
        self.attainable = float(np.minimum(fastest.results[0][:, 0] * np.sqrt(length_ratio), 1.0).mean())
        fast: Array = np.minimum(fastest.results[0][:, 0], self.allowed)
        self.limit = float(fast.min())
        if self.looking:
            in_view = fastest.results[0][:, 1]
            fast = np.minimum(fast, in_view)
            self.limit = min(self.limit, float((in_view + self._slowing).min()))
        return fast


def _first_root(A: ca.SX, B: ca.SX, C: ca.SX) -> ca.SX:
    """Return the smallest positive root y of A y^2 + 2 B y + C, where C < 0; FREE if there is none."""
    square = B**2 - A * C
    below = B + ca.sqrt(ca.fmax(square, 0))
    return ca.if_else(ca.logic_and(square >= 0, FREE * below > -C), -C / below, FREE)


def _in_view(camera: Camera, row: dict[str, list[ca.SX]], b: ca.SX, n: ca.SX) -> ca.SX:
    """Return the largest s^2 that keeps the next gate below the image's upper edge; FREE where the plan has it out of view."""
    to_gate = ca.vertcat(*row["look"]) - ca.vertcat(*row["p"])
    d = to_gate / ca.sqrt(ca.sumsqr(to_gate) + 1e-6)
    forward, right, down = (ca.dot(ca.vertcat(*rotate(row["q"], axis)), d) for axis in np.eye(3).tolist())
    sine = math.sin(camera.elevation(EDGE))
    seen = ca.logic_and(-down <= sine, ca.fabs(right) <= forward * camera.cx_px / camera.fx_px)
    db, dn = ca.dot(d, b), ca.dot(d, n)
    # (d . T)^2 = sin(e)^2 |T|^2: the smallest positive root at which the gate is above the axis, not below.
    quadratic = db**2 - sine**2 * ca.sumsqr(b) + 1e-9
    linear, constant = db * dn - sine**2 * ca.dot(b, n), dn**2 - sine**2 * ca.sumsqr(n)
    root = ca.sqrt(ca.fmax(linear**2 - quadratic * constant, 0))
    square = ca.SX(FREE)
    for s2 in ((-linear - root) / quadratic, (-linear + root) / quadratic):
        square = ca.fmin(square, ca.if_else(ca.logic_and(s2 > 0, dn + s2 * db > 0), s2, FREE))
    real = linear**2 >= quadratic * constant
    return ca.if_else(ca.logic_and(seen, real), square, FREE)
