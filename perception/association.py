"""Which gate is it: detections and a prior in, position fixes of the vehicle out.

The telemetry's attitude is far better than the tilt of a small square, so a fix keeps it and solves for the position alone
(`position`). Fixes are assigned to gates by their Mahalanobis distance from the prior, all detections of an image at once, and
a detection that could as well be another gate is refused.

    pairs by shape -> fixes -> Mahalanobis and reprojection gates -> assignment -> GateSighting
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from perception.assignment import RIVAL, unambiguous
from perception.common.types import Indices, Mask
from perception.detection import Detection
from perception.position import PositionFix, locate_camera, ray_fit, rays
from perception.rims import GateAppearance, GateRims
from tracks.gate import Gate
from vehicle.camera import Camera
from vehicle.rotation import Array
from vehicle.statistics import chi2_limit, greatest_sigma

# The orders in which a quadrilateral, clockwise as seen, may run through a gate that is seen from the front or from behind.
ORDERS = np.array([[(start + step * k) % 4 for k in range(4)] for step in (1, -1) for start in range(4)])
FROM_FRONT = np.arange(len(ORDERS)) < 4
UNSEEN_PX = 1e6  # standard deviation of a corner that nothing is known of: its information vanishes
CERTAIN_M2 = 1e-9  # m^2, of a prior that claims to be certain, as a filter's may on the pad: it keeps an inverse


@dataclass(frozen=True, slots=True)
class AssociationConfig:
    """Which fixes are believed. Set by hand on rendered flights with disturbed priors, except where a source is named."""

    false_alarm: float = 1e-3  # share of true fixes that the prior may refuse (chosen)
    misfit: float = 0.06  # most mean reprojection error over the diagonal, both in px (Swift's released code)
    miss: float = (
        0.25  # most distance between rays and corners over the opening: beyond it no order of the corners fits
    )
    reach_sigmas: float = 4.0  # standard deviations of the prior within which a cut opening is looked for
    # What is not seen whole has less to contradict a wrong guess, and for a single corner nothing but the prior vouches: more of
    # the true ones are refused.
    part_false_alarm: float = 0.01
    lone_false_alarm: float = 0.1
    part_m: float = 1.5  # least range of what is seen in part: nearer, corners that are out of the image decide
    lone_m: tuple[float, float] = (
        2.5,
        12.0,
    )  # ranges of a lone corner; farther it tells nothing that the prior does not


@dataclass(frozen=True, slots=True)
class GateSighting:
    """One gate that was recognised: its corners as seen, and the position fix that they give.

    The fixes of one image share the error of its attitude; the corners do not know of it.
    """

    t: float  # s, of exposure
    gate: int  # index into the associator's gates
    p_wb: Array  # (3,) m
    cov: Array  # (3, 3) m^2
    range_m: float
    corners_px: Array  # (4, 2) in gate order
    cov_px: Array  # (4, 2, 2) px^2, of each corner
    visible: Mask  # (4,) the rest is known in one direction only, as its covariance says
    corners_w: Array  # (4, 3) m: what the corners are seen of, the rim of the visible hole
    detection: int = -1  # index into the image's detections


class Pairs(NamedTuple):
    """Detections (N) that may be gates (N), with their corners in gate order."""

    detection: Indices  # (N,)
    gate: Indices  # (N,)
    corners_px: Array  # (N, 4, 2) of the opening, as seen
    ideal_px: Array  # (N, 8, 2) of the opening, then of the frame, as without distortion
    cov_px: Array  # (N, 8, 2, 2), of the corners alone
    visible: Mask  # (N, 4)
    near_face: Mask  # (N,) the corners are those of the near face, else of the hole
    start_w: Array  # (N, 3) m, where the corners say that the camera is

    @property
    def whole(self) -> Mask:
        return np.asarray(self.visible.sum(-1) == 4)

    @property
    def lone(self) -> Mask:
        """One corner only: these start from the prior."""
        return np.asarray(self.visible.sum(-1) == 1)


class Associator:
    """Matches detections to the physical gates of a course; one that is passed several times is known by its first entry."""

    def __init__(
        self,
        gates: Sequence[Gate],
        camera: Camera,
        appearance: GateAppearance | None = None,
        config: AssociationConfig | None = None,
    ):
        self._gates, self.camera = gates, camera
        self.appearance = appearance or GateAppearance()
        self._config = config or AssociationConfig()
        shown: list[tuple[int, Gate]] = []
        for j, gate in enumerate(gates):
            if gate.visible and not gate.is_ball and not any(gate.same_frame(other) for _, other in shown):
                shown.append((j, gate))
        self._index = [j for j, _ in shown]
        self.rims = GateRims([gate for _, gate in shown], self.appearance)

    def on(self, gates: Sequence[Gate]) -> "Associator":
        """One like this for another map."""
        return Associator(gates, self.camera, self.appearance, self._config)

    def through(self, camera: Camera) -> "Associator":
        """One like this for another camera."""
        return Associator(self._gates, camera, self.appearance, self._config)

    def centre(self, gate: int) -> Array:
        """(3,) m, world, of a gate by its index in the course."""
        return np.asarray(self.rims.p_wg[self._index.index(gate)])

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
        """The fixes of one image, and how many openings, seen whole, nothing explains.

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
        pairs = self._pairs_by_shape(detections, camera, R_wc, prior_w, cov_p, sigma_attitude_rad)
        range_m = np.linalg.norm(self.rims.p_wg[pairs.gate] - pairs.start_w, axis=-1)
        fix, cov_px = self._fixes(pairs, range_m, camera, R_wc, cov_p, sigma_attitude_rad)
        surprise = chi2_limit(3, self._config.false_alarm)

        S, innovation = cov_p + fix.cov, fix.p_wc - prior_w
        pull = np.linalg.solve(S, innovation[..., None])[..., 0]
        d2, likely_w = (innovation * pull).sum(-1), prior_w + pull @ cov_p
        plausible = (d2 < surprise) & self._reprojects(pairs, fix, range_m, camera, sigma_attitude_rad)
        likelihood = np.where(plausible, d2 + np.linalg.slogdet(S)[1], np.inf)  # -2 log + constant
        away_m = np.linalg.norm(self.rims.p_wg[pairs.gate] - fix.p_wc, axis=-1)
        believed = self._believed(pairs, d2, range_m, away_m)
        cost, best = _best_orders(pairs, likelihood, len(detections))

        sightings, unexplained = [], {d for d, detection in enumerate(detections) if detection.visible.all()}
        for pair in unambiguous(cost, surprise):
            k = best[pair]
            unexplained.discard(pair[0])
            if believed[k]:
                gate = pairs.gate[k : k + 1]
                once_more = gate, pairs.near_face[k : k + 1], likely_w[k : k + 1]  # from the likeliest place
                corners_w = self._openings(*once_more)[1][0]
                corners = pairs.corners_px[k], cov_px[k, :4], pairs.visible[k], corners_w
                fix_wb, range_k = fix.p_wc[k] - prior_w + p_wb, float(away_m[k])
                sightings.append(GateSighting(t, self._index[gate[0]], fix_wb, fix.cov[k], range_k, *corners, pair[0]))
        return sightings, len(unexplained)

    def _pairs_by_shape(
        self,
        detections: Sequence[Detection],
        camera: Camera,
        R_wc: Array,
        prior_w: Array,
        cov_p: Array,
        sigma_rad: float,
    ) -> Pairs:
        """The N pairs whose visible corners fit in some order: whole openings in the best, cut ones in all that fit.

        Of one visible corner nothing but the prior tells the place, so those are tried in all orders from there, and as any
        gate ahead: the right one may be too near to be believed, but not to be a rival.
        """
        px, cov_px, visible = (
            np.array(column) for column in zip(*((d.corners_px, d.cov_px, d.visible) for d in detections), strict=True)
        )
        rims, ideal_px = self.rims, camera.pinhole(px)
        rays_w = rays(ideal_px[:, ORDERS], camera) @ R_wc.T  # (D, 8, 4, 3)
        weight = visible[:, ORDERS].astype(float)
        p_wc, miss = ray_fit(rays_w[:, :, None], rims.corners_w, weight[:, :, None])  # (D, 8, G, 3), (D, 8, G)
        alone = visible.sum(-1)[:, None, None] == 1
        p_wc = np.where(alone[..., None], prior_w, p_wc)
        before = ((p_wc - rims.p_wg) * rims.R_wg[:, :, 0]).sum(-1) < 0
        right_way = before == FROM_FRONT[:, None]  # else a side would do for the opposite one
        miss = np.where(right_way, miss, np.inf)
        range_m = np.linalg.norm(rims.p_wg - p_wc, axis=-1)
        fits = miss < self._config.miss * 2 * rims.half_m
        whole = (visible.sum(-1) == 4)[:, None, None]
        best = np.arange(len(ORDERS))[:, None] == miss.argmin(1)[:, None]
        reach_m = self._config.reach_sigmas * greatest_sigma(cov_p)
        near = np.linalg.norm(p_wc - prior_w, axis=-1) < reach_m + 2 * (rims.half_m + 3 * sigma_rad * range_m)
        ahead = ((rims.corners_w - prior_w) @ R_wc[:, 2] > 0).all(-1)
        i, order, j = np.nonzero(np.where(alone, ahead & right_way, fits & np.where(whole, best, near)))
        ordered = i[:, None], ORDERS[order]
        near_face = np.array([one.near_face for one in detections])
        outer_px, outer_cov_px = _outer(detections)
        eight_px = np.concatenate([ideal_px[ordered], camera.pinhole(outer_px)[ordered]], -2)
        eight_cov_px = np.concatenate([cov_px[ordered], outer_cov_px[ordered]], -3)
        return Pairs(i, j, px[ordered], eight_px, eight_cov_px, visible[ordered], near_face[i], p_wc[i, order, j])

    def _fixes(
        self, pairs: Pairs, range_m: Array, camera: Camera, R_wc: Array, cov_p: Array, sigma_attitude_rad: float
    ) -> tuple[PositionFix, Array]:
        """The fixes (N) of the pairs, and the covariances (N, 8, 2, 2) px^2 of their corners with the walls of the gates."""
        openings = self._openings(pairs.gate, pairs.near_face, pairs.start_w)
        frames = self.rims.opening(pairs.gate, pairs.start_w, frame=True)
        rim_w, eight_w = (np.concatenate(pair, -2) for pair in zip(openings, frames, strict=True))
        cov_px = pairs.cov_px + self.rims.wall_cov_px2(rim_w, eight_w, pairs.start_w, R_wc, self.camera)
        information = pairs.lone[:, None, None] * np.linalg.inv(cov_p + CERTAIN_M2 * np.eye(3))
        look = self.appearance
        sigma_px = np.hypot(look.edge_offset_px, look.edge_offset_m * camera.fx_px / range_m)
        world = eight_w, R_wc, pairs.start_w, sigma_px, sigma_attitude_rad
        return locate_camera(pairs.ideal_px, cov_px, *world, camera, information), cov_px

    def _openings(self, gate: Indices, near_face: Mask, p_w: Array) -> tuple[Array, Array]:
        """World corners (N, 4, 3) of the rim of gates (N,) and of what is seen from p_w (N, 3): the hole, or the rim itself."""
        rim_w, hole_w = self.rims.opening(gate, p_w)
        face_w, is_face = self.rims.near_face(gate, p_w), near_face[:, None, None]
        return np.where(is_face, face_w, rim_w), np.where(is_face, face_w, hole_w)

    def _reprojects(
        self, pairs: Pairs, fix: PositionFix, range_m: Array, camera: Camera, sigma_attitude_rad: float
    ) -> Mask:
        """Which (N,) fixes explain their corners. A turned square misses its corners by half its diagonal times the angle."""
        diagonal_px = 2 * np.sqrt(2) * self.rims.half_m[pairs.gate] * camera.fx_px / range_m
        misfit = self._config.misfit + sigma_attitude_rad / 2
        return np.asarray(fix.reprojection_px < misfit * diagonal_px)

    def _believed(self, pairs: Pairs, d2: Array, range_m: Array, away_m: Array) -> Mask:
        """Which (N,) pairs may be reported: all are rivals, but less is believed of what is seen in part."""
        config = self._config
        believed = pairs.whole | ((d2 < chi2_limit(3, config.part_false_alarm)) & (away_m > config.part_m))
        nearest_m, farthest_m = config.lone_m
        in_range = (nearest_m < np.minimum(range_m, away_m)) & (range_m < farthest_m)
        return np.asarray(believed & (~pairs.lone | ((d2 < chi2_limit(3, config.lone_false_alarm)) & in_range)))


def _best_orders(pairs: Pairs, cost: Array, detections: int) -> tuple[Array, dict[tuple[int, int], int]]:
    """Costs (D, G) of detection i being gate j in its likeliest order, and which pair that is.

    A cut opening that could as well be another part of the same gate gives no pair.
    """
    table = np.full((detections, int(pairs.gate.max(initial=-1)) + 1), np.inf)
    best: dict[tuple[int, int], int] = {}
    whole = pairs.whole
    for k in np.argsort(cost, kind="stable"):
        pair = (int(pairs.detection[k]), int(pairs.gate[k]))
        if not np.isfinite(cost[k]):
            break
        if pair not in best:
            best[pair], table[pair] = int(k), cost[k]
        elif cost[k] - cost[best[pair]] < RIVAL and not whole[k]:
            table[pair] = np.inf
    return table, best


def _outer(detections: Sequence[Detection]) -> tuple[Array, Array]:
    """Corners (D, 4, 2) and covariances (D, 4, 2, 2) of the frames; of those that were not seen the covariance is endless."""
    unseen = np.tile(UNSEEN_PX**2 * np.eye(2), (4, 1, 1))
    px = [d.corners_px if d.outer_px is None else d.outer_px for d in detections]
    return np.array(px), np.array([unseen if d.outer_cov_px is None else d.outer_cov_px for d in detections])
