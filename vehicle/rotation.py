"""Rotations. Quaternions are wxyz, Hamilton, body to world; `R_wb` rotates vectors from body to world axes.

`product`, `rotate` and `rate` take and return tuples of scalars, so that the same code serves NumPy, CasADi and Numba;
a scalar may also be an array, for elementwise operation.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gate_racer.common.compiled import inlined

Array = NDArray[np.float64]
Scalars = Any  # indexable: floats, arrays or CasADi expressions, one by one or as an array of them
Scalars3 = tuple[Any, Any, Any]
Scalars4 = tuple[Any, Any, Any, Any]
Vector = tuple[float, float, float]  # of records and files; axes as the field says
Quaternion = tuple[float, float, float, float]  # of records and files, wxyz
Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]

DOWN_W: Array = np.array([0.0, 0.0, 1.0])  # unit vector, world NED


def as_vector(a: Array) -> Vector:
    """Return an array (3,) as a tuple, for messages and records."""
    x, y, z = a.tolist()
    return x, y, z


@inlined
def product(a: Scalars, b: Scalars) -> Scalars4:
    """Return the Hamilton product a * b of two wxyz quaternions (4 scalars each)."""
    return (
        a[0] * b[0] - a[1] * b[1] - a[2] * b[2] - a[3] * b[3],
        a[0] * b[1] + a[1] * b[0] + a[2] * b[3] - a[3] * b[2],
        a[0] * b[2] - a[1] * b[3] + a[2] * b[0] + a[3] * b[1],
        a[0] * b[3] + a[1] * b[2] - a[2] * b[1] + a[3] * b[0],
    )


@inlined
def rotate(q: Scalars, v: Scalars) -> Scalars3:
    """Rotate v (3 scalars) by q (4 scalars), such as `v_w` from `q_wb` and `v_b`: the vector part of q (0, v) q*."""
    # (s^2 - u.u) v + 2 (u.v) u + 2 s (u x v), with q = (s, u)
    a = q[0] * q[0] - q[1] * q[1] - q[2] * q[2] - q[3] * q[3]
    b = 2 * (q[1] * v[0] + q[2] * v[1] + q[3] * v[2])
    s = 2 * q[0]
    return (
        a * v[0] + b * q[1] + s * (q[2] * v[2] - q[3] * v[1]),
        a * v[1] + b * q[2] + s * (q[3] * v[0] - q[1] * v[2]),
        a * v[2] + b * q[3] + s * (q[1] * v[1] - q[2] * v[0]),
    )


@inlined
def rate(q: Scalars, w: Scalars) -> Scalars4:
    """Return dq/dt = q * (0, w/2) for body rates w, rad/s."""
    return (
        0.5 * (-q[1] * w[0] - q[2] * w[1] - q[3] * w[2]),
        0.5 * (q[0] * w[0] + q[2] * w[2] - q[3] * w[1]),
        0.5 * (q[0] * w[1] - q[1] * w[2] + q[3] * w[0]),
        0.5 * (q[0] * w[2] + q[1] * w[1] - q[2] * w[0]),
    )


@inlined
def conjugate(q: Scalars) -> Scalars4:
    return (q[0], -q[1], -q[2], -q[3])


@inlined
def turn(x: Any, y: Any, z: Any) -> Scalars4:
    """Return the quaternion of a rotation vector (x, y, z), rad."""
    angle = math.sqrt(x * x + y * y + z * z)
    s = math.sin(angle / 2) / angle if angle > 1e-9 else 0.5
    return math.cos(angle / 2), s * x, s * y, s * z


def matrix(q: ArrayLike) -> Array:
    """Return R_wb (3, 3) of one unit quaternion q_wb (4,)."""
    w, x, y, z = np.asarray(q, float).tolist()  # arithmetic on Python's floats takes a third of NumPy's time
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def from_matrix(R: ArrayLike) -> Array:
    """Return the unit quaternion (4,) with non-negative w of a rotation matrix (3, 3).

    Every column of 4 q q' is a multiple of q; the one with the largest diagonal entry is best conditioned (Markley, "Unit
    Quaternion from Rotation Matrix", JGCD 2008).
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = np.asarray(R, float).tolist()
    columns = (
        (1 + xx + yy + zz, zy - yz, xz - zx, yx - xy),
        (zy - yz, 1 + xx - yy - zz, yx + xy, xz + zx),
        (xz - zx, yx + xy, 1 - xx + yy - zz, zy + yz),
        (yx - xy, xz + zx, zy + yz, 1 - xx - yy + zz),
    )
    q = columns[max(range(4), key=lambda k: columns[k][k])]
    return np.array(q) / math.copysign(math.sqrt(q[0] ** 2 + q[1] ** 2 + q[2] ** 2 + q[3] ** 2), q[0])


def from_euler(roll: float, pitch: float, yaw: float) -> Array:
    """Return q_wb (4,) of the aerospace sequence yaw (z), pitch (y), roll (x), rad."""
    cr, sr = math.cos(roll / 2), math.sin(roll / 2)
    cp, sp = math.cos(pitch / 2), math.sin(pitch / 2)
    cy, sy = math.cos(yaw / 2), math.sin(yaw / 2)
    return np.array(
        [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ]
    )


def to_euler(q: ArrayLike) -> tuple[float, float, float]:
    """Return (roll, pitch, yaw), rad, of q_wb (4,); pitch in [-pi/2, pi/2]."""
    w, x, y, z = np.asarray(q, float)
    sine = max(-1.0, min(1.0, 2 * (w * y - x * z)))
    if abs(sine) > 1 - 1e-12:  # at a vertical attitude only yaw minus or plus roll is defined
        return 0.0, math.asin(sine), 2 * math.atan2(z, w)
    return (
        math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)),
        math.asin(sine),
        math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)),
    )


def exp(phi: ArrayLike) -> Array:
    """Return the quaternion (4,) of a rotation vector phi (3,), rad."""
    phi = np.asarray(phi, float)
    angle = math.sqrt(phi @ phi)
    return np.array([math.cos(angle / 2), *((math.sin(angle / 2) / angle if angle > 1e-12 else 0.5) * phi)])


def log(q: ArrayLike) -> Array:
    """Return the rotation vector (3,), rad, of angle at most pi, of a unit quaternion (4,)."""
    q = np.asarray(q, float)
    q = q if q[0] >= 0 else -q
    s = math.sqrt(q[1:] @ q[1:])
    return q[1:] * (2 * math.atan2(s, q[0]) / s if s > 1e-12 else 2.0)


def normalised(q: ArrayLike) -> Array:
    q = np.asarray(q, float)
    return q / math.sqrt(q @ q)


def between(q0: ArrayLike, q1: ArrayLike, s: float) -> Array:
    """Interpolate along the shortest path from q0 (s = 0) to q1 (s = 1), or extrapolate."""
    return normalised(product(np.asarray(q0), exp(s * log(product(conjugate(q0), q1)))))


def aligned(down: Scalars, heading: Scalars) -> Array:
    """Return q_wb (4,) with the body z axis along the unit vector `down` (3) and the x axis as near as possible to `heading`."""
    right = _cross(down, heading)
    if math.hypot(*right) < 1e-3:  # heading parallel to down: any other direction
        right = _cross(down, (1.0, 0.1, 0.0))
    length = math.hypot(*right)
    right = right[0] / length, right[1] / length, right[2] / length
    return from_matrix(tuple(zip(_cross(right, down), right, down, strict=True)))


def _cross(a: Scalars, b: Scalars) -> Scalars3:
    """Return a x b, in a tenth of the time of `np.cross`."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
