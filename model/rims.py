"""Geometry of the drawn gate: a square ring with depth, its visible rims and silhouette, and its deviations from an ideal square.

The *opening* is the visible hole, the *silhouette* the whole area that the frame covers. Both lie between the near and the far
face of a frame of known depth.

Convention of the corners, for track, simulator, labels and detectors: the gate frame has its origin midway between the faces,
half the depth behind the nearer one; tracks and maps give this point. A detection's corners are either those of the visible
*hole*, whose sides belong to one face or the other (`Detection.near_face` is False; so are the simulator's labels and projected
corners), or the nominal ones of the *near face's* opening (`near_face` is True), in the middle of the outline. `GateRims` gives
the world corners of both for the assumed depth: a depth error d shifts the camera by up to d / 2 along the gate's axis for the
hole, and by d / 2 the other way for the near face.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gate_racer.model import quadrilateral
from gate_racer.model.quadrilateral import NEXT, enlarged, intersect_lines, outward_normals
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Indices
from gate_racer.vehicle.uncertainty import Doubt

# Proportions of the gates drawn by the real simulator, over the side of the opening: boxes fitted to about 50 gates in public
# frames of AI Grand Prix builds 3364 to 3391.
DEPTH_RATIO = 0.16 / 1.5  # between the faces; the telemetry's 0.26 m fits clearly worse
OUTLINE_WIDTH_RATIO = 0.02 / 1.5  # of the orange line that straddles the nominal edges of both faces
HOLE_RATIO = 1 - OUTLINE_WIDTH_RATIO  # inner flank of a face's outline over its nominal opening
# Silhouette over hole, relative to the nominal frame over opening: the outline, 2 cm wide, straddles the nominal edges and
# leaves 1.48 m of 1.50 m; the depth of the frame adds a little.
OUTLINE_RATIO = 1.037
SILHOUETTE_RATIO = 2.72 / 1.5 * OUTLINE_RATIO  # silhouette over hole of the frames that telemetry gives


@dataclass(frozen=True, slots=True)
class GateModel:
    """Model of gates of one proportion in the part of a camera's image that begins at origin_px (2,)."""

    camera: Camera
    origin_px: Array  # (2,) position of the part's first pixel in the camera's image
    ratio: float  # silhouette over hole

    def depth_extent_px(self, openings: Array) -> Array:
        """Return the extent (Q, 4) px of the gates' depth across each side of obliquely seen openings (Q, 4, 2)."""
        cx_px, cy_px = self.camera.cx_px - self.origin_px[0], self.camera.cy_px - self.origin_px[1]
        return DEPTH_RATIO * quadrilateral.rod_extent_px(openings, self.camera.fx_px, self.camera.fy_px, cx_px, cy_px)

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
        return np.asarray((self.ratio - 1) / 2 * quadrilateral.side_lengths(openings).max(-1, keepdims=True))


NEAR_M = 0.2  # m, least depth of a corner with a usable projection


@dataclass(frozen=True, slots=True)
class GateAppearance:
    """Deviations of the drawn gate from an ideal square. Defaults: fits to about 50 gates in real frames.

    All edges of a gate may be drawn inside or outside of the nominal ones by the same amount in every image, which averaging
    does not remove; `edge_offset_px` and `edge_offset_m` are its standard deviations. They bound the weight of distant gates.
    """

    outline_m: float = 0.01  # m, reach into the opening of the outline, which straddles the nominal edge
    depth_m: float = 0.16  # m, between the front and the rear face
    edge_offset_px: float = Doubt.edge_px  # px, standard deviation common to all gates
    edge_offset_m: float = Doubt.edge_m  # m, standard deviation of each gate by itself
    wall: float = 0.5  # -, standard deviation of a visible edge's position on a wall, over the wall's visible width


class GateRims:
    """Rims of gates (G), each a frame around an opening, with the depth of their appearance."""

    def __init__(self, gates: Sequence[Gate], appearance: GateAppearance):
        self.p_wg = np.array([gate.p_wg for gate in gates]).reshape(-1, 3)
        self.R_wg = np.array([gate.R_wg for gate in gates]).reshape(-1, 3, 3)
        self.corners_w = np.array([gate.corners() for gate in gates]).reshape(-1, 4, 3)  # nominal
        self.half_m = np.array([gate.half for gate in gates])
        self._half_outer_m = np.array([gate.outer_m / 2 for gate in gates])
        self._appearance = appearance

    def opening(self, gate: Indices, p_w: Array, frame: bool = False) -> tuple[Array, Array]:
        """Return world corners (N, 4, 3) of two rectangles in the planes of gates (N,), as seen from p_w (N, 3).

        The first is the rim of the near face. The second is the visible hole: both faces bound the view, and each side of the
        hole belongs to the face that reaches further in. With `frame` they are the outline of the near face and the silhouette
        of the frame, each side of which belongs to the face that reaches further out.
        """
        look = self._appearance
        half = (self._half_outer_m[gate] if frame else self.half_m[gate] - look.outline_m)[:, None]
        c_g = ((p_w - self.p_wg[gate])[:, None] @ self.R_wg[gate])[:, 0]
        # The distance is clipped to the frame's depth: no image shows a whole opening from nearer.
        x = np.copysign(np.maximum(np.abs(c_g[:, :1]), look.depth_m), c_g[:, :1])
        # Intersections of the lines of sight along the sides of both faces with the gate's plane: y and z, (N, 2).
        face = np.copysign(look.depth_m / 2, x)
        near, far = x / (x - face), x / (x + face)
        eye = c_g[:, 1:]
        low, high = (eye + (side - eye) * near for side in (-half, half))
        rim = self._rectangle(gate, low, high)
        inward, outward = (np.minimum, np.maximum) if frame else (np.maximum, np.minimum)
        low, high = inward(low, eye + (-half - eye) * far), outward(high, eye + (half - eye) * far)
        return rim, self._rectangle(gate, low, high)

    def near_face(self, gate: Indices, p_w: Array) -> Array:
        """Return world corners (N, 4, 3) of the nominal opening in the face of gates (N,) nearer to p_w (N, 3)."""
        sight = p_w - self.p_wg[gate]
        x_w = self.R_wg[gate][:, :, 0]
        side = np.copysign(self._appearance.depth_m / 2, (sight * x_w).sum(-1))
        return np.asarray(self.corners_w[gate] + (side[:, None] * x_w)[:, None])

    def wall_cov_px2(self, rim_w: Array, seen_w: Array, p_w: Array, R_wc: Array, camera: Camera) -> Array:
        """Return covariances (N, M, 2, 2) px^2 of corners (N, M, 3): the visible edge on a wall depends on its lighting."""
        rim_c, seen_c = ((corners - p_w[:, None]) @ R_wc for corners in (rim_w, seen_w))
        for corners in (rim_c, seen_c):
            corners[..., 2] = np.maximum(corners[..., 2], NEAR_M)
        shift = self._appearance.wall * (camera.project(rim_c) - camera.project(seen_c))
        return np.asarray(shift[..., :, None] * shift[..., None, :])

    def _rectangle(self, gate: Indices, low: Array, high: Array) -> Array:
        """Return world corners (N, 4, 3) of rectangles in the planes of gates (N,) from y and z of two corners (N, 2)."""
        y = np.stack([low[:, 0], high[:, 0], high[:, 0], low[:, 0]], -1)
        z = np.stack([low[:, 1], low[:, 1], high[:, 1], high[:, 1]], -1)
        corners_g = np.stack([np.zeros_like(y), y, z], -1)
        return np.asarray(self.p_wg[gate][:, None] + corners_g @ np.swapaxes(self.R_wg[gate], -1, -2))
