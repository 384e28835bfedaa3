"""Sub-pixel edges and thin bright lines along the sides of quadrilaterals, in batches.

Edges (`fit_edges`): across each side the image is sampled on short profiles; each gives the position at which the brightness
crosses half-way between its two ends, which a symmetric blur does not move. A robust line through these positions replaces the
side, and neighbouring lines intersect in the corners.

Lines (`fit_lines`): blur displaces the edges of a line that is about as wide as the blur, but not its centre. The template is a
line between a face, a wall behind it and the hole at the wall's end, blurred by a Gaussian; the levels follow by least squares
(a matched filter), position and blur by search.

Colours along sides and widths of bright bars are sampled likewise. Each image needs some thousand samples in small batches, for
which NumPy's call overhead exceeds the work, so this is compiled. The functions call each other, and the cache of compiled code
tracks one file only, so they stay in one.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from gate_racer.common.compiled import Float32, Image, compiled
from gate_racer.model.quadrilateral import NEXT, area_px2, corner_covariance_px2, intersect_lines
from gate_racer.vehicle.rotation import Array, Indices, Mask

QUANTISATION_PX = 1 / np.sqrt(12.0)  # px, standard deviation of an edge quantised to pixels: uniform over 1 px
DARK_SHARE = 8  # the dark level of a profile is its quantile 1 / DARK_SHARE, taken in the half at the dark end
CONTRAST = 50.0  # grey levels, least difference between the two ends of a profile
INLIER_PX = 0.8  # greatest distance of an inlier from the straight line; quantisation gives up to 0.5 (derived)
FEWEST_WIDTHS = 3  # least number of agreeing profiles for a bar's width; fewer have no majority
AGREE = 0.15  # -, greatest relative difference between profiles that show the same end of a bar (tuned)
# The gates' colour, in the image as prepared for the detector.
SIDE_SAMPLES = 12  # per side of a square (tuned: cost)
FRAME_RED_MIN = 140.0  # as `RED_MIN` of the scene
FRAME_RED_OVER_GREEN_MIN = 25.0  # half of an overexposed, pink gate has over 40, lamps and lettering 0 (measured)
FRAME_RED_OVER_YELLOW = 0.6  # (red - green) / (green - blue); gates 5, orange ones 0.8, glow under 0.5 (measured)


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
def half_height(profile: Array) -> float:
    """Return the index at which a profile (n,), bright first, falls through half height; NaN if its contrast is too low."""
    n = len(profile)
    high = profile[: n // 4].mean()
    # The dark level is a low quantile: another gate may be visible just inside the edge.
    low = smallest(profile[n // 2 :], n // DARK_SHARE)
    if high - low <= CONTRAST:
        return np.nan
    half = (high + low) / 2
    # The first fall from the frame inward: other bright objects inside the opening lie beyond it.
    for i in range(1, n):
        if profile[i] < half:
            return float(i - 1 + min(max((profile[i - 1] - half) / max(profile[i - 1] - profile[i], 1.0), 0.0), 1.0))
        if profile[0] < half:
            break
    return np.nan


@compiled("UniTuple(f8, 5)(f8[:], f8[:])")  # explicit, as Python calls it too: no compilation in flight
def robust_line(s: Array, d: Array) -> tuple[float, float, float, float, float]:
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
    slope, n = float(np.median(x[:n])) if n else 0.0, 0
    for i in range(P):
        if np.isfinite(d[i]):
            x[n], n = d[i] - slope * s[i], n + 1
    level = float(np.median(x[:n]))
    agree, s_sum, d_sum = 0, 0.0, 0.0
    for i in range(P):
        x[i] = abs(d[i] - level - slope * s[i]) < INLIER_PX  # False for NaN
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


@compiled("f8[:,:,:](u1[:,:], f8[:,:,:], f8[:,:,:], f8[:], f8[:], i8)")
def fit_sides(channel: Image, start: Array, outward: Array, reach: Array, s: Array, n: int) -> Array:
    """Fit lines to the edges near the sides of quads.

    Args:
        channel: (H, W) uint8.
        start: (Q, 4, 2) corners, px; side k runs from corner k to corner k + 1.
        outward: (Q, 4, 2) unit normals.
        reach: (Q,) px from a side to the ends of profiles across it, positive if the bright end lies outward.
        s: (P,) positions of the profiles along a side, -1/2 to 1/2.
        n: number of samples of a profile.

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
                    d[p] = reach[q] * (1 - 2 * half_height(profile) / (n - 1))
            line = robust_line(s, d)
            found[q, k, 0], found[q, k, 1], found[q, k, 2], found[q, k, 3], found[q, k, 4] = line
            found[q, k, 5] = inside
    return found


@compiled("f8[:,:,:,:](u1[:,:,:], f8[:,:,:,:])")
def count_red(image: Image, quads: Array) -> Array:
    """Return the numbers (2, Q, 4, S) of samples on the sides of quads (Q, S, 4, 2) px that lie in an image (H, W, 3) BGR, and of
    gate-coloured ones among them."""
    Q, S = quads.shape[:2]
    height, width = image.shape[:2]
    count = np.zeros((2, Q, 4, S))
    for q in range(Q):
        for scale in range(S):
            for k in range(4):
                u0, v0 = quads[q, scale, k, 0], quads[q, scale, k, 1]
                u1, v1 = quads[q, scale, (k + 1) % 4, 0], quads[q, scale, (k + 1) % 4, 1]
                for i in range(SIDE_SAMPLES):
                    t = i / (SIDE_SAMPLES - 1)
                    u, v = u0 + t * (u1 - u0), v0 + t * (v1 - v0)
                    if 0 <= u <= width - 1 and 0 <= v <= height - 1:
                        count[0, q, k, scale] += 1
                        red, green = sample(image[:, :, 2], u, v), sample(image[:, :, 1], u, v)
                        over = red - green
                        if red > FRAME_RED_MIN and over > FRAME_RED_OVER_GREEN_MIN:
                            yellow = green - sample(image[:, :, 0], u, v)
                            count[1, q, k, scale] += over > FRAME_RED_OVER_YELLOW * yellow
    return count


@compiled("f8[:,:](u1[:,:], i8, f8[:,:,:], f8[:,:,:], f8[:], f8[:], f8[:])")
def bar_widths(
    channel: Image, threshold: int, start: Array, outward: Array, about: Array, along: Array, across: Array
) -> Array:
    """Measure the widths (Q, 4) px of bright bars outward of the sides of quads; NaN where a bar's end is not visible.

    Args:
        channel: (H, W) uint8; bright means above the threshold.
        start, outward: (Q, 4, 2) corners and unit normals.
        about: (Q,) approximate widths of bars, px.
        along: (P,) positions of the profiles along a side, 0 to 1.
        across: (n,) positions of the samples on them, over `about`.
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
                if (np.abs(found[:known] - middle) < AGREE * middle).sum() >= FEWEST_WIDTHS:
                    widths[q, k] = middle
    return widths


@dataclass(frozen=True, slots=True)
class EdgePass:
    """One pass of profiles across the sides."""

    reach_px: float  # least half-length of a profile, px
    reach_ratio: float  # -, likewise over the frame's width: large candidates have larger errors in px
    profiles: int  # on each side


@dataclass(frozen=True, slots=True)
class EdgeSearch:
    """Where the edges of quadrilaterals are searched for."""

    passes: tuple[EdgePass, ...]
    reach_ratio_max: float  # -, greatest half-length over the frame's width: excludes the frame's other edge
    bright_inside: bool = False  # whether the image is bright inside the quadrilaterals instead of outside


# Tuned on rendered flights and real frames, except where a source is named. A coarse and a fine pass.
OPENING_EDGES = EdgeSearch(passes=(EdgePass(6.0, 0.34, 16), EdgePass(3.0, 0.0, 32)), reach_ratio_max=0.57)
# The silhouette's position changes with the viewing angle, so its single pass reaches farther.
SILHOUETTE_EDGES = EdgeSearch(passes=(EdgePass(6.0, 0.57, 32),), reach_ratio_max=0.8, bright_inside=True)
END_SHARE = 0.1  # -, share of a side left out at either end, blurred by the neighbouring edge
STEP_PX = 0.5  # px between samples of a profile: the sampling theorem for edges of one pixel
AGREE_SHARE = 0.25  # -, least share of inliers among a side's profiles, in the image or not
SUPPORT_MIN = 0.3  # -, least share of inliers among a side's profiles in the image
# px, standard deviation of the error common to all profiles of a side: blur, compression, the drawn edge itself. By the
# errors of rendered corners, whose median is 0.1 px, with a reserve for edges drawn differently.
FLOOR_PX = 0.15


class QuadEdges(NamedTuple):
    """Quadrilaterals (Q) with measured sides. Side k runs from corner k to corner k + 1."""

    corners_px: Array  # (Q, 4, 2)
    outward: Array  # (Q, 4, 2) unit normals of the sides
    ends_px: Array  # (Q, 4, 2) px, standard deviation of each line across itself, at its start and end
    measured: Mask  # (Q, 4) sides with a fitted line
    support: Array  # (Q, 4) share of the profiles in the image that agree with the line

    def select(self, which: Indices | Mask) -> "QuadEdges":
        ends_px, measured, support = self.ends_px[which], self.measured[which], self.support[which]
        return QuadEdges(self.corners_px[which], self.outward[which], ends_px, measured, support)

    @property
    def cov_px2(self) -> Array:
        """Covariances (Q, 4, 2, 2) px^2 of the corners."""
        return corner_covariance_px2(self.corners_px, self.measured, np.hypot(FLOOR_PX, self.ends_px))


def fit_edges(channel: Image, quads: Array, ratio: float, search: EdgeSearch, wide: bool = True) -> QuadEdges:
    """Fit the sides of quads (Q, 4, 2) in a one-channel image; a side with too few edges keeps its position.

    Args:
        ratio: silhouette over hole of the frames.
        wide: False to use the least reach, where lettering interrupts the frame.
    """
    for edge_pass in search.passes:
        edges = _fit_once(channel, quads, edge_pass, ratio, search, wide)
        quads = edges.corners_px
    return edges


def _fit_once(
    channel: Image, quads: Array, edge_pass: EdgePass, ratio: float, search: EdgeSearch, wide: bool
) -> QuadEdges:
    along = quads[:, NEXT] - quads
    side_px = np.maximum(np.sqrt((along * along).sum(-1)), 1.0)
    along = along / side_px[..., None]
    outward = np.stack([along[..., 1], -along[..., 0]], -1)
    # Half-lengths (Q,) px of the profiles by the frame's least width, positive if the bright end lies outward.
    width_px = area_px2(quads) / side_px.max(-1) * (ratio - 1) / 2 / (ratio if search.bright_inside else 1.0)
    least_px = np.maximum(edge_pass.reach_px, (edge_pass.reach_ratio if wide else 0.0) * width_px)
    reach_px = np.minimum(least_px, search.reach_ratio_max * width_px) * (-1 if search.bright_inside else 1)

    profiles, n = edge_pass.profiles, 2 * round(edge_pass.reach_px / STEP_PX) + 1
    s = np.linspace(END_SHARE - 0.5, 0.5 - END_SHARE, profiles)
    found = fit_sides(channel, quads, outward, reach_px, s, n)
    level, slope, ends_px, agree, inside = found[..., 0], found[..., 1], found[..., 2:4], found[..., 4], found[..., 5]
    start = quads + (level - slope * 0.5)[..., None] * outward
    end = start + side_px[..., None] * along + slope[..., None] * outward
    # Profiles on a short side share pixels, and their errors: count each pixel once.
    ends_px = ends_px * np.sqrt(np.maximum(profiles / ((1 - 2 * END_SHARE) * side_px), 1.0))[..., None]
    support = agree / np.maximum(inside, 1)
    measured = (agree >= int(AGREE_SHARE * profiles)) & (support > SUPPORT_MIN)
    return QuadEdges(intersect_lines(start, end - start), outward, ends_px, measured, support)


# Search and acceptance of lines.
FINE_PX = np.arange(-0.8, 0.81, 0.4)  # px, positions of the fine search about the coarse one
FLAT = 3.0  # -, standard deviations from a blurred step beyond which it is constant
RIDGE = 1e-3  # -, regularisation of the levels where the hole lies outside the profile
BLURS_PX = (0.5, 0.8, 1.2)  # from a pixel's own (derived) to strong JPEG and soft rendering
SEGMENTS = 8  # segments of a side, each with its own position
PROFILES = 4  # profiles per segment: their median rejects lettering
BEYOND_PX = 3.0  # px of a profile beyond the line's search range: the width of a blurred line
AGREE_MIN = 5  # least number of inlier segments
HEIGHT_MIN = 10.0  # grey levels, least height above the face: JPEG noise is under 5 (measured)
MISFIT_MOST = 0.4  # -, greatest rms residual of the template over the height
LINE_FLOOR_PX = 0.1  # px, standard deviation of the error common to all profiles of a side


class LineFits(NamedTuple):
    """Fitted lines (Q, 4), by their outward displacement from the expected position across the sides."""

    place_px: Array  # (Q, 4, 2) px, at the start and the end of each side
    sigma_px: Array  # (Q, 4, 2) px, standard deviations likewise
    measured: Mask  # (Q, 4) sides with an accepted line


def fit_lines(
    channel: Image, start: Array, outward: Array, reach_px: Array, width_px: Array, wall_px: Array, hole_px: Array
) -> LineFits:  # fmt: skip
    """Fit a line near each side of quads.

    Args:
        channel: (H, W) uint8, in which the lines are bright.
        start: (Q, 4, 2, 2) both ends of the sides, the expected centres of the lines, px.
        outward: (Q, 4, 2) unit normals.
        reach_px: (Q, 4) greatest displacement of a line.
        width_px: (Q, 4) width of the lines.
        wall_px: (Q, 4) width by which the line continues on the wall.
        hole_px: (Q, 4) position of the hole's edge, outward of the expected centre, so negative.
    """
    place, sigma = np.zeros((*reach_px.shape, 2)), np.ones((*reach_px.shape, 2))
    measured = np.zeros(reach_px.shape, bool)
    smooth = channel.astype(np.float32)
    for q, k in np.ndindex(*reach_px.shape):
        template = float(width_px[q, k]), float(wall_px[q, k]), float(hole_px[q, k])
        line = _fit_line(smooth, start[q, k], outward[q, k], float(reach_px[q, k]), template)
        if line is not None:
            level, slope, first, last, agree = line
            place[q, k] = level - slope / 2, level + slope / 2
            sigma[q, k] = np.hypot(LINE_FLOOR_PX, [first, last])
            measured[q, k] = agree >= AGREE_MIN
    return LineFits(place, sigma, measured)


def _fit_line(
    channel: Float32, ends: Array, outward: Array, reach_px: float, template: tuple[float, float, float]
) -> tuple[float, float, float, float, float] | None:
    """Return the result of `robust_line` for the line along one side with ends (2, 2) px; None if there is no line."""
    s = np.linspace(END_SHARE - 0.5, 0.5 - END_SHARE, SEGMENTS * PROFILES)
    x = np.arange(-reach_px - BEYOND_PX, reach_px + BEYOND_PX, STEP_PX)
    feet = ends[0] + (s[:, None] + 0.5) * (ends[1] - ends[0])
    profiles, known = _sampled(channel, feet, outward, x)
    if known.sum() < len(s) // 2:
        return None
    whole = np.median(profiles[known], 0)
    coarse_px = np.arange(-reach_px, reach_px + STEP_PX / 2, STEP_PX)
    about, *_ = _best_line(whole, x, coarse_px, BLURS_PX[len(BLURS_PX) // 2], *template)
    fits = [(_best_line(whole, x, about + FINE_PX, blur, *template), blur) for blur in BLURS_PX]
    (about, misfit, height), blur = min(fits, key=lambda fit: fit[0][1])
    if height < HEIGHT_MIN or misfit > MISFIT_MOST * height:
        return None
    parts = np.median(profiles.reshape(SEGMENTS, -1, len(x)), 1)
    places = _places(parts, x, about + FINE_PX, blur, *template)
    places[~known.reshape(SEGMENTS, -1).all(-1)] = np.nan
    return robust_line(s.reshape(SEGMENTS, -1).mean(-1), places)


def _sampled(channel: Float32, feet: Array, outward: Array, x: Array) -> tuple[Array, Mask]:
    """Return profiles (P, n) at x (n,) outward of feet (P, 2), and a mask of those within the image."""
    px = (feet[:, None] + x[:, None] * outward).astype(np.float32)
    limit = np.array([channel.shape[1], channel.shape[0]]) - 1
    known = ((px >= 0) & (px <= limit)).all((-1, -2))
    profiles = cv2.remap(channel, px[..., 0], px[..., 1], cv2.INTER_LINEAR)
    return np.asarray(profiles, float), np.asarray(known)


@compiled()
def _step(x: float, sigma: float) -> float:
    """Return a step from 0 to 1 at x = 0, blurred by a Gaussian."""
    z = x / sigma
    if z < -FLAT:
        return 0.0
    return 1.0 if z > FLAT else 0.5 * (1 + math.erf(z / math.sqrt(2.0)))


@compiled()
def _misfit(
    profile: Array, x: Array, x0: float, sigma: float, width: float, wall: float, hole: float
) -> tuple[float, float]:
    """Return the rms residual of a profile at x (n,) for a line at x0, and the line's greatest height.

    Face 1, line c and hole d have separate levels, by least squares about the means.
    """
    n, inner = len(x), x0 - width / 2 - wall
    outer, rear = x0 + width / 2, min(hole + wall, inner)  # the line at the far end of the wall ends there
    c_sum = d_sum = p_sum = cc = cd = dd = cp = dp = pp = greatest = 0.0
    for i in range(n):
        line, end = _step(x[i] - inner, sigma) - _step(x[i] - outer, sigma), _step(x[i] - hole, sigma)
        c, d, p = line + max(end - _step(x[i] - rear, sigma), 0.0), 1 - end, profile[i]
        greatest = max(greatest, line)
        c_sum, d_sum, p_sum = c_sum + c, d_sum + d, p_sum + p
        cc, cd, dd, cp, dp, pp = cc + c * c, cd + c * d, dd + d * d, cp + c * p, dp + d * p, pp + p * p
    cc, cd, dd = cc - c_sum**2 / n + RIDGE, cd - c_sum * d_sum / n, dd - d_sum**2 / n + RIDGE
    cp, dp, pp = cp - c_sum * p_sum / n, dp - d_sum * p_sum / n, pp - p_sum**2 / n
    det = cc * dd - cd * cd
    level, depth = (cp * dd - dp * cd) / det, (dp * cc - cp * cd) / det
    return math.sqrt(max(pp - level * cp - depth * dp, 0.0) / n), level * greatest


@compiled("UniTuple(f8, 3)(f8[:], f8[:], f8[:], f8, f8, f8, f8)")
def _best_line(
    profile: Array, x: Array, at: Array, sigma: float, width: float, wall: float, hole: float
) -> tuple[float, float, float]:
    """Return the best-fitting of evenly spaced positions `at`, refined to a fraction of their spacing; misfit and height."""
    misfit, height = np.empty(len(at)), np.empty(len(at))
    for i in range(len(at)):
        misfit[i], height[i] = _misfit(profile, x, at[i], sigma, width, wall, hole)
    i = int(misfit.argmin())
    place = at[i]
    if 0 < i < len(at) - 1:
        a, b, c = misfit[i - 1] ** 2, misfit[i] ** 2, misfit[i + 1] ** 2
        place += (at[1] - at[0]) * 0.5 * (a - c) / max(a - 2 * b + c, 1e-9)
    return place, misfit[i], height[i]


@compiled("f8[:](f8[:,:], f8[:], f8[:], f8, f8, f8, f8)")
def _places(profiles: Array, x: Array, at: Array, sigma: float, width: float, wall: float, hole: float) -> Array:
    """Return the best-fitting positions (P,) for profiles (P, n), likewise."""
    places = np.empty(len(profiles))
    for p in range(len(profiles)):
        places[p] = _best_line(profiles[p], x, at, sigma, width, wall, hole)[0]
    return places
