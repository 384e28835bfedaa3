"""One step of strap-down integration between two IMU readings a and b, and how its errors grow.

    E = exp(dt (omega_a + omega_b) / 2),   q_b = q_a * E
    a_w = R_a (f_a + E f_b) / 2 + g,   v_b = v_a + dt a_w,   p_b = p_a + dt v_a + dt^2 a_w / 2

omega and f are the readings less their biases. Errors are the true p, v, b_a, b_g less the estimate, and theta with
q = q_est * exp(theta) (Sola, "Quaternion kinematics for the error-state Kalman filter", 2017, sec. 5; here for the
trapezoid, exact to first order).
"""

import math
from dataclasses import dataclass, field

import numpy as np

from vehicle.dynamics import GRAVITY
from vehicle.layout import layout
from vehicle.rotation import Array, matrix, product, rotate

PLACES = 6  # gates whose offsets are estimated at a time
NAMES = " ".join(f"{axis}{k}" for k in range(PLACES) for axis in "xyz")
NUMBERS = " ".join(str(k) for k in range(PLACES))
ERROR = layout(
    p=("x y z", "m", "world NED"),
    v=("x y z", "m/s", "world NED"),
    theta=("x y z", "rad", "body FRD"),
    b_a=("x y z", "m/s^2", "accelerometer bias, body FRD"),
    b_g=("x y z", "rad/s", "gyro bias, body FRD"),
    tilt=("", "rad", "of the camera, beyond its nominal tilt"),
    delay=("", "s", "of the exposure after its stamp"),
    edge=("", "px", "by which all edges in pictures lie outside of the true ones"),
    gates=(NAMES, "m", "world NED, of the gates in `PLACES` from where the scaled map has them"),
    scale=("", "-", "by which the course, seen from the pad, is larger than its map"),
    swell=(NUMBERS, "m", "by which the edges of the gates in `PLACES` lie outside of the map's"),
)
P, V, THETA, B_A, B_G = (ERROR[name].at for name in ("p", "v", "theta", "b_a", "b_g"))
GATES, SWELL = ERROR["gates"].at, ERROR["swell"].at
TILT, DELAY, EDGE, SCALE = (ERROR[name].at.start for name in ("tilt", "delay", "edge", "scale"))
ATTITUDE_AND_BIASES = slice(THETA.start, B_G.stop)
MOVING = slice(0, B_G.stop)  # errors that change with time; the others only grow
N = ERROR.size
EYE3, EYE_MOVING = np.eye(3), np.eye(MOVING.stop)
NO_OFFSETS, NO_SWELL = np.zeros((PLACES, 3)), np.zeros(PLACES)


@dataclass(frozen=True, slots=True)
class Reading:
    """One IMU sample as arrays."""

    t: float
    accel: Array  # (3,) m/s^2, specific force, body FRD
    gyro: Array  # (3,) rad/s
    step: float = 0.0  # s from the sample before, when a part of that way counts as such

    def until(self, later: "Reading", t: float) -> "Reading":
        """The reading at t, on the line from this one to a later one."""
        s = (t - self.t) / (later.t - self.t)
        accel, gyro = self.accel + s * (later.accel - self.accel), self.gyro + s * (later.gyro - self.gyro)
        return Reading(t, accel, gyro, later.step)


@dataclass(frozen=True, slots=True)
class Nominal:
    """What the error is an error of. World NED, body FRD."""

    t: float
    p_wb: Array
    v_w: Array
    q_wb: Array
    accel_bias: Array  # (3,) m/s^2
    gyro_bias: Array  # (3,) rad/s
    tilt: float = 0.0  # rad
    delay: float = 0.0  # s
    edge: float = 0.0  # px
    gates: Array = field(default_factory=lambda: NO_OFFSETS)  # (PLACES, 3) m
    scale: float = 0.0
    swell: Array = field(default_factory=lambda: NO_SWELL)  # (PLACES,) m

    def plus(self, error: Array) -> "Nominal":
        """The state that an error (N,) of this one means."""
        q = np.array(product(self.q_wb.tolist(), turn(*error[THETA].tolist())))
        return Nominal(
            self.t,
            self.p_wb + error[P],
            self.v_w + error[V],
            q / math.sqrt(q @ q),
            self.accel_bias + error[B_A],
            self.gyro_bias + error[B_G],
            self.tilt + float(error[TILT]),
            self.delay + float(error[DELAY]),
            self.edge + float(error[EDGE]),
            self.gates + error[GATES].reshape(-1, 3),
            self.scale + float(error[SCALE]),
            self.swell + error[SWELL],
        )


def turn(x: float, y: float, z: float) -> tuple[float, float, float, float]:
    """exp of a rotation vector in rad, in scalars."""
    angle = math.sqrt(x * x + y * y + z * z)
    s = math.sin(angle / 2) / angle if angle > 1e-9 else 0.5
    return math.cos(angle / 2), s * x, s * y, s * z


def integrated(x: Nominal, a: Reading, b: Reading) -> Nominal:
    """The state at b from that at a; about 10 us."""
    dt = b.t - a.t
    wx, wy, wz = (0.5 * dt * (a.gyro + b.gyro) - dt * x.gyro_bias).tolist()
    q0 = tuple(x.q_wb.tolist())
    w, i, j, k = product(q0, turn(wx, wy, wz))
    scale = 1.0 / math.sqrt(w * w + i * i + j * j + k * k)
    q1 = (w * scale, i * scale, j * scale, k * scale)
    f0 = rotate(q0, (a.accel - x.accel_bias).tolist())
    f1 = rotate(q1, (b.accel - x.accel_bias).tolist())
    dv = 0.5 * dt * np.array([f0[0] + f1[0], f0[1] + f1[1], f0[2] + f1[2] + 2 * GRAVITY])
    return Nominal(
        b.t,
        x.p_wb + dt * (x.v_w + 0.5 * dv),
        x.v_w + dv,
        np.array(q1),
        x.accel_bias,
        x.gyro_bias,
        x.tilt,
        x.delay,
        x.edge,
        x.gates,
        x.scale,
        x.swell,
    )


def transition(x: Nominal, a: Reading, b: Reading) -> Array:
    """F (15, 15) of the errors in `MOVING`: those at b by those at a, for x at a."""
    dt = b.t - a.t
    phi = 0.5 * dt * (a.gyro + b.gyro) - dt * x.gyro_bias
    R0, E, cross_phi = matrix(x.q_wb), matrix(turn(*phi.tolist())), cross(phi)
    R1 = R0 @ E
    right = EYE3 - 0.5 * cross_phi + cross_phi @ cross_phi / 6  # Jacobian of exp on the right, to second order
    f1 = b.accel - x.accel_bias
    force = a.accel - x.accel_bias + E @ f1  # twice the mean, in the axes of a
    F = EYE_MOVING.copy()
    F[P, V] = dt * EYE3
    F[V, THETA], F[V, B_A] = R0 @ cross(-0.5 * dt * force), -0.5 * dt * (R0 + R1)
    F[V, B_G] = (0.5 * dt * dt * R1) @ cross(f1) @ right
    F[P, ATTITUDE_AND_BIASES] = 0.5 * dt * F[V, ATTITUDE_AND_BIASES]
    F[THETA, THETA], F[THETA, B_G] = E.T, -dt * right
    return F


def cross(a: Array) -> Array:
    """The matrix [a]x (3, 3)."""
    x, y, z = a.tolist()
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
