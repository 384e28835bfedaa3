"""Progress along a plan and its pace, which is reduced when the vehicle cannot keep up with the plan.

The pace is the smaller of two bounds. The first is slightly above the pace flown at present. The second is predictive: at the
pace s, with the estimated drag and wind, the specific thrust along the plan is, for accelerations that scale with s^2,

    T(s) = s^2 b + n,    b = a - drag(v),    n = -g - a_res,    |T(s)| <= k c_max + s^2 lift(v)

so the largest s has a closed form at every point (time-optimal path tracking; Bobrow et al. 1985, Hollerbach 1984). The camera
gives a similar bound: thrust points along the body's up axis, so the next gate, in the direction d, is at most an angle e above
the body's x axis, and in the image, while

    d . T(s) <= sin(e) |T(s)|

A vehicle with more drag than its plan assumes pitches further and loses sight of gates that the plan has in view; there the
pace is limited so that they stay in view.
"""

import math

import casadi as ca
import numpy as np

from gate_racer.mpc.model import Buffered, lifted, thrust_needed, unpack
from gate_racer.mpc.problem.stage import NP, NR, REFERENCE
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, rotate

SLOWEST = 0.3  # -, least pace
AMBITION = 0.05  # -, excess of the commanded pace over the pace flown, while that is below the plan's
PACE_S = 0.2  # s, time constant of the pace
SPEED_FLOOR = 3.0  # m/s, speed below which the position along the path is too uncertain to be fed back
PULL = 6.0  # 1/s, gain with which progress follows the vehicle's position along the path
FASTEST = 1.5  # -, largest d(progress)/dt; the least is SLOWEST, since a vehicle on its pad needs a moving reference
SEEING = 0.5  # -, least pace to which gate visibility may slow the flight
EDGE = 0.9  # -, fraction of the half image within which a gate's centre counts as in view
FREE = 1e3  # -, squared pace that stands for "no limit"
P, V = REFERENCE["p"].at, REFERENCE["v"].at


class PlanProgress:
    """Progress `theta`, in s of plan time, and its rate, the `pace`: 1.0 as planned."""

    def __init__(self, thrust_max: float, stages: int, most: float = 1.0, camera: Camera | None = None):
        """Start at the beginning of the plan.

        Args:
            thrust_max: m/s^2, largest specific thrust for flying the plan's line.
            stages: number of rows of stage parameters in the horizon.
            most: largest pace, 1.0 as planned.
            camera: for the limit that keeps gates in view; None for no such limit.
        """
        self.theta = 0.0
        self.pace = self.limit = 1.0
        self.most = most
        self.attainable = (
            1.0  # mean pace over the horizon that the thrust limit allows on the plan's own line, at most 1
        )
        self.allowed = most  # largest pace at present, set from outside
        self.looking = False  # whether the pace is limited to keep the next gate in view
        p = ca.SX.sym("p", NP)
        model, row = unpack(p[NR:]), {name: ca.vertsplit(p[field.at]) for name, field in REFERENCE.items()}
        n = ca.vertcat(*thrust_needed((1, 0, 0, 0), (0, 0, 0), (0, 0, 0), model))
        b = ca.vertcat(*thrust_needed(row["q"], row["v"], row["a"], model)) - n
        c, lift = model.thrust_scale * thrust_max, lifted(row["q"], row["v"], model)
        along, steep = ca.dot(b, n) - c * lift, ca.sumsqr(b) - lift**2
        square = (ca.sqrt(ca.fmax(along**2 - steep * (ca.sumsqr(n) - c**2), 0)) - along) / (steep + 1e-6)
        in_view = ca.SX(FREE) if camera is None else ca.fmax(_in_view(camera, row, b, n), SEEING**2)
        squares = ca.vertcat(ca.fmin(ca.fmax(square, SLOWEST**2), most**2), in_view)
        fastest = ca.Function("fastest", [p], [ca.sqrt(squares)])
        self._fastest = Buffered(fastest.map(stages))

    def advance(self, row: Array, p_w: Array, dt: float) -> None:
        """Advance progress by dt, s, at its pace, with feedback from the vehicle's position: time lost is not caught up.

        Args:
            row: (NR,), row of the plan at the present progress.
            p_w: (3,) m, the vehicle's position; not finite if unknown.
        """
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
        """Set the pace to the solver's."""
        self.pace = min(max(pace, SLOWEST), self.most)

    def slow_down(self, slow: float, slowing_s: float, dt: float) -> None:
        """Move the pace towards `slow` with the time constant slowing_s, s, over dt, s."""
        self.pace += (min(slow, self.limit) - self.pace) * dt / slowing_s

    def look_ahead(self, parameters: Array, length_ratio: Array | float = 1.0) -> Array:
        """Return the largest pace (N + 1,) at each stage, from stage parameters (N + 1, NP), and update `limit`.

        `length_ratio` (N + 1,): length of the displaced line over that of the plan's (`giving_way.length_ratios`).
        """
        fastest = self._fastest
        fastest.arguments[0][:] = parameters
        fastest()
        self.attainable = float(np.minimum(fastest.results[0][:, 0] * np.sqrt(length_ratio), 1.0).mean())
        fast: Array = np.minimum(fastest.results[0][:, 0], self.allowed)
        if self.looking:
            fast = np.minimum(fast, fastest.results[0][:, 1])
        self.limit = float(fast.min())
        return fast


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
