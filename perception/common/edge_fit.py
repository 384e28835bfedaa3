"""Sub-pixel edges of bright-framed quadrilaterals, in batches.

Across each side the image is sampled on short profiles; each gives the position at which the brightness crosses half-way between
its two ends, which a symmetric blur does not move. A robust line through these positions replaces the side, and neighbouring
lines intersect in the corners.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gate_racer.perception.common.covariance import corner_covariance_px2
from gate_racer.perception.common.quadrilateral import NEXT, intersect_lines
from gate_racer.perception.common.sampling import fit_sides
from gate_racer.perception.common.types import Image
from gate_racer.vehicle.rotation import Array, Indices, Mask


@dataclass(frozen=True, slots=True)
class EdgePass:
    """One pass of profiles across the sides."""

    reach_px: float  # least half-length of a profile, px
    reach_ratio: float  # -, likewise over the frame's width: large candidates have larger errors in px
    profiles: int  # on each side


@dataclass(frozen=True, slots=True)
class EdgeFitConfig:
    """Parameters of edge search and line fit. Tuned on rendered flights and real frames, except where a source is named."""

    passes: tuple[EdgePass, ...]
    reach_ratio_max: float  # -, greatest half-length over the frame's width: excludes the frame's other edge
    bright_inside: bool = False  # whether the image is bright inside the quadrilaterals instead of outside
    end_share: float = 0.1  # -, share of a side left out at either end, blurred by the neighbouring edge
    step_px: float = 0.5  # px between samples of a profile: the sampling theorem for edges of one pixel
    contrast: float = 50.0  # grey levels, least difference between the two ends of a profile
    inlier_px: float = 0.8  # greatest distance of an inlier from the line; quantisation gives up to 0.5 (derived)
    agree_share: float = 0.25  # -, least share of inliers among a side's profiles, in the image or not
    support_min: float = 0.3  # -, least share of inliers among a side's profiles in the image
    # px, standard deviation of the error common to all profiles of a side: blur, compression, the drawn edge itself. By the
    # errors of rendered corners, whose median is 0.1 px, with a reserve for edges drawn differently.
    floor_px: float = 0.15


# A coarse and a fine pass; values tuned as those of `EdgeFitConfig`.
OPENING_EDGES = EdgeFitConfig(passes=(EdgePass(6.0, 0.34, 16), EdgePass(3.0, 0.0, 32)), reach_ratio_max=0.57)
# The silhouette's position changes with the viewing angle, so its single pass reaches farther.
SILHOUETTE_EDGES = EdgeFitConfig(passes=(EdgePass(6.0, 0.57, 32),), reach_ratio_max=0.8, bright_inside=True)


class QuadEdges(NamedTuple):
    """Quadrilaterals (Q) with measured sides. Side k runs from corner k to corner k + 1."""

    corners_px: Array  # (Q, 4, 2)
    outward: Array  # (Q, 4, 2) unit normals of the sides
    ends_px: Array  # (Q, 4, 2) px, standard deviation of each line across itself, at its start and end
    measured: Mask  # (Q, 4) sides with a fitted line
    support: Array  # (Q, 4) share of the profiles in the image that agree with the line

    def select(self, which: Indices | Mask) -> "QuadEdges":
        """Return a subset of the quadrilaterals."""
        ends_px, measured, support = self.ends_px[which], self.measured[which], self.support[which]
        return QuadEdges(self.corners_px[which], self.outward[which], ends_px, measured, support)

    def cov_px2(self, floor_px: float) -> Array:
        """Return covariances (Q, 4, 2, 2) px^2 of the corners; floor_px is the error common to all profiles of a side."""
        return corner_covariance_px2(self.corners_px, self.measured, np.hypot(floor_px, self.ends_px))


def fit_edges(channel: Image, quads: Array, ratio: float, config: EdgeFitConfig, wide: bool = True) -> QuadEdges:
    """Fit the sides of quads (Q, 4, 2) in a one-channel image; a side with too few edges keeps its position.

    Args:
        ratio: silhouette over hole of the frames.
        wide: False to use the least reach, where lettering interrupts the frame.
    """
    for edge_pass in config.passes:
        edges = _fit_once(channel, quads, edge_pass, ratio, config, wide)
        quads = edges.corners_px
    return edges


def _fit_once(
    channel: Image, quads: Array, edge_pass: EdgePass, ratio: float, config: EdgeFitConfig, wide: bool
) -> QuadEdges:
    along = quads[:, NEXT] - quads
    side_px = np.maximum(np.sqrt((along * along).sum(-1)), 1.0)
    along = along / side_px[..., None]
    outward = np.stack([along[..., 1], -along[..., 0]], -1)

    profiles = edge_pass.profiles
    reach = _reach_px(quads, side_px, edge_pass, ratio, config, wide)
    s = np.linspace(config.end_share - 0.5, 0.5 - config.end_share, profiles)
    n = 2 * round(edge_pass.reach_px / config.step_px) + 1
    found = fit_sides(channel, quads, outward, reach, s, n, config.contrast, config.inlier_px)
    level, slope, ends_px, agree, inside = found[..., 0], found[..., 1], found[..., 2:4], found[..., 4], found[..., 5]
    start = quads + (level - slope * 0.5)[..., None] * outward
    end = start + side_px[..., None] * along + slope[..., None] * outward
    # Profiles on a short side share pixels, and their errors: count each pixel once.
    ends_px = ends_px * np.sqrt(np.maximum(profiles / ((1 - 2 * config.end_share) * side_px), 1.0))[..., None]
    support = agree / np.maximum(inside, 1)
    measured = (agree >= int(config.agree_share * profiles)) & (support > config.support_min)
    return QuadEdges(intersect_lines(start, end - start), outward, ends_px, measured, support)


def _reach_px(
    quads: Array, side_px: Array, edge_pass: EdgePass, ratio: float, config: EdgeFitConfig, wide: bool
) -> Array:
    """Return half-lengths (Q,) px of profiles, positive if the bright end lies outward, by the frame's least width."""
    diagonal = quads[:, 2:] - quads[:, :2]
    area = np.abs(diagonal[:, 0, 0] * diagonal[:, 1, 1] - diagonal[:, 0, 1] * diagonal[:, 1, 0]) / 2
    width_px = area / side_px.max(-1) * (ratio - 1) / 2 / (ratio if config.bright_inside else 1.0)
    least_px = np.maximum(edge_pass.reach_px, (edge_pass.reach_ratio if wide else 0.0) * width_px)
    reach_px = np.minimum(least_px, config.reach_ratio_max * width_px)
    return np.asarray(-reach_px if config.bright_inside else reach_px)
