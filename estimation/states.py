"""The states of the error-state filter, in one list: what each is, its unit and its frame; and where the filter stands.

An error is the true value less the estimate, and theta with q = q_est * exp(theta) (Sola, "Quaternion kinematics for the
error-state Kalman filter", 2017). State, error and covariance go by the same names: x[LAG], error[LAG], cov[LAG, LAG].
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vehicle.layout import layout
from vehicle.rotation import Array, product

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
    radial=("k1 k2", "-", "of the lens' distortion beyond its nominal one"),
    readout=("", "s", "from the first row of a picture to its last, which are exposed one after the other"),
)
P, V, THETA, B_A, B_G, S_A, S_G = (ERROR[name].at for name in ("p", "v", "theta", "b_a", "b_g", "s_a", "s_g"))
GATES, SWELL, CENTRE, ARM, LEAN = (ERROR[name].at for name in ("gates", "swell", "centre", "arm", "lean"))
RADIAL = ERROR["radial"].at
LAG, TILT, DELAY, EDGE, SCALE = (ERROR[name].at.start for name in ("lag", "tilt", "delay", "edge", "scale"))
YAW, ROLL, FOCAL, READOUT = (ERROR[name].at.start for name in ("yaw", "roll", "focal", "readout"))
POSE = slice(0, THETA.stop)  # errors that grow by others: position, velocity and attitude
MOVING = slice(0, S_G.stop)  # ... and those by which they grow; what follows is of the camera, the clocks and the map
N = ERROR.size
# [b]x = (b CROSS) as a matrix (3, 3).
CROSS = np.array([[0, 0, 0, 0, 0, -1, 0, 1, 0], [0, 0, 1, 0, 0, 0, -1, 0, 0], [0, -1, 0, 1, 0, 0, 0, 0, 0]], float)
EYE3 = np.eye(3)


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
    """What the error is an error of: an attitude, and all other states, each under the name of its error: x[LAG], x[B_A]."""

    t: float
    q_wb: Array  # (4,)
    values: Array  # (N,); the three of the attitude's error stay 0

    @classmethod
    def at(cls, t: float, p_wb: Array, v_w: Array, q_wb: Array, **others: ArrayLike) -> "Nominal":
        """Position (3,) m and velocity (3,) m/s in the world; any other states by their names in `ERROR`, else 0."""
        values = np.zeros(N)
        values[P], values[V] = p_wb, v_w
        for name, value in others.items():
            values[ERROR[name].at] = value
        return cls(t, np.asarray(q_wb, float), values)

    def __getitem__(self, at: Any) -> Any:
        return self.values[at]

    @property
    def p_wb(self) -> Array:
        return self.values[P]

    @property
    def v_w(self) -> Array:
        return self.values[V]

    @property
    def gates(self) -> Array:
        """(PLACES, 3) m, world."""
        return self.values[GATES].reshape(-1, 3)

    def force(self, reading: Reading) -> Array:
        """(3,) m/s^2, true specific force behind a reading."""
        return np.asarray((1 - self[S_A]) * (reading.accel - self[B_A]))

    def rates(self, reading: Reading) -> Array:
        """(3,) rad/s, true body rates behind a reading."""
        return np.asarray((1 - self[S_G]) * (reading.gyro - self[B_G]))

    def plus(self, error: Array) -> "Nominal":
        """The state that an error (N,) of this one means."""
        q = np.array(product(self.q_wb.tolist(), turn(*error[THETA].tolist())))
        values = self.values + error
        values[THETA] = 0.0
        return Nominal(self.t, q / math.sqrt(q @ q), values)

    def having(self, **others: ArrayLike) -> "Nominal":
        """This one with other values of the states of these names in `ERROR`."""
        values = self.values.copy()
        for name, value in others.items():
            values[ERROR[name].at] = value
        return Nominal(self.t, self.q_wb, values)


def turn(x: float, y: float, z: float) -> tuple[float, float, float, float]:
    """exp of a rotation vector in rad, in scalars."""
    angle = math.sqrt(x * x + y * y + z * z)
    s = math.sin(angle / 2) / angle if angle > 1e-9 else 0.5
    return math.cos(angle / 2), s * x, s * y, s * z


def cross(a: Array) -> Array:
    """The matrix [a]x (3, 3)."""
    x, y, z = a.tolist()
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
