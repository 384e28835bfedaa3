"""Data association: from detections and a prior of the pose to identified gates and position fixes.

    pairs by shape -> fixes -> Mahalanobis and reprojection gates -> assignment -> GateSighting

The telemetry's attitude is far more accurate than the tilt of a small square, so a fix keeps it and solves for the position
alone (`position`). Fixes are assigned to gates by their Mahalanobis distance from the prior, all detections of an image at once,
and an ambiguous detection is rejected: the assignment is one-to-one, and restricted to unambiguous pairs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gate_racer.common.compiled import compiled
from gate_racer.model.reprojection import GateSighting
from gate_racer.model.rims import GateAppearance, GateRims
from gate_racer.model.states import State
from gate_racer.perception.detection import Detection
from gate_racer.perception.pose import PositionFix, locate_camera, ray_fit, rays
from gate_racer.tracks.gate import Gate
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Indices, Mask
from gate_racer.vehicle.statistics import chi2_limit, greatest_sigma

RIVAL = 2 * math.log(20.0)  # -, -2 log of the least likelihood ratio of a pair to its alternatives (chosen odds)
FORBIDDEN = 1e9  # cost of an impossible pair, above any sum of possible ones


def unambiguous(cost: Array, unassigned: float) -> list[tuple[int, int]]:
    """Return the unambiguous pairs (row, column) of the likeliest one-to-one assignment.

    A pair is unambiguous if the best assignment without it costs at least `RIVAL` more.

    Args:
        cost: (D, G), -2 log likelihood of each pair, infinite where impossible.
        unassigned: cost of leaving a row unassigned, in excess of the most expensive possible pair.
    """
    possible = np.isfinite(cost)
    if not possible.any():
        return []
    D, G = cost.shape
    alone = cost[possible].max() + unassigned
    table = np.hstack([np.where(possible, cost, FORBIDDEN), np.full((D, D), alone)])
    rows, columns = np.arange(D), assign(table)
    best = table[rows, columns].sum()
    pairs = []
    for row, column in zip(rows, columns, strict=True):
        if column < G:
            without = table.copy()
            without[row, column] = FORBIDDEN
            if without[rows, assign(without)].sum() - best > RIVAL:
                pairs.append((int(row), int(column)))
    return pairs


@compiled("i8[:](f8[:,:])")
def assign(cost: Array) -> Indices:
    """Return the column (D,) of each row in the one-to-one assignment of least total cost.

    Shortest augmenting paths (Jonker and Volgenant 1987) as in Crouse, "On implementing 2D rectangular assignment algorithms"
    (2016). SciPy's gives the same result, but costs half a second of import at the start of each process.

    Args:
        cost: (D, G), finite, D <= G.
    """
    D, G = cost.shape
    of_row, of_column = np.full(D, -1), np.full(G, -1)
    row_price, column_price = np.zeros(D), np.zeros(G)
    for first in range(D):
        # Dijkstra over reduced costs, from a row without a column to the nearest column without a row.
        far, before, reached = np.full(G, np.inf), np.full(G, -1), np.zeros(G, dtype=np.bool_)
        row, length, column = first, 0.0, -1
        while row >= 0:
            nearest = -1
            for k in range(G):
                if not reached[k]:
                    through = length + cost[row, k] - row_price[row] - column_price[k]
                    if through < far[k]:
                        far[k], before[k] = through, row
                    if nearest < 0 or far[k] < far[nearest]:
                        nearest = k
            column, length, reached[nearest] = nearest, far[nearest], True
            row = of_column[column]
        row_price[first] += length
        for k in range(G):
            if reached[k] and k != column:
                row_price[of_column[k]] += length - far[k]
                column_price[k] -= length - far[k]
        while column >= 0:  # each row on the path takes the column after it
            row = before[column]
            of_column[column], of_row[row], column = row, column, of_row[row]
    return of_row


# Possible orders of a clockwise quadrilateral's corners, for a gate seen from the front and from behind.
ORDERS = np.array([[(start + step * k) % 4 for k in range(4)] for step in (1, -1) for start in range(4)])
FROM_FRONT = np.arange(len(ORDERS)) < 4  # orders of gates seen from the front
UNSEEN_PX = 1e6  # px, standard deviation of an unobserved corner: its information vanishes
CERTAIN_M2 = 1e-9  # m^2, least variance of a prior, so that it has an inverse


# Acceptance thresholds of fixes. Tuned on rendered flights with perturbed priors, except where a source is named.
FALSE_ALARM = 1e-3  # -, share of true fixes rejected by the prior (chosen)
MISFIT = 0.06  # -, greatest mean reprojection error over the diagonal, both in px (Swift's released code)
MISS = 0.25  # -, greatest rms distance between rays and corners over the opening, for an order to fit
REACH_SIGMAS = 4.0  # -, standard deviations of the prior within which a cut opening is matched
# A partial view has less redundancy against a wrong match, and a single corner has the prior alone: more of the true ones
# are rejected.
PART_FALSE_ALARM = 0.01
LONE_FALSE_ALARM = 0.1  # likewise of single corners
PART_M = 1.5  # m, least range of a partial view: nearer, corners outside the image dominate
LONE_M = (2.5, 12.0)  # m, ranges of a single corner; farther it adds nothing to the prior


class Pairs(NamedTuple):
    """Candidate pairs (N) of a detection and a gate, with corners in gate order."""

    detection: Indices  # (N,)
    gate: Indices  # (N,)
    corners_px: Array  # (N, 4, 2) of the opening, as measured
    ideal_px: Array  # (N, 8, 2) of the opening, then of the frame, undistorted
    cov_px: Array  # (N, 8, 2, 2), of the corners alone
    visible: Mask  # (N, 4)
    near_face: Mask  # (N,) corners are of the near face, else of the hole
    start_w: Array  # (N, 3) m, world NED, initial camera position by the corners

    @property
    def whole(self) -> Mask:
        return np.asarray(self.visible.sum(-1) == 4)

    @property
    def lone(self) -> Mask:
        """Pairs with a single visible corner, whose position fix starts from the prior."""
        return np.asarray(self.visible.sum(-1) == 1)


class Associator:
    """Associates detections with the physical gates of a course; a gate passed several times goes by its first entry."""

    def __init__(self, gates: Sequence[Gate], camera: Camera, appearance: GateAppearance | None = None):
        self._gates, self.camera = gates, camera
        self.appearance = appearance or GateAppearance()
        shown: list[tuple[int, Gate]] = []
        for j, gate in enumerate(gates):
            if gate.visible and not gate.is_ball and not any(gate.same_frame(other) for _, other in shown):
                shown.append((j, gate))
        self._index = [j for j, _ in shown]
        self.rims = GateRims([gate for _, gate in shown], self.appearance)

    def on(self, gates: Sequence[Gate]) -> "Associator":
        """Return a copy for another map."""
        return Associator(gates, self.camera, self.appearance)

    def through(self, camera: Camera) -> "Associator":
        """Return a copy for another camera."""
        return Associator(self._gates, camera, self.appearance)

    def centre(self, gate: int) -> Array:
        """Return the centre (3,) m, world NED, of a gate by its index in the course."""
        return np.asarray(self.rims.p_wg[self._index.index(gate)])

    def associate(
        self, prior: State, detections: Sequence[Detection], camera: Camera | None = None
    ) -> tuple[list[GateSighting], int]:
        """Return the sightings in one image, and the number of whole openings associated with no gate, and of partial views which
        are of one gate only, but contradict the prior.

        Args:
            prior: at the exposure.
            camera: as calibrated in flight; None for the vehicle's.
        """
        camera = camera or self.camera
        if not detections or not self._index:
            return [], sum(bool(detection.visible.all()) for detection in detections)
        prior_w, R_wc = camera.pose(prior.p_wb, prior.q_wb)
        pairs = self._pairs_by_shape(detections, camera, R_wc, prior_w, prior)
        range_m = np.linalg.norm(self.rims.p_wg[pairs.gate] - pairs.start_w, axis=-1)
        fix, cov_px = self._fixes(pairs, range_m, camera, R_wc, prior)
        surprise = chi2_limit(3, FALSE_ALARM)

        S, innovation = prior.cov_p + fix.cov, fix.p_wc - prior_w
        pull = np.linalg.solve(S, innovation[..., None])[..., 0]
        d2, likely_w = (innovation * pull).sum(-1), prior_w + pull @ prior.cov_p
        # Half the diagonal times the attitude error is tolerated.
        diagonal_px = 2 * np.sqrt(2) * self.rims.half_m[pairs.gate] * camera.fx_px / range_m
        reprojects = fix.reprojection_px < (MISFIT + prior.sigma_attitude_rad / 2) * diagonal_px
        plausible = (d2 < surprise) & reprojects
        likelihood = np.where(plausible, d2 + np.linalg.slogdet(S)[1], np.inf)  # -2 log + constant
        away_m = np.linalg.norm(self.rims.p_wg[pairs.gate] - fix.p_wc, axis=-1)
        in_range, likely, reportable = _usable(pairs, d2, range_m, away_m)
        cost, best = _best_orders(pairs, likelihood, len(detections))

        sightings, unexplained = [], {d for d, detection in enumerate(detections) if detection.visible.all()}
        for pair in unambiguous(cost, surprise):
            k = best[pair]
            unexplained.discard(pair[0])
            if in_range[k] and not likely[k]:
                unexplained.add(pair[0])
            if reportable[k]:
                gate = pairs.gate[k : k + 1]
                from_posterior = gate, pairs.near_face[k : k + 1], likely_w[k : k + 1]  # from the posterior position
                corners_w = self._openings(*from_posterior)[1][0]
                corners = pairs.corners_px[k], cov_px[k, :4], pairs.visible[k], corners_w
                at = fix.p_wc[k] - prior_w + prior.p_wb, fix.cov[k], fix.by_turn[k], float(away_m[k])
                sightings.append(GateSighting(prior.t, self._index[gate[0]], *at, *corners, pair[0]))
        return sightings, len(unexplained)

    def _pairs_by_shape(
        self, detections: Sequence[Detection], camera: Camera, R_wc: Array, prior_w: Array, prior: State
    ) -> Pairs:
        """Return the N pairs whose visible corners fit in some order: whole openings in the best one, cut ones in all that fit.

        A single visible corner has its position from the prior alone, so it is tried in all orders from there, and as any gate
        ahead: a gate too near to be accepted may still make the match ambiguous.
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
        right_way = before == FROM_FRONT[:, None]  # else a gate could match its mirror image
        miss = np.where(right_way, miss, np.inf)
        range_m = np.linalg.norm(rims.p_wg - p_wc, axis=-1)
        fits = miss < MISS * 2 * rims.half_m
        whole = (visible.sum(-1) == 4)[:, None, None]
        best = np.arange(len(ORDERS))[:, None] == miss.argmin(1)[:, None]
        reach_m, turned_m = REACH_SIGMAS * greatest_sigma(prior.cov_p), 3 * prior.sigma_attitude_rad * range_m
        near = np.linalg.norm(p_wc - prior_w, axis=-1) < reach_m + 2 * (rims.half_m + turned_m)
        ahead = ((rims.corners_w - prior_w) @ R_wc[:, 2] > 0).all(-1)
        i, order, j = np.nonzero(np.where(alone, ahead & right_way, fits & np.where(whole, best, near)))
        ordered = i[:, None], ORDERS[order]
        near_face = np.array([one.near_face for one in detections])
        # Frames that are not measured. The filter does without these: half the noise of all corners would lower its p95 at VQ1's
        # gates from 0.058 to 0.052 m only.
        unseen = np.tile(UNSEEN_PX**2 * np.eye(2), (4, 1, 1))
        outer_px = np.array([d.corners_px if d.outer_px is None else d.outer_px for d in detections])
        outer_cov_px = np.array([unseen if d.outer_cov_px is None else d.outer_cov_px for d in detections])
        eight_px = np.concatenate([ideal_px[ordered], camera.pinhole(outer_px)[ordered]], -2)
        eight_cov_px = np.concatenate([cov_px[ordered], outer_cov_px[ordered]], -3)
        return Pairs(i, j, px[ordered], eight_px, eight_cov_px, visible[ordered], near_face[i], p_wc[i, order, j])

    def _fixes(
        self, pairs: Pairs, range_m: Array, camera: Camera, R_wc: Array, prior: State
    ) -> tuple[PositionFix, Array]:
        """Return the fixes (N) of the pairs, and the covariances (N, 8, 2, 2) px^2 of their corners, gate walls included."""
        openings = self._openings(pairs.gate, pairs.near_face, pairs.start_w)
        frames = self.rims.opening(pairs.gate, pairs.start_w, frame=True)
        rim_w, eight_w = (np.concatenate(pair, -2) for pair in zip(openings, frames, strict=True))
        cov_px = pairs.cov_px + self.rims.wall_cov_px2(rim_w, eight_w, pairs.start_w, R_wc, self.camera)
        information = pairs.lone[:, None, None] * np.linalg.inv(prior.cov_p + CERTAIN_M2 * np.eye(3))
        look = self.appearance
        sigma_px = np.hypot(look.edge_offset_px, look.edge_offset_m * camera.fx_px / range_m)
        world = eight_w, R_wc, pairs.start_w, sigma_px, prior.sigma_attitude_rad
        return locate_camera(pairs.ideal_px, cov_px, *world, camera, information), cov_px

    def _openings(self, gate: Indices, near_face: Mask, p_w: Array) -> tuple[Array, Array]:
        """Return world corners (N, 4, 3) of the rim of gates (N,), and of the hole, or the near face, as seen from p_w (N, 3)."""
        rim_w, hole_w = self.rims.opening(gate, p_w)
        face_w, is_face = self.rims.near_face(gate, p_w), near_face[:, None, None]
        return np.where(is_face, face_w, rim_w), np.where(is_face, face_w, hole_w)


def _usable(pairs: Pairs, d2: Array, range_m: Array, away_m: Array) -> tuple[Mask, Mask, Mask]:
    """Check which pairs (N,) are whole, or partial views at a range at which these may be used, which of them agree with the
    prior, and which may be reported; all of them count as alternatives.
    """
    nearest_m, farthest_m = LONE_M
    lone_in_range = (nearest_m < np.minimum(range_m, away_m)) & (range_m < farthest_m)
    in_range = pairs.whole | ((away_m > PART_M) & (~pairs.lone | lone_in_range))
    likely = pairs.whole | (d2 < chi2_limit(3, PART_FALSE_ALARM))
    return in_range, likely, likely & in_range & (~pairs.lone | (d2 < chi2_limit(3, LONE_FALSE_ALARM)))


def _best_orders(pairs: Pairs, cost: Array, detections: int) -> tuple[Array, dict[tuple[int, int], int]]:
    """Return the costs (D, G) of detection i being gate j in its likeliest order, and the index of that pair.

    A cut opening that could as well be another part of the same gate has infinite cost.
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
