"""Openings of the rendered gates, and ground-truth labels: image positions and visibility of their corners.

An opening is the visible hole: the near and the far face both limit the view, and each side of the hole is the side of the
face that reaches further in. It is given in the gate's plane, as in `perception.association`.
"""

from dataclasses import dataclass

import numpy as np

from gate_racer.sim.view.scene import drawn_gates, hole_m
from gate_racer.sim.view.style import RenderingStyle
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, matrix

NEAR_M = 0.1  # m, near clipping distance along the optical axis
NEARER_M = 0.5  # m, depth by which an occluder is nearer than the gate's plane; exceeds the depth of an oblique frame
RIM = 1.1  # ratio to the opening of the square on the frame on which occlusion is sampled
RIM_SIDE = 12  # samples on each side of that square


class Openings:
    """Openings of a track's `drawn_gates`, as rendered with a style: K gates, or some of them by index."""

    def __init__(self, track: Track, style: RenderingStyle):
        gates = drawn_gates(track)
        self.p_wg = np.array([gate.p_wg for gate in gates]).reshape(-1, 3)  # m, world
        self.R_wg = np.array([gate.R_wg for gate in gates]).reshape(-1, 3, 3)
        self.half_m = np.array([hole_m(gate, style) / 2 for gate in gates])  # of the hole
        self.outer_m = np.array([gate.outer_m / 2 for gate in gates])  # half of the frame
        self.depth_m = style.depth_m

    def corners_w(self, gate: np.ndarray, eye_w: Array) -> Array:
        """Return the corners (K, 4, 3) m, world, of the holes of gates (K,) visible from eye_w (3,), in the gates' planes.

        The near and the far face both limit the view; each side is that of the face that reaches further in.
        """
        eye_g = ((eye_w - self.p_wg[gate])[:, None] @ self.R_wg[gate])[:, 0]
        x = np.copysign(np.maximum(np.abs(eye_g[:, :1]), self.depth_m), eye_g[:, :1])
        eye, half = eye_g[:, 1:], self.half_m[gate][:, None]
        scale = x / (x - self.depth_m / 2 * np.array([-1.0, 1.0]))  # (K, 2): from either face to the plane
        low = (eye[:, None] + (-half - eye)[:, None] * scale[..., None]).max(1)
        high = (eye[:, None] + (half - eye)[:, None] * scale[..., None]).min(1)
        hole_g = np.zeros((len(gate), 4, 3))
        hole_g[:, [0, 3], 1], hole_g[:, [1, 2], 1] = low[:, :1], high[:, :1]
        hole_g[:, [0, 1], 2], hole_g[:, [2, 3], 2] = low[:, 1:], high[:, 1:]
        return self.p_wg[gate][:, None] + hole_g @ np.swapaxes(self.R_wg[gate], -1, -2)


@dataclass(frozen=True, slots=True)
class Labels:
    """Openings ahead of the camera in one image, nearest first."""

    corners_px: Array  # (K, 4, 2), clockwise in the image; NaN for a corner behind the camera
    visible: np.ndarray  # (K, 4) whether the corner is in the image and not occluded
    free: Array  # (K,) fraction of the frame around the opening that is not occluded
    range_m: Array  # (K,) distance from the camera


class Labeller:
    """Labeller for the gates of one track, rendered with one style."""

    def __init__(self, track: Track, camera: Camera, style: RenderingStyle):
        self.camera, self._gates = camera, Openings(track, style)

    def label(self, p_wb: Array, q_wb: Array, depth_m: np.ndarray) -> Labels:
        """Return the labels of an image with depth `depth_m` (H, W), see `RenderedCamera.depth_m`."""
        R_wc = matrix(q_wb) @ self.camera.R_bc
        sight = self._gates.p_wg - p_wb
        ahead = np.flatnonzero(sight @ R_wc[:, 2] > -self._gates.outer_m)
        ahead = ahead[np.argsort(np.linalg.norm(sight[ahead], axis=-1))]
        corners_w = self._gates.corners_w(ahead, p_wb)
        corners_c = (corners_w - p_wb) @ R_wc
        z = corners_c[..., 2:]
        px = np.where(z > NEAR_M, self.camera.project(np.where(z > NEAR_M, corners_c, 1.0)), np.nan)
        centre = corners_w.mean(1, keepdims=True)
        rim_w = centre + RIM * (corners_w - centre)
        side_w = rim_w[:, [1, 2, 3, 0]] - rim_w
        rim_w = rim_w[:, :, None] + np.arange(RIM_SIDE)[:, None] / RIM_SIDE * side_w[:, :, None]  # (K, 4, RIM_SIDE, 3)
        free = self._free((rim_w - p_wb) @ R_wc, depth_m) & self._open(ahead, corners_w)[:, None, None]
        visible = free[:, :, 0] & self.camera.sees(np.nan_to_num(px, nan=-9.0))
        # A gate seen from behind has its corners in the opposite order.
        behind = ((p_wb - self._gates.p_wg[ahead])[:, None] @ self._gates.R_wg[ahead])[:, 0, 0] > 0
        px[behind], visible[behind] = px[behind][:, ::-1], visible[behind][:, ::-1]
        return Labels(px, visible, free.mean((1, 2)), np.linalg.norm(sight[ahead], axis=-1))

    def _free(self, points_c: Array, depth_m: np.ndarray) -> np.ndarray:
        """Return the mask of unoccluded points (..., 3), camera RDF; outside the image the depth of its border counts."""
        z = points_c[..., 2]
        ahead = z > NEAR_M
        px = self.camera.project(np.where(ahead[..., None], points_c, 1.0))
        height, width = depth_m.shape
        u, v = (np.clip(np.round(px[..., k]), 0, most - 1).astype(int) for k, most in ((0, width), (1, height)))
        return np.asarray(ahead & (depth_m[v, u] > z - NEARER_M))

    def _open(self, gate: np.ndarray, corners_w: Array) -> np.ndarray:
        """Return the mask (K,) of holes that are open: at a slant the near face covers the opening of the far one."""
        diagonal_g = ((corners_w[:, 2] - corners_w[:, 0])[:, None] @ self._gates.R_wg[gate])[:, 0]
        return (diagonal_g[:, 1:] > 0).all(-1)
