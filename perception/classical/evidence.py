"""Stage 4, gather: measurements of colour and silhouette about each hypothesis, without a decision."""

from dataclasses import dataclass

import numpy as np

from gate_racer.perception.classical.colour_share import colour_shares
from gate_racer.perception.classical.config import ClassicalConfig, EvidenceConfig
from gate_racer.perception.classical.hypotheses import Hypotheses
from gate_racer.perception.classical.scene import PreparedImage, View
from gate_racer.perception.common.edge_fit import QuadEdges, fit_edges
from gate_racer.perception.common.gate_model import GateModel
from gate_racer.perception.common.quadrilateral import NEXT, PREVIOUS, is_inside
from gate_racer.perception.common.types import Image
from gate_racer.vehicle.rotation import Array, Indices, Mask


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


def gather(
    scene: PreparedImage, view: View, hypotheses: Hypotheses, model: GateModel, config: ClassicalConfig
) -> Evidence:
    """Measure colour and silhouette about each hypothesis."""
    edges, image = hypotheses.edges, scene.image
    extent_px = model.depth_extent_px(edges.corners_px)
    expected_px = model.silhouettes(edges.corners_px, extent_px)
    on_frame, beyond = colour_shares(image, edges.corners_px, expected_px, config.colour)
    silhouette = fit_edges(view.silhouette, expected_px, model.ratio, config.silhouette_edges, wide=view.first)
    width_px = model.frame_width_px(edges.corners_px)
    fits = _stands_in_place(silhouette, expected_px, width_px, (1 + model.ratio) / 2 * extent_px, config.evidence)
    trusted = (beyond < config.evidence.doubt_background) & ~hypotheses.suspect
    opening = edges._replace(measured=edges.measured & (fits | trusted))
    inside = is_inside(opening.corners_px, image, config.evidence.border_px)
    sides_px = (silhouette.corners_px + silhouette.corners_px[:, NEXT]) / 2
    return Evidence(
        opening=opening,
        silhouette=silhouette,
        visible=opening.measured & opening.measured[:, PREVIOUS] & inside,
        on_frame=on_frame,
        beyond=beyond,
        fits=fits,
        shown=_is_shown(expected_px, image, config.evidence.shown_border * width_px, config.evidence),
        middle_inside=is_inside(sides_px, image, config.evidence.border_px),
        silhouette_inside=np.asarray(is_inside(silhouette.corners_px, image, config.evidence.border_px).all(-1)),
        suspect=hypotheses.suspect,
        replaced=hypotheses.replaced,
        source=hypotheses.source,
        first_view=view.first,
    )


def _stands_in_place(
    silhouette: QuadEdges, expected_px: Array, width_px: Array, extent_px: Array, config: EvidenceConfig
) -> Mask:
    """Check which sides (R, 4) of silhouettes were measured at their predicted positions (R, 4, 2).

    Args:
        width_px: (R, 1) of the frames.
        extent_px: (R, 4) outward displacement of the silhouette by the gates' depth.
    """
    off = silhouette.corners_px - expected_px
    miss_px = ((off + off[:, NEXT]) / 2 * silhouette.outward).sum(-1)
    most_px = np.maximum(config.silhouette_miss * width_px, config.silhouette_miss_px)
    near = silhouette.measured & (np.abs(miss_px) < most_px + extent_px)
    # The gate may be flatter or deeper than drawn, equally on all sides: least squares over the sides that are near.
    scale = (near * miss_px * extent_px).sum(-1) / np.maximum((near * extent_px**2).sum(-1), 1e-9)
    scale = np.clip(scale, *config.depth_scale)
    return np.asarray(near & (np.abs(miss_px - scale[:, None] * extent_px) < most_px))


def _is_shown(quads: Array, image: Image, border_px: Array, config: EvidenceConfig) -> Mask:
    """Check which sides (R, 4) of quads (R, 4, 2) are visible: enough of them lies border_px (R, 1) within the image."""
    t = np.linspace(0.0, 1.0, config.samples_along)[:, None]
    along = quads[..., None, :] + t * (quads[:, NEXT] - quads)[..., None, :]
    return np.asarray(is_inside(along, image, border_px[..., None, None]).mean(-1) > config.shown_min)
