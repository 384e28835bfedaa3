"""Which gate is it: detections and a prior in, position fixes of the vehicle out.

The telemetry's attitude is far better than the tilt of a small square, so a fix keeps it and solves for the position alone.
With 0.4 px at the corners and 0.6 deg of attitude the error is less than that of IPPE by up to a fifth at 12 m and a third
at 30 m, and there is no ambiguity. Fixes are assigned to gates by their Mahalanobis distance from the prior, all detections
of a picture at once, and a detection that could as well be another gate is refused.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from perception.detection import Detection
from perception.pose import locate, ray_fit, rays
from tracks.gate import Gate
from vehicle.camera import Camera
from vehicle.rotation import Array, matrix

CHI2_3DOF = 16.27  # exceeded by one true fix in a thousand
RIVAL = 2 * math.log(20.0)  # a rival assignment less than 20 times less likely makes an assignment ambiguous
MISFIT = 0.06  # most mean reprojection error over the diagonal, both in px; the rule is that of Swift's released code
MISS = 0.25  # most distance between rays and corners over the opening: beyond it no order of the corners fits
FORBIDDEN = 1e9  # cost of an impossible pair, above any sum of possible ones
# The orders in which a quadrilateral, clockwise as seen, may run through a gate that is seen from the front or from behind.
ORDERS = np.array([[(start + step * k) % 4 for k in range(4)] for step in (1, -1) for start in range(4)])


@dataclass(frozen=True, slots=True)
class Look:
    """How the drawn gate differs from an ideal square. Defaults: fits to about 50 gates in real frames.

    All edges of a gate may be drawn inside or outside of the nominal ones by the same amount, picture after picture, which no
    averaging removes; `edge_px` and `edge_m` are its standard deviation. It keeps far gates from being believed too much.
    """

    outline_m: float = 0.01  # how far the outline, which straddles the nominal edge, reaches into the opening
    depth_m: float = 0.16  # between the front and the rear face
    edge_px: float = 1.0
    edge_m: float = 0.01


@dataclass(frozen=True, slots=True)
class GateSighting:
    """One gate that was recognised: its corners as seen, and the position fix that they give.

    The fixes of one picture share the error of its attitude; the corners do not know of it.
    """

    t: float  # s, of exposure
    gate: int  # index into the associator's gates
    p_wb: Array  # (3,) m
    cov: Array  # (3, 3) m^2
    range_m: float
    corners_px: Array  # (4, 2) in gate order
    cov_px: Array  # (4, 2, 2) px^2, of each corner
    visible: np.ndarray  # (4,) bool; the rest is known in one direction only, as its covariance says
    corners_w: Array  # (4, 3) m: what the corners are seen of, the rim of the visible hole


class Associator:
    """Matches detections to the physical gates of a course."""

    def __init__(self, gates: Sequence[Gate], camera: Camera, look: Look | None = None):
        self.camera = camera
        self.look = look or Look()
        shown = [(j, gate) for j, gate in enumerate(gates) if gate.visible and not gate.is_ball]
        self._index = [j for j, _ in shown]
        self._p_wg = np.array([gate.p_wg for _, gate in shown]).reshape(-1, 3)
        self._R_wg = np.array([gate.R_wg for _, gate in shown]).reshape(-1, 3, 3)
        self._corners_w = np.array([gate.corners() for _, gate in shown]).reshape(-1, 4, 3)
        self._half_m = np.array([gate.half for _, gate in shown])

    def associate(
        self,
        t: float,
        detections: Sequence[Detection],
        p_wb: Array,
        cov_p: Array,
        q_wb: Array,
        sigma_attitude_rad: float,
    ) -> tuple[list[GateSighting], int]:
        """The fixes of one picture, and how many detections gave none.

        Args:
            t: s, of exposure.
            p_wb, cov_p: prior position (3,) m with covariance (3, 3) m^2, at t.
            q_wb: attitude (4,) at t, with an error of sigma_attitude_rad about each axis.
        """
        if not detections or not self._index:
            return [], len(detections)
        R_wc = matrix(q_wb) @ self.camera.R_bc
        i, j, order, start_w = self._fits_by_shape(detections, R_wc)
        corners_px = np.array([d.corners_px for d in detections])[i[:, None], order]
        sigma_px = np.array([d.sigma_px for d in detections])[i]
        hole_w = self._hole(j, start_w)
        range_m = np.linalg.norm(self._p_wg[j] - start_w, axis=-1)
        sigma_edge_px = np.hypot(self.look.edge_px, self.look.edge_m * self.camera.fx_px / range_m)
        fix = locate(corners_px, hole_w, R_wc, start_w, sigma_px, sigma_edge_px, sigma_attitude_rad, self.camera)

        S, innovation = cov_p + fix.cov, fix.p_wc - p_wb
        d2 = (innovation * np.linalg.solve(S, innovation[..., None])[..., 0]).sum(-1)
        diagonal_px = np.linalg.norm(corners_px[:, :2] - corners_px[:, 2:], axis=-1).max(-1)
        plausible = (d2 < CHI2_3DOF) & (fix.reprojection_px < MISFIT * diagonal_px)
        cost = np.full((len(detections), len(self._index)), np.inf)
        cost[i[plausible], j[plausible]] = (d2 + np.linalg.slogdet(S)[1])[plausible]  # -2 log likelihood + constant

        sightings = []
        for pair in unambiguous(cost):
            k = int(np.flatnonzero((i == pair[0]) & (j == pair[1]))[0])
            range_m = float(np.linalg.norm(self._p_wg[j[k]] - fix.p_wc[k]))
            seen = detections[pair[0]]
            sightings.append(
                GateSighting(
                    t,
                    self._index[j[k]],
                    fix.p_wc[k],
                    fix.cov[k],
                    range_m,
                    corners_px[k],
                    seen.cov_px[order[k]],
                    seen.visible[order[k]],
                    hole_w[k],
                )
            )
        return sightings, len(detections) - len(sightings)

    def _fits_by_shape(
        self, detections: Sequence[Detection], R_wc: Array
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, Array]:
        """The N pairs whose corners fit in some order.

        Returns:
            detection (N,), gate (N,), its corners in gate order (N, 4), position of the camera (N, 3) in the world.
        """
        corners_px = np.array([d.corners_px for d in detections])[:, ORDERS]  # (D, 8, 4, 2)
        rays_w = rays(corners_px, self.camera) @ R_wc.T
        p_wc, miss = ray_fit(rays_w[:, :, None], self._corners_w)  # (D, 8, G, 3), (D, 8, G)
        order = miss.argmin(1)
        i, j = np.nonzero(miss.min(1) < MISS * 2 * self._half_m)
        return i, j, ORDERS[order[i, j]], p_wc[i, order[i, j], j]

    def _hole(self, gate: np.ndarray, p_w: Array) -> Array:
        """World corners (N, 4, 3) of the rectangle in the plane of gates (N,) that is seen through from p_w (N, 3).

        The near and the far face both cut the view; each side of the hole belongs to the one that reaches further in.
        """
        half = (self._half_m[gate] - self.look.outline_m)[:, None]
        c_g = ((p_w - self._p_wg[gate])[:, None] @ self._R_wg[gate])[:, 0]
        # Nearer than a frame's depth the view is that from there: no picture shows a whole opening at such a distance.
        x = np.copysign(np.maximum(np.abs(c_g[:, :1]), self.look.depth_m), c_g[:, :1])
        # Where the line of sight along a side of either face pierces the plane: y and z of (N, 2).
        near, far = (x / (x - face) for face in (-self.look.depth_m / 2, self.look.depth_m / 2))
        eye = c_g[:, 1:]
        low = np.maximum(eye + (-half - eye) * near, eye + (-half - eye) * far)
        high = np.minimum(eye + (half - eye) * near, eye + (half - eye) * far)
        y = np.stack([low[:, 0], high[:, 0], high[:, 0], low[:, 0]], -1)
        z = np.stack([low[:, 1], low[:, 1], high[:, 1], high[:, 1]], -1)
        hole_g = np.stack([np.zeros_like(y), y, z], -1)
        return self._p_wg[gate][:, None] + hole_g @ np.swapaxes(self._R_wg[gate], -1, -2)


def unambiguous(cost: Array) -> list[tuple[int, int]]:
    """The pairs (row, column) of the likeliest one-to-one assignment that no rival assignment comes near to.

    Args:
        cost: (D, G), -2 log likelihood of each pair, infinite where impossible.
    """
    possible = np.isfinite(cost)
    if not possible.any():
        return []
    D, G = cost.shape
    alone = cost[possible].max() + CHI2_3DOF  # a row left out: dearer than any pair
    table = np.hstack([np.where(possible, cost, FORBIDDEN), np.full((D, D), alone)])
    rows, columns = linear_sum_assignment(table)
    best = table[rows, columns].sum()
    pairs = []
    for row, column in zip(rows, columns, strict=True):
        if column < G:
            without = table.copy()
            without[row, column] = FORBIDDEN
            if without[linear_sum_assignment(without)].sum() - best > RIVAL:
                pairs.append((int(row), int(column)))
    return pairs
