"""How far the bright frame about an opening reaches, side by side: what tells an opening from what is left of one.

A frame is as wide on all sides, whatever its proportion; so seen from the opening's centre it ends at the same multiple of
the opening. A side that is a nearer gate's edge has cut the opening: its frame goes on, and the opposite one, measured by what
is left of the opening, seems too wide.
"""

import cv2
import numpy as np

from perception.candidates import scaled
from vehicle.rotation import Array

SCALES = 1 + 0.08 * 1.17 ** np.arange(27)  # of the opening: a frame ends at 1.4 to 2, if the opening is not cut
FRAME = 6  # of the first scales that lie on any frame
PLACES = np.linspace(-0.7, 0.7, 7)  # along each side
DARK = 0.55  # of the frame's brightness: what is below is beyond it
CONTRAST = 40  # grey levels between the frame and the inside of an opening
INSIDE = np.array([0.7, 0.8, 0.92])  # of the opening: there it is dark, unless another gate stands behind
OPPOSITE = [2, 3, 0, 1]
# A frame seems wider across a slant, as that shows its depth: by so much of the opening, and a little more.
DEEP, CUT = 0.3, 1.15
FAR = 2.0  # times as wide one way as the other no frame is
# Times as wide as the frame facing it the edge of a nearer gate seems to be; more where that may be the slant's.
NEAR, NEARER = 1.5, 2.5


def frame_ends(image: np.ndarray, quads: Array) -> tuple[Array, Array]:
    """Where the frames about quads (Q, 4, 2) end in a one-channel picture in which they shine.

    Returns:
        (Q, 4) multiples of the opening, infinite where the frame does not end and NaN where the picture ends before it; and
        the share (Q, 4) of each side's places in the picture where the frame shines and the inside does not.
    """
    rings = scaled(quads, np.concatenate([INSIDE, SCALES]))  # (Q, S, 4, 2)
    a, b = rings[..., None, :], rings[:, :, [1, 2, 3, 0], None]
    grid = (((a + b) + PLACES[:, None] * (b - a)) / 2).astype(np.float32)  # (Q, S, 4, P, 2)
    shape = grid.shape[:-1]
    level = cv2.remap(image, grid.reshape(len(quads), -1, 2), None, cv2.INTER_LINEAR).reshape(shape).astype(np.float32)
    inside = np.asarray(((grid >= 0) & (grid <= np.array(image.shape[::-1]) - 1)).all(-1))
    n = len(INSIDE)
    within, level = level[:, :n].min(1), level[:, n:]
    frame = level[:, :FRAME].max(1)  # (Q, 4, P)
    asked = inside[:, : n + FRAME].all(1)
    shines = np.where(asked, frame > within + CONTRAST, False).sum(-1) / np.maximum(asked.sum(-1), 1)
    known = inside[:, n:].sum(-1)
    bright = ((level > DARK * frame[:, None]) & inside[:, n:]).sum(-1) / np.maximum(known, 1)  # (Q, S, 4)
    over = np.where(known >= len(PLACES) // 2, bright < 0.5, True)
    over = over & np.roll(np.pad(over, ((0, 0), (0, 1), (0, 0)), constant_values=True), -1, 1)[:, :-1]
    first = over.argmax(1)  # (Q, 4)
    seen = np.take_along_axis(known, first[:, None], 1)[:, 0] >= len(PLACES) // 2
    ends = np.where(over.any(1), np.where(seen, np.where(first > 0, SCALES[first], 1.0), np.nan), np.inf)
    return ends, np.where(asked.any(-1), shines, np.nan)


def cut(ends: Array) -> np.ndarray:
    """Which sides (Q, 4) may be a nearer gate's edge, by where the frames end, (Q, 4)."""
    width = np.where(np.isnan(ends), np.inf, ends - 1)
    beside = np.minimum(np.roll(width, 1, -1), np.roll(width, -1, -1))
    facing = width[:, OPPOSITE]
    far = facing > FAR * beside + DEEP
    wide = np.where(facing > CUT * beside + DEEP, NEAR, NEARER)
    return np.asarray((facing > CUT * beside + DEEP / 2) & (width > np.where(far, 1 / NEAR, wide) * facing))


def even(ends: Array) -> np.ndarray:
    """Which quads (Q,) a frame may be about, by where it ends, (Q, 4): as wide across as upright, or widened by other gates."""
    width = np.where(np.isnan(ends), np.inf, ends - 1)
    across, upright = np.minimum(width[:, 0], width[:, 2]), np.minimum(width[:, 1], width[:, 3])
    least, most = np.minimum(across, upright), np.maximum(across, upright)
    unknown = np.isinf(most) & np.isnan(ends).any(-1)
    return np.asarray((least > 0) & np.isfinite(least) & (unknown | (most < FAR * least + DEEP)))
