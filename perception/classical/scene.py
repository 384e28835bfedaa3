"""Image preparation, so that gates of any colour are red and bright, and shares of gate-coloured samples.

The samples lie on the frame about an opening, and beyond the frame's end: lettering and checkers are holes within a continuous
frame, and white lamps have a gate's shape without its colour.

Thresholds apply to red and orange gates; for others the colours are rotated about the grey axis until the gates are red. Then
the image is normalised to the exposure of the real simulator, so that the thresholds hold in dim light and in haze as well.
"""

from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np

from gate_racer.common.compiled import Image
from gate_racer.model.quadrilateral import concentric
from gate_racer.perception.edges import count_red
from gate_racer.vehicle.rotation import Array, exp, matrix

# Positions of the samples of the gates' colour about an opening, and limits of its share.
ON_FRAME = (0.28, 0.45, 0.63)  # squares on the frame, over its width: clear of its edges
BEYOND_FRAME = (1.14, 1.28)  # squares beyond the frame, over its size: clear of its outline
COLOURED_MIN = 0.5  # -, least share of the gates' colour on the frame beside each measured side
# -, greatest mean share of the gates' colour beyond the frame: other gates may be behind some sides. In the second view
# lettering forms holes, so its limit is lower.
BACKGROUND_MAX = 0.6
BACKGROUND_MAX_SECOND = 0.3


def background_limit(first_view: bool) -> float:
    """Return the greatest mean share of the gates' colour beyond the frame."""
    return BACKGROUND_MAX if first_view else BACKGROUND_MAX_SECOND


def colour_shares(image: Image, openings: Array, silhouettes: Array) -> tuple[Array, Array]:
    """Return shares (Q, 4) of gate-coloured samples beside sides: on the frame (1 outside the image), and beyond it (0)."""
    across = np.array(ON_FRAME)[:, None, None]
    on_frame = openings[:, None] + across * (silhouettes - openings)[:, None]
    squares = np.concatenate([on_frame, concentric(silhouettes, np.array(BEYOND_FRAME))], 1)
    sampled, coloured = count_red(image, squares)
    on, beyond = np.s_[..., : len(ON_FRAME)], np.s_[..., len(ON_FRAME) :]
    return _share(sampled[on], coloured[on], 1.0), _share(sampled[beyond], coloured[beyond], 0.0)


def _share(sampled: Array, coloured: Array, of_none: float) -> Array:
    n = sampled.sum(-1)
    return np.where(n > 0, coloured.sum(-1) / np.maximum(n, 1), of_none)


# Estimate of the exposure. Levels are of 255; tuned on real and rendered frames, except where noted.
EXPOSURE_EVERY_PX = 4  # px, sampling step of rows and columns: 14,400 samples of an image suffice
SATURATION = 0.45  # -, least (red - green) / red of a sample that may be a lit gate
VIVID_RED_MIN = 60  # least red of such a sample
VIVID_MIN = 12  # least number of such samples
GATE_RED = 250.0  # red of a lit gate after normalisation; 234 to 255 in real frames (measured)
SPAN_MIN = 75.0  # least red of a lit gate over black before it, so that noise is not amplified to gates
EXPOSURE_TOLERANCE = 0.1  # -, relative change below which normalisation is skipped
# Region that may contain gates. Tuned on real frames to contain all of their gates.
CELL_PX = 8  # px, resolution of the search
RED_OVER_GREEN = 8  # of 255, least mean in a cell that may show a gate
GROW_CELLS = 5  # cells, width of the dilation: an overexposed frame is partly white


class PixelBox(NamedTuple):
    """Rectangle of pixels, from its top left at (u, v)."""

    u: int  # px
    v: int  # px
    width: int  # px
    height: int  # px


def normalise_exposure(image: Image) -> Image:
    """Scale an image (H, W, 3) BGR so that saturated red is as bright as a gate of the real simulator."""
    step = EXPOSURE_EVERY_PX
    red, green = (image[::step, ::step, k].astype(np.float32) for k in (2, 1))
    vivid = np.sort(red[(red > VIVID_RED_MIN) & (green < (1 - SATURATION) * red)])
    if len(vivid) < VIVID_MIN:
        return image
    some = np.sort(red[::2, ::2], None)
    gate, black = vivid[len(vivid) * 3 // 4], some[len(some) // 20]
    gain = GATE_RED / max(gate - black, SPAN_MIN)
    if abs(gain - 1) < EXPOSURE_TOLERANCE and black < EXPOSURE_TOLERANCE * GATE_RED:
        return image
    table = np.clip((np.arange(256) - black) * gain, 0, 255).astype(np.uint8)
    return np.asarray(cv2.LUT(image, table))


def gate_region(red_over_green: Image) -> tuple[Image, PixelBox]:
    """Return a mask (0 or 255) of where gates may be, by red over green (H, W), and its bounding box, empty if there is none."""
    height, width = red_over_green.shape
    size = max(width // CELL_PX, 1), max(height // CELL_PX, 1)
    cells = cv2.resize(red_over_green, size, interpolation=cv2.INTER_AREA)
    grow = np.ones((GROW_CELLS, GROW_CELLS), np.uint8)
    cells = cv2.dilate(cv2.threshold(cells, RED_OVER_GREEN, 255, cv2.THRESH_BINARY)[1], grow)
    mask = cv2.resize(cells, (width, height), interpolation=cv2.INTER_NEAREST)
    return mask, PixelBox(*cv2.boundingRect(mask))


# Channels in which gates are bright, and conditions for using the second one.
RED_MIN = 140  # threshold of red; gates have 234 to 255, corridor and lit floor under 110 (measured)
RED_OVER_GREEN_MIN = 60  # likewise of red over green; gates over 130, wood and skin under 50 (measured)
GLOW_OVER_BLUE = 85  # green - blue; the gates' outline has as much, the glow on the floor over 150 (measured)
# px; wider areas of the gates' own hue are background, as no side of a frame is so wide (tuned).
BACKGROUND_WIDTH_PX = 100
BACKGROUND_EVERY_PX = 4  # px, sampling step of that search (tuned: its cost)
# The second channel is used if the share of bright pixels exceeds that of gate-coloured ones by BRIGHT_SHARE, or the ratio
# of bright to gate-coloured pixels is below DIM_SHARE; and UNEXPLAINED_PX gate-coloured pixels remain (tuned).
BRIGHT_SHARE = 0.02
DIM_SHARE = 0.5
UNEXPLAINED_PX = 150
RED_DEG = 5.0  # hue of the real simulator's gates, to which the thresholds apply (measured)


class View(NamedTuple):
    """Channels (H, W) in which gates are bright."""

    opening: Image  # channel with dark openings
    silhouette: Image  # channel with dark surroundings of the frame
    threshold: int  # level above which a pixel may be a gate's
    first: bool  # lettering and the corridor's lines are as bright as the gates; in the second view they are dark


class PreparedImage(NamedTuple):
    """Image in which gates are red and bright."""

    image: Image  # (H, W, 3) BGR
    red: View
    red_over_green: View  # for bright backgrounds and dark gates, invisible in the red; blurred by JPEG
    region: Image  # (H, W) 255 where gates may be, else 0
    box: PixelBox  # bounding box of the region

    @classmethod
    def prepare(cls, image: Image, hue_deg: float, own_background: bool) -> "PreparedImage":
        """Prepare an image (H, W, 3) BGR for gates of a hue; `own_background` for a background in a paler shade of it."""
        image = image if hue_deg == RED_DEG else cv2.transform(image, _hue_turn(hue_deg))
        image = _foreground(image) if own_background else image
        image = normalise_exposure(image)
        red, red_over_green = _views(image)
        return cls(image, red, red_over_green, *gate_region(red_over_green.opening))

    @property
    def empty(self) -> bool:
        """Whether no part of the image can be a gate."""
        return not self.box.width

    @property
    def box_origin_px(self) -> Array:
        """Origin (2,) px of the masks in the image."""
        return np.array(self.box[:2], float)

    def mask(self, view: View) -> Image:
        """Return a mask (h, w) of the box: 255 where a gate is bright in a view, else 0."""
        u, v, w, h = self.box
        part = np.s_[v : v + h, u : u + w]
        shines = _above(view.opening[part], view.threshold)
        return np.asarray(cv2.bitwise_and(shines, self.region[part]))

    def leaves_unexplained(self, silhouettes: list[Array]) -> bool:
        """Check whether the second view may show gates missed in the first, given the silhouettes (4, 2) px found there."""
        rest = _above(self.red_over_green.opening, self.red_over_green.threshold)
        coloured_px = cv2.countNonZero(rest)
        for silhouette in silhouettes:
            cv2.fillConvexPoly(rest, np.round(silhouette).astype(int), 0)
        bright_px = cv2.countNonZero(_above(self.red.opening, self.red.threshold))
        too_bright = bright_px > coloured_px + BRIGHT_SHARE * rest.size
        too_dim = bright_px < DIM_SHARE * coloured_px
        return bool((too_bright or too_dim) and cv2.countNonZero(rest) > UNEXPLAINED_PX)


def _above(channel: Image, threshold: int) -> Image:
    return np.asarray(cv2.threshold(channel, threshold, 255, cv2.THRESH_BINARY)[1])


def _views(image: Image) -> tuple[View, View]:
    """Return the views by red, less the glow on the floor, and by red over green, of an image (H, W, 3) BGR."""
    blue, green, red = cv2.split(image)
    glow = cv2.subtract(cv2.subtract(green, blue), GLOW_OVER_BLUE)
    over = cv2.subtract(red, green)
    without_glow = cv2.subtract(red, cv2.add(glow, glow))
    return View(red, without_glow, RED_MIN, True), View(over, over, RED_OVER_GREEN_MIN, False)


def _foreground(image: Image) -> Image:
    """Return the red over green of an image (H, W, 3) BGR in excess of its wide surroundings, as the red channel."""
    over = cv2.subtract(image[..., 2], image[..., 1])
    height, width = over.shape
    step = BACKGROUND_EVERY_PX
    coarse = cv2.resize(over, (max(width // step, 1), max(height // step, 1)), interpolation=cv2.INTER_AREA)
    size = BACKGROUND_WIDTH_PX // step
    wide = cv2.morphologyEx(coarse, cv2.MORPH_OPEN, np.ones((size, size), np.uint8))
    more = cv2.subtract(over, cv2.resize(wide, (width, height), interpolation=cv2.INTER_LINEAR))
    none = np.zeros_like(more)
    return np.asarray(cv2.merge([none, none, more]))


@lru_cache(maxsize=64)
def _hue_turn(hue_deg: float) -> Array:
    """Return the rotation (3, 3) of BGR about the grey axis that turns a hue to red; hues run from red to blue to green."""
    angle = np.radians(hue_deg - RED_DEG)
    return matrix(exp(np.full(3, angle / np.sqrt(3))))
