"""Projection model of the drawn gate: extent of its depth, and silhouette of its frame about an opening.

The *opening* is the visible hole, the *silhouette* the whole area that the frame covers. Both lie between the near and the far
face of a frame of known depth.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.perception.common.quadrilateral import (
    NEXT,
    enlarged,
    intersect_lines,
    outward_normals,
    rod_extent_px,
    side_lengths,
)
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array


@dataclass(frozen=True, slots=True)
class DrawnGate:
    """Proportions of the gates drawn by the real simulator, over the side of the opening. Dimensionless.

    Source: boxes fitted to about 50 gates in public frames of AI Grand Prix builds 3364 to 3391.
    """

    depth_ratio: float = 0.16 / 1.5  # between the faces; the telemetry's 0.26 m fits clearly worse
    # Silhouette over hole, relative to the nominal frame over opening: the outline, 2 cm wide, straddles the nominal edges and
    # leaves 1.48 m of 1.50 m; the depth of the frame adds a little.
    outline_ratio: float = 1.037
    frame_ratio: float = 2.72 / 1.5  # nominal frame over opening, by telemetry
    outline_width_ratio: float = 0.02 / 1.5  # of the orange line that straddles the nominal edges of both faces

    @property
    def silhouette_ratio(self) -> float:
        """Side of the silhouette over that of the hole."""
        return self.frame_ratio * self.outline_ratio

    @property
    def hole_ratio(self) -> float:
        """Inner flank of a face's outline over its nominal opening."""
        return 1 - self.outline_width_ratio

    @property
    def flank_ratio(self) -> float:
        """Outer flank of a face's outline over its nominal opening."""
        return 1 + self.outline_width_ratio

    def silhouette_ratio_of(self, frame_ratio: float) -> float:
        """Return silhouette over hole for gates with another frame over opening."""
        return self.outline_ratio * frame_ratio


DRAWN_GATE = DrawnGate()


@dataclass(frozen=True, slots=True)
class GateModel:
    """Model of gates of one proportion in the part of a camera's image that begins at origin_px (2,)."""

    camera: Camera
    origin_px: Array  # (2,) position of the part's first pixel in the camera's image
    ratio: float  # silhouette over hole

    def depth_extent_px(self, openings: Array) -> Array:
        """Return the extent (Q, 4) px of the gates' depth across each side of obliquely seen openings (Q, 4, 2)."""
        cx_px, cy_px = self.camera.cx_px - self.origin_px[0], self.camera.cy_px - self.origin_px[1]
        return DRAWN_GATE.depth_ratio * rod_extent_px(openings, self.camera.fx_px, self.camera.fy_px, cx_px, cy_px)

    def silhouettes(self, openings: Array, depth_extent_px: Array) -> Array:
        """Return silhouettes (Q, 4, 2) of the frames about openings (Q, 4, 2).

        An opening is bounded by the near and the far face, so its sides lie inward by half of the depth's extent (Q, 4), and the
        silhouette's outward.
        """
        square = enlarged(openings, self.ratio)
        end = square[:, NEXT]
        out_px = (1 + self.ratio) / 2 * depth_extent_px
        return intersect_lines(square + out_px[..., None] * outward_normals(square, end), end - square)

    def frame_width_px(self, openings: Array) -> Array:
        """Return the greatest apparent widths (Q, 1) px of the frames about openings (Q, 4, 2)."""
        return np.asarray((self.ratio - 1) / 2 * side_lengths(openings).max(-1, keepdims=True))
