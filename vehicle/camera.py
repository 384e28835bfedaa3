"""The pinhole camera and how it sits on the body (VADR-TS-002 3.8). Camera axes RDF: x right, y down, z forward.

Pixel centres are at integers: the left edge of the picture is u = -0.5.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from vehicle.rotation import Array, matrix


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

    def __post_init__(self) -> None:
        if min(self.width_px, self.height_px, self.fx_px, self.fy_px) <= 0:
            raise ValueError("image size and focal lengths must be positive")

    @cached_property
    def K(self) -> Array:
        """The intrinsic matrix (3, 3) in px."""
        return np.array([[self.fx_px, 0, self.cx_px], [0, self.fy_px, self.cy_px], [0, 0, 1.0]])

    @cached_property
    def R_bc(self) -> Array:
        """Camera RDF to body FRD (3, 3)."""
        s, c = math.sin(math.radians(self.tilt_deg)), math.cos(math.radians(self.tilt_deg))
        # Columns: the camera's right, down and forward axes in body axes.
        return np.array([[0, s, c], [1, 0, 0], [0, c, -s]])

    @cached_property
    def p_bc(self) -> Array:
        """The camera in body axes (3,), m."""
        return np.array(self.p_bc_m)

    def pose(self, p_wb: ArrayLike, q_wb: ArrayLike) -> tuple[Array, Array]:
        """Position p_wc (3,) m and rotation R_wc (3, 3) of the camera on a body at p_wb (3,), q_wb (4,)."""
        R_wb = matrix(q_wb)
        return np.asarray(p_wb, float) + R_wb @ self.p_bc, R_wb @ self.R_bc

    def project(self, p_c: ArrayLike) -> Array:
        """Pixels (..., 2) of points p_c (..., 3) in camera axes, m. Points must have z > 0."""
        p_c = np.asarray(p_c, float)
        u = self.fx_px * p_c[..., 0] / p_c[..., 2] + self.cx_px
        v = self.fy_px * p_c[..., 1] / p_c[..., 2] + self.cy_px
        return np.stack([u, v], -1)

    def sees(self, px: ArrayLike) -> np.ndarray:
        """Whether pixels (..., 2) lie inside the picture."""
        px = np.asarray(px, float)
        u, v = px[..., 0], px[..., 1]
        return (u >= -0.5) & (u < self.width_px - 0.5) & (v >= -0.5) & (v < self.height_px - 0.5)
