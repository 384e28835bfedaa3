"""How far the bright frame about an opening reaches, side by side: what tells an opening from what is left of one.

A frame is as wide on all sides, whatever its proportion; so seen from the opening's centre it ends at the same multiple of
the opening. A side that is another gate's edge has cut the opening: its frame goes on, and the opposite one, measured by what
is left of the opening, seems too wide. A slant widens frames as well, since it shows their depth, but no more than it
flattens the opening.
"""

import cv2
import numpy as np

from perception.squares import OPPOSITE, scaled
from vehicle.rotation import Array

SCALES = 1 + 0.06 * 1.14 ** np.arange(33)  # of the opening: a frame ends at 1.4 to 2, if the opening is not cut
FRAME = 8  # of the first scales that lie on any frame
PLACES = np.linspace(-0.7, 0.7, 7)  # along each side
DARK = 0.55  # of the frame's brightness: what is below is beyond it
CONTRAST = 40  # grey levels between the frame and the inside of an opening
INSIDE = np.array([0.7, 0.8, 0.92])  # of the opening: there it is dark, unless another gate stands behind
DEEP = 0.17  # a gate's depth over its opening, at most
FLATTEST, SLANT = 0.85, 0.1  # most of an opening that its depth hides, and so much that it is surely slanted
WIDER, WIDER_PX = 1.15, 0.5  # so much wider, and beyond it so many px, a frame may seem than it is;
BULGE = 0.12  # ... of the opening, from nearby
ALONE = 1.7  # ... and so much if of a side and its opposite only one is in the picture
OTHER, FAR = 1.3, 1.75  # times as wide as the frame facing it the edge of another gate seems to be, and surely is
ALIKE = 1.3  # a frame on all sides of which widths differ by no more than this is as wide as it seems
GUESSED = 0.35, 1.45  # times as wide as expected the frame about a guess is at least, and on all sides but one at most
BEYOND = np.array([0.55, 0.65, 0.75, 0.85])  # of a side's length, beyond its ends: there its frame has ended
BESIDE = 0.12  # of a side's length to both hands, where an edge is looked for
GOES_ON = 0.7  # least share of such places with an edge


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

    dark = level <= DARK * frame[:, None]
    over = dark & np.roll(np.pad(dark, ((0, 0), (0, 1), (0, 0), (0, 0)), constant_values=True), -1, 1)[:, :-1]
    first = over.argmax(1)[:, None]  # (Q, 1, 4, P)
    before = np.maximum(first - 1, 0)
    fall = [np.take_along_axis(level, at, 1)[:, 0] for at in (before, first)]
    share = (fall[0] - DARK * frame) / np.maximum(fall[0] - fall[1], 1.0)
    ends = (SCALES[before] + np.clip(share, 0.0, 1.0)[:, None] * (SCALES[first] - SCALES[before]))[:, 0]
    ends = np.where(over.any(1), np.where(first[:, 0] > 0, ends, 1.0), np.inf)
    shown = np.take_along_axis(inside[:, n:], np.where(over.any(1)[:, None], first, -1), 1)[:, 0]
    middle = np.sort(np.where(shown, ends, np.nan), -1)  # NaN last
    known = shown.sum(-1, keepdims=True)
    median = np.take_along_axis(middle, np.maximum(known - 1, 0) // 2, -1)[..., 0]
    return np.where(known[..., 0] >= len(PLACES) // 2, median, np.nan), np.where(asked.any(-1), shines, np.nan)


def going_on(image: np.ndarray, quads: Array) -> np.ndarray:
    """Which sides (Q, 4) of quads (Q, 4, 2) are part of a longer edge: it goes on where their own frame has ended."""
    along = np.roll(quads, -1, 1) - quads
    outward = BESIDE * np.stack([along[..., 1], -along[..., 0]], -1)
    at = np.stack([-BEYOND, 1 + BEYOND])[..., None] * along[..., None, None, :] + quads[..., None, None, :]
    at = np.stack(
        [at + outward[..., None, None, :], at - outward[..., None, None, :]], -2
    )  # (Q, 4, 2 ends, n, 2 hands, 2)
    level = cv2.remap(image, at.reshape(len(quads), -1, 2).astype(np.float32), None, cv2.INTER_LINEAR)
    edge = level.reshape(at.shape[:-1]).astype(float) @ [1.0, -1.0] > CONTRAST
    inside = ((at >= 0) & (at <= np.array(image.shape[::-1]) - 1)).all((-1, -2))
    return np.asarray(((edge & inside).mean(-1) > GOES_ON).any(-1))


def cut(ends: Array, quads: Array, longer: np.ndarray, proportion: float) -> np.ndarray:
    """Which sides (Q, 4) of quads (Q, 4, 2) may be the edge of another gate, by where the frames end, (Q, 4).

    Args:
        longer: (Q, 4) whether they are part of a longer edge.
        proportion: so many times a frame is as large as its opening.
    """
    width = np.where(np.isnan(ends), np.inf, ends - 1)
    facing = width[:, OPPOSITE]
    factor = np.where(np.isnan(ends), ALONE, WIDER)
    flat = factor * _frame(width, proportion) + 2 * WIDER_PX / _apart(quads)[:, [0, 1, 0, 1]]
    other = (width > OTHER * facing) & ((facing > flat + BULGE) | longer)
    return np.asarray(np.isfinite(facing) & (other | ((facing > flat) & (width > FAR * facing))))


def even(ends: Array, quads: Array, hidden: np.ndarray, proportion: float) -> np.ndarray:
    """Which quads (Q, 4, 2) a frame may be about that is `proportion` times as large, by where it ends, (Q, 4).

    It is as wide across as upright, or widened by other gates, beside a side that is `hidden` (Q, 4), or by a slant.
    """
    width, apart = np.where(np.isnan(ends), np.inf, ends - 1), _apart(quads)
    least = np.minimum(width[:, :2], width[:, 2:])
    beside = np.isnan(ends[:, :2]) | np.isnan(ends[:, 2:])
    wall = _wall(quads)
    px = 2 * WIDER_PX / apart
    factor = np.where(beside, ALONE, WIDER)
    seemly = least < factor * (_frame(width, proportion) + 2 * wall) / (1 - wall) + BULGE + px
    unknown = np.isinf(least) & beside
    covered = hidden & ~np.isnan(ends)
    narrow = (wall > SLANT) & np.isfinite(least) & ~beside[:, ::-1] & (least[:, ::-1] > WIDER * least + px)
    possible = seemly | unknown | covered[:, :2] | covered[:, 2:]
    return np.asarray((width.min(-1) > 0) & possible.all(-1) & (seemly | unknown).any(-1) & ~narrow.any(-1))


def fit(ends: Array, quads: Array, proportion: float) -> Array:
    """Share (Q,) of the sides of quads (Q, 4, 2) beside which a frame that ends there, (Q, 4), is as wide as it should be."""
    width = ends - 1
    known, frame, wall = ~np.isnan(width), _frame(np.where(np.isnan(width), np.inf, width), proportion), _wall(quads)
    most, px = (x[:, [0, 1, 0, 1]] for x in ((frame + 2 * wall) / (1 - wall), 2 * WIDER_PX / _apart(quads)))
    fits = known & (width > frame / ALIKE - px) & (width < ALIKE * most + px)
    return np.asarray(fits.sum(-1) / np.maximum(known.sum(-1), 1))


def likely(ends: Array, proportion: float) -> np.ndarray:
    """Which squares (Q,), guessed on a side, a frame may be about that ends there, (Q, 4): as `even`, of an unknown slant."""
    low, high = (share * (proportion - 1) for share in GUESSED)
    width = ends - 1
    return np.asarray((np.nanmin(width, -1, initial=np.inf) > low) & ((width > high).sum(-1) < 2))


def _frame(width: Array, proportion: float) -> Array:
    """How wide (Q, 1) frames are that seem to be as wide as (Q, 4) beside their sides: what these agree on, or as expected."""
    alike = width.max(-1) < ALIKE * width.min(-1)
    return np.where(alike, width.min(-1), proportion - 1)[:, None]


def _wall(quads: Array) -> Array:
    """Shares (Q, 2) of openings (Q, 4, 2) that their depth hides between the sides 0 and 2, and 1 and 3, by their slant."""
    apart = _apart(quads)
    slant = np.sqrt(np.maximum((apart.max(-1, keepdims=True) / apart) ** 2 - 1, 0.0))  # its tangent
    return np.minimum(DEEP * slant, FLATTEST)


def _apart(quads: Array) -> Array:
    """How far (Q, 2) px the sides 0 and 2, and 1 and 3, of quads (Q, 4, 2) are apart."""
    side = np.linalg.norm(np.roll(quads, -1, 1) - quads, axis=-1)
    return np.maximum((side[:, [1, 0]] + side[:, [3, 2]]) / 2, 1e-9)
