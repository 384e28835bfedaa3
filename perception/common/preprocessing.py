"""Light and whereabouts: an image stretched to the exposure that thresholds are made for, and the part that may show gates."""

from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from perception.common.types import Image


@dataclass(frozen=True, slots=True)
class ExposureConfig:
    """What tells the light of an image. Levels are of 255; set by hand on real frames and rendered looks, but where noted."""

    every_px: int = 4  # sampling of rows and columns: 14,400 samples of an image tell its light well enough
    saturation: float = 0.45  # least share of the red that green lacks in a sample that may be a lit gate
    red_min: int = 60  # least red of such a sample
    samples_min: int = 12  # so many of them tell the light
    gate: float = 250.0  # red of a lit gate after the stretch; in real frames it has 234 to 255 (measured)
    span_min: float = (
        75.0  # least red of a lit gate over black before the stretch, so that noise is not stretched to gates
    )
    tolerance: float = 0.1  # a stretch by less is left out: it changes nothing


@dataclass(frozen=True, slots=True)
class RegionConfig:
    """Where gates may be. Set by hand on real frames: wide enough to hold all of their gates."""

    cell_px: int = 8  # resolution of the search
    red_over_green: int = 8  # mean of 255 in a cell that may show a gate
    grow_cells: int = 5  # width of the dilation: washed out, a frame is white in part


EXPOSURE = ExposureConfig()
GATE_REGION = RegionConfig()


class PixelBox(NamedTuple):
    """A rectangle of pixels."""

    u: int
    v: int
    width: int
    height: int


def normalise_exposure(image: Image, config: ExposureConfig) -> Image:
    """Stretch an image (H, W, 3) BGR so that what is vividly red is as bright as a gate of the real simulator."""
    step = config.every_px
    red, green = (image[::step, ::step, k].astype(np.float32) for k in (2, 1))
    vivid = np.sort(red[(red > config.red_min) & (green < (1 - config.saturation) * red)])
    if len(vivid) < config.samples_min:
        return image
    some = np.sort(red[::2, ::2], None)
    gate, black = vivid[len(vivid) * 3 // 4], some[len(some) // 20]
    gain = config.gate / max(gate - black, config.span_min)
    if abs(gain - 1) < config.tolerance and black < config.tolerance * config.gate:
        return image
    table = np.clip((np.arange(256) - black) * gain, 0, 255).astype(np.uint8)
    return np.asarray(cv2.LUT(image, table))


def gate_region(red_over_green: Image, config: RegionConfig) -> tuple[Image, PixelBox]:
    """Where gates may be, by red over green (H, W): a mask of 0 and 255 and its bounding box, empty where there are none."""
    height, width = red_over_green.shape
    size = max(width // config.cell_px, 1), max(height // config.cell_px, 1)
    cells = cv2.resize(red_over_green, size, interpolation=cv2.INTER_AREA)
    grow = np.ones((config.grow_cells, config.grow_cells), np.uint8)
    cells = cv2.dilate(cv2.threshold(cells, config.red_over_green, 255, cv2.THRESH_BINARY)[1], grow)
    mask = cv2.resize(cells, (width, height), interpolation=cv2.INTER_NEAREST)
    return mask, PixelBox(*cv2.boundingRect(mask))
