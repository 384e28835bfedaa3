"""Stages 4 to 6: measured evidence about hypotheses, their verification, and the corners of those accepted.

4. `gather`: colour and silhouette about hypotheses.
5. `verify`: named conditions, all of which must hold.
6. `refine`: for nearby gates, the rim of the near face instead of the hole bounded by both faces.

The hole mixes the rims of two faces, and moves on the gate with the viewpoint. Where the outline on the gate's edges is visible
about the near face, that face's rim is measured instead: a rigid square, whose position needs no assumption about the depth.
The outline straddles the nominal edge, so its centre line is that edge, unaffected by symmetric blur.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gate_racer.common.compiled import Image
from gate_racer.model import quadrilateral
from gate_racer.model.quadrilateral import NEXT, PREVIOUS, GateModel, intersect_lines, is_inside, outward_normals
from gate_racer.perception.classical import proposals
from gate_racer.perception.classical.proposals import COLOURED_MIN, Hypotheses, PreparedImage, View, fourth_sides
from gate_racer.perception.detection import BORDER_PX
from gate_racer.perception.edges import SILHOUETTE_EDGES, LineFits, QuadEdges, fit_edges, fit_lines
from gate_racer.perception.pose import CORNERS, ippe
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Indices, Mask

# Limits of the silhouette's position and visibility. Tuned, except where a source is named.
SAMPLES_ALONG = 21  # points on a side by which its visibility is checked
SHOWN_MIN = 0.25  # -, least share of them within the image, for a visible side
SHOWN_BORDER = 0.5  # -, over the frame's width: an edge nearer to the image border has no complete profile
SILHOUETTE_MISS = 0.16  # -, greatest position error of a silhouette's edge over the frame's width
SILHOUETTE_MISS_PX = 1.2  # ... and at least this: quantisation to pixels and the edge's own error (derived)
DEPTH_SCALE = (-1.0, 0.6)  # -, range of (true - drawn depth) / drawn depth; -1: a flat gate
DOUBT_BACKGROUND = 0.3  # -, share of the gates' colour beyond the frame above which a side is uncertain
# Criteria by which a hypothesis is accepted as a gate. Tuned.
# -, as `COLOURED_MIN`, beside a side whose silhouette fits: the frame may be overexposed to white.
COLOURED_MIN_FITS = 0.2
FULL = 0.8  # -, least share on the frame, and ...
FREE = 0.1  # ... greatest share beyond it, that show the frame's end as well as an edge does
THREE_SIDES = 3  # sides that must fit where a fourth is overexposed or hidden
SCORE_MIN = 0.4  # -, least score of a detection


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hypotheses (R) and the measurements about them. Side k runs from corner k to corner k + 1."""

    opening: QuadEdges  # sides that may be a nearer gate's do not count as measured
    silhouette: QuadEdges  # as measured in the image
    visible: Mask  # (R, 4) corners between measured sides, in the image
    on_frame: Array  # (R, 4) share of the gates' colour on the frame beside each side
    beyond: Array  # (R, 4) ... and beyond the frame
    fits: Mask  # (R, 4) the silhouette was measured at its predicted position
    shown: Mask  # (R, 4) enough of the predicted silhouette lies within the image
    middle_inside: Mask  # (R, 4) the midpoint of the silhouette's side lies within the image
    silhouette_inside: Mask  # (R,) all of its corners lie within the image
    suspect: Mask  # (R, 4) sides that may be those of a gate behind
    replaced: Mask  # (R, 4) sides predicted in place of suspect ones
    source: Indices  # (R,) the measured opening that each hypothesis derives from
    first_view: bool  # see `View.first`


def gather(scene: PreparedImage, view: View, hypotheses: Hypotheses, model: GateModel) -> Evidence:
    """Measure colour and silhouette about each hypothesis."""
    edges, image = hypotheses.edges, scene.image
    extent_px = model.depth_extent_px(edges.corners_px)
    expected_px = model.silhouettes(edges.corners_px, extent_px)
    on_frame, beyond = proposals.colour_shares(image, edges.corners_px, expected_px)
    silhouette = fit_edges(view.silhouette, expected_px, model.ratio, SILHOUETTE_EDGES, wide=view.first)
    width_px = model.frame_width_px(edges.corners_px)
    fits = _stands_in_place(silhouette, expected_px, width_px, (1 + model.ratio) / 2 * extent_px)
    trusted = (beyond < DOUBT_BACKGROUND) & ~hypotheses.suspect
    opening = edges._replace(measured=edges.measured & (fits | trusted))
    inside = is_inside(opening.corners_px, image, BORDER_PX)
    sides_px = (silhouette.corners_px + silhouette.corners_px[:, NEXT]) / 2
    return Evidence(
        opening=opening,
        silhouette=silhouette,
        visible=opening.measured & opening.measured[:, PREVIOUS] & inside,
        on_frame=on_frame,
        beyond=beyond,
        fits=fits,
        shown=_is_shown(expected_px, image, SHOWN_BORDER * width_px),
        middle_inside=is_inside(sides_px, image, BORDER_PX),
        silhouette_inside=np.asarray(is_inside(silhouette.corners_px, image, BORDER_PX).all(-1)),
        suspect=hypotheses.suspect,
        replaced=hypotheses.replaced,
        source=hypotheses.source,
        first_view=view.first,
    )


def _stands_in_place(silhouette: QuadEdges, expected_px: Array, width_px: Array, extent_px: Array) -> Mask:
    """Check which sides (R, 4) of silhouettes lie at expected_px (R, 4, 2), within the depth's outward extent_px (R, 4)."""
    off = silhouette.corners_px - expected_px
    miss_px = ((off + off[:, NEXT]) / 2 * silhouette.outward).sum(-1)
    most_px = np.maximum(SILHOUETTE_MISS * width_px, SILHOUETTE_MISS_PX)
    near = silhouette.measured & (np.abs(miss_px) < most_px + extent_px)
    # The gate may be flatter or deeper than drawn, equally on all sides: least squares over the sides that are near.
    scale = (near * miss_px * extent_px).sum(-1) / np.maximum((near * extent_px**2).sum(-1), 1e-9)
    scale = np.clip(scale, *DEPTH_SCALE)
    return np.asarray(near & (np.abs(miss_px - scale[:, None] * extent_px) < most_px))


def _is_shown(quads: Array, image: Image, border_px: Array) -> Mask:
    """Check which sides (R, 4) of quads (R, 4, 2) are visible: enough of them lies border_px (R, 1) within the image."""
    t = np.linspace(0.0, 1.0, SAMPLES_ALONG)[:, None]
    along = quads[..., None, :] + t * (quads[:, NEXT] - quads)[..., None, :]
    return np.asarray(is_inside(along, image, border_px[..., None, None]).mean(-1) > SHOWN_MIN)


DIRECTIONS = ([1, 3], [0, 2])  # opposite sides


def verify(evidence: Evidence) -> tuple[Indices, Array]:
    """Return the indices of the accepted hypotheses, and the scores (R,) of all."""
    accepted = np.all(list(conditions(evidence).values()), 0)
    accepted &= ~superseded(evidence, accepted)
    score = scores(evidence)
    return np.flatnonzero(accepted & (score > SCORE_MIN)), score


def conditions(evidence: Evidence) -> dict[str, Mask]:
    """Return the conditions (R,) of a gate, by name; hypotheses that meet all of them are accepted."""
    fits, shown, on_frame, beyond = evidence.fits, evidence.shown, evidence.on_frame, evidence.beyond
    measured, replaced = evidence.opening.measured, evidence.replaced
    # The frame has the gates' colour beside each measured or replaced side; or else the silhouette contradicts at most one
    # side, and the colour is missing on at most one.
    least = np.where(fits, COLOURED_MIN_FITS, COLOURED_MIN)
    coloured = ((on_frame > least) | ~(measured | replaced)).all(-1)
    three_fit = (fits | ~shown).sum(-1) >= THREE_SIDES
    three_coloured = (on_frame > COLOURED_MIN).sum(-1) >= THREE_SIDES
    # The silhouette is at its predicted position on at least one visible side; of a whole opening in both directions, as one
    # with a nearer gate's edge as a side has wrong proportions.
    ends = fits | ((on_frame > FULL) & (beyond < FREE))
    upright, across = (ends[:, pair].any(-1) | ~shown[:, pair].any(-1) for pair in DIRECTIONS)
    of_part = fits.any(-1) | ~shown.any(-1)
    return {
        "corners": evidence.visible.any(-1),
        "colour": coloured | (three_fit & three_coloured),
        # The frame ends: its silhouette fits on all sides, or the colour beyond it is another.
        "background": fits.all(-1) | (beyond.mean(-1) < proposals.background_limit(evidence.first_view)),
        "silhouette": np.where(measured.all(-1), upright & across, of_part),
        # The silhouette fits beside each replaced side, unless it is covered.
        "replaced sides": (fits | ~replaced | (beyond > COLOURED_MIN)).all(-1),
        # In the second view, where lettering forms holes, the silhouette fits on all visible sides.
        "second view": (fits | ~evidence.middle_inside).all(-1) | evidence.first_view,
    }


def superseded(evidence: Evidence, accepted: Mask) -> Mask:
    """Find measured openings (R,) that an accepted hypothesis explains better: one side was the edge of a gate behind."""
    better = accepted & evidence.fits.all(-1) & evidence.replaced.any(-1)
    superseded = np.zeros_like(accepted)
    superseded[evidence.source[better]] = True
    return superseded


def scores(evidence: Evidence) -> Array:
    """Return the confidence (R,) of hypotheses, 0..1: edges and colour of measured sides, times the share of fitting silhouette.

    A side outside the image counts half; a suspect one without a fitting silhouette reduces the score.
    """
    measured, fits = evidence.opening.measured, evidence.fits
    seen = (evidence.opening.support * evidence.on_frame * measured).sum(-1) / np.maximum(measured.sum(-1), 1)
    framed = 2 + fits.sum(-1) + (~evidence.shown & ~fits).sum(-1) / 2  # of 6
    return np.asarray(seen * framed / 6 * (1 - (evidence.suspect & ~fits).mean(-1)))


# Conditions for measuring the rim of the near face instead of the hole.
RIM_FROM_PX = 60.0  # least side of the hole: below, the rims' gap is under 0.6, outlines 0.8 (derived)
SIDES_MIN = 3  # least number of sides with a visible outline; the depth is the same on all
MISS_PX = 1.0  # greatest position error of the outline
# -, range of (true - drawn depth) / drawn depth: 0.1 m to 0.3 m; sources state 0.14 to 0.26 m.
DEPTH_RANGE = (-0.4, 0.9)
GAP_SHARE_MIN = 0.5  # -, least share of the rims' gaps on sides with a visible outline (a majority)
# -, error of a gap over the gap: the hole that gives the pose is not quite a square (derived: its sides belong to both
# faces).
GAP_DOUBT = 0.3
SQUARE_DOUBT = 0.1  # -, of a side, two standard deviations of the fourth side predicted by three (rendered)
OUTLINE_DOUBT = 0.1  # -, standard deviation of the nominal edge within the outline, over its width (guess)


class Rims(NamedTuple):
    """Corners reported for the accepted hypotheses (N)."""

    corners_px: Array  # (N, 4, 2)
    cov_px2: Array  # (N, 4, 2, 2) px^2
    visible: Mask  # (N, 4) corners that lie in the image and were measured there
    near_face: Mask  # (N,) corners of the near face's opening, in the middle of the outline; else of the hole


def refine(scene: PreparedImage, evidence: Evidence, accepted: Indices, model: GateModel, rim_from_px: float) -> Rims:
    """Return the holes of the accepted hypotheses (N), replaced by the rims of near faces where these are measured."""
    opening = evidence.opening.select(accepted)
    cov_px2, none = opening.cov_px2, np.zeros(len(accepted), bool)
    rims = Rims(opening.corners_px.copy(), cov_px2, evidence.visible[accepted], none)
    large = quadrilateral.side_lengths(opening.corners_px).min(-1) > rim_from_px
    which = np.flatnonzero(opening.measured.all(-1) & large)
    if not len(which):
        return rims
    holes = opening.corners_px[which]
    gaps_px = rim_gaps_px(holes + model.origin_px, model.camera)
    # A rim beyond the frame means an impossible pose; False for NaN.
    known = (gaps_px < model.frame_width_px(holes)[..., None]).all((-1, -2))
    which, holes, gaps_px = which[known], holes[known], gaps_px[known]
    faces, lines = _outlines(scene, holes, gaps_px)
    deeper, measured = _depths(lines, gaps_px)
    seen = measured.sum(-1) >= SIDES_MIN
    if not seen.any():
        return rims
    which, measured = which[seen], measured[seen]
    corners_px, sigma_px = _completed(
        faces[seen], gaps_px[seen], deeper[seen], LineFits(*(x[seen] for x in lines)), measured, model
    )
    rims.corners_px[which] = corners_px
    rims.cov_px2[which] = quadrilateral.corner_covariance_px2(corners_px, np.ones_like(measured), sigma_px)
    rims.visible[which] &= is_inside(corners_px, scene.image, BORDER_PX)
    rims.near_face[which] = True
    return rims


@np.errstate(all="ignore")
def rim_gaps_px(holes: Array, camera: Camera) -> Array:
    """Return the gaps (Q, 4, 2 ends) px from holes' sides (Q, 4, 2) outward to the near face's rim, by IPPE; NaN without pose."""
    R_cg, p_cg = ippe(camera.pinhole(holes), 1.0, camera)  # (Q, 2, 3, 3), (Q, 2, 3), in units of the hole's side
    corners_c = p_cg[..., None, :] + CORNERS / 2 @ np.swapaxes(R_cg, -1, -2)  # (Q, 2, 4, 3)
    error_px = np.linalg.norm(camera.project(corners_c) - holes[:, None], axis=-1).mean(-1)
    best = np.nan_to_num(error_px, nan=np.inf).argmin(-1)
    rows = np.arange(len(holes))
    corners_c, half_depth = corners_c[rows, best], quadrilateral.DEPTH_RATIO / 2 * R_cg[rows, best, :, 0][:, None]
    apart_px = camera.project(corners_c - half_depth) - camera.project(corners_c + half_depth)  # (Q, 4, 2)
    outward = outward_normals(holes, holes[:, NEXT])
    ends = [(apart * outward).sum(-1) for apart in (apart_px, apart_px[:, NEXT])]
    return np.asarray(np.maximum(np.stack(ends, -1), 0.0))


def _outlines(scene: PreparedImage, holes: Array, gaps_px: Array) -> tuple[Array, LineFits]:
    """Return nominal openings (Q, 4, 2) of near faces, by gaps outward of visible holes (Q, 4, 2), and their outlines' fits."""
    faces = quadrilateral.enlarged(_moved(holes, gaps_px), 1 / quadrilateral.HOLE_RATIO)
    outward, gap_px = outward_normals(faces, faces[:, NEXT]), gaps_px.mean(-1)
    middles = (holes + holes[:, NEXT] - faces - faces[:, NEXT]) / 2
    width_px = quadrilateral.OUTLINE_WIDTH_RATIO * quadrilateral.side_lengths(faces)
    return faces, fit_lines(
        np.ascontiguousarray(scene.image[..., 1]),
        np.stack([faces, faces[:, NEXT]], -2),
        outward,
        MISS_PX + DEPTH_RANGE[1] * gap_px,
        width_px,
        quadrilateral.OUTLINE_WIDTH_RATIO / quadrilateral.DEPTH_RATIO * gap_px,
        (middles * outward).sum(-1),
    )


def _moved(quads: Array, ends_px: Array) -> Array:
    """Return quads (Q, 4, 2) with the ends of their sides moved outward by ends_px (Q, 4, 2 ends)."""
    outward = outward_normals(quads, quads[:, NEXT])
    start, end = quads + ends_px[..., :1] * outward, quads[:, NEXT] + ends_px[..., 1:] * outward
    return intersect_lines(start, end - start)


def _depths(lines: LineFits, gaps_px: Array) -> tuple[Array, Mask]:
    """Return relative excess depths (Q,) of gates over the drawn one, and the lines (Q, 4) consistent with a common depth.

    Ringing about the edges of a flat gate, or of one without outline, appears at the hole, or where there is no gap.
    """
    ends, measured = lines.place_px, lines.measured
    unit = (MISS_PX / DEPTH_RANGE[1]) ** 2  # px^2, regularisation: a gap too small to show the depth
    most_px = MISS_PX + GAP_DOUBT * gaps_px.mean(-1)
    for _ in range(2):
        weight = measured[..., None] * gaps_px
        deeper = (weight * ends).sum((-2, -1)) / ((weight * gaps_px).sum((-2, -1)) + unit)
        off_px = np.abs(ends - deeper[:, None, None] * gaps_px).max(-1)
        measured = lines.measured & (off_px < most_px)
    shown = (measured * gaps_px.mean(-1)).sum(-1) > GAP_SHARE_MIN * gaps_px.mean(-1).sum(-1)
    deep = shown & (deeper > DEPTH_RANGE[0]) & (deeper < DEPTH_RANGE[1])
    return deeper, measured & deep[:, None]


def _completed(
    faces: Array, gaps_px: Array, deeper: Array, lines: LineFits, measured: Mask, model: GateModel
) -> tuple[Array, Array]:
    """Return nominal openings (Q, 4, 2) of near faces, and standard deviations (Q, 4, 2) px across their sides.

    An unmeasured side is placed by the depth that the others show, or completes a square with them.
    """
    place_px = np.where(measured[..., None], lines.place_px, deeper[:, None, None] * gaps_px)
    corners_px = _squared(_moved(faces, place_px), measured, model)
    outline_px = quadrilateral.OUTLINE_WIDTH_RATIO * quadrilateral.side_lengths(faces)[..., None]
    seen_px = np.hypot(lines.sigma_px, OUTLINE_DOUBT * outline_px)
    guess_px = np.hypot(MISS_PX, GAP_DOUBT * gaps_px)
    return corners_px, np.where(measured[..., None], seen_px, guess_px)


def _squared(faces: Array, measured: Mask, model: GateModel) -> Array:
    """Return the openings (Q, 4, 2), with an unmeasured side moved to complete a square if it is far from there.

    In that case the hole's side by which it was placed belongs to an object behind.
    """
    which = np.flatnonzero(measured.sum(-1) == 3)
    if not len(which):
        return faces
    side = measured[which].argmin(-1)
    ends_px = fourth_sides(faces[which] + model.origin_px, model.camera)[np.arange(len(which)), side] - model.origin_px
    for q, k, ends in zip(which, side, ends_px, strict=True):
        pair = [k, NEXT[k]]
        elsewhere_px = np.linalg.norm(ends - faces[q, pair], axis=-1).max()  # False below for NaN
        if elsewhere_px > SQUARE_DOUBT * quadrilateral.side_lengths(faces[q]).max():
            faces[q, pair] = ends
    return faces
