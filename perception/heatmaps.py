"""From maps to gates: peaks of the corners' heat maps, joined along the part-affinity fields of the edges.

Fields: Cao et al., "Realtime multi-person 2D pose estimation using part affinity fields" (2017); for gates: Foehn et al.,
"AlphaPilot" (2020). Map k < 4 holds the log-odds of corner k (top-left, top-right, bottom-right, bottom-left as seen),
maps 4 + 2k and 5 + 2k the unit vector along the edge from corner k to the next. Positions are in pixels of the maps unless
their name ends in px.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from vehicle.rotation import Array

CORNERS, FIELDS = 4, 8  # maps
STRIDE = 2  # picture pixels per pixel of the maps
PEAK_MIN = 0.12  # probability that a peak must have; near 45 deg of roll two names share one corner
ABOVE = 1.1  # times the mean of the 3 x 3 around it: plains have no peaks
CROWD = 20_000  # map pixels above PEAK_MIN: no picture of a course has so many
STEP = np.array([-1, 0, 1])
PEAKS = 48  # of one map at most, the highest
GHOST = 0.3  # of one corner's height: a lower peak at the other end of an edge is the ghost of a corner of another name
SHORTEST = 2.0  # map pixels between two corners
ALONG = 10  # samples of a field between two corners
ALIGNED = 0.5  # mean share of the field that must point along an edge
HOLDS = 0.7  # least share of the samples that point at least half along it
EPS = 1e-4  # below any probability that counts


@dataclass(frozen=True, slots=True)
class Found:
    """One gate with two to four corners; NaN where a corner was not found."""

    at: Array  # (4, 2) map pixels
    height: Array  # (4,) of the peaks, 0 where there is none
    score: float  # 0..1, mean height of its peaks and alignment of its edges


@dataclass(frozen=True, slots=True)
class Peaks:
    """The peaks of one heat map."""

    at: Array  # (P, 2)
    height: Array  # (P,)


def to_picture(at: Array) -> Array:
    """Map to picture pixels: map pixel i covers picture pixels 2 i and 2 i + 1, so its centre is 2 i + 0.5."""
    return STRIDE * at + (STRIDE - 1) / 2


def to_map(px: Array) -> Array:
    """Picture to map pixels."""
    return (px - (STRIDE - 1) / 2) / STRIDE


def gates(maps: np.ndarray) -> list[Found]:
    """All gates of two corners or more in maps (12, h, w), those with most to show first."""
    peaks = [_peaks(heat) for heat in maps[:CORNERS]]
    edges = []
    for k in range(CORNERS):
        field = maps[CORNERS + 2 * k : CORNERS + 2 * k + 2]
        pairs = _edges(field, peaks[k], peaks[(k + 1) % 4])
        edges += [(value, aligned, (k, i), ((k + 1) % 4, j)) for value, aligned, i, j in pairs]
    found = []
    for corners, aligned in _joined(edges):
        at, height = np.full((4, 2), np.nan), np.zeros(4)
        for k, i in corners:
            at[k], height[k] = peaks[k].at[i], peaks[k].height[i]
        total = float(height.sum() + sum(aligned))
        found.append((total, Found(at, height, total / (len(corners) + len(aligned)))))
    return [gate for _, gate in sorted(found, key=lambda pair: -pair[0])]


def _peaks(log_odds: np.ndarray) -> Peaks:
    """Local maxima of a heat map's log-odds (h, w), to a fraction of a pixel."""
    v, u = np.nonzero(log_odds > np.log(PEAK_MIN / (1 - PEAK_MIN)))
    if len(v) > CROWD:
        return Peaks(np.empty((0, 2)), np.empty(0))
    h, w = log_odds.shape
    near = log_odds[np.clip(v[:, None, None] + STEP[:, None], 0, h - 1), np.clip(u[:, None, None] + STEP, 0, w - 1)]
    heat = 1 / (1 + np.exp(-near.astype(float)))  # (n, 3, 3) about each
    inside = (u > 0) & (u < w - 1) & (v > 0) & (v < h - 1)  # at the border nobody knows whether it is a corner or a cut
    top = inside & (heat[:, 1, 1] >= heat.max((1, 2))) & (heat[:, 1, 1] > ABOVE * heat.mean((1, 2)))
    u, v, heat = u[top], v[top], heat[top]
    order = np.argsort(-heat[:, 1, 1])[:PEAKS]
    u, v, heat = u[order], v[order], heat[order]
    log = np.log(heat + EPS)  # a Gaussian's logarithm is a parabola
    centre, offset = log[:, 1, 1], []
    for before, after in ((log[:, 1, 0], log[:, 1, 2]), (log[:, 0, 1], log[:, 2, 1])):
        bend = np.maximum(2 * centre - before - after, 1e-3)
        offset.append(np.clip((after - before) / (2 * bend), -0.5, 0.5))
    return Peaks(np.stack([u + offset[0], v + offset[1]], -1), heat[:, 1, 1])


def _edges(field: np.ndarray, starts: Peaks, ends: Peaks) -> list[tuple[float, float, int, int]]:
    """The best one-to-one pairs (value, aligned, i, j) of starts and ends by the line integral of a field (2, h, w).

    `aligned` is the share of the field that points from i to j; the value counts the heights of the peaks as well, so that
    a false peak on the way does not take the place of a corner.
    """
    a, b = starts.at, ends.at
    if not len(a) or not len(b):
        return []
    way = b - a[:, None]
    length = np.linalg.norm(way, axis=-1, keepdims=True)
    s = (np.arange(ALONG) + 0.5) / ALONG
    at = a[:, None, None] + s[:, None] * way[:, :, None]  # (P, Q, ALONG, 2)
    u, v = np.round(at).astype(int).reshape(-1, 2).T
    sampled = field[:, np.clip(v, 0, field.shape[1] - 1), np.clip(u, 0, field.shape[2] - 1)].reshape(2, *at.shape[:3])
    along = (sampled * (way / np.maximum(length, 1e-6)).transpose(2, 0, 1)[..., None]).sum(0)  # (P, Q, ALONG)
    aligned = np.clip(along, 0.0, 1.0).mean(-1)
    value = aligned * starts.height[:, None] * ends.height
    alike = np.minimum(starts.height[:, None], ends.height) > GHOST * np.maximum(starts.height[:, None], ends.height)
    good = alike & (aligned > ALIGNED) & ((along > 0.5).mean(-1) >= HOLDS) & (length[..., 0] > SHORTEST)
    rows, columns = linear_sum_assignment(np.where(good, -value, 0.0))
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(float(value[i, j]), float(aligned[i, j]), i, j) for i, j in pairs if good[i, j]]


Corner = tuple[int, int]  # which corner of a gate, and the number of its peak


def _joined(edges: list[tuple[float, float, Corner, Corner]]) -> list[tuple[set[Corner], list[float]]]:
    """Gates as sets of corners, no two of one kind, joined by the edges of most value first; and how aligned these are."""
    groups: list[tuple[set[Corner], list[float]]] = []
    for _, aligned, a, b in sorted(edges, reverse=True):
        with_a: tuple[set[Corner], list[float]] = next((g for g in groups if a in g[0]), ({a}, []))
        with_b: tuple[set[Corner], list[float]] = next((g for g in groups if b in g[0]), ({b}, []))
        union = with_a[0] | with_b[0]
        if len({kind for kind, _ in union}) < len(union):
            continue
        both = [*with_a[1], aligned, *(with_b[1] if with_b[0] != with_a[0] else [])]
        groups = [g for g in groups if g[0] != with_a[0] and g[0] != with_b[0]] + [(union, both)]
    return groups
