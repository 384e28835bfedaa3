"""Geometry of the drawn gate: a square ring with depth, its visible rims and silhouette, and its deviations from an ideal square.

The *opening* is the visible hole, the *silhouette* the whole area that the frame covers. Both lie between the near and the far
face of a frame of known depth. `quadrilateral.GateModel` is the same gate in pixels, by its proportions.

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

from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Indices
from gate_racer.vehicle.uncertainty import Doubt

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
