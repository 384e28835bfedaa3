"""From maps to gates: peaks of the corners' heat maps, joined along the part-affinity fields of the edges.

Fields: Cao et al., "Realtime multi-person 2D pose estimation using part affinity fields" (2017); for gates: Foehn et al.,
"AlphaPilot" (2020). Map k < 4 shows corner k (top-left, top-right, bottom-right, bottom-left as seen), maps 4 + 2k and
5 + 2k the unit vector along the edge from corner k to the next. Positions are in pixels of the maps unless their name ends
in px.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from scipy.optimize import linear_sum_assignment

from vehicle.rotation import Array

CORNERS, FIELDS = 4, 8  # maps
STRIDE = 2  # picture pixels per pixel of the maps
PEAK_MIN = 0.12  # probability that a peak must have; near 45 deg of roll two names share one corner
ABOVE = 1.2  # times the mean of the 5 x 5 around it: plains have no peaks
PEAKS = 48  # of one map at most, the highest
ALONG = 10  # samples of a field between two corners
ALIGNED = 0.5  # mean share of the field that must point along an edge
HOLDS = 0.7  # least share of the samples that point at least half along it
EPS = 1e-4  # below any probability that counts


@dataclass(frozen=True, slots=True)
class Found:
    """One gate with two to four corners; NaN where a corner was not found."""

    at: Array  # (4, 2) map pixels
    height: Array  # (4,) of the peaks, 0 where there is none
    score: float  # 0..1, mean of its peaks and edges over the four that a whole gate has


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
    """All gates of two corners or more in maps (12, h, w), best first."""
    peaks = [_peaks(heat) for heat in maps[:CORNERS]]
    edges = []
    for k in range(CORNERS):
        field = maps[CORNERS + 2 * k : CORNERS + 2 * k + 2]
        edges += [
            (score, (k, i), ((k + 1) % 4, j)) for score, i, j in _edges(field, peaks[k].at, peaks[(k + 1) % 4].at)
        ]
    found = []
    for corners, strength in _joined(edges):
        at, height = np.full((4, 2), np.nan), np.zeros(4)
        for k, i in corners:
            at[k], height[k] = peaks[k].at[i], peaks[k].height[i]
        found.append(Found(at, height, float(height.sum() + strength) / 8))
    return sorted(found, key=lambda gate: -gate.score)


def _peaks(heat: np.ndarray) -> Peaks:
    """Local maxima of a heat map (h, w), to a fraction of a pixel."""
    top = (heat > PEAK_MIN) & (heat >= cv2.dilate(heat, np.ones((3, 3), np.uint8))) & (heat > ABOVE * cv2.blur(heat, (5, 5)))
    v, u = np.nonzero(top)
    order = np.argsort(-heat[v, u])[:PEAKS]
    u, v = u[order], v[order]
    log = np.log(np.pad(heat, 1, "edge") + EPS)  # a Gaussian's logarithm is a parabola
    centre = log[v + 1, u + 1]
    offset = []
    for before, after in ((log[v + 1, u], log[v + 1, u + 2]), (log[v, u + 1], log[v + 2, u + 1])):
        bend = np.maximum(2 * centre - before - after, 1e-3)
        offset.append(np.clip((after - before) / (2 * bend), -0.5, 0.5))
    return Peaks(np.stack([u + offset[0], v + offset[1]], -1), heat[v, u].astype(float))


def _edges(field: np.ndarray, a: Array, b: Array) -> list[tuple[float, int, int]]:
    """The best one-to-one pairs (score, i, j) of ends a (P, 2) and b (Q, 2) by the line integral of a field (2, h, w)."""
    if not len(a) or not len(b):
        return []
    way = b - a[:, None]
    length = np.linalg.norm(way, axis=-1, keepdims=True)
    s = (np.arange(ALONG) + 0.5) / ALONG
    at = a[:, None, None] + s[:, None] * way[:, :, None]  # (P, Q, ALONG, 2)
    u, v = np.round(at).astype(int).reshape(-1, 2).T
    sampled = field[:, np.clip(v, 0, field.shape[1] - 1), np.clip(u, 0, field.shape[2] - 1)].reshape(2, *at.shape[:3])
    along = (sampled * (way / np.maximum(length, 1e-6)).transpose(2, 0, 1)[..., None]).sum(0)  # (P, Q, ALONG)
    score = np.clip(along, 0.0, 1.0).mean(-1)
    good = (score > ALIGNED) & ((along > 0.5).mean(-1) >= HOLDS) & (length[..., 0] > 1.0)
    rows, columns = linear_sum_assignment(np.where(good, -score, 0.0))
    return [(float(score[i, j]), int(i), int(j)) for i, j in zip(rows, columns, strict=True) if good[i, j]]


Corner = tuple[int, int]  # which corner of a gate, and the number of its peak


def _joined(edges: list[tuple[float, Corner, Corner]]) -> list[tuple[set[Corner], float]]:
    """Gates as sets of corners, no two of one kind, joined by edges, the strongest first; each with its edges' sum."""
    groups: list[tuple[set[Corner], float]] = []
    for score, a, b in sorted(edges, reverse=True):
        with_a = next((g for g in groups if a in g[0]), ({a}, 0.0))
        with_b = next((g for g in groups if b in g[0]), ({b}, 0.0))
        union = with_a[0] | with_b[0]
        if len({kind for kind, _ in union}) < len(union):
            continue
        strength = with_a[1] + score + (with_b[1] if with_b[0] != with_a[0] else 0.0)
        groups = [g for g in groups if g[0] != with_a[0] and g[0] != with_b[0]] + [(union, strength)]
    return groups
