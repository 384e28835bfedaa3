"""Measure: the edges between the proposed corners in the image, which is finer than the maps.

What a group of corners lacks is guessed from a square: three corners make a parallelogram, two a square upon their side.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from perception.common.edge_fit import fit_edges
from perception.common.gate_model import DRAWN_GATE
from perception.common.quadrilateral import NEXT, PREVIOUS, is_convex, side_lengths, skew_px
from perception.common.types import Image, Mask
from perception.learned.config import GroupMeasurementConfig, LearnedConfig
from perception.learned.heatmaps import CornerGroup
from perception.learned.network import NetworkCard, to_image
from vehicle.rotation import Array


class EdgeStart(NamedTuple):
    """Quads (Q) about whose sides edges are looked for."""

    corners_px: Array  # (Q, 4, 2)
    mapped: Mask  # (Q, 4) corners that the maps show; the others are guessed
    nearby: Mask  # (Q,) whether the guessed ones stand for the direction of a side only
    sigma_px: Array  # (Q, 4) standard deviation of a coordinate
    guess_px: Array  # (Q, 1) ... of a corner that is guessed
    score: Array  # (Q,) of the maps


class MeasuredQuads(NamedTuple):
    """Quads (Q) of which edges were seen."""

    corners_px: Array  # (Q, 4, 2)
    cov_px: Array  # (Q, 4, 2, 2) px^2
    found: Mask  # (Q, 4) the corners that are where they seem, unless another gate's edge makes them
    asked: Mask  # (Q, 4) the sides that were looked for
    guessed: Mask  # (Q,) what is but a square upon a side
    guess_px: Array  # (Q, 1) standard deviation of a corner that is guessed
    score: Array  # (Q,)


def measure(
    red: Image, groups: list[CornerGroup], card: NetworkCard, focal_px: float, config: LearnedConfig
) -> MeasuredQuads:
    """What of all groups an image (H, W), in which gates shine, has enough edges of."""
    limits = config.measurement
    start = _start(groups, card, focal_px, limits)
    mapped, nearby = start.mapped, ~start.mapped & start.nearby[:, None]
    edges = fit_edges(red, start.corners_px, DRAWN_GATE.silhouette_ratio, config.edges)
    side_px = side_lengths(start.corners_px).max(-1, keepdims=True)
    moved_px = np.linalg.norm(edges.corners_px - start.corners_px, axis=-1)
    most_px = np.where(mapped, np.maximum(limits.moved_px, limits.moved_side * side_px), 2 * start.guess_px)
    measured = edges.measured & (edges.support > limits.support_min)
    clear = (measured & (edges.support > limits.support_clear)).sum(-1)
    # A corner is where both of its sides are, unless that is far from where the map has it.
    fits = measured & measured[:, PREVIOUS] & ((clear == 4)[:, None] | (moved_px < most_px))
    corners_px = np.where(fits[..., None], edges.corners_px, start.corners_px)
    onward = nearby & (measured | measured[:, PREVIOUS]) & ~fits
    beside = _beside(corners_px, mapped)
    corners_px = np.where(onward[..., None], beside + (edges.corners_px - beside) / limits.nearby, corners_px)
    # Of a whole gate one side, or a corner, may be lost in what shines behind it; then the map knows its ends.
    trusted = mapped.all(-1) & ((fits.sum(-1) == 3) | (clear == 3))
    mapped_cov = start.sigma_px[..., None, None] ** 2 * np.eye(2)
    cov_px = np.where((fits | onward)[..., None, None], edges.cov_px2(config.edges.floor_px), mapped_cov)
    asked = mapped | mapped[:, NEXT] | fits & fits[:, NEXT]
    score = start.score * np.where(measured & asked, edges.support, 0.0).sum(-1) / asked.sum(-1)

    is_whole = fits.all(-1) | trusted
    large = side_lengths(corners_px).min(-1) > limits.side_min_px
    square = (excess_skew_px(corners_px, focal_px, limits) < limits.skew_px) | nearby.any(-1)
    good = (score > np.where(is_whole, card.sure, card.sure_part)) & is_convex(corners_px) & large & square
    good &= is_whole | ((side_px[:, 0] > limits.part_min_px) & (fits | ~mapped).all(-1))
    guessed = (mapped.sum(-1) == 2) & ~fits.all(-1)
    columns = corners_px, cov_px, fits | trusted[:, None], asked, guessed, start.guess_px, score
    return MeasuredQuads(*(column[good] for column in columns))


def excess_skew_px(quads: Array, focal_px: float, config: GroupMeasurementConfig) -> Array:
    """How far (Q,) quads (Q, 4, 2) are from a parallelogram beyond what perspective, and their size, can do."""
    side_px = side_lengths(quads).max(-1)
    return np.asarray(skew_px(quads) - side_px**2 / (2 * focal_px) - config.skew_side * side_px)


def completed(px: Array, config: GroupMeasurementConfig) -> tuple[Array, float]:
    """Corners (4, 2) with those that are NaN guessed, and how sure the guess is, px.

    Three corners make a parallelogram; two, which are neighbours, make a square upon the side between them.
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
    """Where the edges of groups are looked for.

    How a pair goes on is a guess, from which a slant leads away: its gate is looked for as a square, and near by.
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
    """The group itself; or, when its corners are no square's, all that is left when one of them is taken for another's."""
    if not group.height.all() or excess_skew_px(to_image(group.at)[None], focal_px, config)[0] < config.skew_px:
        return [group]
    others = ~np.eye(4, dtype=bool)
    return [replace(group, at=np.where(k[:, None], group.at, np.nan), height=group.height * k) for k in others]


def _beside(px: Array, known: Mask) -> Array:
    """For each corner of quads (Q, 4, 2) the one before it if that is known (Q, 4), else the one after it."""
    return np.where(known[:, PREVIOUS, None], px[:, PREVIOUS], px[:, NEXT])


def _inward(way: Array) -> Array:
    """A step along an edge, turned into the opening: clockwise as seen, v down."""
    return np.array([-way[1], way[0]])
