"""Sub-pixel refinement of the edges of bright-framed quadrilaterals, many at a time.

Across each edge the picture is sampled on short profiles; each gives the place where the brightness passes half-way
between its own two sides, which a symmetric blur does not move. A robust line through these places replaces the edge,
and neighbouring lines meet in the corners.

Quadrilaterals run clockwise in the picture (as seen, v down), so that the outward normal of an edge (du, dv) is (dv, -du).
"""

from typing import NamedTuple

import cv2
import numpy as np

from perception.candidates import OUTER
from perception.detection import AFTER, BEFORE, crossings_cov_px
from vehicle.rotation import Array

END = 0.1  # share of an edge left out at either end, where the neighbouring edge blurs into the profile
STEP_PX = 0.5  # between the samples of a profile
# Pass by pass: half-length of the profiles, at least so many px and so great a share of the quad's width, as large candidates
# are off by more; and how many there are on each edge. Where the frame's outer edge stands changes with the slant.
PASSES = {False: ((6.0, 0.15, 16), (3.0, 0.0, 32)), True: ((6.0, 0.25, 32),)}
# ... and at most this share of the least width: the frame is 0.4 of the opening wide
REACH_WIDTH = {False: 0.25, True: 0.35}
CONTRAST = 50.0  # grey levels between the two sides of a profile that count as an edge
INLIER_PX = 0.8  # from the line; a staircase of whole pixels stays within 0.5
SUPPORT = 0.3  # least share of a side's profiles that lie on its line
FLOOR_PX = 0.15  # std of what all profiles of a side have in common: blur, compression, the drawn edge itself
QUANTISATION_PX = 1 / np.sqrt(12.0)  # std of an edge whose pixels are either in or out


class Edges(NamedTuple):
    """Refined quadrilaterals (Q). Side k runs from corner k to corner k + 1."""

    corners_px: Array  # (Q, 4, 2)
    outward: Array  # (Q, 4, 2) normals of the sides
    ends_px: Array  # (Q, 4, 2) std of each line across itself, at its start and end
    measured: np.ndarray  # (Q, 4) bool: the line was seen
    support: Array  # (Q, 4) share of the profiles in the picture that agree with the line

    def cov_px(self) -> Array:
        """(Q, 4, 2, 2) of each corner."""
        return crossings_cov_px(self.corners_px, self.measured, np.hypot(FLOOR_PX, self.ends_px))


def refine(image: np.ndarray, corners_px: Array, bright_inside: bool = False, wide: bool = True) -> Edges:
    """Fits the sides of quads (Q, 4, 2) in a one-channel uint8 picture that is bright outside each quad, or inside.

    A side with too little to see keeps its place. Where lettering spoils the frame the search must not be wide.
    """
    for least_px, share, profiles in PASSES[bright_inside]:
        edges = _refine_once(image, corners_px, least_px, share if wide else 0.0, bright_inside, profiles)
        corners_px = edges.corners_px
    return edges


def _refine_once(
    image: np.ndarray, corners_px: Array, reach_px: float, share: float, bright_inside: bool, profiles: int
) -> Edges:
    along = corners_px[:, AFTER] - corners_px
    side_px = np.maximum(np.sqrt((along * along).sum(-1)), 1.0)
    along = along / side_px[..., None]
    outward = np.stack([along[..., 1], -along[..., 0]], -1)

    diagonal = corners_px[:, 2:] - corners_px[:, :2]
    area = np.abs(diagonal[:, 0, 0] * diagonal[:, 1, 1] - diagonal[:, 0, 1] * diagonal[:, 1, 0]) / 2
    width_px = area / side_px.max(-1) / (OUTER if bright_inside else 1.0)
    reach = np.minimum(np.maximum(reach_px, share * width_px), REACH_WIDTH[bright_inside] * width_px)[:, None]
    if bright_inside:
        reach = -reach
    n = 2 * round(reach_px / STEP_PX) + 1
    s = np.linspace(END, 1 - END, profiles)
    foot = corners_px[..., None, :] + (s[:, None] * side_px[..., None, None]) * along[..., None, :]  # (Q, 4, P, 2)
    arm = (reach[..., None] * outward)[..., None, :]
    # From the frame into the dark. Sampling takes most of the time: single precision is enough for it.
    t = np.linspace(1.0, -1.0, n, dtype=np.float32)[:, None]
    grid = foot.astype(np.float32)[..., None, :] + t * arm.astype(np.float32)[..., None, :]  # (Q, 4, P, n, 2)
    profile = cv2.remap(image, grid.reshape(-1, n, 2), None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    found = _crossing(profile.reshape(grid.shape[:-1]))
    limit = np.array([image.shape[1], image.shape[0]]) - 1
    far, width = foot - limit / 2, limit / 2 - np.abs(arm)
    inside = (np.abs(far) <= width).all(-1)  # (Q, 4, P) with both ends
    d = np.where(inside, reach[..., None] * (1 - 2 * found / (n - 1)), np.nan)  # px outward, NaN where there is no edge

    level, slope, ends_px, agree = _line(s, d)
    start = corners_px + (level - slope * 0.5)[..., None] * outward
    end = start + side_px[..., None] * along + slope[..., None] * outward
    support = agree / np.maximum(inside.sum(-1), 1)
    measured = (agree >= profiles // 4) & (support > SUPPORT)
    return Edges(meet(start, end - start), outward, ends_px, measured, support)


def _crossing(profile: np.ndarray) -> Array:
    """Index (...) at which profiles (..., n) uint8, bright at first, fall through half height; NaN if they do not."""
    n = profile.shape[-1]
    # The dark side is the darker part: another gate may shine just inside the edge.
    high = profile[..., : n // 4].mean(-1, dtype=np.float32)
    low = np.partition(profile[..., n // 2 :], n // 8, -1)[..., n // 8]
    half = ((high + low) / 2)[..., None]
    below = profile < half
    # The first fall, seen from the frame: what else shines inside the opening lies beyond it.
    i = np.maximum(below.argmax(-1), 1)[..., None]
    before, after = (np.take_along_axis(profile, k, -1).astype(np.float32) for k in (i - 1, i))
    fraction = (before - half) / np.maximum(before - after, 1.0)
    at = (i - 1 + np.minimum(np.maximum(fraction, 0.0), 1.0))[..., 0]
    falls = (high - low > CONTRAST) & np.take_along_axis(below, i, -1)[..., 0]
    return np.where(falls, at, np.nan)


def _line(s: Array, d: Array) -> tuple[Array, Array, Array, Array]:
    """Robust lines d = level + slope (s - 1/2) through points s (P,), d (..., P), of which some are NaN.

    The median of slopes over half the line (Siegel, Theil and Sen took more) finds the points that agree, least squares
    uses them.

    Returns:
        level (px), slope (px), std (px) at either end (..., 2), and how many points agree, each (...).
    """
    s = s - 0.5
    known = np.isfinite(d)
    enough = known.sum(-1) >= len(s) // 4
    d = np.where(enough[..., None], d, 0.0)
    half = len(s) // 2  # close pairs say nothing about the slope
    slopes = (d[..., half:] - d[..., :half]) / (s[half:] - s[:half])
    slope = _median(slopes)
    level = _median(d - slope[..., None] * s)
    agrees = np.abs(d - level[..., None] - slope[..., None] * s) < INLIER_PX  # NaN does not

    w, d = agrees.astype(float), np.where(agrees, d, 0.0)
    sw = np.maximum(w.sum(-1), 1.0)
    s_mean, d_mean = w @ s / sw, d.sum(-1) / sw
    ds = (s - s_mean[..., None]) * w
    sxx = np.maximum((ds * ds).sum(-1), 1e-6)
    slope = (ds * d).sum(-1) / sxx
    level = d_mean - slope * s_mean
    residual = w * (d - level[..., None] - slope[..., None] * s)
    spread = np.maximum(np.sqrt((residual**2).sum(-1) / sw), QUANTISATION_PX)
    arm = np.array([-0.5, 0.5]) - s_mean[..., None]
    ends_px = spread[..., None] * np.sqrt(1 / sw[..., None] + arm**2 / sxx[..., None])
    return level, slope, ends_px, np.where(enough, w.sum(-1), 0.0)


def _median(x: Array) -> Array:
    """The median over the last axis without regard to NaN; 0 where all are NaN."""
    x = np.sort(x, -1)  # NaN last
    last = np.isfinite(x).sum(-1) - 1
    middle = np.stack([np.maximum(last, 0) // 2, (np.maximum(last, 0) + 1) // 2], -1)
    return np.nan_to_num(np.take_along_axis(x, middle, -1).mean(-1))


def meet(point: Array, direction: Array) -> Array:
    """Where line k - 1 meets line k: points (Q, 4, 2) on and directions of the four lines."""
    p, u = point[:, BEFORE], direction[:, BEFORE]
    cross = u[..., 0] * direction[..., 1] - u[..., 1] * direction[..., 0]
    gap = point - p
    t = gap[..., 0] * direction[..., 1] - gap[..., 1] * direction[..., 0]
    parallel = np.abs(cross) < 1e-9
    return np.where(parallel[..., None], point, p + (t / np.where(parallel, 1.0, cross))[..., None] * u)
