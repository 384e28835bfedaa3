"""Stage 6, refine: near a gate, the rim of its near face instead of the hole that both faces leave.

The hole mixes the rims of two faces, and moves over the gate with the eye. Where the outline that the gates carry on their edges
is seen about the near face, that face's rim is measured instead: a rigid square, for whose place no depth has to be assumed.
Its outer flank is the first rise in green as one comes from the red of the face, on all sides alike.
"""

from typing import NamedTuple

import numpy as np

from perception.classical.config import ClassicalConfig, RefinementConfig
from perception.classical.evidence import Evidence
from perception.classical.scene import Scene
from perception.common.covariance import corner_covariance_px2
from perception.common.edge_fit import QuadEdges, fit_edges
from perception.common.gate_model import DRAWN_GATE, GateModel
from perception.common.quadrilateral import NEXT, enlarged, intersect_lines, is_inside, outward_normals, side_lengths
from perception.common.types import Indices, Mask
from perception.pose import CORNERS, ippe
from vehicle.camera import Camera
from vehicle.rotation import Array


class Rims(NamedTuple):
    """The corners that the accepted hypotheses (N) are reported by."""

    corners_px: Array  # (N, 4, 2)
    cov_px2: Array  # (N, 4, 2, 2)
    visible: Mask  # (N, 4) they lie in the image and were measured there
    near_face: Mask  # (N,) they are those of the near face's opening, in the middle of the outline; else of the hole


def refine(scene: Scene, evidence: Evidence, accepted: Indices, model: GateModel, config: ClassicalConfig) -> Rims:
    """The holes of the accepted hypotheses (N), replaced by the rims of near faces where these are seen."""
    limits = config.refinement
    opening = evidence.opening.select(accepted)
    cov_px2, none = opening.cov_px2(config.opening_edges.floor_px), np.zeros(len(accepted), bool)
    rims = Rims(opening.corners_px.copy(), cov_px2, evidence.visible[accepted], none)
    large = side_lengths(opening.corners_px).min(-1) > limits.side_min_px
    which = np.flatnonzero(opening.measured.all(-1) & large)
    if not len(which):
        return rims
    holes = opening.corners_px[which]
    gaps_px = rim_gaps_px(holes + model.origin_px, model.camera)
    expected = _flanks(holes, gaps_px)
    edges = fit_edges(255 - scene.image[..., 1], expected, model.ratio, config.rim_edges)
    measured = _in_place(edges, expected, gaps_px, limits)
    seen = np.isfinite(gaps_px).all((-1, -2)) & (measured.sum(-1) >= limits.sides_min)
    if not seen.any():
        return rims
    which, holes, gaps_px, edges, measured = which[seen], holes[seen], gaps_px[seen], edges.select(seen), measured[seen]
    flanks, sigma_px = _completed(holes, gaps_px, edges, measured, config)
    rims.corners_px[which] = _middles(flanks, limits)
    rims.cov_px2[which] = corner_covariance_px2(rims.corners_px[which], np.ones_like(measured), sigma_px)
    rims.visible[which] &= is_inside(rims.corners_px[which], scene.image, config.evidence.border_px)
    rims.near_face[which] = True
    return rims


@np.errstate(all="ignore")
def rim_gaps_px(holes: Array, camera: Camera) -> Array:
    """How far (Q, 4, 2 ends) px the near face's rim stands outside of the sides of holes (Q, 4, 2); NaN where no pose fits.

    The pose is that of the hole as a plane square, by IPPE; a side that the near face makes has no gap.
    """
    R_cg, p_cg = ippe(holes, 1.0, camera)  # (Q, 2, 3, 3), (Q, 2, 3), in units of the hole's side
    corners_c = p_cg[..., None, :] + CORNERS / 2 @ np.swapaxes(R_cg, -1, -2)  # (Q, 2, 4, 3)
    error_px = np.linalg.norm(camera.project(corners_c) - holes[:, None], axis=-1).mean(-1)
    best = np.nan_to_num(error_px, nan=np.inf).argmin(-1)
    rows = np.arange(len(holes))
    corners_c, half_depth = corners_c[rows, best], DRAWN_GATE.depth_ratio / 2 * R_cg[rows, best, :, 0][:, None]
    apart_px = camera.project(corners_c - half_depth) - camera.project(corners_c + half_depth)  # (Q, 4, 2)
    outward = outward_normals(holes, holes[:, NEXT])
    ends = [(apart * outward).sum(-1) for apart in (apart_px, apart_px[:, NEXT])]
    return np.asarray(np.maximum(np.stack(ends, -1), 0.0))


def _flanks(holes: Array, gaps_px: Array) -> Array:
    """Outer flanks (Q, 4, 2) of the outlines of near faces whose rims stand so far outside of holes (Q, 4, 2)."""
    outward = outward_normals(holes, holes[:, NEXT])
    start = holes + gaps_px[..., :1] * outward
    end = holes[:, NEXT] + gaps_px[..., 1:] * outward
    return enlarged(intersect_lines(start, end - start), DRAWN_GATE.flank_ratio / DRAWN_GATE.hole_ratio)


def _middles(flanks: Array, config: RefinementConfig) -> Array:
    """Middles (Q, 4, 2) of the outlines with such outer flanks, (Q, 4, 2); the blur widens a thin line."""
    half_px = np.hypot(DRAWN_GATE.outline_width_ratio / 2 * side_lengths(flanks), config.line_blur_px)
    end = flanks[:, NEXT]
    return intersect_lines(flanks - half_px[..., None] * outward_normals(flanks, end), end - flanks)


def _in_place(edges: QuadEdges, expected: Array, gaps_px: Array, config: RefinementConfig) -> Mask:
    """Which sides (Q, 4) were seen where the depth of a gate, with its tolerance, allows them."""
    off = edges.corners_px - expected
    miss_px = ((off + off[:, NEXT]) / 2 * edges.outward).sum(-1)
    most_px = config.miss_px + config.depth_tolerance * gaps_px.mean(-1)
    return np.asarray(edges.measured & (np.abs(miss_px) < most_px))


def _completed(
    holes: Array, gaps_px: Array, edges: QuadEdges, measured: Mask, config: ClassicalConfig
) -> tuple[Array, Array]:
    """The flanks (Q, 4, 2) with what was not seen of them, and standard deviations (Q, 4, 2) px across their sides.

    A side that was not seen stands where the depth has it that the others show: least squares over their gaps.
    """
    expected = _flanks(holes, gaps_px)
    off = edges.corners_px - expected
    more_px, gap_px = ((off + off[:, NEXT]) / 2 * edges.outward).sum(-1), gaps_px.mean(-1)
    deeper = (measured * more_px * gap_px).sum(-1) / np.maximum((measured * gap_px**2).sum(-1), 1.0)
    limits = config.refinement
    deeper = np.clip(deeper, -limits.depth_tolerance, limits.depth_tolerance)[:, None, None]
    expected = _flanks(holes, (1 + deeper) * gaps_px)
    start = np.where(measured[..., None], edges.corners_px, expected)
    end = np.where(measured[..., None], edges.corners_px[:, NEXT], expected[:, NEXT])
    flanks = intersect_lines(start, end - start)
    outline_px = DRAWN_GATE.outline_width_ratio * side_lengths(flanks)[..., None]
    seen_px = np.hypot(np.hypot(config.rim_edges.floor_px, edges.ends_px), limits.outline_doubt * outline_px)
    guess_px = np.hypot(limits.miss_px, limits.depth_tolerance / 2 * gaps_px)
    return flanks, np.where(measured[..., None], seen_px, guess_px)
