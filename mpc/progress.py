"""Progress along a plan: where the vehicle is, and how fast it flies, since one that cannot keep the plan's pace flies slower.

Two laws, whichever is slower. One looks back: a little more than the pace that is being flown. The other looks ahead: along the
plan at the pace s, with the estimated drag and wind, the specific thrust is, for accelerations that scale with s^2,

    T(s) = s^2 b + n,    b = a - drag(v),    n = -g - a_res,    |T(s)| <= k c_max + s^2 lift(v)

so the fastest s has a closed form at every place (time-optimal path tracking; Bobrow et al. 1985, Hollerbach 1984). Likewise the
camera: thrust points along the body's up axis, so the next gate, in the direction d, is at most an angle e above the body's x
axis, and in the image, while

    d . T(s) <= sin(e) |T(s)|

A vehicle with more drag than its plan believed pitches further and loses sight of gates that the plan has in view; there it
flies no faster than lets it see them.
"""

import math

import casadi as ca
import numpy as np

from mpc.model import Buffered, lifted, thrust_needed, unpack
from mpc.problem.stage import NP, NR, REFERENCE
from vehicle.camera import Camera
from vehicle.rotation import Array, rotate

SLOWEST = 0.3  # of the plan's pace
AMBITION = 0.05  # -, by which the pace exceeds what is flown, as long as that is less than planned
PACE_S = 0.2  # time constant of the pace
SPEED_FLOOR = 3.0  # m/s, below which a place along the path is too uncertain to steer by
PULL = 6.0  # 1/s, how fast progress follows the vehicle's place along the path
FASTEST = 1.5  # of d(progress)/dt; never at rest either, or a vehicle on its pad would wait for itself
SEEING = 0.5  # of the plan's pace: no slower for the sake of seeing
EDGE = 0.9  # of the half image, up to which a gate's centre is in view
FREE = 1e3  # no limit
P, V = REFERENCE["p"].at, REFERENCE["v"].at


class PlanProgress:
    """Progress `theta`, in s of plan time, and its rate, the `pace`: 1.0 as planned."""

    def __init__(self, thrust_max: float, stages: int, most: float = 1.0, camera: Camera | None = None):
        """Progress at the plan's start.

        Args:
            thrust_max: m/s^2 that the line may take.
            stages: rows of stage parameters looked at.
            most: never faster.
            camera: keeps in view what the plan has in view; without one nothing is looked at.
        """
        self.theta = 0.0
        self.pace = self.limit = 1.0
        self.most = most
        self.attainable = 1.0  # the mean pace over the horizon, on the plan's own line and if nothing asked for less
        self.allowed = most  # the most pace, as caution has it for the time being
        self.looking = False  # whether it is worth time to see the next gate
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
        """Progress dt later: driven by its pace, drawn to where the vehicle is along the path, so that lost time is lost.

        Args:
            row: (NR,) of the plan at the present progress.
            p_w: (3,) m, the vehicle's position; not finite where it is not known.
        """
        lead = float((p_w - row[P]) @ row[V]) / max(float(row[V] @ row[V]), SPEED_FLOOR**2)  # s of plan time
        lead = lead if math.isfinite(lead) else 0.0
        self.theta += dt * min(max(self.pace + PULL * lead, SLOWEST), FASTEST)

    def keep(self, v_plan: Array, v_w: Array, dt: float) -> None:
        """The pace dt later, from the plan's velocity (3,) here and the vehicle's."""
        square = float(v_plan @ v_plan) + SPEED_FLOOR**2
        flown = (float(v_w @ v_plan) + SPEED_FLOOR**2) / square
        self.pace += (min(flown + AMBITION, self.limit) - self.pace) * dt / PACE_S
        self.pace = min(max(self.pace, SLOWEST), 1.0)

    def drive(self, pace: float) -> None:
        """To the pace that a solver has chosen."""
        self.pace = min(max(pace, SLOWEST), self.most)

    def slow_down(self, slow: float, slowing_s: float, dt: float) -> None:
        """Towards a slow pace, with a time constant."""
        self.pace += (min(slow, self.limit) - self.pace) * dt / slowing_s

    def look_ahead(self, parameters: Array, long: Array) -> Array:
        """How fast the thrust lets each of the stages (N + 1, NP) ahead be flown (N + 1,).

        `long` (N + 1,): the line flown there beside the plan's own (`giving_way.stretch`).
        """
        fastest = self._fastest
        fastest.arguments[0][:] = parameters
        fastest()
        self.attainable = float(np.minimum(fastest.results[0][:, 0] * np.sqrt(long), 1.0).mean())
        fast: Array = np.minimum(fastest.results[0][:, 0], self.allowed)
        if self.looking:
            fast = np.minimum(fast, fastest.results[0][:, 1])
        self.limit = float(fast.min())
        return fast


def _in_view(camera: Camera, row: dict[str, list[ca.SX]], b: ca.SX, n: ca.SX) -> ca.SX:
    """The greatest s^2 that keeps the next gate below the image's upper edge; without limit where the plan looks elsewhere."""
    to_gate = ca.vertcat(*row["look"]) - ca.vertcat(*row["p"])
    d = to_gate / ca.sqrt(ca.sumsqr(to_gate) + 1e-6)
    forward, right, down = (ca.dot(ca.vertcat(*rotate(row["q"], axis)), d) for axis in np.eye(3).tolist())
    sine = math.sin(camera.elevation(EDGE))
    seen = ca.logic_and(-down <= sine, ca.fabs(right) <= forward * camera.cx_px / camera.fx_px)
    db, dn = ca.dot(d, b), ca.dot(d, n)
    # (d . T)^2 = sin(e)^2 |T|^2: the first positive root at which the gate is above, not below.
    quadratic = db**2 - sine**2 * ca.sumsqr(b) + 1e-9
    linear, constant = db * dn - sine**2 * ca.dot(b, n), dn**2 - sine**2 * ca.sumsqr(n)
    root = ca.sqrt(ca.fmax(linear**2 - quadratic * constant, 0))
    square = ca.SX(FREE)
    for s2 in ((-linear - root) / quadratic, (-linear + root) / quadratic):
        square = ca.fmin(square, ca.if_else(ca.logic_and(s2 > 0, dn + s2 * db > 0), s2, FREE))
    real = linear**2 >= quadratic * constant
    return ca.if_else(ca.logic_and(seen, real), square, FREE)
