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
from vehicle.rotation import Array

CHI2_3DOF = 16.27  # exceeded by one true fix in a thousand
RIVAL = 2 * math.log(20.0)  # a rival assignment less than 20 times less likely makes an assignment ambiguous
MISFIT = 0.06  # most mean reprojection error over the diagonal, both in px; the rule is that of Swift's released code
MISS = 0.25  # most distance between rays and corners over the opening: beyond it no order of the corners fits
REACH = 4.0  # standard deviations of the prior within which a cut opening is looked for
NEAR_M = 0.2  # corners nearer to the picture's plane than this have no usable projection
# What is not seen whole has less to contradict a wrong guess: its fix may differ from the prior by no more than 99 true fixes
# in 100 do, and that of a single corner, for which nothing but the prior vouches, by no more than 90. Nearer, corners that are
# out of the picture decide; farther, a single one tells nothing that the prior does not.
PART_CHI2, PART_M = 11.34, 1.5
LONE_CHI2, LONE_M = 6.25, (2.5, 12.0)
UNSEEN_PX = 1e6  # standard deviation of a corner that nothing is known of
FORBIDDEN = 1e9  # cost of an impossible pair, above any sum of possible ones
# The orders in which a quadrilateral, clockwise as seen, may run through a gate that is seen from the front or from behind.
ORDERS = np.array([[(start + step * k) % 4 for k in range(4)] for step in (1, -1) for start in range(4)])
FROM_FRONT = np.arange(len(ORDERS)) < 4
CERTAIN_M2 = 1e-9  # m^2, of a prior that claims to be certain, as a filter's may on the pad


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
    wall: float = 0.5  # standard deviation of where on a wall its edge is seen, over what shows of it; it may be dark


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
    """Matches detections to the physical gates of a course; one that is passed several times is known by its first entry."""

    def __init__(self, gates: Sequence[Gate], camera: Camera, look: Look | None = None):
        self.camera = camera
        self.look = look or Look()
        shown: list[tuple[int, Gate]] = []
        for j, gate in enumerate(gates):
            if gate.visible and not gate.is_ball and not any(gate.same_frame(other) for _, other in shown):
                shown.append((j, gate))
        self._index = [j for j, _ in shown]
        self._p_wg = np.array([gate.p_wg for _, gate in shown]).reshape(-1, 3)
        self._R_wg = np.array([gate.R_wg for _, gate in shown]).reshape(-1, 3, 3)
        self._corners_w = np.array([gate.corners() for _, gate in shown]).reshape(-1, 4, 3)
        self._half_m = np.array([gate.half for _, gate in shown])
        self._half_outer_m = np.array([gate.outer_m / 2 for _, gate in shown])

    def associate(
        self,
        t: float,
        detections: Sequence[Detection],
        p_wb: Array,
        cov_p: Array,
        q_wb: Array,
        sigma_attitude_rad: float,
        camera: Camera | None = None,
    ) -> tuple[list[GateSighting], int]:
        """The fixes of one picture, and how many openings, seen whole, nothing explains.

        Args:
            t: s, of exposure.
            p_wb, cov_p: prior position (3,) m with covariance (3, 3) m^2, at t.
            q_wb: attitude (4,) at t, with an error of sigma_attitude_rad about each axis.
            camera: as calibrated in flight, otherwise the vehicle's.
        """
        camera = camera or self.camera
        if not detections or not self._index:
            return [], sum(bool(detection.visible.all()) for detection in detections)
        prior_w, R_wc = camera.pose(p_wb, q_wb)
        seen = [
            np.array(column) for column in zip(*((d.corners_px, d.cov_px, d.visible) for d in detections), strict=True)
        ]
        reach_m = REACH * np.sqrt(np.linalg.eigvalsh(cov_p)[-1])
        ideal_px, outer_px = camera.pinhole(seen[0]), camera.pinhole(_outer(detections)[0])
        shape = ideal_px, seen[2], camera
        i, j, order, start_w = self._fits_by_shape(*shape, R_wc, prior_w, reach_m, sigma_attitude_rad)
        corners_px, cov_px, visible = (column[i[:, None], order] for column in seen)
        outer_cov_px = _outer(detections)[1][i[:, None], order]
        eight_px = np.concatenate([ideal_px[i[:, None], order], outer_px[i[:, None], order]], -2)
        eight_cov_px = np.concatenate([cov_px, outer_cov_px], -3)
        openings, frames = self.opening(j, start_w), self.opening(j, start_w, frame=True)
        rim_w, eight_w = (np.concatenate(pair, -2) for pair in zip(openings, frames, strict=True))
        eight_cov_px = eight_cov_px + self._wall_cov(rim_w, eight_w, start_w, R_wc)
        range_m = np.linalg.norm(self._p_wg[j] - start_w, axis=-1)
        lone = visible.sum(-1) == 1  # these start from the prior, the others from where their corners say
        information = lone[:, None, None] * np.linalg.inv(cov_p + CERTAIN_M2 * np.eye(3))
        sigma_edge_px = np.hypot(self.look.edge_px, self.look.edge_m * camera.fx_px / range_m)
        fix = locate(
            eight_px, eight_cov_px, eight_w, R_wc, start_w, sigma_edge_px, sigma_attitude_rad, camera, information
        )

        S, innovation = cov_p + fix.cov, fix.p_wc - prior_w
        pull = np.linalg.solve(S, innovation[..., None])[..., 0]
        d2, likely_w = (innovation * pull).sum(-1), prior_w + pull @ cov_p
        diagonal_px = 2 * np.sqrt(2) * self._half_m[j] * camera.fx_px / range_m
        # A turned square misses its corners by half its diagonal times the angle.
        misfit = MISFIT + sigma_attitude_rad / 2
        plausible = (d2 < CHI2_3DOF) & (fix.reprojection_px < misfit * diagonal_px)
        whole = visible.sum(-1) == 4
        likelihood = np.where(plausible, d2 + np.linalg.slogdet(S)[1], np.inf)  # -2 log + constant
        away = np.linalg.norm(self._p_wg[j] - fix.p_wc, axis=-1)
        believed = whole | ((d2 < PART_CHI2) & (away > PART_M))
        believed &= ~lone | ((d2 < LONE_CHI2) & (LONE_M[0] < np.minimum(range_m, away)) & (range_m < LONE_M[1]))
        cost, best = self._best_orders(i, j, likelihood, whole, len(detections))

        sightings, unexplained = [], {d for d, detection in enumerate(detections) if detection.visible.all()}
        for pair in unambiguous(cost):
            k = best[pair]
            unexplained.discard(pair[0])
            if not believed[k]:
                continue
            p_wc, gate = fix.p_wc[k], j[k]
            index = self._index[gate]
            corners_w = self.opening(j[k : k + 1], likely_w[k : k + 1])[1][0]  # once more, from the likeliest place
            corners = (corners_px[k], eight_cov_px[k, :4], visible[k], corners_w)
            sightings.append(GateSighting(t, index, p_wc - prior_w + p_wb, fix.cov[k], float(away[k]), *corners))
        return sightings, len(unexplained)

    def _fits_by_shape(
        self,
        corners_px: Array,
        visible: np.ndarray,
        camera: Camera,
        R_wc: Array,
        prior_w: Array,
        reach_m: float,
        sigma_rad: float,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, Array]:
        """The N pairs whose visible corners fit in some order: whole openings in the best, cut ones in all that fit.

        Of one visible corner nothing but the prior tells the place, so those are tried in all orders from there, and as any
        gate ahead: the right one may be too near to be believed, but not to be a rival.

        Returns:
            detection (N,), gate (N,), its corners in gate order (N, 4), position of the camera (N, 3) in the world.
        """
        rays_w = rays(corners_px[:, ORDERS], camera) @ R_wc.T  # (D, 8, 4, 3)
        weight = visible[:, ORDERS].astype(float)
        p_wc, miss = ray_fit(rays_w[:, :, None], self._corners_w, weight[:, :, None])  # (D, 8, G, 3), (D, 8, G)
        alone = visible.sum(-1)[:, None, None] == 1
        p_wc = np.where(alone[..., None], prior_w, p_wc)
        before = ((p_wc - self._p_wg) * self._R_wg[:, :, 0]).sum(-1) < 0
        right_way = before == FROM_FRONT[:, None]  # else a side would do for the opposite one
        miss = np.where(right_way, miss, np.inf)
        range_m = np.linalg.norm(self._p_wg - p_wc, axis=-1)
        fits = miss < MISS * 2 * self._half_m
        whole = (visible.sum(-1) == 4)[:, None, None]
        best = np.arange(len(ORDERS))[:, None] == miss.argmin(1)[:, None]
        near = np.linalg.norm(p_wc - prior_w, axis=-1) < reach_m + 2 * (self._half_m + 3 * sigma_rad * range_m)
        ahead = ((self._corners_w - prior_w) @ R_wc[:, 2] > 0).all(-1)
        i, order, j = np.nonzero(np.where(alone, ahead & right_way, fits & np.where(whole, best, near)))
        return i, j, ORDERS[order], p_wc[i, order, j]

    @staticmethod
    def _best_orders(
        i: np.ndarray, j: np.ndarray, cost: Array, whole: np.ndarray, detections: int
    ) -> tuple[Array, dict[tuple[int, int], int]]:
        """Costs (D, G) of detection i being gate j in its likeliest order, and which entry that is.

        A cut opening that could as well be another part of the same gate gives no pair.
        """
        table = np.full((detections, int(j.max(initial=-1)) + 1), np.inf)
        best: dict[tuple[int, int], int] = {}
        for k in np.argsort(cost, kind="stable"):
            pair = (int(i[k]), int(j[k]))
            if not np.isfinite(cost[k]):
                break
            if pair not in best:
                best[pair], table[pair] = int(k), cost[k]
            elif cost[k] - cost[best[pair]] < RIVAL and not whole[k]:
                table[pair] = np.inf
        return table, best

    def centre(self, gate: int) -> Array:
        """(3,) m, world, of a gate by its index in the course."""
        return self._p_wg[self._index.index(gate)]

    def _wall_cov(self, rim_w: Array, seen_w: Array, p_w: Array, R_wc: Array) -> Array:
        """px^2 (N, M, 2, 2) of corners (N, M, 3): an edge may be seen anywhere on its wall, as that is lit."""
        rim_c, seen_c = ((corners - p_w[:, None]) @ R_wc for corners in (rim_w, seen_w))
        for corners in (rim_c, seen_c):
            corners[..., 2] = np.maximum(corners[..., 2], NEAR_M)
        shift = self.look.wall * (self.camera.project(rim_c) - self.camera.project(seen_c))
        return shift[..., :, None] * shift[..., None, :]

    def opening(self, gate: np.ndarray, p_w: Array, frame: bool = False) -> tuple[Array, Array]:
        """World corners (N, 4, 3) of two rectangles in the plane of gates (N,), as they are seen from p_w (N, 3).

        The first is the rim of the near face. The second is the hole that is seen through: the near and the far face both cut
        the view, and each side of the hole belongs to the one that reaches further in. With `frame` they are the outline of
        the near face, and of all that the frame covers; there each side belongs to the face that reaches further out.
        """
        half = (self._half_outer_m[gate] if frame else self._half_m[gate] - self.look.outline_m)[:, None]
        c_g = ((p_w - self._p_wg[gate])[:, None] @ self._R_wg[gate])[:, 0]
        # Nearer than a frame's depth the view is that from there: no picture shows a whole opening at such a distance.
        x = np.copysign(np.maximum(np.abs(c_g[:, :1]), self.look.depth_m), c_g[:, :1])
        # Where the line of sight along a side of either face pierces the plane: y and z of (N, 2).
        face = np.copysign(self.look.depth_m / 2, x)
        near, far = x / (x - face), x / (x + face)
        eye = c_g[:, 1:]
        low, high = (eye + (side - eye) * near for side in (-half, half))
        rim = self._rectangle(gate, low, high)
        inward, outward = (np.minimum, np.maximum) if frame else (np.maximum, np.minimum)
        low, high = inward(low, eye + (-half - eye) * far), outward(high, eye + (half - eye) * far)
        return rim, self._rectangle(gate, low, high)

    def _rectangle(self, gate: np.ndarray, low: Array, high: Array) -> Array:
        """World corners (N, 4, 3) of rectangles in the planes of gates (N,) from y and z of two corners (N, 2)."""
        y = np.stack([low[:, 0], high[:, 0], high[:, 0], low[:, 0]], -1)
        z = np.stack([low[:, 1], low[:, 1], high[:, 1], high[:, 1]], -1)
        corners_g = np.stack([np.zeros_like(y), y, z], -1)
        return self._p_wg[gate][:, None] + corners_g @ np.swapaxes(self._R_wg[gate], -1, -2)


def _outer(detections: Sequence[Detection]) -> tuple[Array, Array]:
    """Corners (D, 4, 2) and covariances (D, 4, 2, 2) of the frames; of those that were not seen the covariance is endless."""
    unseen = np.tile(UNSEEN_PX**2 * np.eye(2), (4, 1, 1))
    px = [d.corners_px if d.outer_px is None else d.outer_px for d in detections]
    return np.array(px), np.array([unseen if d.outer_cov_px is None else d.outer_cov_px for d in detections])


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
