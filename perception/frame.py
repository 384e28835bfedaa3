"""The frame beside an opening tells by its width how large the opening is in each direction.

The frame is as wide on all sides. So what is between two sides of an opening is known from the frame beside one of them, when
the other side is out of the picture, or is not its own but that of a gate behind it.
"""

import cv2
import numpy as np

from perception.edges import AFTER, Edges, meet
from vehicle.rotation import Array

ACROSS = np.linspace(0.11, 2.7, 48)  # where the frame's end is looked for, over its width
ALONG = np.linspace(0.15, 0.85, 9)
AGREE = 0.15  # of the width: profiles that differ by more do not see the same end
FEWEST = 3  # profiles that make a width
FALSE = 1.2  # a side of a gate behind stands nearer than its opposite says by this factor
OPPOSITE = [2, 3, 0, 1]


def restored(channel: np.ndarray, threshold: int, edges: Edges, outer: float) -> tuple[Edges, np.ndarray, np.ndarray]:
    """The openings (Q) with the sides that were not measured put where the frame beside their opposites says.

    A frame is `outer` times as large as its opening.

    After them once more, for each side that seems to be that of a gate behind, with this side put and no longer measured.

    Returns:
        the openings (R >= Q); which of their measured sides (R, 4) are doubtful for that reason; which were put.
    """
    frame = (outer - 1) / 2  # its width over the opening's side
    width_px = _widths(channel, threshold, edges, frame)
    a, b = edges.corners_px, edges.corners_px[:, AFTER]
    middle, normal = (a + b) / 2, _outward(a, b)
    depth_px = ((middle - middle[:, OPPOSITE]) * normal).sum(-1)
    theirs = width_px[:, OPPOSITE] / frame
    false = edges.measured & (theirs > FALSE * depth_px)
    which, side = np.nonzero(false)
    again = np.append(np.arange(len(a)), which)
    edges, a, b, middle, normal, theirs = (
        Edges(*(column[again] for column in edges)),
        *(column[again] for column in (a, b, middle, normal, theirs)),
    )
    doubtful = np.vstack([false, np.zeros((len(which), 4), bool)])
    false = np.vstack([np.zeros_like(false), np.arange(4) == side[:, None]])
    place = ((~edges.measured | false) & np.isfinite(theirs))[..., None]
    across = normal[:, OPPOSITE]
    start = np.where(place, middle[:, OPPOSITE] - np.nan_to_num(theirs)[..., None] * across, a)
    direction = np.where(place, (a - b)[:, OPPOSITE], b - a)
    outward = np.where(place, -across, edges.outward)
    placed = edges._replace(corners_px=meet(start, direction), outward=outward, measured=edges.measured & ~false)
    return placed, doubtful, false


def _outward(a: Array, b: Array) -> Array:
    """Unit normals (..., 2) of sides from a to b, clockwise."""
    along = b - a
    normal = np.stack([along[..., 1], -along[..., 0]], -1)
    return normal / np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-9)


def _widths(channel: np.ndarray, threshold: int, edges: Edges, frame: float) -> Array:
    """Width (Q, 4) in px of the frame beside each measured side, across it; NaN where its end does not show."""
    a, b = edges.corners_px, edges.corners_px[:, AFTER]
    about_px = frame * np.linalg.norm(b - a, axis=-1).max(-1)
    reach = about_px[:, None, None, None] * ACROSS  # (Q, 1, 1, n)
    foot = a[..., None, :] + ALONG[:, None] * (b - a)[..., None, :]
    at = foot[..., None, :] + reach[..., None] * _outward(a, b)[..., None, None, :]  # (Q, 4, P, n, 2)
    grid = at.reshape(-1, len(ACROSS), 2).astype(np.float32)
    shines = (
        cv2.remap(channel, grid, None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT).reshape(at.shape[:-1])
        > threshold
    )
    end = shines.argmin(-1)
    ends = shines[..., 0] & ~shines.all(-1)
    at_end = np.take_along_axis(at, end[..., None, None], -2)[..., 0, :]
    width = np.where(ends & _inside(at_end, channel), about_px[:, None, None] * ACROSS[end], np.nan)
    width = np.sort(width, -1)  # NaN last
    known = np.isfinite(width).sum(-1)
    median = np.take_along_axis(width, (np.maximum(known, 1) - 1)[..., None] // 2, -1)[..., 0]
    agree = (np.abs(width - median[..., None]) < AGREE * median[..., None]).sum(-1)
    return np.where(edges.measured & (agree >= FEWEST), median, np.nan)


def _inside(px: Array, image: np.ndarray) -> np.ndarray:
    limit = np.array([image.shape[1], image.shape[0]]) - 1
    return np.asarray(((px >= 0) & (px <= limit)).all(-1))
