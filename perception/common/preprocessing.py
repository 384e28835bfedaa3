"""Preprocessing: normalisation of an image to the exposure of the thresholds, and the region that may contain gates."""

from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from gate_racer.perception.common.types import Image


@dataclass(frozen=True, slots=True)
class ExposureConfig:
    """Parameters of the exposure estimate. Levels are of 255; tuned on real and rendered frames, except where noted."""

    every_px: int = 4  # px, sampling step of rows and columns: 14,400 samples of an image suffice
    saturation: float = 0.45  # -, least (red - green) / red of a sample that may be a lit gate
    red_min: int = 60  # least red of such a sample
    samples_min: int = 12  # least number of such samples
    gate: float = 250.0  # red of a lit gate after normalisation; 234 to 255 in real frames (measured)
    span_min: float = 75.0  # least red of a lit gate over black before it, so that noise is not amplified to gates
    tolerance: float = 0.1  # -, relative change below which normalisation is skipped


@dataclass(frozen=True, slots=True)
class RegionConfig:
    """Parameters of the region that may contain gates. Tuned on real frames to contain all of their gates."""

    cell_px: int = 8  # px, resolution of the search
    red_over_green: int = 8  # of 255, least mean in a cell that may show a gate
    grow_cells: int = 5  # cells, width of the dilation: an overexposed frame is partly white


EXPOSURE = ExposureConfig()
GATE_REGION = RegionConfig()


class PixelBox(NamedTuple):
    """Rectangle of pixels, from its top left at (u, v)."""

    u: int  # px
    v: int  # px
    width: int  # px
    height: int  # px


def normalise_exposure(image: Image, config: ExposureConfig) -> Image:
    """Scale an image (H, W, 3) BGR so that saturated red is as bright as a gate of the real simulator."""
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
    """Return a mask (0 or 255) of where gates may be, by red over green (H, W), and its bounding box, empty if there is none."""
    height, width = red_over_green.shape
    size = max(width // config.cell_px, 1), max(height // config.cell_px, 1)
    cells = cv2.resize(red_over_green, size, interpolation=cv2.INTER_AREA)
    grow = np.ones((config.grow_cells, config.grow_cells), np.uint8)
    cells = cv2.dilate(cv2.threshold(cells, config.red_over_green, 255, cv2.THRESH_BINARY)[1], grow)
    mask = cv2.resize(cells, (width, height), interpolation=cv2.INTER_NEAREST)
    return mask, PixelBox(*cv2.boundingRect(mask))
