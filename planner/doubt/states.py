"""Error states of the covariance prediction: true value minus estimate, attitude by q = q_est * exp(theta) (Sola 2017).

They are those states of `estimation.eskf`, with the same meaning, that affect a gate crossing, in a separate table, since the
prediction is independent of the filter. Only a few gates near the next one have states, in slots.
"""

from typing import NamedTuple

import numpy as np

from gate_racer.vehicle.doubt import Doubt
from gate_racer.vehicle.layout import layout
from gate_racer.vehicle.rotation import Array, matrix
from gate_racer.vehicle.vehicle import Vehicle

GATES_KEPT = 6  # number of slots for gates
XYZ = "x y z"
ERROR = layout(
    p=(XYZ, "m", "position, world NED"),
    v=(XYZ, "m/s", "velocity, world NED"),
    theta=(XYZ, "rad", "attitude, body FRD"),
    b_a=(XYZ, "m/s^2", "accelerometer bias, body FRD"),
    b_g=(XYZ, "rad/s", "gyro bias, body FRD"),
    s_a=(XYZ, "-", "accelerometer scale, body FRD"),
    s_g=(XYZ, "-", "gyro scale, body FRD"),
    accel_delay=("", "s", "age of the specific force at its time stamp"),
    mount=("yaw tilt roll", "rad", "rotation of the camera from its nominal mount"),
    arm=(XYZ, "m", "offset of the camera from its nominal position, body FRD"),
    focal=("", "-", "share by which the focal length exceeds its nominal value"),
    centre=("u v", "px", "offset of the principal point from its nominal position"),
    radial=("k1 k2", "-", "excess of the distortion over its nominal value"),
    delay=("", "s", "delay of the exposure after its time stamp"),
    readout=("", "s", "readout time from the first row of an image to its last"),
    edge_px=("", "px", "outward offset of all edges in images"),
    scale=("", "-", "excess of the scale of the course over its map, about the pad"),
    gates=(
        " ".join(f"{axis}{k}" for k in range(GATES_KEPT) for axis in "xyz"),
        "m",
        "offsets from the map, world NED",
    ),
    turns=(
        " ".join(f"{axis}{k}" for k in range(GATES_KEPT) for axis in ("yaw", "pitch")),
        "rad",
        "about own axes",
    ),
    edges=(" ".join(str(k) for k in range(GATES_KEPT)), "m", "outward offsets of the gates' edges from the map"),
    depths=(
        " ".join(str(k) for k in range(GATES_KEPT)),
        "m",
        "position along a frame's walls at which its edges are seen",
    ),
)
N = ERROR.size
P, V, THETA, B_A, B_G, S_A, S_G, ACCEL_DELAY, MOUNT, ARM, FOCAL, CENTRE, RADIAL, DELAY, READOUT, EDGE_PX, SCALE = (
    field.at for field in list(ERROR.values())[:-4]
)
MOVING = slice(0, ACCEL_DELAY.stop)  # p, v, theta, and the IMU errors that drive them


class Slot(NamedTuple):
    """Indices of the error states of one gate."""

    offset: slice  # 3 entries
    turns: slice  # 2 entries
    edge: slice  # 1 entry
    depth: slice  # 1 entry


def slot(k: int) -> Slot:
    """Return the indices of the gate in slot k."""
    begins = zip(("gates", "turns", "edges", "depths"), (3, 2, 1, 1), strict=True)
    return Slot(*(slice(ERROR[name].at.start + n * k, ERROR[name].at.start + n * (k + 1)) for name, n in begins))


def prior(vehicle: Vehicle, doubt: Doubt, R_wb: Array) -> Array:
    """Return the prior covariance (N, N) on the pad at attitude R_wb (3, 3), before any measurement; slots are empty."""
    known, imu, sigma = vehicle.camera.doubt, vehicle.imu, np.zeros(N)
    sigma[P], sigma[V], sigma[SCALE] = doubt.pad_m, doubt.pad_m_s, doubt.scale
    sigma[B_A] = np.hypot(imu.accel_bias_m_s2, doubt.accel_bias_m_s2)
    sigma[B_G] = np.hypot(imu.gyro_bias_rad_s, doubt.gyro_bias_rad_s)
    sigma[S_A], sigma[S_G], sigma[ACCEL_DELAY] = doubt.accel_scale, doubt.gyro_scale, doubt.accel_delay_s
    if known is None:
        sigma[MOUNT], sigma[ARM], sigma[FOCAL] = (doubt.yaw, doubt.tilt, doubt.roll), doubt.arm_m, doubt.focal
        sigma[CENTRE], sigma[RADIAL] = doubt.centre_px, doubt.radial
        sigma[DELAY], sigma[READOUT] = doubt.delay_s, doubt.readout_s
    else:
        sigma[MOUNT] = np.radians([known.yaw_deg, known.tilt_deg, known.roll_deg])
        sigma[ARM], sigma[FOCAL], sigma[CENTRE] = known.position_m, known.focal, known.centre_px
        sigma[RADIAL], sigma[DELAY], sigma[READOUT] = (known.k1, known.k2), known.delay_s, known.readout_s
    sigma[EDGE_PX] = doubt.edge_px
    cov = np.diag(sigma**2)
    turned = R_wb.T @ np.diag([doubt.pad_lean, doubt.pad_lean, doubt.pad_yaw]) ** 2 @ R_wb
    cov[THETA, THETA] = turned + doubt.misaligned**2 * np.eye(3)
    return cov


def cross(a: Array) -> Array:
    """Return the skew-symmetric matrices [a]x (..., 3, 3) of vectors (..., 3)."""
    x, y, z = np.moveaxis(np.asarray(a, float), -1, 0)
    o = np.zeros_like(x)
    return np.stack([np.stack(row, -1) for row in ((o, -z, y), (z, o, -x), (-y, x, o))], -2)


def exp_matrix(phi: Array) -> Array:
    """Return the rotation matrix (3, 3) of a rotation vector (3,), rad."""
    angle = float(np.linalg.norm(phi))
    half = 0.5 * np.sinc(angle / (2 * np.pi)) * phi  # sin(angle / 2) / angle * phi
    return matrix([np.cos(angle / 2), *half])
