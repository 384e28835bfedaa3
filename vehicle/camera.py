"""The pinhole camera and how it sits on the body (VADR-TS-002 3.8). Camera axes RDF: x right, y down, z forward.

Pixel centres are at integers: the left edge of the image is u = -0.5.
"""

import math
from dataclasses import astuple, dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from vehicle.rotation import Array, matrix

LEAST_SIDE_PX = 7.0  # shortest side of an opening that detectors measure; smaller ones were not in their training
UNDISTORT_STEPS = 20  # of the fixed point, at most; each gains a factor of some r^2 (k1 + k2 r^2)
UNDISTORTED = 1e-8  # a step of the tangents that is final: 3e-6 px


@dataclass(frozen=True)
class CameraDoubt:
    """How well a camera is known: standard deviations of its mount and of its lens."""

    yaw_deg: float
    tilt_deg: float
    roll_deg: float
    position_m: float  # each axis
    focal: float  # relative
    centre_px: float  # each axis
    k1: float
    k2: float
    delay_s: float
    readout_s: float

    def __post_init__(self) -> None:
        if not all(0 < sigma < math.inf for sigma in astuple(self)):
            raise ValueError("standard deviations must be positive")


@dataclass(frozen=True)
class Camera:
    """Intrinsics and mount."""

    width_px: int
    height_px: int
    fx_px: float
    fy_px: float
    cx_px: float
    cy_px: float
    tilt_deg: float  # up from the body's x axis
    p_bc_m: tuple[float, float, float] = (0.0, 0.0, 0.0)  # where it sits on the body
    yaw_deg: float = 0.0  # of the mount, to the right
    roll_deg: float = 0.0  # clockwise about the optical axis
    k1: float = 0.0  # radial distortion
    k2: float = 0.0
    delay_s: float = 0.0  # of exposures after their stamps, in the IMU's clock: Kalibr's time shift of camera and IMU
    readout_s: float = 0.0  # from the first row to the last, exposed in turn
    doubt: CameraDoubt | None = None  # None: nobody has calibrated it

    def __post_init__(self) -> None:
        if min(self.width_px, self.height_px, self.fx_px, self.fy_px) <= 0:
            raise ValueError("image size and focal lengths must be positive")
        r2 = np.linspace(0.0, 1.0, 50) * self.reach_r2
        if self.distorts and (1 + r2 * (3 * self.k1 + 5 * self.k2 * r2)).min() <= 0:
            raise ValueError(f"k1 {self.k1:g} and k2 {self.k2:g} fold the image onto itself")

    def elevation(self, share: float) -> float:
        """rad above the body's x axis, of the ray this share of the way from the image's middle to its upper edge."""
        ray = self.R_bc @ [0.0, -share * self.cy_px / self.fy_px, 1.0]
        return math.atan2(-ray[2], ray[0])

    def range_m(self, side_m: float) -> float:
        """m, from farther away an opening of that side looks smaller than a detector measures."""
        return self.fx_px * side_m / LEAST_SIDE_PX

    @property
    def distorts(self) -> bool:
        """Whether straight lines are bent."""
        return self.k1 != 0 or self.k2 != 0

    @property
    def reach_r2(self) -> float:
        """Squared tangent up to which the distortion holds: twice that of the farthest corner of an undistorted image."""
        x = max(self.cx_px, self.width_px - self.cx_px) / self.fx_px
        y = max(self.cy_px, self.height_px - self.cy_px) / self.fy_px
        return 2 * (x * x + y * y)

    @cached_property
    def K(self) -> Array:
        """The intrinsic matrix (3, 3) in px."""
        return np.array([[self.fx_px, 0, self.cx_px], [0, self.fy_px, self.cy_px], [0, 0, 1.0]])

    @cached_property
    def R_bc(self) -> Array:
        """Camera RDF to body FRD (3, 3)."""
        s, c = math.sin(math.radians(self.tilt_deg)), math.cos(math.radians(self.tilt_deg))
        # Columns: the camera's right, down and forward axes in body axes.
        tilted = np.array([[0, s, c], [1, 0, 0], [0, c, -s]])
        return _about_z(self.yaw_deg) @ tilted @ _about_z(self.roll_deg)

    @cached_property
    def p_bc(self) -> Array:
        """The camera in body axes (3,), m."""
        return np.array(self.p_bc_m)

    def zoomed(self, scale: float) -> "Camera":
        """This camera with that many times its focal length."""
        return replace(self, fx_px=scale * self.fx_px, fy_px=scale * self.fy_px)

    def mounted(self, R_bc: ArrayLike) -> "Camera":
        """This camera with the axes R_bc (3, 3)."""
        R = np.asarray(R_bc, float)
        yaw, tilt, roll = math.atan2(R[1, 2], R[0, 2]), math.asin(-R[2, 2]), math.atan2(R[2, 0], R[2, 1])
        return replace(self, yaw_deg=math.degrees(yaw), tilt_deg=math.degrees(tilt), roll_deg=math.degrees(roll))

    def pinhole(self, px: ArrayLike) -> Array:
        """Pixels (..., 2) as this camera would show them without distortion."""
        px = np.asarray(px, float)
        return self.rays(px) * [self.fx_px, self.fy_px] + [self.cx_px, self.cy_px] if self.distorts else px

    def pose(self, p_wb: ArrayLike, q_wb: ArrayLike) -> tuple[Array, Array]:
        """Position p_wc (3,) m and rotation R_wc (3, 3) of the camera on a body at p_wb (3,), q_wb (4,)."""
        R_wb = matrix(q_wb)
        return np.asarray(p_wb, float) + R_wb @ self.p_bc, R_wb @ self.R_bc

    def project(self, p_c: ArrayLike) -> Array:
        """Pixels (..., 2) of points p_c (..., 3) in camera axes, m. Points must have z > 0.

        Radial distortion of Brown (1971): (x, y) (1 + k1 r^2 + k2 r^4), with r^2 = x^2 + y^2 of the undistorted point. Far
        outside the image the factor stays as it is, so that nothing is folded in.
        """
        p_c = np.asarray(p_c, float)
        if self.distorts:
            r2 = np.minimum(np.sum(np.square(p_c[..., :2] / p_c[..., 2:]), -1, keepdims=True), self.reach_r2)
            stretch = 1 + r2 * (self.k1 + self.k2 * r2)
            p_c = np.concatenate([p_c[..., :2] * stretch, p_c[..., 2:]], -1)
        u = self.fx_px * p_c[..., 0] / p_c[..., 2] + self.cx_px
        v = self.fy_px * p_c[..., 1] / p_c[..., 2] + self.cy_px
        return np.stack([u, v], -1)

    def rays(self, px: ArrayLike) -> Array:
        """Tangents (..., 2), x / z and y / z, of the rays through pixels (..., 2): the inverse of `project`."""
        distorted = (np.asarray(px, float) - [self.cx_px, self.cy_px]) / [self.fx_px, self.fy_px]
        xy = distorted
        for _ in range(UNDISTORT_STEPS if self.distorts else 0):
            r2 = np.minimum(np.sum(xy * xy, -1, keepdims=True), self.reach_r2)
            before, xy = xy, distorted / (1 + r2 * (self.k1 + self.k2 * r2))
            if np.nanmax(np.abs(xy - before), initial=0.0) < UNDISTORTED:
                break
        return np.asarray(xy)

    def sees(self, px: ArrayLike) -> np.ndarray:
        """Whether pixels (..., 2) lie inside the image."""
        px = np.asarray(px, float)
        u, v = px[..., 0], px[..., 1]
        return (u >= -0.5) & (u < self.width_px - 0.5) & (v >= -0.5) & (v < self.height_px - 0.5)


def _about_z(angle_deg: float) -> Array:
    """Rotation (3, 3) about the third axis, from the first towards the second."""
    s, c = math.sin(math.radians(angle_deg)), math.cos(math.radians(angle_deg))
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
