"""Stage 1, propose: quadrilaterals around the dark holes of a bright mask, and within its connected components.

A hole is the opening itself; a gate behind or the corridor of light may distort the hole, but rarely the frame's silhouette,
which gives the opening by its known proportion. A hole cut by the image border gives its remaining sides (`cut_holes`).
Quadrilaterals run clockwise as seen (u right, v down).
"""

import cv2
import numpy as np

from gate_racer.perception.classical.colour_share import colour_shares
from gate_racer.perception.classical.config import ClassicalConfig, ProposalConfig
from gate_racer.perception.classical.cut_holes import cut_quadrilateral
from gate_racer.perception.classical.scene import PreparedImage, View
from gate_racer.perception.common.gate_model import GateModel
from gate_racer.perception.common.quadrilateral import enlarged, is_convex, side_lengths
from gate_racer.perception.common.types import Image
from gate_racer.vehicle.rotation import Array, Mask


def propose(scene: PreparedImage, view: View, model: GateModel, config: ClassicalConfig) -> Array:
    """Return quadrilaterals (Q, 4, 2) px that may be openings, surrounded by the gates' colour, the largest first."""
    quads = _of_mask(scene.mask(view), model.ratio, view.first, config.proposal) + scene.box_origin_px
    if not len(quads):
        return quads
    silhouettes = model.silhouettes(quads, model.depth_extent_px(quads))
    on_frame, beyond = colour_shares(scene.image, quads, silhouettes, config.colour)
    coloured_sides = (on_frame > config.verification.coloured_min).sum(-1)
    most_beyond = config.proposal.background_slack * config.verification.background_limit(view.first)
    coloured = coloured_sides >= config.proposal.coloured_sides_min
    return np.asarray(quads[coloured & (beyond.mean(-1) < min(most_beyond, 1.0))])


def whole_holes(mask: Image, most: int, config: ProposalConfig) -> Array:
    """Return the largest quadrilaterals (Q <= most, 4, 2) that are holes of a mask (H, W), none cut by its border."""
    framed = cv2.copyMakeBorder(mask, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    return _largest(_of_holes(framed, False, config), most, config)


def is_measurable(quads: Array, config: ProposalConfig) -> Mask:
    """Check which quads (Q, 4, 2) are convex, clockwise, large enough and within the greatest aspect ratio."""
    side_px = side_lengths(quads)
    long_enough = side_px.min(-1) >= config.side_min_px
    return np.asarray(is_convex(quads) & long_enough & (side_px.max(-1) <= config.aspect_max * side_px.min(-1)))


def _of_mask(mask: Image, ratio: float, lines_shine: bool, config: ProposalConfig) -> Array:
    """Return the quadrilaterals (Q, 4, 2) of a mask (H, W), after erasing bright lines from it or closing dark ones."""
    quads: list[Array] = []
    wipe = cv2.MORPH_OPEN if lines_shine else cv2.MORPH_CLOSE
    for width in config.lines_px:
        wiped = cv2.morphologyEx(mask, wipe, np.ones((width, width), np.uint8)) if width else mask
        # A bright rim closes the holes that the image's border cuts.
        quads += _of_holes(cv2.copyMakeBorder(wiped, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=255), True, config)
        if not width:
            quads += _of_components(mask, ratio, config)
    return _distinct(_largest(quads, config.candidates, config), config)


def _of_holes(rimmed: Image, cut: bool, config: ProposalConfig) -> list[Array]:
    contours, tree = cv2.findContours(rimmed, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE, offset=(-1, -1))
    height, width = rimmed.shape[0] - 2, rimmed.shape[1] - 2
    quads = []
    for contour, (_, _, _, parent) in zip(contours, tree[0] if contours else (), strict=True):
        if parent < 0 or len(contour) < 4:
            continue
        u, v, w, h = cv2.boundingRect(contour)
        if min(w, h) < config.side_min_px:
            continue
        quad: Array | None = None
        if u >= 0 and v >= 0 and u + w <= width and v + h <= height:
            quad = _quadrilateral(contour, config)
        elif cut and max(w, h) > config.cut_min_px:
            quad = cut_quadrilateral(contour, width, height, config)
        if quad is not None:
            quads.append(quad)
    return quads


def _of_components(mask: Image, ratio: float, config: ProposalConfig) -> list[Array]:
    """Return the openings within silhouettes that are connected components of a mask."""
    silhouettes = []
    for contour in cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[0]:
        if len(contour) >= 4 and min(cv2.boundingRect(contour)[2:]) >= ratio * config.side_min_px:
            silhouette = _quadrilateral(contour, config)
            if silhouette is not None:
                silhouettes.append(silhouette)
    return list(enlarged(np.array(silhouettes), 1 / ratio)) if silhouettes else []


def _quadrilateral(contour: Image, config: ProposalConfig) -> Array | None:
    """Return the tight clockwise quadrilateral (4, 2) around a contour; None if the contour has another shape.

    Sides of the hull are extended until four remain, which restores an occluded corner (Low and Ilie, 2003).
    """
    hull = cv2.convexHull(contour)
    if len(hull) < 4:
        return None
    quad: Array = cv2.approxPolyN(hull, 4, ensure_convex=True).reshape(-1, 2).astype(float)
    if len(quad) != 4 or cv2.contourArea(hull) < config.filled_min * cv2.contourArea(quad.astype(np.float32)):
        return None
    return quad if cv2.contourArea(quad.astype(np.float32), oriented=True) > 0 else quad[::-1]


def _largest(quads: list[Array], most: int, config: ProposalConfig) -> Array:
    """Return the measurable ones of quads (4, 2), the largest first: (Q <= most, 4, 2)."""
    found = np.array(quads).reshape(-1, 4, 2)
    found = found[is_measurable(found, config)]
    size = np.linalg.norm(found[:, :2] - found[:, 2:], axis=-1).sum(-1)
    return found[np.argsort(-size, kind="stable")][:most]


def _distinct(quads: Array, config: ProposalConfig) -> Array:
    """Return the quads (Q, 4, 2) without those that repeat an earlier one."""
    if not len(quads):
        return quads
    centre, size = quads.mean(1), np.linalg.norm(quads - quads.mean(1, keepdims=True), axis=-1).mean(-1)
    apart = np.linalg.norm(centre[:, None] - centre, axis=-1) + np.abs(size[:, None] - size)
    repeats = np.tril(apart < config.same_px, -1).any(1)
    return np.asarray(quads[~repeats])
