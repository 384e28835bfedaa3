"""One step of strap-down integration between two IMU readings a and b, and how its errors grow.

    omega = (1 - s_g) (gyro - b_g),   f = (1 - s_a) (accel - b_a),   f' = f - lag omega x f
    E = exp(dt (omega_a + omega_b) / 2),   q_b = q_a * E
    v_b = v_a + R_a ((dt / 2 - lag) f'_a + (dt / 2 + lag) E f'_b) + dt g,   p_b = p_a + dt (v_a + v_b) / 2

Each axis has a scale s of its own. A force may be older than its stamp by a `lag`, as where a simulator takes the change of
velocity over its last step for it: through each turn of 1 rad at 30 m/s^2, 4 ms make 0.1 m/s. Errors are the true p, v, b_a,
b_g, lag, s_a, s_g less the estimate, and theta with q = q_est * exp(theta) (Sola, "Quaternion kinematics for the error-state
Kalman filter", 2017, sec. 5; here for the trapezoid, exact to first order).
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
    lag=("", "s", "of the forces behind their stamps"),
    s_a=("x y z", "-", "share by which the accelerometer reads too much, body FRD"),
    s_g=("x y z", "-", "share by which the gyro reads too much, body FRD"),
    tilt=("", "rad", "of the camera, beyond its nominal tilt"),
    delay=("", "s", "of the exposure after its stamp"),
    edge=("", "px", "by which all edges in pictures lie outside of the true ones"),
    gates=(NAMES, "m", "world NED, of the gates in `PLACES` from where the scaled map has them"),
    scale=("", "-", "by which the course, seen from the pad, is larger than its map"),
    swell=(NUMBERS, "m", "by which the edges of the gates in `PLACES` lie outside of the map's"),
    yaw=("", "rad", "of the camera to the right, beyond its nominal yaw"),
    roll=("", "rad", "of the camera clockwise about its axis, beyond its nominal roll"),
    focal=("", "-", "by which the focal length is larger than its nominal value"),
    centre=("u v", "px", "of the principal point from its nominal place"),
    arm=("x y z", "m", "body FRD, of the camera from its nominal place"),
    lean=("x y z", "rad", "body FRD, by which a told attitude is turned from the true one"),
)
P, V, THETA, B_A, B_G, S_A, S_G = (ERROR[name].at for name in ("p", "v", "theta", "b_a", "b_g", "s_a", "s_g"))
GATES, SWELL, CENTRE, ARM, LEAN = (ERROR[name].at for name in ("gates", "swell", "centre", "arm", "lean"))
LAG, TILT, DELAY, EDGE, SCALE = (ERROR[name].at.start for name in ("lag", "tilt", "delay", "edge", "scale"))
YAW, ROLL, FOCAL = (ERROR[name].at.start for name in ("yaw", "roll", "focal"))
MOVING = slice(0, S_G.stop)  # errors that change with time, and what changes them; the others only grow
CHANGING_V = slice(THETA.start, S_G.stop)
N = ERROR.size
# [b]x = (b CROSS) as a matrix (3, 3).
CROSS = np.array([[0, 0, 0, 0, 0, -1, 0, 1, 0], [0, 0, 1, 0, 0, 0, -1, 0, 0], [0, -1, 0, 1, 0, 0, 0, 0, 0]], float)
EYE3, EYE_MOVING = np.eye(3), np.eye(MOVING.stop)
NO_OFFSETS, NO_SWELL, NONE2, NONE3 = np.zeros((PLACES, 3)), np.zeros(PLACES), np.zeros(2), np.zeros(3)


@dataclass(frozen=True, slots=True)
class Reading:
    """One IMU sample as arrays."""

    t: float
    accel: Array  # (3,) m/s^2, specific force, body FRD
    gyro: Array  # (3,) rad/s
    step: float = 0.0  # s from the sample before, when a part of that way counts as such
    predicted: bool = False  # by a model, where no sample has come

    def until(self, later: "Reading", t: float) -> "Reading":
        """The reading at t, on the line from this one to a later one."""
        s = (t - self.t) / (later.t - self.t)
        accel, gyro = self.accel + s * (later.accel - self.accel), self.gyro + s * (later.gyro - self.gyro)
        return Reading(t, accel, gyro, later.step, later.predicted)


@dataclass(frozen=True, slots=True)
class Nominal:
    """What the error is an error of. World NED, body FRD."""

    t: float
    p_wb: Array
    v_w: Array
    q_wb: Array
    accel_bias: Array  # (3,) m/s^2
    gyro_bias: Array  # (3,) rad/s
    lag: float = 0.0  # s
    tilt: float = 0.0  # rad
    delay: float = 0.0  # s
    edge: float = 0.0  # px
    gates: Array = field(default_factory=lambda: NO_OFFSETS)  # (PLACES, 3) m
    scale: float = 0.0
    swell: Array = field(default_factory=lambda: NO_SWELL)  # (PLACES,) m
    yaw: float = 0.0  # rad
    roll: float = 0.0  # rad
    focal: float = 0.0
    centre: Array = field(default_factory=lambda: NONE2)  # (2,) px
    arm: Array = field(default_factory=lambda: NONE3)  # (3,) m
    lean: Array = field(default_factory=lambda: NONE3)  # (3,) rad
    accel_scale: Array = field(default_factory=lambda: NONE3)  # (3,)
    gyro_scale: Array = field(default_factory=lambda: NONE3)  # (3,)

    def force(self, reading: Reading) -> Array:
        """(3,) m/s^2, true specific force behind a reading."""
        return (1 - self.accel_scale) * (reading.accel - self.accel_bias)

    def rates(self, reading: Reading) -> Array:
        """(3,) rad/s, true body rates behind a reading."""
        return (1 - self.gyro_scale) * (reading.gyro - self.gyro_bias)

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
            self.lag + float(error[LAG]),
            self.tilt + float(error[TILT]),
            self.delay + float(error[DELAY]),
            self.edge + float(error[EDGE]),
            self.gates + error[GATES].reshape(-1, 3),
            self.scale + float(error[SCALE]),
            self.swell + error[SWELL],
            self.yaw + float(error[YAW]),
            self.roll + float(error[ROLL]),
            self.focal + float(error[FOCAL]),
            self.centre + error[CENTRE],
            self.arm + error[ARM],
            self.lean + error[LEAN],
            self.accel_scale + error[S_A],
            self.gyro_scale + error[S_G],
        )


def turn(x: float, y: float, z: float) -> tuple[float, float, float, float]:
    """exp of a rotation vector in rad, in scalars."""
    angle = math.sqrt(x * x + y * y + z * z)
    s = math.sin(angle / 2) / angle if angle > 1e-9 else 0.5
    return math.cos(angle / 2), s * x, s * y, s * z


def integrated(x: Nominal, a: Reading, b: Reading) -> Nominal:
    """The state at b from that at a; about 10 us."""
    dt = b.t - a.t
    w0, w1 = x.rates(a), x.rates(b)
    wx, wy, wz = (0.5 * dt * (w0 + w1)).tolist()
    q0 = tuple(x.q_wb.tolist())
    w, i, j, k = product(q0, turn(wx, wy, wz))
    scale = 1.0 / math.sqrt(w * w + i * i + j * j + k * k)
    q1 = (w * scale, i * scale, j * scale, k * scale)
    f0 = rotate(q0, _older(x.force(a), w0, x.lag))
    f1 = rotate(q1, _older(x.force(b), w1, x.lag))
    k0, k1 = 0.5 * dt - x.lag, 0.5 * dt + x.lag
    dv = np.array([k0 * f0[0] + k1 * f1[0], k0 * f0[1] + k1 * f1[1], k0 * f0[2] + k1 * f1[2] + dt * GRAVITY])
    return Nominal(
        b.t,
        x.p_wb + dt * (x.v_w + 0.5 * dv),
        x.v_w + dv,
        np.array(q1),
        x.accel_bias,
        x.gyro_bias,
        x.lag,
        x.tilt,
        x.delay,
        x.edge,
        x.gates,
        x.scale,
        x.swell,
        x.yaw,
        x.roll,
        x.focal,
        x.centre,
        x.arm,
        x.lean,
        x.accel_scale,
        x.gyro_scale,
    )


def _older(force: Array, omega: Array, lag: float) -> tuple[float, float, float]:
    """A force in the axes of `lag` ago as one in those of now, first order in their turn."""
    fx, fy, fz = force.tolist()
    wx, wy, wz = omega.tolist()
    return fx - lag * (wy * fz - wz * fy), fy - lag * (wz * fx - wx * fz), fz - lag * (wx * fy - wy * fx)


def transition(x: Nominal, a: Reading, b: Reading) -> Array:
    """F (22, 22) of the errors in `MOVING`: those at b by those at a, for x at a."""
    dt = b.t - a.t
    w0, w1, f0, f1 = x.rates(a), x.rates(b), x.force(a), x.force(b)
    phi, k0, k1 = 0.5 * dt * (w0 + w1), 0.5 * dt - x.lag, 0.5 * dt + x.lag
    cross_phi, cross_w0, cross_w1, cross_f0, cross_f1 = (np.array([phi, w0, w1, f0, f1]) @ CROSS).reshape(5, 3, 3)
    R0, E = matrix(x.q_wb), matrix(turn(*phi.tolist()))
    R1, k0_R0 = R0 @ E, k0 * R0
    k1_R1 = k1 * R1
    phi2 = float(phi @ phi)  # and the Jacobian of exp on the right, to fourth order
    right = EYE3 - (1 / 2 - phi2 / 24) * cross_phi + (1 / 6 - phi2 / 120) * (cross_phi @ cross_phi)
    by_f0, by_f1 = k0_R0 @ (EYE3 - x.lag * cross_w0), k1_R1 @ (EYE3 - x.lag * cross_w1)
    by_lag0, by_lag1 = cross_w0 @ f0, cross_w1 @ f1
    f0_old, f1_old = f0 - x.lag * by_lag0, f1 - x.lag * by_lag1
    cross_f1_old, cross_both = (np.array([f1_old, k0 * f0_old + k1 * (E @ f1_old)]) @ CROSS).reshape(2, 3, 3)
    by_turn = k1_R1 @ (-0.5 * dt * cross_f1_old @ right)
    by_w0, by_w1 = by_turn + x.lag * (k0_R0 @ cross_f0), by_turn + x.lag * (k1_R1 @ cross_f1)
    F = EYE_MOVING.copy()
    F[P, V] = dt * EYE3
    F[V, THETA] = -R0 @ cross_both
    F[V, B_A] = (x.accel_scale - 1) * (by_f0 + by_f1)
    F[V, S_A] = by_f0 * (x.accel_bias - a.accel) + by_f1 * (x.accel_bias - b.accel)
    F[V, B_G] = (x.gyro_scale - 1) * (by_w0 + by_w1)
    F[V, S_G] = by_w0 * (x.gyro_bias - a.gyro) + by_w1 * (x.gyro_bias - b.gyro)
    F[V, LAG] = R1 @ f1_old - R0 @ f0_old - k0_R0 @ by_lag0 - k1_R1 @ by_lag1
    F[P, CHANGING_V] = 0.5 * dt * F[V, CHANGING_V]
    F[THETA, THETA], F[THETA, B_G] = E.T, dt * right * (x.gyro_scale - 1)
    F[THETA, S_G] = 0.5 * dt * right * (2 * x.gyro_bias - a.gyro - b.gyro)
    return F


def cross(a: Array) -> Array:
    """The matrix [a]x (3, 3)."""
    x, y, z = a.tolist()
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
