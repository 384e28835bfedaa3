"""Images: normalisation to the exposure of the thresholds, the region that may contain gates, and compiled sampling.

The samples are edges across the sides of quadrilaterals, colour counts on them, and widths of bright bars. Each image needs
some thousand samples in small batches, for which NumPy's call overhead exceeds the work. These functions call each other, and
the cache of compiled code tracks one file only, so they stay in one.
"""

from typing import NamedTuple

import cv2
import numpy as np

from gate_racer.common.compiled import Image, compiled
from gate_racer.vehicle.rotation import Array

# Estimate of the exposure. Levels are of 255; tuned on real and rendered frames, except where noted.
EVERY_PX = 4  # px, sampling step of rows and columns: 14,400 samples of an image suffice
SATURATION = 0.45  # -, least (red - green) / red of a sample that may be a lit gate
RED_MIN = 60  # least red of such a sample
SAMPLES_MIN = 12  # least number of such samples
GATE_RED = 250.0  # red of a lit gate after normalisation; 234 to 255 in real frames (measured)
SPAN_MIN = 75.0  # least red of a lit gate over black before it, so that noise is not amplified to gates
TOLERANCE = 0.1  # -, relative change below which normalisation is skipped
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
    step = EVERY_PX
    red, green = (image[::step, ::step, k].astype(np.float32) for k in (2, 1))
    vivid = np.sort(red[(red > RED_MIN) & (green < (1 - SATURATION) * red)])
    if len(vivid) < SAMPLES_MIN:
        return image
    some = np.sort(red[::2, ::2], None)
    gate, black = vivid[len(vivid) * 3 // 4], some[len(some) // 20]
    gain = GATE_RED / max(gate - black, SPAN_MIN)
    if abs(gain - 1) < TOLERANCE and black < TOLERANCE * GATE_RED:
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


QUANTISATION_PX = 1 / np.sqrt(12.0)  # px, standard deviation of an edge quantised to pixels: uniform over 1 px
DARK_SHARE = 8  # the dark level of a profile is its quantile 1 / DARK_SHARE, taken in the half at the dark end
FEWEST_WIDTHS = 3  # least number of agreeing profiles for a bar's width; fewer have no majority


@compiled()
def sample(channel: Image, u: float, v: float) -> float:
    """Interpolate an image (H, W) bilinearly at (u, v), with border pixels replicated."""
    height, width = channel.shape
    u, v = min(max(u, 0.0), width - 1.0), min(max(v, 0.0), height - 1.0)
    i, j = min(int(v), height - 2), min(int(u), width - 2)
    y, x = v - i, u - j
    top = channel[i, j] * (1 - x) + channel[i, j + 1] * x
    return float(top * (1 - y) + (channel[i + 1, j] * (1 - x) + channel[i + 1, j + 1] * x) * y)


@compiled()
def smallest(x: Array, k: int) -> float:
    """Return the k-th smallest of x, from 0; k is small."""
    least = np.full(k + 1, np.inf)  # ascending
    for value in x:
        i = k
        if value < least[k]:
            while i > 0 and value < least[i - 1]:
                least[i], i = least[i - 1], i - 1
            least[i] = value
    return float(least[k])


@compiled()
def half_height(profile: Array, contrast: float) -> float:
    """Return the index at which a profile (n,), bright first, falls through half height; NaN if its contrast is too low."""
    n = len(profile)
    high = profile[: n // 4].mean()
    # The dark level is a low quantile: another gate may be visible just inside the edge.
    low = smallest(profile[n // 2 :], n // DARK_SHARE)
    if high - low <= contrast:
        return np.nan
    half = (high + low) / 2
    # The first fall from the frame inward: other bright objects inside the opening lie beyond it.
    for i in range(1, n):
        if profile[i] < half:
            return float(i - 1 + min(max((profile[i - 1] - half) / max(profile[i - 1] - profile[i], 1.0), 0.0), 1.0))
        if profile[0] < half:
            break
    return np.nan


@compiled()
def median(x: Array, n: int) -> float:
    """Return the median of the first n of x; 0 if n is 0."""
    if n == 0:
        return 0.0
    ordered = np.sort(x[:n])
    return float((ordered[(n - 1) // 2] + ordered[n // 2]) / 2)


@compiled("UniTuple(f8, 5)(f8[:], f8[:], f8)")  # explicit, as Python calls it too: no compilation in flight
def robust_line(s: Array, d: Array, inlier_px: float) -> tuple[float, float, float, float, float]:
    """Fit a robust line d = level + slope s through points s, d (P,), some of which may be NaN; s is centred on 0.

    The median of slopes over half the line selects the inliers (Theil, 1950; Sen, 1968, with all pairs), to which least
    squares is applied.

    Returns:
        level and slope (px), standard deviations at s = -1/2 and s = 1/2 (px), and the number of inliers.
    """
    P = len(s)
    x, known = np.empty(P), 0
    for i in range(P):
        known += np.isfinite(d[i])
    if known < P // 4:
        return 0.0, 0.0, QUANTISATION_PX, QUANTISATION_PX, 0.0
    n, half = 0, P // 2  # close pairs carry no information on the slope
    for i in range(P - half):
        slope = (d[i + half] - d[i]) / (s[i + half] - s[i])
        if np.isfinite(slope):
            x[n], n = slope, n + 1
    slope, n = median(x, n), 0
    for i in range(P):
        if np.isfinite(d[i]):
            x[n], n = d[i] - slope * s[i], n + 1
    level = median(x, n)
    agree, s_sum, d_sum = 0, 0.0, 0.0
    for i in range(P):
        x[i] = abs(d[i] - level - slope * s[i]) < inlier_px  # False for NaN
        if x[i]:
            agree, s_sum, d_sum = agree + 1, s_sum + s[i], d_sum + d[i]
    s_mean, d_mean = s_sum / max(agree, 1), d_sum / max(agree, 1)
    sxx, sxd = 1e-6, 0.0
    for i in range(P):
        if x[i]:
            sxx, sxd = sxx + (s[i] - s_mean) ** 2, sxd + (s[i] - s_mean) * (d[i] - d_mean)
    slope = sxd / sxx
    level = d_mean - slope * s_mean
    square = 0.0
    for i in range(P):
        if x[i]:
            square += (d[i] - level - slope * s[i]) ** 2
    spread = max(np.sqrt(square / max(agree, 1)), QUANTISATION_PX)
    start = spread * np.sqrt(1 / max(agree, 1) + (-0.5 - s_mean) ** 2 / sxx)
    end = spread * np.sqrt(1 / max(agree, 1) + (0.5 - s_mean) ** 2 / sxx)
    return level, slope, start, end, float(agree)


@compiled("f8[:,:,:](u1[:,:], f8[:,:,:], f8[:,:,:], f8[:], f8[:], i8, f8, f8)")
def fit_sides(
    channel: Image,
    start: Array,
    outward: Array,
    reach: Array,
    s: Array,
    n: int,
    contrast: float,
    inlier_px: float,
) -> Array:
    """Fit lines to the edges near the sides of quads.

    Args:
        channel: (H, W) uint8.
        start: (Q, 4, 2) corners, px; side k runs from corner k to corner k + 1.
        outward: (Q, 4, 2) unit normals.
        reach: (Q,) px from a side to the ends of profiles across it, positive if the bright end lies outward.
        s: (P,) positions of the profiles along a side, -1/2 to 1/2.
        n: number of samples of a profile.
        contrast: least difference between the two ends of a profile, grey levels.
        inlier_px: greatest distance of an inlier from its line.

    Returns:
        (Q, 4, 6): the result of `robust_line`, outward of the side, and the number of profiles within the image.
    """
    height, width = channel.shape
    found = np.empty((len(start), 4, 6))
    profile, d = np.empty(n), np.empty(len(s))
    for q in range(len(start)):
        for k in range(4):
            inside = 0
            u0, v0 = start[q, k, 0], start[q, k, 1]
            u1, v1 = start[q, (k + 1) % 4, 0], start[q, (k + 1) % 4, 1]
            du, dv = outward[q, k, 0] * reach[q], outward[q, k, 1] * reach[q]
            for p in range(len(s)):
                u, v = u0 + (s[p] + 0.5) * (u1 - u0), v0 + (s[p] + 0.5) * (v1 - v0)
                d[p] = np.nan
                if abs(du) <= u <= width - 1 - abs(du) and abs(dv) <= v <= height - 1 - abs(dv):
                    inside += 1
                    for i in range(n):
                        t = 1 - 2 * i / (n - 1)
                        profile[i] = sample(channel, u + t * du, v + t * dv)
                    d[p] = reach[q] * (1 - 2 * half_height(profile, contrast) / (n - 1))
            found[q, k, 0], found[q, k, 1], found[q, k, 2], found[q, k, 3], found[q, k, 4] = robust_line(
                s, d, inlier_px
            )
            found[q, k, 5] = inside
    return found


@compiled("f8[:,:,:,:](u1[:,:,:], f8[:,:,:,:], i8, f8, f8, f8)")
def count_red(image: Image, quads: Array, samples: int, bright: float, over_green: float, redder: float) -> Array:
    """Count the samples on the sides of quads that lie in an image, and the red ones among them.

    Args:
        image: (H, W, 3) BGR uint8.
        quads: (Q, S, 4, 2) px.
        samples: number on each side, both ends included.
        bright, over_green, redder: lower limits of red, of red - green, and of (red - green) / (green - blue).

    Returns:
        (2, Q, 4, S): counts of samples within the image, and of red ones.
    """
    Q, S = quads.shape[:2]
    height, width = image.shape[:2]
    count = np.zeros((2, Q, 4, S))
    for q in range(Q):
        for scale in range(S):
            for k in range(4):
                u0, v0 = quads[q, scale, k, 0], quads[q, scale, k, 1]
                u1, v1 = quads[q, scale, (k + 1) % 4, 0], quads[q, scale, (k + 1) % 4, 1]
                for i in range(samples):
                    t = i / (samples - 1)
                    u, v = u0 + t * (u1 - u0), v0 + t * (v1 - v0)
                    if 0 <= u <= width - 1 and 0 <= v <= height - 1:
                        count[0, q, k, scale] += 1
                        red, green = sample(image[:, :, 2], u, v), sample(image[:, :, 1], u, v)
                        over = red - green
                        if red > bright and over > over_green:
                            count[1, q, k, scale] += over > redder * (green - sample(image[:, :, 0], u, v))
    return count


@compiled("f8[:,:](u1[:,:], i8, f8[:,:,:], f8[:,:,:], f8[:], f8[:], f8[:], f8)")
def bar_widths(
    channel: Image,
    threshold: int,
    start: Array,
    outward: Array,
    about: Array,
    along: Array,
    across: Array,
    agree: float,
) -> Array:
    """Measure the widths (Q, 4) px of bright bars outward of the sides of quads; NaN where a bar's end is not visible.

    Args:
        channel: (H, W) uint8; bright means above the threshold.
        start, outward: (Q, 4, 2) corners and unit normals.
        about: (Q,) approximate widths of bars, px.
        along: (P,) positions of the profiles along a side, 0 to 1.
        across: (n,) positions of the samples on them, over `about`.
        agree: greatest relative deviation from the median of profiles that show the same end.
    """
    height, width = channel.shape
    widths, found = np.full((len(start), 4), np.nan), np.empty(len(along))
    for q in range(len(start)):
        for k in range(4):
            known = 0
            for p in range(len(along)):
                foot = start[q, k] + along[p] * (start[q, (k + 1) % 4] - start[q, k])
                for i in range(len(across)):
                    u, v = foot + about[q] * across[i] * outward[q, k]
                    if not (0 <= u <= width - 1 and 0 <= v <= height - 1):
                        break
                    if sample(channel, u, v) <= threshold:
                        if i:
                            found[known], known = about[q] * across[i], known + 1
                        break
            if known >= FEWEST_WIDTHS:
                middle = np.sort(found[:known])[(known - 1) // 2]
                if (np.abs(found[:known] - middle) < agree * middle).sum() >= FEWEST_WIDTHS:
                    widths[q, k] = middle
    return widths
