"""Position controller for SET_POSITION_TARGET_LOCAL_NED: a cascade in the simulator from position to velocity to attitude.

    v* = v_ff + k_p (p* - p),  |v*| <= V_MAX,    a = a_ff + k_v (v* - v),    f = a - g + d,    q* by f and the heading

with f the mass-normalised thrust, tilted by at most TILT_MAX, and d the vehicle's drag at v. On an axis with an acceleration
set-point alone, a = a_ff; an axis without set-point has zero velocity. Low-bandwidth by design: it lets a client fly
the gates without a controller of its own.
"""

import math

import numpy as np

from gate_racer.link.messages import AttitudeTarget, Axes, PositionTarget, TargetFrame
from gate_racer.sim.physics.plant import Q, Truth, V
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, aligned, conjugate, from_euler, matrix, rotate, to_euler
from gate_racer.vehicle.vehicle import Vehicle

KP_1_S, KV_1_S = 1.2, 3.0  # position and velocity gains (chosen)
V_MAX_M_S = 6.0  # limit of the velocity set-point (chosen)
TILT_MAX_RAD = math.radians(40)  # limit of the thrust's tilt (chosen)
CLIMB_MAX_M_S2 = 10.0  # upper limit of the commanded upward acceleration
FALL_MAX_M_S2 = 0.6 * GRAVITY  # limit downwards, which keeps some thrust that can be tilted
LEAD_MAX_RAD = 0.5  # limit of the turned heading's lead over a vehicle that cannot follow, such as on its pad (chosen)


class PositionControl:
    """Controller for the last target: `follow` accepts one, `target` converts it to attitude and thrust at every tick."""

    def __init__(self, vehicle: Vehicle, turns: bool):
        """Set up without a target. `turns`: whether yaw and yaw rate are followed."""
        self._vehicle, self._turns = vehicle, turns
        self._goal: PositionTarget | None = None
        self._since, self._yaw = 0.0, 0.0

    @property
    def active(self) -> bool:
        return self._goal is not None

    def stop(self) -> None:
        self._goal = None

    def follow(self, goal: PositionTarget, truth: Truth) -> None:
        """Accept a new target at the vehicle's current state."""
        turned = self._goal is None or (goal.yaw_rate is not None and self._goal.yaw_rate is None)
        in_body = goal.frame is TargetFrame.BODY
        yaw = to_euler(truth.q_wb)[2] if turned or in_body else 0.0
        if turned:
            self._yaw, self._since = yaw, truth.t
        if self._turns and goal.yaw is not None:
            self._yaw = goal.yaw + (yaw if in_body else 0.0)
        if goal.frame is not TargetFrame.LOCAL:
            goal = _in_world(goal, truth.p_wb, matrix(from_euler(0.0, 0.0, yaw if in_body else 0.0)))
        self._goal = goal

    def target(self, truth: Truth) -> AttitudeTarget:
        """Return the attitude target for the current state. Only while `active`."""
        goal = self._goal
        assert goal is not None
        p, v = truth.p_wb.tolist(), truth.x[V].tolist()  # Python's floats cost a third of numpy's
        asked = [*zip(goal.p, goal.v, goal.a, strict=True)]
        wish = [
            (v_ff or 0.0) + (0.0 if to is None else KP_1_S * (to - at))
            for (to, v_ff, _), at in zip(asked, p, strict=True)
        ]
        slower = min(1.0, V_MAX_M_S / max(math.hypot(*wish), 1e-9))
        drag = self._vehicle.drag_quadratic_1_m * math.hypot(*v)
        pushed = [to is None and v_ff is None and a is not None for to, v_ff, a in asked]  # by an acceleration alone
        north, east, down = (
            (0.0 if pushed[k] else KV_1_S) * (slower * wish[k] - v[k]) + (a or 0.0) + drag * v[k]
            for k, (_, _, a) in enumerate(asked)
        )
        down, level = _limited(down)
        upright = min(1.0, level / max(math.hypot(north, east), 1e-9))
        f = north * upright, east * upright, down - GRAVITY
        rate = goal.yaw_rate if self._turns else None
        if rate is not None:  # further set-points with a rate continue the turn
            yaw = to_euler(truth.q_wb)[2]
            lead = math.remainder(self._yaw + rate * (truth.t - self._since) - yaw, math.tau)
            self._yaw, self._since = yaw + min(max(lead, -LEAD_MAX_RAD), LEAD_MAX_RAD), truth.t
        size = -math.hypot(*f)
        q = aligned((f[0] / size, f[1] / size, f[2] / size), (math.cos(self._yaw), math.sin(self._yaw), 0.0))
        q_bw = conjugate(truth.x[Q].tolist())
        along_b = rotate(q_bw, f)
        throttle = self._vehicle.throttle.throttle(max(0.0, -along_b[2]))
        return AttitudeTarget(tuple(q.tolist()), rotate(q_bw, (0.0, 0.0, rate or 0.0)), throttle, by_rates=False)


def _limited(down: float) -> tuple[float, float]:
    """Return a downward acceleration within its limits, and the greatest horizontal one beside it, m/s^2."""
    down = min(max(down, -CLIMB_MAX_M_S2), FALL_MAX_M_S2)
    return down, (GRAVITY - down) * math.tan(TILT_MAX_RAD)


def alterations(goal: PositionTarget, turns: bool) -> dict[str, str]:
    """Return the fields of a set-point that are not flown as sent, with the reason; `turns` as in `PositionControl`."""
    reasons = {}
    speed = math.hypot(*(v or 0.0 for v in goal.v))
    if speed > V_MAX_M_S:
        reasons["velocity"] = f"{speed:.1f} m/s is flown at {V_MAX_M_S:g} m/s, the limit"
    north, east, down = (a or 0.0 for a in goal.a)
    limited, level = _limited(down)
    if limited != down or math.hypot(north, east) > level:
        limits = f"{CLIMB_MAX_M_S2:g} m/s^2 up, {FALL_MAX_M_S2:.1f} down, {level:.1f} level with this climb"
        reasons["acceleration"] = f"limited to {limits}"
    if not turns and (goal.yaw is not None or goal.yaw_rate is not None):
        reasons["yaw"] = "yaw and yaw rate of a position set-point are not followed in this profile"
    return reasons


def _in_world(goal: PositionTarget, p_wb: Array, R_wh: Array) -> PositionTarget:
    """Convert a target from the heading frame to the world. A missing component of a horizontal pair counts as 0."""

    def turned(axes: Axes, origin: Array) -> Axes:
        x, y, z = axes
        if x is not None or y is not None:
            x, y, _ = (origin + R_wh @ np.array([x or 0.0, y or 0.0, 0.0])).tolist()
        return x, y, None if z is None else z + float(origin[2])

    p, v, a = turned(goal.p, p_wb), turned(goal.v, np.zeros(3)), turned(goal.a, np.zeros(3))
    return PositionTarget(p, v, goal.yaw, goal.yaw_rate, a=a)
