"""The other vehicles of a race: their images, rotor wakes, and collisions with them.

Rotor wake: a jet that leaves the rotor disc and trails behind a moving vehicle. Induced velocity at the disc by momentum theory
in forward flight (Glauert 1926), in hover v_i = sqrt(T / (2 rho A)):

    T = 2 rho A v_i |V + v_i d|      d along the jet, V the velocity of the air towards the disc

Far below, the jet has contracted to half the disc area and moves at 2 v_i. From there it spreads as a round turbulent jet of
constant momentum:

    w(z, r) = 2 v_i (s_0 / s) exp(-r^2 / (2 s^2)),   s = s_0 + 0.08 z,   s_0 = sqrt(A / (2 pi))

with z along the jet's axis, which trails behind a moving vehicle, and r across it: half of the axial velocity at
r = 1.18 s = 0.094 z in the far field (Pope, "Turbulent Flows", 5.1). The wake is quasi-steady (no propagation delay), and
the flow between and around the rotors is not modelled.

Collision of two flying bodies, modelled by their circumscribed balls: Newton's law of restitution along the line of centres and
Coulomb's law across it (see `sim.physics.contact`). The time of contact is found on the straight paths between two ticks
(continuous detection), so that fast bodies do not tunnel.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from gate_racer.common.errors import UserError
from gate_racer.link.messages import RivalState
from gate_racer.sim.physics.contact import REST_M_S, Body
from gate_racer.sim.physics.plant import P, Q, Truth, V, W
from gate_racer.vehicle.rotation import Array, Vector, as_vector, exp, matrix, product
from gate_racer.vehicle.vehicle import Vehicle

AIR_KG_M3 = 1.225  # air density at sea level, 15 deg C (ISA)
SPREAD = 0.08  # growth of the Gaussian's standard deviation per distance, from Pope's half-width
ROTORS = 4
REACH_M = 10.0  # m along the axis, where a tenth of the velocity is left; zero beyond
STEPS = 20  # fixed-point iterations, for an error of 0.1 %


@dataclass(frozen=True, slots=True)
class Rotors:
    """Rotors of a vehicle as the source of its wake."""

    mass_kg: float
    area_m2: float  # area of all discs together


def rotors_of(vehicle: Vehicle, radius_m: float) -> Rotors | None:
    """Return the rotors of a vehicle with this rotor radius; None where it is 0. Raises UserError for an unknown mass."""
    if radius_m == 0:
        return None
    if vehicle.rotors is None:
        raise UserError(f"rivals.rotor_radius_m: vehicle {vehicle.name}: has no `rotors` section with its mass")
    return Rotors(vehicle.rotors.mass_kg, ROTORS * math.pi * radius_m**2)


def induced(thrust_n: float, area_m2: float, v_b: Array) -> float:
    """Return the induced velocity, m/s along body z, of a vehicle that moves at v_b (3,) m/s, FRD, through still air."""
    hover = math.sqrt(max(thrust_n, 0.0) / (2 * AIR_KG_M3 * area_m2))
    across, climb = math.hypot(v_b[0], v_b[1]), -float(v_b[2])
    v = hover
    for _ in range(STEPS):
        through = math.hypot(across, max(climb + v, 0.0))
        # Relaxation by one half: the plain iteration oscillates about the root.
        v = 0.5 * (v + hover**2 / max(through, 0.5 * hover)) if hover else 0.0
    return v


def downwash(x: Array, rotors: Rotors, p_w: Array) -> Array:
    """Return the air velocity (3,) m/s, world, at p_w (3,) m in the wake of a vehicle in state x (14,) as RATES_X."""
    away = p_w - x[:3]
    if away @ away > REACH_M**2:
        return np.zeros(3)
    R_wb = matrix(x[Q])
    down, v_w = R_wb[:, 2], x[V]
    v_i = induced(rotors.mass_kg * float(x[-1]), rotors.area_m2, R_wb.T @ v_w)
    left = 2 * v_i * down - v_w  # velocity of the jet relative to the vehicle, m/s
    speed = float(np.linalg.norm(left))
    z = float(away @ left) / max(speed, 1e-9)
    if v_i == 0 or z <= 0:
        return np.zeros(3)
    narrow = math.sqrt(rotors.area_m2 / (2 * math.pi))
    wide = narrow + SPREAD * z
    across = max(float(away @ away) - z * z, 0.0)
    return np.asarray(2 * v_i * narrow / wide * math.exp(-across / (2 * wide**2)) * down)


@dataclass(frozen=True, slots=True)
class CollidingBody:
    body: Body
    before: Array  # (3,) m, position a tick ago, world
    x: Array  # (13,) current pose and motion, as RATES_X
    fixed: bool = False  # on its pad: infinite mass

    @property
    def inverse_mass(self) -> float:
        """Inverse mass, 1/kg; 0 where the body is fixed."""
        return 0.0 if self.fixed else 1 / self.body.mass

    def velocity(self, arm_w: Array) -> Array:
        """Return the velocity (3,) m/s, world, of the body's point at arm_w (3,) m from its centre."""
        return np.asarray(self.x[V] + np.cross(matrix(self.x[Q]) @ self.x[W], arm_w))

    def turn(self, arm_w: Array, push_w: Array) -> tuple[Array, float]:
        """Return the change of the body rates (3,) by an impulse push_w at arm_w, and of the point's velocity along push_w."""
        if self.fixed:
            return np.zeros(3), 0.0
        moment_b = matrix(self.x[Q]).T @ np.cross(arm_w, push_w)
        turned = moment_b / np.array(self.body.inertia)
        return turned, float(moment_b @ turned)


@dataclass(frozen=True, slots=True)
class StateChange:
    shift_w: Array  # (3,) m
    dv_w: Array  # (3,) m/s
    domega_b: Array  # (3,) rad/s


@dataclass(frozen=True, slots=True)
class Impact:
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
    root = b * b - a * c
    if b >= 0 or (c > 0 and root < 0):
        return None
    s = (-b - math.sqrt(root)) / a if c > 0 else 0.0
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
    loose = a.inverse_mass + b.inverse_mass
    arm_a, arm_b = a.body.radius * n, -b.body.radius * n
    slip = b.velocity(arm_b) - a.velocity(arm_a)
    approach = -float(slip @ n)
    if approach <= 0 or loose == 0:
        return None
    bounce = (a.body.restitution + b.body.restitution) / 2 if approach > REST_M_S else 0.0
    along = (1 + bounce) * approach / loose
    impulse = along * n  # on b; a receives the opposite
    across = slip + approach * n
    speed = float(np.linalg.norm(across))
    if speed >= 1e-9:
        t = across / speed
        stop = speed / (loose + a.turn(arm_a, t)[1] + b.turn(arm_b, t)[1])
        impulse = impulse - min((a.body.friction + b.body.friction) / 2 * along, stop) * t
    dv_a, dv_b, later = -a.inverse_mass * impulse, b.inverse_mass * impulse, (1 - s) * dt
    shift_a, shift_b = later * dv_a, later * dv_b
    r = b.x[P] + shift_b - a.x[P] - shift_a
    gap = float(np.linalg.norm(r))
    if 0 < gap < reach:  # they still overlap
        out = (reach - gap) / (gap * loose) * r
        shift_a, shift_b = shift_a - a.inverse_mass * out, shift_b + b.inverse_mass * out
    on_a = StateChange(shift_a, dv_a, a.turn(arm_a, -impulse)[0])
    on_b = StateChange(shift_b, dv_b, b.turn(arm_b, impulse)[0])
    return Impact(approach, float(np.linalg.norm(impulse)), on_a, on_b)


@dataclass(frozen=True, slots=True)
class Rival:
    """State and size of another vehicle at one time; world NED, body FRD."""

    place: int  # grid place, from 1
    p_wb: Array  # (3,) m
    q_wb: Array  # (4,)
    v_w: Array  # (3,) m/s
    omega_b: Array  # (3,) rad/s
    body_m: Vector  # m: length, width, height
    radius_m: float  # centre to corner

    def at(self, dt: float) -> "Rival":
        """Predict the state dt (s) later at constant velocity and body rates."""
        return replace(self, p_wb=self.p_wb + dt * self.v_w, q_wb=np.array(product(self.q_wb, exp(dt * self.omega_b))))


@dataclass(slots=True)
class Traffic:
    """All vehicles of a race, which are alike. Interactions use the states of the last tick: the order has no effect."""

    vehicle: Vehicle
    rotors: Rotors | None  # source of wake; None: none is simulated
    send_states: bool  # whether pilots are sent the states of rivals
    truths: list[Truth] = field(default_factory=list)  # of all vehicles, in order, at one time


@dataclass(frozen=True, slots=True)
class TrafficView:
    """Traffic as vehicle i (from 0) observes it."""

    traffic: Traffic
    i: int

    def seen(self, t: float) -> tuple[Rival, ...]:
        """Return the other vehicles at t (s), extrapolated from the last tick."""
        size, found = (self.traffic.vehicle.body_m, self.traffic.vehicle.half_diagonal), []
        for k, truth in enumerate(self.traffic.truths):
            if k != self.i:
                x = truth.x.copy()
                found.append(Rival(k + 1, x[P], x[Q], x[V], x[W], *size).at(t - truth.t))
        return tuple(found)

    def rival_states(self, t: float) -> list[RivalState]:
        """Return the messages on the others at t (s); empty unless rivals' states are sent."""
        if not self.traffic.send_states:
            return []
        return [RivalState(t, one.place, as_vector(one.p_wb), as_vector(one.v_w)) for one in self.seen(t)]

    def air_w(self, p_w: Array) -> Array:
        """Return the air velocity (3,) m/s, world, at p_w (3,) m that the others' wakes induce."""
        total, rotors = np.zeros(3), self.traffic.rotors
        for k, truth in enumerate(self.traffic.truths):
            if k != self.i and rotors is not None:
                total += downwash(truth.x, rotors, p_w)
        return total
