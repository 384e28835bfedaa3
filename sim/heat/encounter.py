"""Collision of two flying bodies, modelled by their circumscribed balls, with an impulse response.

Newton's law of restitution along the line of centres and Coulomb's law across it (see `sim.physics.contact`). The time of
contact is found on the straight paths between two ticks (continuous detection), so that fast bodies do not tunnel.
"""

import math
from dataclasses import dataclass

import numpy as np

from gate_racer.sim.physics.contact import REST_M_S, Body
from gate_racer.sim.physics.plant import P, Q, V, W
from gate_racer.vehicle.rotation import Array, matrix


@dataclass(frozen=True, slots=True)
class CollidingBody:
    """One of two bodies in a possible collision."""

    body: Body
    before: Array  # (3,) m, position a tick ago, world
    x: Array  # (13,) current pose and motion, as RATES_X
    fixed: bool = False  # on its pad: infinite mass

    @property
    def inverse_mass(self) -> float:
        """Inverse mass, 1/kg; 0 where the body is fixed."""
        return 0.0 if self.fixed else 1 / self.body.mass


@dataclass(frozen=True, slots=True)
class StateChange:
    """Change of one body's state by a collision: position (3,) m, velocity (3,) m/s, body rates (3,) rad/s."""

    shift_w: Array
    dv_w: Array
    domega_b: Array


@dataclass(frozen=True, slots=True)
class Impact:
    """Collision of two bodies a and b."""

    s: float  # fraction of the tick at first contact
    approach_m_s: float
    impulse: float  # kg m/s, or m/s (per mass) where a mass is unknown
    a: StateChange
    b: StateChange


def first_touch(r0: Array, r1: Array, reach: float) -> float | None:
    """Return the fraction of the step between relative positions r0 and r1 (3,), m, at which their norm falls to `reach`.

    0 where the bodies overlap already and approach; None where they do not touch, or separate.
    """
    d = r1 - r0
    a, b, c = float(d @ d), float(r0 @ d), float(r0 @ r0) - reach**2
    if b >= 0:
        return None
    if c <= 0:
        return 0.0
    root = b * b - a * c
    if root < 0:
        return None
    s = (-b - math.sqrt(root)) / a
    return s if s <= 1 else None


def impact(a: CollidingBody, b: CollidingBody, dt: float) -> Impact | None:
    """Return the collision of two bodies within a tick of dt (s), or None."""
    r0, r1 = b.before - a.before, b.x[P] - a.x[P]
    reach = a.body.radius + b.body.radius
    s = first_touch(r0, r1, reach)
    if s is None:
        return None
    r = r0 + s * (r1 - r0)
    n = r / max(float(np.linalg.norm(r)), 1e-9)
    arms = (a.body.radius * n, -b.body.radius * n)
    slip = _velocity(b, arms[1]) - _velocity(a, arms[0])
    approach = -float(slip @ n)
    if approach <= 0 or a.inverse_mass + b.inverse_mass == 0:
        return None
    impulse = _impulse(a, b, n, arms, slip, approach)
    later = (1 - s) * dt
    on_a, on_b = _apart(a, b, _knock(a, -impulse, arms[0], later), _knock(b, impulse, arms[1], later), reach)
    return Impact(s, approach, float(np.linalg.norm(impulse)), on_a, on_b)


def _velocity(mover: CollidingBody, arm_w: Array) -> Array:
    """Return the velocity (3,) m/s, world, of the body's point at arm_w (3,) m from its centre."""
    return np.asarray(mover.x[V] + np.cross(matrix(mover.x[Q]) @ mover.x[W], arm_w))


def _impulse(
    a: CollidingBody, b: CollidingBody, n: Array, arms: tuple[Array, Array], slip: Array, approach: float
) -> Array:
    """Return the impulse (3,) on b, world; a receives the opposite."""
    loose = a.inverse_mass + b.inverse_mass
    bounce = (a.body.restitution + b.body.restitution) / 2 if approach > REST_M_S else 0.0
    along = (1 + bounce) * approach / loose
    across = slip + approach * n
    speed = float(np.linalg.norm(across))
    if speed < 1e-9:
        return along * n
    t = across / speed
    yielding = loose + sum(float(_turn(mover, arm, t)[1]) for mover, arm in zip((a, b), arms, strict=True))
    friction = (a.body.friction + b.body.friction) / 2
    return along * n - min(friction * along, speed / yielding) * t


def _turn(mover: CollidingBody, arm_w: Array, push_w: Array) -> tuple[Array, float]:
    """Return the change of the body rates (3,) by an impulse push_w at arm_w, and of the point's velocity along push_w."""
    if mover.fixed:
        return np.zeros(3), 0.0
    moment_b = matrix(mover.x[Q]).T @ np.cross(arm_w, push_w)
    turned = moment_b / np.array(mover.body.inertia)
    return turned, float(moment_b @ turned)


def _knock(mover: CollidingBody, push_w: Array, arm_w: Array, later_s: float) -> StateChange:
    dv_w = mover.inverse_mass * push_w
    return StateChange(later_s * dv_w, dv_w, _turn(mover, arm_w, push_w)[0])


def _apart(
    a: CollidingBody, b: CollidingBody, on_a: StateChange, on_b: StateChange, reach: float
) -> tuple[StateChange, StateChange]:
    """Separate bodies that still overlap, in proportion to their inverse masses."""
    r = b.x[P] + on_b.shift_w - a.x[P] - on_a.shift_w
    gap = float(np.linalg.norm(r))
    if gap >= reach or gap == 0:
        return on_a, on_b
    out = (reach - gap) / (gap * (a.inverse_mass + b.inverse_mass)) * r
    return (
        StateChange(on_a.shift_w - a.inverse_mass * out, on_a.dv_w, on_a.domega_b),
        StateChange(on_b.shift_w + b.inverse_mass * out, on_b.dv_w, on_b.domega_b),
    )
