"""The network's maps of corners and edges at half the image's resolution, and the quadrilaterals that their peaks propose.

Map k < 4 holds the log-odds of corner k (top-left, top-right, bottom-right, bottom-left as seen), maps 4 + 2k and 5 + 2k the
unit vector along the edge from corner k to the next. Its training is described in `gate_net.yaml`. Peaks of the corners' maps
are grouped along the part-affinity fields of the edges: Cao et al., "Realtime multi-person 2D pose estimation using part
affinity fields" (2017); for gates: Foehn et al., "AlphaPilot" (2020). Positions are in pixels of the maps.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np

from gate_racer.common.compiled import Float32, Image
from gate_racer.common.config import load
from gate_racer.common.errors import UserError
from gate_racer.model.quadrilateral import NEXT
from gate_racer.perception.networks import PART, STRIDE, OnnxNetwork, peak_offset, probability
from gate_racer.perception.sampling import PixelBox
from gate_racer.vehicle.rotation import Array

NET = Path(__file__).parent / "gate_net.onnx"
CARD = NET.with_suffix(".yaml")
CORNERS, FIELDS = 4, 8  # numbers of maps


@dataclass(frozen=True, slots=True)
class NetworkCard:
    """Provenance and calibration of the network's file."""

    source: str  # origin of the weights
    command: str  # command of the training
    peak: tuple[float, ...]  # heights of a corner's peak, increasing, and
    sigma_px: tuple[float, ...]  # ... standard deviation of a coordinate of its position, from held-out frames
    score: float  # least score of a group to be measured in the image
    sure: float  # least score of a whole gate, times the measured share of its sides
    sure_part: float  # likewise of a partly visible one

    def __post_init__(self) -> None:
        if len(self.peak) != len(self.sigma_px) or list(self.peak) != sorted(set(self.peak)) or min(self.sigma_px) <= 0:
            raise ValueError("peak must increase, sigma_px must be positive, and both must have the same length")


class GateNetwork:
    """Shipped network, for images (H, W, 3) of one size."""

    def __init__(self, shape: tuple[int, int, int]):
        """Load the network and its card.

        Raises:
            UserError: the network's file is missing or has the wrong outputs.
        """
        self.card = load(CARD, NetworkCard)
        self._net = OnnxNetwork(NET, "cannot be loaded", shape=shape)
        found = len(self.maps(np.zeros(shape, np.uint8)))
        if found != CORNERS + FIELDS:
            raise UserError(f"{NET}: has {found} output maps, must have {CORNERS + FIELDS}")

    def maps(self, image: Image) -> Float32:
        """Return the maps (12, H / 2, W / 2) of an image (H, W, 3) BGR."""
        return self._net.maps(image)[0][:, : image.shape[0] // STRIDE, : image.shape[1] // STRIDE]


def padded(box: PixelBox, width: int, height: int) -> PixelBox:
    """Return the part of an image that contains a box, enlarged to the sizes to which the network pads anyway."""
    parts = []
    for start, size, most in ((box.u, box.width, width), (box.v, box.height, height)):
        length = min(-(-size // (STRIDE * PART)) * STRIDE * PART, most)
        middle = start + size // 2 - length // 2
        parts.append((min(max(middle, 0), most - length) // STRIDE * STRIDE, length))
    (u, w), (v, h) = parts
    return PixelBox(u, v, w, h)


STEP = np.array([-1, 0, 1])  # offsets to the neighbours of a pixel
# Grouping of corners from the maps. Lengths in map pixels. Tuned, except where a source is named.
PEAK_MIN = 0.12  # least probability of a peak; near 45 deg of roll two maps share one corner
APART = 2.5  # least distance between peaks: a Gaussian of the training targets has one (derived)
ABOVE_MEAN = 1.1  # -, least ratio of a peak to the mean of its 3 x 3 neighbourhood: a plateau has no peak
CROWD_MOST = 20_000  # greatest number of pixels above `PEAK_MIN`: more than any image of a course, bounds the cost
PEAKS_MOST = 48  # greatest number of peaks, the highest
EDGE_MIN = 2.0  # least distance between two corners
LONE_EDGE_MIN = 10.0  # ... of a group of two
SAMPLES = 10  # samples of a field between two corners
ALIGNED_MIN = 0.5  # -, least mean component of the field along an edge
ALIGNED_SURE = 0.95  # -, mean component of an unambiguous edge
ALIGNED_SHARE = 0.7  # -, least share of samples with a component above one half
BEND_MIN = 0.3  # -, least sine of the angle between two edges
WAYS_MOST = 3  # greatest number of edges from a corner, the likeliest
GROUPS_MOST = 30  # greatest number of groups, the best supported


@dataclass(frozen=True, slots=True)
class CornerGroup:
    """Candidate gate of two to four corners; NaN for a corner that was not found."""

    at: Array  # (4, 2) map pixels
    height: Array  # (4,) of the peaks, 0 where there is none
    score: float  # 0..1, mean over the heights of its peaks and the alignments of its edges


@dataclass(frozen=True, slots=True)
class CornerPeaks:
    """Peaks of the sum of the heat maps."""

    at: Array  # (P, 2) map pixels
    height: Array  # (P,) probability
    named: Array  # (P, 4) probability in each heat map


def group_corners(maps: Float32) -> list[CornerGroup]:
    """Return candidate gates of two corners or more in maps (12, h, w), the best supported first.

    Candidates may share corners; `measure` and `verify` decide by the image. Near 45 deg of roll the probability of a corner,
    and of an edge, is split between two maps. So gates are grouped independently of names: the sums over maps contain whole
    corners and edges, and edges run clockwise about every gate.
    """
    peaks = _peaks(maps[:CORNERS])
    edges = _edges(maps[CORNERS:].reshape(CORNERS, 2, *maps.shape[1:]), peaks)
    found = []
    for chain, aligned in _joined(edges, peaks):
        at, height = np.full((4, 2), np.nan), np.zeros(4)
        named = (np.arange(4)[:, None] + np.arange(len(chain))) % 4  # possible names of its corners
        name = named[peaks.named[chain, named].sum(-1).argmax()]
        at[name], height[name] = peaks.at[chain], peaks.height[chain]
        total = float(height.sum() + sum(aligned))
        found.append((total, CornerGroup(at, height, total / (len(chain) + len(aligned)))))
    return [gate for _, gate in sorted(found, key=lambda pair: -pair[0])][:GROUPS_MOST]


def _peaks(log_odds: Float32) -> CornerPeaks:
    """Return local maxima of the heat maps' sum, from their log-odds (4, h, w), with sub-pixel positions."""
    v, u = np.nonzero(log_odds.max(0) > np.log(PEAK_MIN / (1 - PEAK_MIN)))
    if len(v) > CROWD_MOST:
        return CornerPeaks(np.empty((0, 2)), np.empty(0), np.empty((0, 4)))
    _, h, w = log_odds.shape
    near = log_odds[:, np.clip(v[:, None, None] + STEP[:, None], 0, h - 1), np.clip(u[:, None, None] + STEP, 0, w - 1)]
    each = probability(near)  # (4, n, 3, 3) about each
    heat, named = np.minimum(each.sum(0), 1.0), each[:, :, 1, 1].T
    inside = (u > 0) & (u < w - 1) & (v > 0) & (v < h - 1)  # at the border a peak may be a cut edge
    top = inside & (heat[:, 1, 1] >= heat.max((1, 2))) & (heat[:, 1, 1] > ABOVE_MEAN * heat.mean((1, 2)))
    u, v, heat, named = u[top], v[top], heat[top], named[top]
    order = np.argsort(-heat[:, 1, 1], kind="stable")[:PEAKS_MOST]
    u, v, heat, named = u[order], v[order], heat[order], named[order]
    apart = np.hypot(u[:, None] - u, v[:, None] - v)
    distinct = ~np.tril(apart < APART, -1).any(1)  # sums clipped at 1 form plateaus
    u, v, heat, named = u[distinct], v[distinct], heat[distinct], named[distinct]
    centre = heat[:, 1, 1]
    offset = [
        peak_offset(before, centre, after)
        for before, after in ((heat[:, 1, 0], heat[:, 1, 2]), (heat[:, 0, 1], heat[:, 2, 1]))
    ]
    return CornerPeaks(np.stack([u + offset[0], v + offset[1]], -1), centre, named)


def _edges(fields: Float32, peaks: CornerPeaks) -> list[tuple[float, int, int]]:
    """Return pairs (aligned, i, j) of peaks by the line integral of the fields (4, 2, h, w) from i to j, the best first.

    The sum of the four fields is used, and the sums of two neighbours where one of these is unambiguous: where edges of two
    gates meet, the sum of all may vanish, but an edge is ambiguous between at most two neighbouring names. `aligned` is the
    mean component of the field from i to j; the order includes the heights of the peaks, so that a false peak on the edge does
    not replace a corner.
    """
    at = peaks.at
    if len(at) < 2:
        return []
    towards = at - at[:, None]
    length = np.linalg.norm(towards, axis=-1, keepdims=True)
    s = (np.arange(SAMPLES) + 0.5) / SAMPLES
    # (P, P, samples).
    u, v = np.moveaxis(np.round(at[:, None, None] + s[:, None] * towards[:, :, None]).astype(int), -1, 0)
    h, w = fields.shape[2:]
    v, u = np.clip(v, 0, h - 1), np.clip(u, 0, w - 1)
    unit = towards / np.maximum(length, 1e-6)
    along = fields[:, 0, v, u] * unit[..., :1] + fields[:, 1, v, u] * unit[..., 1:]  # (4, P, P, samples)
    along = np.concatenate([along.sum(0, keepdims=True), along + along[NEXT]])
    each = np.clip(along, 0.0, 1.0).mean(-1)
    each[1:] *= each[1:] > ALIGNED_SURE
    holds = np.take_along_axis((along > 0.5).mean(-1), each.argmax(0)[None], 0)[0]
    aligned = each.max(0)
    value = aligned * peaks.height[:, None] * peaks.height
    good = (aligned > ALIGNED_MIN) & (holds >= ALIGNED_SHARE) & (length[..., 0] > EDGE_MIN)
    i, j = np.nonzero(good)
    order = np.argsort(-value[i, j], kind="stable")
    return [(float(aligned[i[k], j[k]]), int(i[k]), int(j[k])) for k in order]


def _joined(edges: list[tuple[float, int, int]], peaks: CornerPeaks) -> list[tuple[list[int], list[float]]]:
    """Return clockwise rings of four peaks, chains of three not within a ring, and edges of no ring, with edge alignments."""
    onward: dict[int, dict[int, float]] = {}
    for aligned, a, b in edges:
        ways = onward.setdefault(a, {})
        if len(ways) < WAYS_MOST:
            ways[b] = aligned
    rings = [ring for ring in _rings(onward) if _turns_right(peaks.at[[*ring, *ring[:2]]])]
    found = [([*ring], [onward[i][j] for i, j in pairwise([*ring, ring[0]])]) for ring in rings]
    threes = {frozenset(three) for ring in rings for three in combinations(ring, 3)}
    joined = {frozenset(two) for ring in rings for two in combinations(ring, 2)}
    for a, starts in onward.items():
        for b in starts:
            for c in onward.get(b, ()):
                if c != a and frozenset((a, b, c)) not in threes and _turns_right(peaks.at[[a, b, c]]):
                    found.append(([a, b, c], [onward[a][b], onward[b][c]]))
    long = (np.linalg.norm(peaks.at[:, None] - peaks.at, axis=-1) > LONE_EDGE_MIN).tolist()
    return found + [([a, b], [aligned]) for aligned, a, b in edges if long[a][b] and frozenset((a, b)) not in joined]


def _rings(onward: dict[int, dict[int, float]]) -> Iterator[tuple[int, int, int, int]]:
    """Yield all rings of four different peaks, each once."""
    none: dict[int, float] = {}
    for a, starts in onward.items():
        for b in starts:
            for c in onward.get(b, none):
                if c != a and b > a < c:
                    for d in onward.get(c, none):
                        if d not in (a, b) and d > a and a in onward.get(d, none):
                            yield a, b, c, d


def _turns_right(px: Array) -> bool:
    """Check whether a path through points (n, 2) turns clockwise as seen (v down) by more than `BEND_MIN` at each of them."""
    steps = np.diff(px, axis=0)
    steps /= np.maximum(np.linalg.norm(steps, axis=-1, keepdims=True), 1e-9)
    return bool((steps[:-1, 0] * steps[1:, 1] - steps[:-1, 1] * steps[1:, 0] > BEND_MIN).all())
