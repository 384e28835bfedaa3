"""Verify: what the widths of a frame say about the quadrilateral that it surrounds.

A side that is another gate's edge has cut the opening: its frame goes on, and the opposite one, measured by what is left of
the opening, seems too wide. A slant widens frames as well, since it shows their depth, but no more than it flattens the opening.
Where frames end, `ends` (Q, 4), comes from `frame_ends`.
"""

import numpy as np

from perception.common.quadrilateral import NEXT, OPPOSITE
from perception.common.types import Mask
from perception.learned.config import FrameWidthConfig
from vehicle.rotation import Array


def occluded_sides(ends: Array, quads: Array, longer: Mask, ratio: float, config: FrameWidthConfig) -> Mask:
    """Which sides (Q, 4) of quads (Q, 4, 2) may be the edge of another gate, by where the frames end, (Q, 4).

    Args:
        longer: (Q, 4) whether they are part of a longer edge.
        ratio: so many times a frame is as large as its opening.
    """
    width = np.where(np.isnan(ends), np.inf, ends - 1)
    facing = width[:, OPPOSITE]
    factor = np.where(np.isnan(ends), config.alone, config.wider)
    flat = factor * _frame(width, ratio, config) + 2 * config.wider_px / _apart(quads)[:, [0, 1, 0, 1]]
    other = (width > config.occluder * facing) & ((facing > flat + config.bulge) | longer)
    return np.asarray(np.isfinite(facing) & (other | ((facing > flat) & (width > config.occluder_sure * facing))))


def is_even(ends: Array, quads: Array, hidden: Mask, ratio: float, config: FrameWidthConfig) -> Mask:
    """Which quads (Q, 4, 2) a frame may be about that is `ratio` times as large, by where it ends, (Q, 4).

    It is as wide across as upright, or widened by other gates, beside a side that is `hidden` (Q, 4), or by a slant.
    """
    width, apart = np.where(np.isnan(ends), np.inf, ends - 1), _apart(quads)
    least = np.minimum(width[:, :2], width[:, 2:])
    beside = np.isnan(ends[:, :2]) | np.isnan(ends[:, 2:])
    wall = _wall(quads, config)
    px = 2 * config.wider_px / apart
    factor = np.where(beside, config.alone, config.wider)
    as_wide = least < factor * (_frame(width, ratio, config) + 2 * wall) / (1 - wall) + config.bulge + px
    unknown = np.isinf(least) & beside
    covered = hidden & ~np.isnan(ends)
    narrow = (
        (wall > config.slanted) & np.isfinite(least) & ~beside[:, ::-1] & (least[:, ::-1] > config.wider * least + px)
    )
    possible = as_wide | unknown | covered[:, :2] | covered[:, 2:]
    return np.asarray((width.min(-1) > 0) & possible.all(-1) & (as_wide | unknown).any(-1) & ~narrow.any(-1))


def fitting_share(ends: Array, quads: Array, ratio: float, config: FrameWidthConfig) -> Array:
    """Share (Q,) of the sides of quads (Q, 4, 2) beside which a frame that ends there, (Q, 4), is as wide as it should be."""
    width = ends - 1
    known, frame, wall = (
        ~np.isnan(width),
        _frame(np.where(np.isnan(width), np.inf, width), ratio, config),
        _wall(quads, config),
    )
    most, px = (x[:, [0, 1, 0, 1]] for x in ((frame + 2 * wall) / (1 - wall), 2 * config.wider_px / _apart(quads)))
    fits = known & (width > frame / config.alike - px) & (width < config.alike * most + px)
    return np.asarray(fits.sum(-1) / np.maximum(known.sum(-1), 1))


def guess_is_even(ends: Array, ratio: float, config: FrameWidthConfig) -> Mask:
    """Which squares (Q,), guessed on a side, a frame may be about that ends there, (Q, 4): as `is_even`, of an unknown slant."""
    low, high = (share * (ratio - 1) for share in config.guess)
    width = ends - 1
    return np.asarray((np.nanmin(width, -1, initial=np.inf) > low) & ((width > high).sum(-1) < 2))


def _frame(width: Array, ratio: float, config: FrameWidthConfig) -> Array:
    """How wide (Q, 1) frames are that seem to be as wide as (Q, 4) beside their sides: what these agree on, or as expected."""
    alike = width.max(-1) < config.alike * width.min(-1)
    return np.where(alike, width.min(-1), ratio - 1)[:, None]


def _wall(quads: Array, config: FrameWidthConfig) -> Array:
    """Shares (Q, 2) of openings (Q, 4, 2) that their depth hides between the sides 0 and 2, and 1 and 3, by their slant."""
    apart = _apart(quads)
    slant = np.sqrt(np.maximum((apart.max(-1, keepdims=True) / apart) ** 2 - 1, 0.0))  # its tangent
    return np.asarray(np.minimum(config.depth * slant, config.flattest))


def _apart(quads: Array) -> Array:
    """How far (Q, 2) px the sides 0 and 2, and 1 and 3, of quads (Q, 4, 2) are apart."""
    side = np.linalg.norm(quads[:, NEXT] - quads, axis=-1)
    return np.asarray(np.maximum((side[:, [1, 0]] + side[:, [3, 2]]) / 2, 1e-9))
