"""Thin bright lines along the sides of quadrilaterals, fitted by a template that models their surroundings.

Blur displaces the edges of a line that is about as wide as the blur, but not its centre. The template is a line between a face, a
wall behind it and the hole at the wall's end, blurred by a Gaussian; the levels follow by least squares (a matched filter),
position and blur by search.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from gate_racer.perception.common.sampling import robust_line
from gate_racer.perception.common.types import Float32, Image, compiled
from gate_racer.vehicle.rotation import Array, Mask

STEP_PX = 0.5  # px, step of the coarse search and of samples: the sampling theorem for edges of one pixel
FINE_PX = np.arange(-0.8, 0.81, 0.4)  # px, positions of the fine search about the coarse one
FLAT = 3.0  # -, standard deviations from a blurred step beyond which it is constant
RIDGE = 1e-3  # -, regularisation of the levels where the hole lies outside the profile


@dataclass(frozen=True, slots=True)
class LineFitConfig:
    """Parameters of line search and acceptance."""

    blurs_px: tuple[float, ...] = (0.5, 0.8, 1.2)  # from a pixel's own (derived) to strong JPEG and soft rendering
    segments: int = 8  # segments of a side, each with its own position
    profiles: int = 4  # profiles per segment: their median rejects lettering
    end_share: float = 0.1  # -, share of a side left out at either end
    beyond_px: float = 3.0  # px of a profile beyond the line's search range: the width of a blurred line
    inlier_px: float = 0.8  # px, greatest distance of an inlier from the straight line
    agree_min: int = 5  # least number of inlier segments
    height: float = 10.0  # grey levels, least height above the face: JPEG noise is under 5 (measured)
    misfit: float = 0.4  # -, greatest rms residual of the template over the height
    floor_px: float = 0.1  # px, standard deviation of the error common to all profiles of a side


class LineFits(NamedTuple):
    """Fitted lines (Q, 4), by their outward displacement from the expected position across the sides."""

    place_px: Array  # (Q, 4, 2) px, at the start and the end of each side
    sigma_px: Array  # (Q, 4, 2) px, standard deviations likewise
    measured: Mask  # (Q, 4) sides with an accepted line


def fit_lines(
    channel: Image, start: Array, outward: Array, reach_px: Array, width_px: Array, wall_px: Array, hole_px: Array,
    config: LineFitConfig,
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
        line = _fit_line(smooth, start[q, k], outward[q, k], float(reach_px[q, k]), template, config)
        if line is not None:
            level, slope, first, last, agree = line
            place[q, k] = level - slope / 2, level + slope / 2
            sigma[q, k] = np.hypot(config.floor_px, [first, last])
            measured[q, k] = agree >= config.agree_min
    return LineFits(place, sigma, measured)


def _fit_line(
    channel: Float32,
    ends: Array,
    outward: Array,
    reach_px: float,
    template: tuple[float, float, float],
    config: LineFitConfig,
) -> tuple[float, float, float, float, float] | None:
    """Return the result of `robust_line` for the line along one side with ends (2, 2) px; None if there is no line."""
    s = np.linspace(config.end_share - 0.5, 0.5 - config.end_share, config.segments * config.profiles)
    x = np.arange(-reach_px - config.beyond_px, reach_px + config.beyond_px, STEP_PX)
    feet = ends[0] + (s[:, None] + 0.5) * (ends[1] - ends[0])
    profiles, known = _sampled(channel, feet, outward, x)
    if known.sum() < len(s) // 2:
        return None
    whole = np.median(profiles[known], 0)
    coarse_px = np.arange(-reach_px, reach_px + STEP_PX / 2, STEP_PX)
    about, *_ = _best_line(whole, x, coarse_px, config.blurs_px[len(config.blurs_px) // 2], *template)
    fits = [(_best_line(whole, x, about + FINE_PX, blur, *template), blur) for blur in config.blurs_px]
    (about, misfit, height), blur = min(fits, key=lambda fit: fit[0][1])
    if height < config.height or misfit > config.misfit * height:
        return None
    parts = np.median(profiles.reshape(config.segments, -1, len(x)), 1)
    places = _places(parts, x, about + FINE_PX, blur, *template)
    places[~known.reshape(config.segments, -1).all(-1)] = np.nan
    return robust_line(s.reshape(config.segments, -1).mean(-1), places, config.inlier_px)


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
