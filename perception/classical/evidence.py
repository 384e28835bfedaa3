"""Stages 4 and 5: `gather` measures colour and silhouette about hypotheses, `verify` decides, one predicate per criterion."""

from dataclasses import dataclass

import numpy as np

from gate_racer.common.compiled import Image
from gate_racer.model.quadrilateral import NEXT, PREVIOUS, is_inside
from gate_racer.model.rims import GateModel
from gate_racer.perception.classical.proposals import Hypotheses
from gate_racer.perception.classical.scene import COLOURED_MIN, PreparedImage, View, background_limit, colour_shares
from gate_racer.perception.detection import BORDER_PX
from gate_racer.perception.edges import SILHOUETTE_EDGES, QuadEdges, fit_edges
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
    on_frame, beyond = colour_shares(image, edges.corners_px, expected_px)
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
    """Check which sides (R, 4) of silhouettes were measured at their predicted positions (R, 4, 2).

    Args:
        width_px: (R, 1) of the frames.
        extent_px: (R, 4) outward displacement of the silhouette by the gates' depth.
    """
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
    accepted = (
        corners_ok(evidence)
        & colour_ok(evidence)
        & background_ok(evidence)
        & silhouette_ok(evidence)
        & replaced_sides_ok(evidence)
        & second_view_ok(evidence)
    )
    accepted &= ~superseded(evidence, accepted)
    score = scores(evidence)
    return np.flatnonzero(accepted & (score > SCORE_MIN)), score


def corners_ok(evidence: Evidence) -> Mask:
    """Check (R,) whether any corner is visible."""
    return np.asarray(evidence.visible.any(-1))


def colour_ok(evidence: Evidence) -> Mask:
    """Check (R,) whether the frame has the gates' colour beside each measured or replaced side, or `three_sides_ok`."""
    least = np.where(evidence.fits, COLOURED_MIN_FITS, COLOURED_MIN)
    unasked = ~(evidence.opening.measured | evidence.replaced)
    return np.asarray((evidence.on_frame > least) | unasked).all(-1) | three_sides_ok(evidence)


def three_sides_ok(evidence: Evidence) -> Mask:
    """Check (R,) whether the silhouette contradicts at most one side and the colour is missing on at most one."""
    silhouette = (evidence.fits | ~evidence.shown).sum(-1) >= THREE_SIDES
    colour = (evidence.on_frame > COLOURED_MIN).sum(-1) >= THREE_SIDES
    return np.asarray(silhouette & colour)


def background_ok(evidence: Evidence) -> Mask:
    """Check (R,) whether the frame ends: its silhouette fits on all sides, or the colour beyond it is another."""
    most = background_limit(evidence.first_view)
    return np.asarray(evidence.fits.all(-1) | (evidence.beyond.mean(-1) < most))


def silhouette_ok(evidence: Evidence) -> Mask:
    """Check (R,) whether the silhouette is at its predicted position on at least one visible side.

    A whole opening needs this in both directions: one with a nearer gate's edge as a side has wrong proportions.
    """
    ends = evidence.fits | ((evidence.on_frame > FULL) & (evidence.beyond < FREE))
    upright, across = (ends[:, pair].any(-1) | ~evidence.shown[:, pair].any(-1) for pair in DIRECTIONS)
    of_part = evidence.fits.any(-1) | ~evidence.shown.any(-1)
    return np.where(evidence.opening.measured.all(-1), upright & across, of_part)


def replaced_sides_ok(evidence: Evidence) -> Mask:
    """Check (R,) whether the silhouette fits beside each replaced side, unless it is covered."""
    covered = evidence.beyond > COLOURED_MIN
    return np.asarray((evidence.fits | ~evidence.replaced | covered).all(-1))


def second_view_ok(evidence: Evidence) -> Mask:
    """Check (R,) whether the silhouette fits on all visible sides, required in the second view, where lettering forms holes."""
    return np.asarray((evidence.fits | ~evidence.middle_inside).all(-1) | evidence.first_view)


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
