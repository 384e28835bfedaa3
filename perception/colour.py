"""The gates' colour, whatever it is and in any light.

The thresholds are made for red to orange gates: for others the colours of a picture are turned about their grey axis until
the gates are red. Then it is stretched so that what is vividly red in it is as bright as the gates of the real simulator,
and its darkest part black: the thresholds hold in a dim hall and in haze as well.
"""

from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np

from perception.profiles import count_red
from perception.squares import scaled
from vehicle.rotation import Array, exp, matrix

RED_DEG = 5.0  # the hue that the thresholds are made for
RED_BRIGHT = 140  # of 255: gates have 234 to 255, the corridor and the lit floor stay under 110
RED_OVER_GREEN = 25  # of 255: half of a gate washed out to pink has over 40, lamps and lettering have 0
RED_ONLY = 60  # of 255, red over green, for `redness`; unwashed gates have over 130, wood and skin under 50
REDDER = 0.6  # red over green against green over blue: gates are at 5, orange ones at 0.8, their glow under 0.5
YELLOW = 85  # of 255, green over blue: the gates' outline has as much, their glow on the floor 150 and more
RING_SIDE = 12  # samples on each side of a ring
# Squares about an opening: on its frame, over the frame's width, and beyond it, over the frame's size. Lettering and checkers
# are holes within a frame that goes on.
ON_FRAME, BEYOND = np.array([0.28, 0.45, 0.63]), np.array([1.14, 1.28])
CELL = 8  # px: so coarsely a gate's whereabouts are looked for
REDDISH = 8  # mean of red over green in a cell that may show a gate
AROUND = np.ones((5, 5), np.uint8)  # cells about it: washed out, a frame is white in part
SPARSE = 4  # every so many pixels tell the light
WIDE = 25  # of these samples: what is no narrower is no side of a frame
VIVID = 0.45  # least share of the red that the green lacks where the light is read off
VIVID_MIN, VIVID_FEW = 60, 12  # least red of such a sample, and how many tell enough
GATE, GATE_MIN = 250.0, 75.0  # red of a lit gate after the stretch, and the least before it
NEAR_ENOUGH = 0.1  # a stretch by less changes nothing


def levelled(image: np.ndarray) -> np.ndarray:
    """The picture (H, W, 3) BGR stretched to the light that the thresholds are made for."""
    red, green = (image[::SPARSE, ::SPARSE, k].astype(np.float32) for k in (2, 1))
    vivid = np.sort(red[(red > VIVID_MIN) & (green < (1 - VIVID) * red)])
    if len(vivid) < VIVID_FEW:
        return image
    some = np.sort(red[::2, ::2], None)
    gate, black = vivid[len(vivid) * 3 // 4], some[len(some) // 20]
    gain = GATE / max(gate - black, GATE_MIN)
    if abs(gain - 1) < NEAR_ENOUGH and black < NEAR_ENOUGH * GATE:
        return image
    return cv2.LUT(image, np.clip((np.arange(256) - black) * gain, 0, 255).astype(np.uint8))


def excess(image: np.ndarray) -> np.ndarray:
    """The picture (H, W, 3) BGR of nothing but red over green, as far as it is more than that of what is widely so around."""
    over = cv2.subtract(image[..., 2], image[..., 1])
    height, width = over.shape
    coarse = cv2.resize(over, (max(width // SPARSE, 1), max(height // SPARSE, 1)), interpolation=cv2.INTER_AREA)
    wide = cv2.morphologyEx(coarse, cv2.MORPH_OPEN, np.ones((WIDE, WIDE), np.uint8))
    more = cv2.subtract(over, cv2.resize(wide, (width, height), interpolation=cv2.INTER_LINEAR))
    none = np.zeros_like(more)
    return cv2.merge([none, none, more])


@lru_cache(maxsize=64)
def turn(hue_deg: float) -> Array:
    """(3, 3) for BGR: a hue becomes red, and grey stays grey."""
    angle = np.radians(hue_deg - RED_DEG)  # about the grey axis, from which hues run from red to blue to green
    return matrix(exp(np.full(3, angle / np.sqrt(3))))


class View(NamedTuple):
    """A channel (H, W) uint8 in which gates shine."""

    holes: np.ndarray  # openings are dark in it
    frame: np.ndarray  # ... and so is what surrounds the frame
    threshold: int
    whole: bool  # whether lettering and the corridor's lines shine with the gates, or cut them


class Scene(NamedTuple):
    """A picture made ready: its gates are red and bright."""

    image: np.ndarray  # (H, W, 3) BGR
    views: tuple[View, View]
    where: np.ndarray  # (H, W) 255 where gates may be, else 0 ...
    box: tuple[int, int, int, int]  # ... and its bounding box (u, v, width, height)

    @classmethod
    def of(cls, image: np.ndarray, hue_deg: float, paler: bool = False) -> "Scene":
        """Of a picture (H, W, 3) BGR with gates of a hue, perhaps before a background that is a paler shade of it."""
        image = image if hue_deg == RED_DEG else cv2.transform(image, turn(hue_deg))
        image = levelled(excess(image) if paler else image)
        red, over = views(image)
        return cls(image, (red, over), *reddish(over.holes))

    @property
    def empty(self) -> bool:
        """Nothing in it can be a gate."""
        return not self.box[2]

    @property
    def origin_px(self) -> Array:
        """The top left of masks."""
        return np.array(self.box[:2], float)

    def mask(self, view: View) -> np.ndarray:
        """(h, w) within the box: 255 where a gate shines in a view, else 0."""
        u, v, w, h = self.box
        part = np.s_[v : v + h, u : u + w]
        shines = cv2.threshold(view.holes[part], view.threshold, 255, cv2.THRESH_BINARY)[1]
        return cv2.bitwise_and(shines, self.where[part])


def views(image: np.ndarray) -> tuple[View, View]:
    """Two views of a picture (H, W, 3) BGR: its red; and red over green, for bright backgrounds, though a JPEG blurs it.

    Gates stand on a yellow glow of theirs, which is taken from the red before the frame's outer edge is looked for.
    """
    blue, green, red = cv2.split(image)
    yellow = cv2.subtract(cv2.subtract(green, blue), YELLOW)
    over = cv2.subtract(red, green)
    return (
        View(red, cv2.subtract(red, cv2.add(yellow, yellow)), RED_BRIGHT, True),
        View(over, over, RED_ONLY, False),
    )


def reddish(over: np.ndarray) -> tuple[np.ndarray, tuple[int, int, int, int]]:
    """Where gates may be, for red over green (H, W): a mask of 0 and 255 and its bounding box (u, v, width, height)."""
    height, width = over.shape
    cells = cv2.resize(over, (max(width // CELL, 1), max(height // CELL, 1)), interpolation=cv2.INTER_AREA)
    cells = cv2.dilate(cv2.threshold(cells, REDDISH, 255, cv2.THRESH_BINARY)[1], AROUND)
    mask = cv2.resize(cells, (width, height), interpolation=cv2.INTER_NEAREST)
    return mask, cv2.boundingRect(mask)


def coloured(image: np.ndarray, quads: Array, outer: Array) -> tuple[Array, Array]:
    """Shares (Q, 4) of gate-coloured samples beside each side of quads (Q, 4, 2): on the frame, and beyond where it ends.

    The frame reaches from an opening to its outer quad (Q, 4, 2). A side of which nothing is in the picture counts as coloured
    on the frame and free beyond.
    """
    on_frame = quads[:, None] + ON_FRAME[:, None, None] * (outer - quads)[:, None]
    asked, shown = _count(image, np.concatenate([on_frame, scaled(outer, BEYOND)], 1))
    shares = []
    for part, nothing in ((np.s_[..., : len(ON_FRAME)], 1.0), (np.s_[..., len(ON_FRAME) :], 0.0)):
        n = asked[part].sum(-1)
        shares.append(np.where(n > 0, shown[part].sum(-1) / np.maximum(n, 1), nothing))
    return shares[0], shares[1]


def on_sides(image: np.ndarray, quads: Array, rings: Array) -> tuple[Array, Array]:
    """Samples, and those of them in the gates' colour, (Q, 4, S) each, on the sides of squares about quads (Q, 4, 2).

    Squares are `rings` (S,) times as large as the quads. Samples outside the picture are not counted: near a gate the frame
    leaves the picture before the opening does.
    """
    return _count(image, scaled(quads, rings))


def _count(image: np.ndarray, quads: Array) -> tuple[Array, Array]:
    asked, shown = count_red(image, quads, RING_SIDE, RED_BRIGHT, RED_OVER_GREEN, REDDER)
    return asked, shown
