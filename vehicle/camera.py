"""The camera: a pinhole behind a lens (`vehicle/lens.py`), and its mount (VADR-TS-002 3.8).

Camera axes RDF: x right, y down, z forward. Pixel centres are at integers: the left edge of the image is u = -0.5.
"""

import math
from dataclasses import astuple, dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from gate_racer.common.settings import Limited, limited
from gate_racer.vehicle.lens import EQUIDISTANT, MODELS, RADTAN, Lens
from gate_racer.vehicle.rotation import Array, matrix

LEAST_SIDE_PX = 7.0  # px, shortest side of an opening that detectors measure; smaller ones were not in their training


@dataclass(frozen=True)
class CameraDoubt:
    """Calibration uncertainty of a camera: standard deviations of its mount, lens and timing."""

    yaw_deg: float
    tilt_deg: float
    roll_deg: float
    position_m: float  # m, each axis
    focal: float  # -, relative
    centre_px: float  # px, each axis
    k1: float  # -
    k2: float  # -
    delay_s: float  # s
    readout_s: float  # s

    def __post_init__(self) -> None:
        if not all(0 < sigma < math.inf for sigma in astuple(self)):
            raise ValueError("standard deviations must be positive")


@dataclass(frozen=True)
class Camera(Limited):
    """Intrinsics, mount and timing of a camera."""

    width_px: int = limited(positive=True, most=8192)
    height_px: int = limited(positive=True, most=8192)
    fx_px: float = limited(positive=True)
    fy_px: float = limited(positive=True)
    cx_px: float = limited()
    cy_px: float = limited()
    tilt_deg: float = limited(least=-180.0, most=180.0)  # deg, upward from the body's x axis
    p_bc_m: tuple[float, float, float] = (0.0, 0.0, 0.0)  # m, position in body FRD
    yaw_deg: float = limited(0.0, least=-180.0, most=180.0)  # deg, of the mount, to the right
    roll_deg: float = limited(0.0, least=-180.0, most=180.0)  # deg, clockwise about the optical axis
    k1: float = 0.0  # -, distortion, with the names of OpenCV and Kalibr
    k2: float = 0.0
    p1: float = 0.0
    p2: float = 0.0
    k3: float = 0.0
    k4: float = 0.0
    k5: float = 0.0
    k6: float = 0.0
    lens_model: str = limited(RADTAN, choices=MODELS)  # k1 to k4 are of `equidistant` as well
    delay_s: float = 0.0  # s, exposure after its timestamp, in the IMU's clock: Kalibr's camera-IMU time shift
    readout_s: float = 0.0  # s, readout time of a rolling shutter, from the first row to the last
    doubt: CameraDoubt | None = None  # None without a calibration

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lens_model == EQUIDISTANT and any((self.p1, self.p2, self.k5, self.k6)):
            raise ValueError("lens_model equidistant has k1 to k4 only")
        _ = self.lens  # which checks it

    def elevation(self, share: float) -> float:
        """Return the elevation, rad, above the body's x axis, of the ray at a fraction of the upper half image."""
        ray = self.R_bc @ [0.0, -share * self.cy_px / self.fy_px, 1.0]
        return math.atan2(-ray[2], ray[0])

    def range_m(self, side_m: float) -> float:
        """Return the range, m, beyond which an opening of that side is too small for a detector."""
        return self.fx_px * side_m / LEAST_SIDE_PX

    @cached_property
    def lens(self) -> Lens:
        """Distortion of the tangents. Raises ValueError for a lens that folds the picture."""
        x = sorted((self.cx_px / self.fx_px, (self.width_px - self.cx_px) / self.fx_px))
        y = sorted((self.cy_px / self.fy_px, (self.height_px - self.cy_px) / self.fy_px))
        k, p = (self.k1, self.k2, self.k3, self.k4, self.k5, self.k6), (self.p1, self.p2)
        return Lens(self.lens_model, k, p).reaching(corner=math.hypot(x[1], y[1]), edge=min(x[0], y[0]))

    @cached_property
    def K(self) -> Array:
        """Intrinsic matrix (3, 3), px."""
        return np.array([[self.fx_px, 0, self.cx_px], [0, self.fy_px, self.cy_px], [0, 0, 1.0]])

    @cached_property
    def R_bc(self) -> Array:
        """Rotation (3, 3) from camera RDF to body FRD."""
        s, c = math.sin(math.radians(self.tilt_deg)), math.cos(math.radians(self.tilt_deg))
        # Columns: the camera's right, down and forward axes in body FRD.
        tilted = np.array([[0, s, c], [1, 0, 0], [0, c, -s]])
        return about_z(math.radians(self.yaw_deg)) @ tilted @ about_z(math.radians(self.roll_deg))

    @cached_property
    def p_bc(self) -> Array:
        """Position (3,) of the camera in body FRD, m."""
        return np.array(self.p_bc_m)

    @cached_property
    def without_lens(self) -> "Camera":
        """This camera as a pinhole, whose pixels are those of `pinhole`."""
        return replace(self, k1=0.0, k2=0.0, k3=0.0, k4=0.0, k5=0.0, k6=0.0, p1=0.0, p2=0.0, lens_model=RADTAN)

    def zoomed(self, scale: float) -> "Camera":
        return replace(self, fx_px=scale * self.fx_px, fy_px=scale * self.fy_px)

    def mounted(self, R_bc: ArrayLike) -> "Camera":
        """Return this camera with the mount R_bc (3, 3), camera RDF to body FRD."""
        R = np.asarray(R_bc, float)
        yaw, tilt, roll = math.atan2(R[1, 2], R[0, 2]), math.asin(-R[2, 2]), math.atan2(R[2, 0], R[2, 1])
        return replace(self, yaw_deg=math.degrees(yaw), tilt_deg=math.degrees(tilt), roll_deg=math.degrees(roll))

    def pinhole(self, px: ArrayLike) -> Array:
        """Undistort pixels (..., 2)."""
        px = np.asarray(px, float)
        return self.rays(px) * [self.fx_px, self.fy_px] + [self.cx_px, self.cy_px] if self.lens.distorts else px

    def pose(self, p_wb: ArrayLike, q_wb: ArrayLike) -> tuple[Array, Array]:
        """Return position p_wc (3,), m, and rotation R_wc (3, 3) of the camera on a body at p_wb (3,), m, q_wb (4,)."""
        R_wb = matrix(q_wb)
        return np.asarray(p_wb, float) + R_wb @ self.p_bc, R_wb @ self.R_bc

    def project(self, p_c: ArrayLike) -> Array:
        """Project points p_c (..., 3), m, camera RDF, z > 0, to pixels (..., 2)."""
        p_c = np.asarray(p_c, float)
        xy = p_c[..., :2] / p_c[..., 2:]
        xy = self.lens.distort(xy) if self.lens.distorts else xy
        return xy * [self.fx_px, self.fy_px] + [self.cx_px, self.cy_px]

    def rays(self, px: ArrayLike) -> Array:
        """Return tangents (..., 2), x / z and y / z, of the rays through pixels (..., 2): the inverse of `project`."""
        distorted = (np.asarray(px, float) - [self.cx_px, self.cy_px]) / [self.fx_px, self.fy_px]
        return self.lens.undistort(distorted) if self.lens.distorts else distorted

    def sees(self, px: ArrayLike) -> np.ndarray:
        """Return (...) whether pixels (..., 2) lie inside the image."""
        px = np.asarray(px, float)
        u, v = px[..., 0], px[..., 1]
        return (u >= -0.5) & (u < self.width_px - 0.5) & (v >= -0.5) & (v < self.height_px - 0.5)


def about_z(angle: float) -> Array:
    """Return the rotation (3, 3) about the third axis, from the first towards the second, by an angle in rad."""
    s, c = math.sin(angle), math.cos(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
