"""One step of strap-down integration between two IMU readings a and b, and the propagation of its errors.

    omega = (1 - s_g) (gyro - b_g),   f = (1 - s_a) (accel - b_a),   f' = exp(-delay omega') f
    E = exp(dt (omega_a + omega_b) / 2),   q_b = q_a * E
    v_b = v_a + R_a ((dt / 2 - delay) f'_a + (dt / 2 + delay) E f'_b) + dt g,   p_b = p_a + dt (v_a + v_b) / 2

Each axis has its own scale error s. A force may be older than its stamp by `delay`, as in simulators that differentiate the
velocity over their last step (over a turn of 1 rad at 30 m/s^2, 4 ms amount to 0.1 m/s), or behind a filter; omega' is the mean
rate over that time, omega - delay d(omega)/dt / 2. The errors propagate as in Sola (2017), sec. 5; here for the trapezoidal rule,
exact to first order. Compiled, as both run for every IMU sample.
"""

import math
from functools import partial
from pathlib import Path

import numpy as np

from gate_racer.common.compiled import code_folder, compiled
from gate_racer.model import states
from gate_racer.model.imu import ImuReading
from gate_racer.model.states import ACCEL_DELAY, B_A, B_G, MOVING, POSE, S_A, S_G, THETA, Nominal, P, V
from gate_racer.vehicle import rotation
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, product

SOURCES = __file__, states.__file__, rotation.__file__
kernel = partial(compiled, folder=code_folder(lambda: [Path(file) for file in SOURCES]))
LEAST_S = 1e-3  # s between samples whose difference tells how rates change (chosen)
SIGNATURE = "(float64, float64, float64[::1], float64[::1], float64[::1], float64[::1], float64[::1], float64[::1])"


def integrated(x: Nominal, a: ImuReading, b: ImuReading) -> Nominal:
    """Integrate the state from a to b."""
    values = x.values.copy()
    moved, q = _integrated(b.t - a.t, GRAVITY, x.q_wb, values[MOVING], a.accel, a.gyro, b.accel, b.gyro)
    values[POSE.start : THETA.start] = moved
    return Nominal(b.t, q, values)


def transition(x: Nominal, a: ImuReading, b: ImuReading) -> Array:
    """Return F (9, 22), from the errors in `MOVING` at a to those in `POSE` at b, for x at a; other errors are constant."""
    F: Array = _transition(b.t - a.t, GRAVITY, x.q_wb, x.values[MOVING], a.accel, a.gyro, b.accel, b.gyro)
    return F


@kernel("float64[:, ::1](float64[:, ::1], float64[:, ::1], float64[::1])")
def propagated(F: Array, cov: Array, q: Array) -> Array:
    """Return F P F' + Q (N, N) for the rows F (9, 22) that differ from the identity and the diagonal q (N,) of Q."""
    rows, columns = F.shape
    grown, moved = cov.copy(), F @ cov[:columns]
    for i in range(rows):
        for j in range(rows, cov.shape[0]):
            grown[i, j] = grown[j, i] = moved[i, j]
        for j in range(i + 1):
            own = 0.0
            for k in range(columns):
                own += moved[i, k] * F[j, k]
            grown[i, j] = grown[j, i] = own
    for i in range(cov.shape[0]):
        grown[i, i] += q[i]
    return grown


@kernel("float64[:, ::1](float64[::1])")
def _cross(a):
    return np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


@kernel("float64[:, ::1](float64[::1])")
def _matrix(q):
    w, x, y, z = q
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


@kernel("float64[::1](float64[::1])")
def _turn(phi):
    angle = math.sqrt(phi @ phi)
    s = math.sin(angle / 2) / angle if angle > 1e-9 else 0.5
    return np.array([math.cos(angle / 2), s * phi[0], s * phi[1], s * phi[2]])


@kernel("float64[:, ::1](float64[::1])")
def _turned(phi):
    return _matrix(_turn(phi))


@kernel("float64[:, ::1](float64[::1])")
def _right(phi):
    """Return the Jacobian of exp on the right at a rotation vector, to fourth order."""
    across, angle2 = _cross(phi), phi @ phi
    return np.eye(3) - (1 / 2 - angle2 / 24) * across + (1 / 6 - angle2 / 120) * (across @ across)


@kernel("float64[::1](float64, float64, float64[::1], float64[::1])")
def _bend(dt, delay, w0, w1):
    """Return by how much body rates exceed their mean over the delay before, from two of them."""
    return 0.5 * delay / max(dt, LEAST_S) * (w1 - w0)


@kernel("Tuple((float64[::1], float64[::1]))" + SIGNATURE)
def _integrated(dt, gravity, q, x, accel_a, gyro_a, accel_b, gyro_b):
    """Return position and velocity (6,) and attitude (4,) at b, from the states x (22,) and attitude q (4,) at a."""
    delay = x[ACCEL_DELAY]
    w0, w1 = (1 - x[S_G]) * (gyro_a - x[B_G]), (1 - x[S_G]) * (gyro_b - x[B_G])
    f0, f1 = (1 - x[S_A]) * (accel_a - x[B_A]), (1 - x[S_A]) * (accel_b - x[B_A])
    w, i, j, k = product(q, _turn(0.5 * dt * (w0 + w1)))
    q1 = np.array([w, i, j, k])
    q1 /= math.sqrt(q1 @ q1)
    bend = _bend(dt, delay, w0, w1)
    older0, older1 = _turned(delay * (bend - w0)) @ f0, _turned(delay * (bend - w1)) @ f1
    dv = (0.5 * dt - delay) * (_matrix(q) @ older0) + (0.5 * dt + delay) * (_matrix(q1) @ older1)
    dv[2] += dt * gravity
    moved = np.empty(6)
    moved[:3], moved[3:] = x[P] + dt * (x[V] + 0.5 * dv), x[V] + dv
    return moved, q1


@kernel("float64[:, ::1]" + SIGNATURE)
def _transition(dt, gravity, q, x, accel_a, gyro_a, accel_b, gyro_b):
    delay, gain_a, gain_g = x[ACCEL_DELAY], 1 - x[S_A], 1 - x[S_G]
    w0, w1 = gain_g * (gyro_a - x[B_G]), gain_g * (gyro_b - x[B_G])
    f0, f1 = gain_a * (accel_a - x[B_A]), gain_a * (accel_b - x[B_A])
    phi, k0, k1 = 0.5 * dt * (w0 + w1), 0.5 * dt - delay, 0.5 * dt + delay
    R0, E = _matrix(q), _turned(phi)
    R1, k0_R0, right = R0 @ E, k0 * R0, _right(phi)
    k1_R1 = k1 * R1
    bend = _bend(dt, delay, w0, w1)
    lag0, lag1 = delay * (bend - w0), delay * (bend - w1)
    E0, E1 = _turned(lag0), _turned(lag1)
    by_f0, by_f1, older0, older1 = k0_R0 @ E0, k1_R1 @ E1, E0 @ f0, E1 @ f1
    by_lag0, by_lag1 = by_f0 @ _cross(f0) @ _right(lag0), by_f1 @ _cross(f1) @ _right(lag1)
    by_turn = k1_R1 @ (-0.5 * dt * _cross(older1) @ right)
    by_w = 2 * by_turn + delay * (by_lag0 + by_lag1)
    off0, off1 = x[B_G] - gyro_a, x[B_G] - gyro_b
    bent = _bend(dt, delay, gyro_a, gyro_b)
    F = np.zeros((9, 22))
    for i in range(9):
        F[i, i] = 1.0
    F[P, V] = dt * np.eye(3)
    F[V, THETA] = -R0 @ _cross(k0 * older0 + k1 * (E @ older1))
    F[V, B_A] = -(by_f0 + by_f1) * gain_a
    F[V, S_A] = by_f0 * (x[B_A] - accel_a) + by_f1 * (x[B_A] - accel_b)
    F[V, B_G] = -by_w * gain_g
    F[V, S_G] = by_turn * (off0 + off1) + delay * (by_lag0 * (off0 + bent) + by_lag1 * (off1 + bent))
    F[V, ACCEL_DELAY] = R1 @ older1 - R0 @ older0 + by_lag0 @ (w0 - 2 * bend) + by_lag1 @ (w1 - 2 * bend)
    F[P, 6:] = 0.5 * dt * F[V, 6:]
    F[THETA, THETA], F[THETA, B_G] = E.T, -dt * right * gain_g
    F[THETA, S_G] = 0.5 * dt * right * (off0 + off1)
    return F
