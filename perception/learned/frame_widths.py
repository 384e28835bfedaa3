"""Verify: consistency of a quadrilateral with the apparent widths of the frame around it.

A side that is another gate's edge cuts the opening: its frame continues, and the opposite frame, measured relative to the rest of
the opening, appears too wide. An oblique view widens frames as well, since it shows their depth, but no more than it flattens the
opening. The frames' ends, `ends` (Q, 4), are those of `frame_ends`.
"""

import numpy as np

from gate_racer.perception.common.quadrilateral import NEXT, OPPOSITE
from gate_racer.perception.learned.config import FrameWidthConfig
from gate_racer.vehicle.rotation import Array, Mask


def occluded_sides(ends: Array, quads: Array, longer: Mask, ratio: float, config: FrameWidthConfig) -> Mask:
    """Find sides (Q, 4) of quads (Q, 4, 2) that may be the edge of another gate, by the frames' ends (Q, 4).

    Args:
        longer: (Q, 4) sides that are part of a longer edge.
        ratio: silhouette over hole of the frames.
    """
    width = np.where(np.isnan(ends), np.inf, ends - 1)
    facing = width[:, OPPOSITE]
    factor = np.where(np.isnan(ends), config.alone, config.wider)
    flat = factor * _frame(width, ratio, config) + 2 * config.wider_px / _apart(quads)[:, [0, 1, 0, 1]]
    other = (width > config.occluder * facing) & ((facing > flat + config.bulge) | longer)
    return np.asarray(np.isfinite(facing) & (other | ((facing > flat) & (width > config.occluder_sure * facing))))


def is_even(ends: Array, quads: Array, hidden: Mask, ratio: float, config: FrameWidthConfig) -> Mask:
    """Check which quads (Q, 4, 2) are consistent with a frame `ratio` times as large that ends at (Q, 4).

    The frame is equally wide in both directions, or widened by other gates beside a `hidden` side (Q, 4), or by an oblique
    view.
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
    """Return the share (Q,) of the sides of quads (Q, 4, 2) beside which a frame ending at (Q, 4) has its expected width."""
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
    """Check which squares (Q,) guessed on one side fit a frame ending at (Q, 4): as `is_even`, for an unknown view angle."""
    low, high = (share * (ratio - 1) for share in config.guess)
    width = ends - 1
    return np.asarray((np.nanmin(width, -1, initial=np.inf) > low) & ((width > high).sum(-1) < 2))


def _frame(width: Array, ratio: float, config: FrameWidthConfig) -> Array:
    """Return the widths (Q, 1) of frames: the apparent ones (Q, 4) if these agree, else the expected one."""
    alike = width.max(-1) < config.alike * width.min(-1)
    return np.where(alike, width.min(-1), ratio - 1)[:, None]


def _wall(quads: Array, config: FrameWidthConfig) -> Array:
    """Return the parts (Q, 2) of openings (Q, 4, 2) hidden by their depth between sides 0 and 2, and 1 and 3."""
    apart = _apart(quads)
    slant = np.sqrt(np.maximum((apart.max(-1, keepdims=True) / apart) ** 2 - 1, 0.0))  # tangent of the view angle
    return np.asarray(np.minimum(config.depth * slant, config.flattest))


def _apart(quads: Array) -> Array:
    """Return the distances (Q, 2) px between sides 0 and 2, and 1 and 3, of quads (Q, 4, 2)."""
    side = np.linalg.norm(quads[:, NEXT] - quads, axis=-1)
    return np.asarray(np.maximum((side[:, [1, 0]] + side[:, [3, 2]]) / 2, 1e-9))
