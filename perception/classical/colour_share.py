"""Shares of gate-coloured samples on the frame about an opening, and beyond the frame's end.

Lettering and checkers are holes within a continuous frame; white lamps have a gate's shape without its colour.
"""

import numpy as np

from gate_racer.perception.classical.config import ColourConfig
from gate_racer.perception.common.quadrilateral import concentric
from gate_racer.perception.common.sampling import count_red
from gate_racer.perception.common.types import Image
from gate_racer.vehicle.rotation import Array


def colour_shares(image: Image, openings: Array, silhouettes: Array, config: ColourConfig) -> tuple[Array, Array]:
    """Return shares (Q, 4) of gate-coloured samples beside each side of openings (Q, 4, 2): on the frame, and beyond it.

    A side wholly outside the image counts as coloured on the frame and free beyond it.
    """
    across = np.array(config.on_frame)[:, None, None]
    on_frame = openings[:, None] + across * (silhouettes - openings)[:, None]
    squares = np.concatenate([on_frame, concentric(silhouettes, np.array(config.beyond))], 1)
    sampled, coloured = _count(image, squares, config)
    first_beyond = len(config.on_frame)
    parts = (
        sampled[..., :first_beyond],
        coloured[..., :first_beyond],
        sampled[..., first_beyond:],
        coloured[..., first_beyond:],
    )
    return _share(*parts[:2], 1.0), _share(*parts[2:], 0.0)


def colour_by_scale(image: Image, openings: Array, scales: Array, config: ColourConfig) -> tuple[Array, Array]:
    """Count samples in the image, and gate-coloured ones among them, (Q, 4, S) each, on the sides of concentric squares.

    The squares are `scales` (S,) times as large as the openings (Q, 4, 2).
    """
    return _count(image, concentric(openings, scales), config)


def _count(image: Image, squares: Array, config: ColourConfig) -> tuple[Array, Array]:
    limits = config.red_min, config.red_over_green_min, config.red_over_yellow
    sampled, coloured = count_red(image, squares, config.samples, *limits)
    return sampled, coloured


def _share(sampled: Array, coloured: Array, of_none: float) -> Array:
    n = sampled.sum(-1)
    return np.where(n > 0, coloured.sum(-1) / np.maximum(n, 1), of_none)
