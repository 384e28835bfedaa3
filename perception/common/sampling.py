"""Compiled sampling of images: edges across the sides of quadrilaterals, shares of a colour on them, widths of bright bars.

An image asks for some thousand samples in small batches: NumPy spends more time on being called than on them. These functions
call each other, and the cache of compiled code watches one file: so they stay in one.
"""

import numpy as np

from perception.common.types import Image, compiled
from vehicle.rotation import Array

QUANTISATION_PX = 1 / np.sqrt(
    12.0
)  # standard deviation of an edge whose pixels are either in or out: uniform over 1 px
DARK_SHARE = 8  # the dark level of a profile is the quantile 1 / DARK_SHARE of all samples, taken in its darker half
FEWEST_WIDTHS = 3  # profiles that make a bar's width; fewer have no majority


@compiled()
def sample(channel: Image, u: float, v: float) -> float:
    """Interpolate an image (H, W) bilinearly between its pixels, and continue it beyond its border."""
    height, width = channel.shape
    u, v = min(max(u, 0.0), width - 1.0), min(max(v, 0.0), height - 1.0)
    i, j = min(int(v), height - 2), min(int(u), width - 2)
    y, x = v - i, u - j
    top = channel[i, j] * (1 - x) + channel[i, j + 1] * x
    return float(top * (1 - y) + (channel[i + 1, j] * (1 - x) + channel[i + 1, j + 1] * x) * y)


@compiled()
def smallest(x: Array, k: int) -> float:
    """The k-th smallest of x, from 0; k is small."""
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
    """Index at which a profile (n,), bright at first, falls through half height; NaN where it has less than that contrast."""
    n = len(profile)
    high = profile[: n // 4].mean()
    # The dark side is the darker part: another gate may shine just inside the edge.
    low = smallest(profile[n // 2 :], n // DARK_SHARE)
    if high - low <= contrast:
        return np.nan
    half = (high + low) / 2
    # The first fall, seen from the frame: what else shines inside the opening lies beyond it.
    for i in range(1, n):
        if profile[i] < half:
            return float(i - 1 + min(max((profile[i - 1] - half) / max(profile[i - 1] - profile[i], 1.0), 0.0), 1.0))
        if profile[0] < half:
            break
    return np.nan


@compiled()
def median(x: Array, n: int) -> float:
    """The median of the first n of x; 0 of none."""
    if n == 0:
        return 0.0
    ordered = np.sort(x[:n])
    return float((ordered[(n - 1) // 2] + ordered[n // 2]) / 2)


@compiled("UniTuple(f8, 5)(f8[:], f8[:], f8)")  # named, since Python calls it too: in flight it is too late to compile
def robust_line(s: Array, d: Array, inlier_px: float) -> tuple[float, float, float, float, float]:
    """A robust line d = level + slope s through points s, d (P,), of which some are NaN; s runs about 0.

    The median of slopes over half the line finds the points that agree (Theil, 1950; Sen, 1968, with all pairs), least
    squares uses them.

    Returns:
        level and slope (px), standard deviation at s = -1/2 and s = 1/2 (px), and how many points agree.
    """
    P = len(s)
    x, known = np.empty(P), 0
    for i in range(P):
        known += np.isfinite(d[i])
    if known < P // 4:
        return 0.0, 0.0, QUANTISATION_PX, QUANTISATION_PX, 0.0
    n, half = 0, P // 2  # close pairs say nothing about the slope
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
        x[i] = abs(d[i] - level - slope * s[i]) < inlier_px  # NaN does not
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
        s: (P,) places of the profiles along a side, -1/2 to 1/2.
        n: samples of a profile.
        contrast: least difference of its two ends, grey levels.
        inlier_px: most distance from its line of a point that agrees.

    Returns:
        (Q, 4, 6): what `robust_line` returns, outward of the side, and how many profiles lie in the image.
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
    """Count the samples on the sides of quads that lie in an image, and those of them that are red.

    Args:
        image: (H, W, 3) BGR uint8.
        quads: (Q, S, 4, 2) px.
        samples: on each side, both ends among them.
        bright, over_green, redder: what the red and its excess over green are more than, and the latter over green's over blue.

    Returns:
        (2, Q, 4, S)
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
    """Measure how wide (Q, 4) px what shines beyond the sides of quads is, across them; NaN where its end does not show.

    Args:
        channel: (H, W) uint8; what is over the threshold shines.
        start, outward: (Q, 4, 2) corners and unit normals.
        about: (Q,) px that a bar is about as wide as.
        along: (P,) places of the profiles along a side, 0 to 1.
        across: (n,) of the samples on them, over `about`.
        agree: most deviation from the median, over it, of profiles that see the same end.
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
