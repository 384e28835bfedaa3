"""Thresholds of the taught detector. What depends on the trained weights is in the network's card (`NetworkCard`)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaughtConfig:
    """Configuration of all stages, in order of processing. Chosen, except where a source is named."""

    cell_min: float = 0.15  # -, least probability of a cell that reports an opening
    cells: int = 100  # greatest number of such cells, the likeliest: bounds the time (a gate has about eight)
    same_iou: float = (
        0.55  # -, overlap above which two quadrilaterals are one opening's; gates in a row have .45 or less
    )
    side_min_px: float = 5.0  # least side of an opening
    peak_min: float = 0.12  # -, least height of a corner's peak
    peaks: int = 200  # greatest number of peaks, the highest
    above_mean: float = 1.1  # -, least ratio of a peak to the mean of its 3 x 3 neighbourhood: a plateau has no peak
    snap_px: float = 2.0  # greatest distance from a predicted corner to its peak, the network's stride,
    snap_side: float = (
        0.12  # ... or this share of the side, if greater: three standard deviations of the prediction (measured)
    )
    border_px: float = 1.0  # a corner nearer to the image border may be cut
    corners_min: int = 2  # least number of visible corners
