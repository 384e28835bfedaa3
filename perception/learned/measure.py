"""Measure: edges between the proposed corners, in the image, whose resolution exceeds that of the maps.

Missing corners of a group are guessed: three corners complete to a parallelogram, two to a square on their side.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gate_racer.perception.common.edge_fit import fit_edges
from gate_racer.perception.common.gate_model import DRAWN_GATE
from gate_racer.perception.common.quadrilateral import NEXT, PREVIOUS, is_convex, side_lengths, skew_px
from gate_racer.perception.common.types import Image
from gate_racer.perception.learned.config import GroupMeasurementConfig, LearnedConfig
from gate_racer.perception.learned.heatmaps import CornerGroup
from gate_racer.perception.learned.network import NetworkCard, to_image
from gate_racer.vehicle.rotation import Array, Mask


class EdgeStart(NamedTuple):
    """Quads (Q) near whose sides edges are searched."""

    corners_px: Array  # (Q, 4, 2)
    mapped: Mask  # (Q, 4) corners found in the maps; the others are guessed
    nearby: Mask  # (Q,) guessed corners represent only the direction of a side
    sigma_px: Array  # (Q, 4) standard deviation of a coordinate
    guess_px: Array  # (Q, 1) ... of a guessed corner
    score: Array  # (Q,) by the maps


class MeasuredQuads(NamedTuple):
    """Quads (Q) with measured edges."""

    corners_px: Array  # (Q, 4, 2)
    cov_px: Array  # (Q, 4, 2, 2) px^2
    found: Mask  # (Q, 4) corners that are measured, unless another gate's edge forms them
    expected: Mask  # (Q, 4) sides that were searched for
    guessed: Mask  # (Q,) squares guessed on a single side
    guess_px: Array  # (Q, 1) standard deviation of a guessed corner
    score: Array  # (Q,)


def measure(
    red: Image, groups: list[CornerGroup], card: NetworkCard, focal_px: float, config: LearnedConfig
) -> MeasuredQuads:
    """Measure groups in an image (H, W) in which gates are bright; return those with enough edges."""
    limits = config.measurement
    start = _start(groups, card, focal_px, limits)
    mapped, nearby = start.mapped, ~start.mapped & start.nearby[:, None]
    edges = fit_edges(red, start.corners_px, DRAWN_GATE.silhouette_ratio, config.edges)
    side_px = side_lengths(start.corners_px).max(-1, keepdims=True)
    moved_px = np.linalg.norm(edges.corners_px - start.corners_px, axis=-1)
    most_px = np.where(mapped, np.maximum(limits.moved_px, limits.moved_side * side_px), 2 * start.guess_px)
    measured = edges.measured & (edges.support > limits.support_min)
    clear = (measured & (edges.support > limits.support_clear)).sum(-1)
    # A corner is the intersection of its sides, unless that is far from its position in the map.
    fits = measured & measured[:, PREVIOUS] & ((clear == 4)[:, None] | (moved_px < most_px))
    corners_px = np.where(fits[..., None], edges.corners_px, start.corners_px)
    onward = nearby & (measured | measured[:, PREVIOUS]) & ~fits
    beside = _beside(corners_px, mapped)
    corners_px = np.where(onward[..., None], beside + (edges.corners_px - beside) / limits.nearby, corners_px)
    # One side or corner of a whole gate may merge with a bright background; its ends are then those of the map.
    trusted = mapped.all(-1) & ((fits.sum(-1) == 3) | (clear == 3))
    mapped_cov = start.sigma_px[..., None, None] ** 2 * np.eye(2)
    cov_px = np.where((fits | onward)[..., None, None], edges.cov_px2(config.edges.floor_px), mapped_cov)
    expected = mapped | mapped[:, NEXT] | fits & fits[:, NEXT]
    score = start.score * np.where(measured & expected, edges.support, 0.0).sum(-1) / expected.sum(-1)

    is_whole = fits.all(-1) | trusted
    large = side_lengths(corners_px).min(-1) > limits.side_min_px
    square = (excess_skew_px(corners_px, focal_px, limits) < limits.skew_px) | nearby.any(-1)
    good = (score > np.where(is_whole, card.sure, card.sure_part)) & is_convex(corners_px) & large & square
    good &= is_whole | ((side_px[:, 0] > limits.part_min_px) & (fits | ~mapped).all(-1))
    guessed = (mapped.sum(-1) == 2) & ~fits.all(-1)
    columns = corners_px, cov_px, fits | trusted[:, None], expected, guessed, start.guess_px, score
    return MeasuredQuads(*(column[good] for column in columns))


def excess_skew_px(quads: Array, focal_px: float, config: GroupMeasurementConfig) -> Array:
    """Return the skew (Q,) px of quads (Q, 4, 2) beyond that of perspective and a tolerance relative to their size."""
    side_px = side_lengths(quads).max(-1)
    return np.asarray(skew_px(quads) - side_px**2 / (2 * focal_px) - config.skew_side * side_px)


def completed(px: Array, config: GroupMeasurementConfig) -> tuple[Array, float]:
    """Return corners (4, 2) px with guesses in place of NaN, and the guesses' standard deviation, px.

    Three corners complete to a parallelogram; two neighbouring ones to a square on the side between them.
    """
    px, seen = px.copy(), np.isfinite(px[:, 0])
    side_px = max(np.linalg.norm(a - b) for a in px[seen] for b in px[seen])
    for k in np.flatnonzero(~seen):
        before, across, after = ((k + step) % 4 for step in (3, 2, 1))
        if seen[[before, across, after]].all():
            px[k] = px[before] + px[after] - px[across]
        elif seen[after] and seen[across]:
            px[k] = px[after] + _inward(px[across] - px[after])
        else:
            px[k] = px[before] + _inward(px[before] - px[across])
    return px, float(config.guess * side_px)


def _start(groups: list[CornerGroup], card: NetworkCard, focal_px: float, config: GroupMeasurementConfig) -> EdgeStart:
    """Return the quads near which the edges of groups are searched.

    The continuation of a pair is a guess that an oblique view falsifies: its gate is searched as a square, and as a smaller one.
    """
    found = [part for group in groups for part in _parts(group, focal_px, config)]
    pairs = [group for group in found if (group.height > 0).sum() == 2]
    nearby = np.repeat([False, True], [len(found), len(pairs)])
    found = found + pairs
    height = np.array([group.height for group in found])
    filled = [completed(to_image(group.at), config) for group in found]
    px, guess_px = np.array([px for px, _ in filled]), np.array([[sigma] for _, sigma in filled])
    mapped = height > 0
    beside = _beside(px, mapped)
    px = np.where((~mapped & nearby[:, None])[..., None], beside + config.nearby * (px - beside), px)
    sigma_px = np.where(mapped, np.interp(height, card.peak, card.sigma_px), guess_px)
    return EdgeStart(px, mapped, nearby, sigma_px, guess_px, np.array([group.score for group in found]))


def _parts(group: CornerGroup, focal_px: float, config: GroupMeasurementConfig) -> list[CornerGroup]:
    """Return the group itself, or, if its corners cannot be a square's, its four subsets with one corner left out."""
    if not group.height.all() or excess_skew_px(to_image(group.at)[None], focal_px, config)[0] < config.skew_px:
        return [group]
    others = ~np.eye(4, dtype=bool)
    return [replace(group, at=np.where(k[:, None], group.at, np.nan), height=group.height * k) for k in others]


def _beside(px: Array, known: Mask) -> Array:
    """Return for each corner of quads (Q, 4, 2) the previous one if it is known (Q, 4), else the next one."""
    return np.where(known[:, PREVIOUS, None], px[:, PREVIOUS], px[:, NEXT])


def _inward(step: Array) -> Array:
    """Return a step along an edge rotated into the opening, clockwise as seen (v down)."""
    return np.array([-step[1], step[0]])
