"""Gates found by a small convolutional network: the detector of Swift (Nature 2023), at half resolution, on the CPU.

`gate_net.onnx` turns the part of a picture in which anything is redder than green into the maps that `perception.heatmaps`
reads; how it was made stands in `gate_net.yaml` and `tools/training`. Maps propose gates, and the picture decides: the edges
between the corners are measured in it (`perception.edges`), which is finer than the maps, and a frame must end about them as
far one way as the other (`perception.bars`).
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from perception.bars import cut, even, fit, frame_ends, going_on, likely
from perception.candidates import DRAWN, OUTER
from perception.colour import levelled, reddish
from perception.detection import Detection, from_top_left
from perception.edges import refine
from perception.heatmaps import CORNERS, FIELDS, STRIDE, Found, gates, to_picture
from perception.search import Expected
from perception.squares import AFTER, BEFORE
from vehicle.camera import Camera
from vehicle.config import load
from vehicle.errors import UserError
from vehicle.rotation import Array

NET = Path(__file__).parent / "gate_net.onnx"
CARD = NET.with_suffix(".yaml")
PART = 32  # map pixels: the network halves its maps five times
BORDER_PX = 2.0  # a corner nearer to the picture's edge may be cut
SIDE_MIN_PX = 7.0  # shortest side of an opening that is worth measuring; shorter ones have not been taught
PART_MIN_PX = 24.0  # longest side of a gate that is seen in part
NEAR_BY = 0.5  # of the square on a lone edge
MOVED_PX = 2.5  # most that measuring the edges may move a corner of the maps; beyond it has found another line
MOVED_SIDE = 0.15  # ... or this share of the longest side, if that is more
SUPPORT = 0.4  # least share of a side's places at which its edge was seen
CLEAR = 0.8  # ... at which it is beyond doubt, wherever it was looked for
SHINES = 0.6  # least share of each side's places at which the frame is brighter than the opening
WARP_PX, WARP_SIDE = 1.0, 0.02  # corners farther from a square's, px and over the side, are no square's
SCORE_MIN = 0.4  # what is less sure is left out
SAME_PX = 3.0  # corners so near are one
GUESS = 0.5  # standard deviation of a corner that is not seen, over the longest side that is


@dataclass(frozen=True)
class Card:
    """What is known about the network's file."""

    source: str
    command: str  # how it was made
    peak: tuple[float, ...]  # heights of a corner's peak, rising, and
    sigma_px: tuple[float, ...]  # ... standard deviation of a coordinate of its place, from held-out frames
    score: float  # least score of what may be a gate, for the picture to be asked,
    sure: float  # ... and of a whole gate that is reported, times the share of its sides that was seen
    sure_part: float  # ... and of one in part

    def __post_init__(self) -> None:
        if len(self.peak) != len(self.sigma_px) or list(self.peak) != sorted(set(self.peak)) or min(self.sigma_px) <= 0:
            raise ValueError("peak must rise, sigma_px must be positive, and both as long")


class Start(NamedTuple):
    """Quads (Q) about whose sides edges are looked for."""

    corners_px: Array  # (Q, 4, 2)
    known: np.ndarray  # (Q, 4) by the maps; the others are guessed
    near_by: np.ndarray  # (Q,) whether these stand for the direction of a side only
    sigma_px: Array  # (Q, 4) standard deviation of a coordinate
    guess_px: Array  # (Q, 1) ... of a corner that is guessed
    score: Array  # (Q,) of the maps


class Measured(NamedTuple):
    """Quads (Q) of which edges were seen."""

    corners_px: Array  # (Q, 4, 2)
    cov_px: Array  # (Q, 4, 2, 2)
    found: np.ndarray  # (Q, 4) the corners that are where they seem, unless another gate's edge makes them
    asked: np.ndarray  # (Q, 4) the sides that were looked for
    guessed: np.ndarray  # (Q,) what is but a square upon a side
    guess_px: Array  # (Q, 1) standard deviation of a corner that is guessed
    score: Array  # (Q,)


class LearnedDetector:
    """Finds gates wholly or partly in view, two corners at least. `refused` counts the pictures that had the wrong form."""

    def __init__(self, camera: Camera):
        """Raises UserError when the network's file is missing or another's."""
        self.refused = 0
        self.camera = camera
        self._focal_px = camera.fx_px
        self._shape = (camera.height_px, camera.width_px, 3)
        self._card = load(CARD, Card)
        try:
            self._net = cv2.dnn.readNetFromONNX(str(NET))
            maps = self._maps(np.zeros(self._shape, np.uint8))
        except cv2.error as error:
            raise UserError(f"{NET}: cannot be loaded ({error.err})") from None
        if maps.shape[0] != CORNERS + FIELDS:
            raise UserError(f"{NET}: gives {maps.shape[0]} maps where {CORNERS + FIELDS} are needed")

    def detect(self, image: np.ndarray | None, expected: Expected | None = None) -> list[Detection]:
        """All gates in a picture (H, W, 3) BGR uint8, or at least in the window that is expected, best first."""
        if not isinstance(image, np.ndarray) or image.shape != self._shape or image.dtype != np.uint8:
            self.refused += 1
            return []
        image = levelled(image)
        red = cv2.extractChannel(image, 2)
        part = expected.window if expected is not None else None
        rows, columns = part or (slice(0, image.shape[0]), slice(0, image.shape[1]))
        left, top, *size = reddish(cv2.subtract(red[rows, columns], image[rows, columns, 1]))[1]
        if not size[0]:
            return []
        u, v, w, h = _window((left + columns.start, top + rows.start, *size), image.shape[1], image.shape[0])
        found = gates(self._maps(image[v : v + h, u : u + w]))
        found = [
            replace(gate, at=gate.at + np.array([u, v]) / STRIDE) for gate in found if gate.score >= self._card.score
        ]
        if not found:
            return []
        # Beside narrower frames than the usual their depth shows as much.
        outer = max(DRAWN * expected.proportion if expected is not None else 0.0, OUTER)
        return _best(self._verified(red, self._measured(red, found), outer))

    def _maps(self, image: np.ndarray) -> np.ndarray:
        """The network's maps (12, H / 2, W / 2) of a picture."""
        self._net.setInput(blocks(image))
        return self._net.forward()[0][:, : image.shape[0] // STRIDE, : image.shape[1] // STRIDE]

    def _measured(self, red: np.ndarray, found: list[Found]) -> "Measured":
        """What of all that may be gates a picture (H, W), in which they shine, has enough edges of."""
        start = self._start(found)
        known, near_by = start.known, ~start.known & start.near_by[:, None]
        edges = refine(red, start.corners_px)
        side_px = np.linalg.norm(start.corners_px[:, AFTER] - start.corners_px, axis=-1).max(-1, keepdims=True)
        moved_px = np.linalg.norm(edges.corners_px - start.corners_px, axis=-1)
        most_px = np.where(known, np.maximum(MOVED_PX, MOVED_SIDE * side_px), 2 * start.guess_px)
        measured = edges.measured & (edges.support > SUPPORT)
        clear = (measured & (edges.support > CLEAR)).sum(-1)
        # A corner is where both of its sides are, unless that is far from where the map has it.
        fits = measured & measured[:, BEFORE] & ((clear == 4)[:, None] | (moved_px < most_px))
        corners_px = np.where(fits[..., None], edges.corners_px, start.corners_px)
        onward = near_by & (measured | measured[:, BEFORE]) & ~fits
        beside = _beside(corners_px, known)
        corners_px = np.where(onward[..., None], beside + (edges.corners_px - beside) / NEAR_BY, corners_px)
        # Of a whole gate one side, or a corner, may be lost in what shines behind it; then the map knows its ends.
        trusted = known.all(-1) & ((fits.sum(-1) == 3) | (clear == 3))
        mapped_cov = start.sigma_px[..., None, None] ** 2 * np.eye(2)
        cov_px = np.where((fits | onward)[..., None, None], edges.cov_px(), mapped_cov)
        asked = known | known[:, AFTER] | fits & fits[:, AFTER]
        score = start.score * np.where(measured & asked, edges.support, 0.0).sum(-1) / asked.sum(-1)

        is_whole = fits.all(-1) | trusted
        good = score > np.where(is_whole, self._card.sure, self._card.sure_part)
        good &= _convex(corners_px) & ((self._warp(corners_px) < WARP_PX) | near_by.any(-1))
        good &= is_whole | ((side_px[:, 0] > PART_MIN_PX) & (fits | ~known).all(-1))
        guessed = (known.sum(-1) == 2) & ~fits.all(-1)
        all_of_it = corners_px, cov_px, fits | trusted[:, None], asked, guessed, start.guess_px, score
        return Measured(*(column[good] for column in all_of_it))

    def _verified(self, red: np.ndarray, quads: "Measured", outer: float) -> list[Detection]:
        """Those with a frame about them that is `outer` times as large in a picture (H, W), and no corner of another gate."""
        if not len(quads.score):
            return []
        corners_px, whole = quads.corners_px, quads.found.all(-1)
        ends, shines = (np.where(quads.asked, x, np.nan) for x in frame_ends(red, corners_px))
        hidden = cut(ends, corners_px, going_on(red, corners_px), outer) & ~quads.guessed[:, None]
        covered = hidden | hidden[:, BEFORE]  # its corners
        seen = quads.found & ~covered & self._inside(corners_px)
        guess_cov = quads.guess_px[..., None, None] ** 2 * np.eye(2)
        cov_px = np.where(covered[..., None, None], guess_cov, quads.cov_px)
        good = np.where(quads.guessed, likely(ends, outer), even(ends, corners_px, hidden, outer))
        good &= (np.nan_to_num(shines, nan=1.0).min(-1) > SHINES) & (seen.sum(-1) >= 2)
        good &= whole | (quads.score > self._card.sure_part)
        score = quads.score * (1 + fit(ends, corners_px, outer)) / 2
        good &= score > SCORE_MIN
        detections = []
        for k in np.flatnonzero(good):
            order = (np.arange(4) + from_top_left(corners_px[k])) % 4
            detections.append(Detection(corners_px[k, order], cov_px[k, order], seen[k, order], float(score[k])))
        return detections

    def _start(self, found: list[Found]) -> "Start":
        """Where the edges of what may be gates are looked for. How a pair goes on is a guess, from which a slant leads away:
        its gate is looked for as a square, and near by.
        """
        found = [part for gate in found for part in self._parts(gate)]
        pairs = [gate for gate in found if (gate.height > 0).sum() == 2]
        near_by = np.repeat([False, True], [len(found), len(pairs)])
        found = found + pairs
        height = np.array([gate.height for gate in found])
        filled = [completed(to_picture(gate.at)) for gate in found]
        px, guess_px, known = np.array([px for px, _ in filled]), np.array([[sigma] for _, sigma in filled]), height > 0
        beside = _beside(px, known)
        px = np.where((~known & near_by[:, None])[..., None], beside + NEAR_BY * (px - beside), px)
        sigma_px = np.where(known, np.interp(height, self._card.peak, self._card.sigma_px), guess_px)
        return Start(px, known, near_by, sigma_px, guess_px, np.array([gate.score for gate in found]))

    def _parts(self, gate: Found) -> list[Found]:
        """The gate itself; or, when its corners are no square's, all that is left when one of them is taken for another's."""
        if not gate.height.all() or self._warp(to_picture(gate.at)[None])[0] < WARP_PX:
            return [gate]
        others = ~np.eye(4, dtype=bool)
        return [replace(gate, at=np.where(k[:, None], gate.at, np.nan), height=gate.height * k) for k in others]

    def _warp(self, quads: Array) -> Array:
        """How far (Q,) quads are from a parallelogram beyond what perspective can do, px.

        A square of side s px is s / f of its distance wide, so perspective moves (c0 - c1 + c2 - c3) / 2 by s^2 / (2 f) at most.
        """
        side = np.linalg.norm(quads[:, AFTER] - quads, axis=-1).max(-1)
        warp = np.linalg.norm(np.array([0.5, -0.5, 0.5, -0.5]) @ quads, axis=-1)
        return np.asarray(warp - side**2 / (2 * self._focal_px) - WARP_SIDE * side)

    def _inside(self, px: Array) -> np.ndarray:
        high = np.array(self._shape[1::-1]) - 1 - BORDER_PX
        return np.asarray(((px >= BORDER_PX) & (px <= high)).all(-1))


def blocks(image: np.ndarray) -> np.ndarray:
    """What the network sees of a picture (H, W, 3) uint8: 2 x 2 blocks as channels (1, 12, h, w), -0.5 to 0.5.

    Map sizes h and w are multiples of 2^5, as the network halves them five times; what the picture lacks is 0.
    """
    h, w = image.shape[0] // STRIDE, image.shape[1] // STRIDE
    x = image[: STRIDE * h, : STRIDE * w].reshape(h, STRIDE, w, STRIDE, 3).transpose(4, 1, 3, 0, 2).reshape(-1, h, w)
    whole = np.zeros((1, len(x), -(-h // PART) * PART, -(-w // PART) * PART), np.float32)
    np.multiply(x, np.float32(1 / 255), out=whole[0, :, :h, :w])
    whole[0, :, :h, :w] -= np.float32(0.5)
    return whole


def _window(box: tuple[int, int, int, int], width: int, height: int) -> tuple[int, int, int, int]:
    """The part (u, v, w, h) of a picture about a box that costs the network no more than the box does."""
    parts = []
    for start, size, most in ((box[0], box[2], width), (box[1], box[3], height)):
        length = min(-(-size // (STRIDE * PART)) * STRIDE * PART, most)
        middle = start + size // 2 - length // 2
        parts.append((min(max(middle, 0), most - length) // STRIDE * STRIDE, length))
    (u, w), (v, h) = parts
    return u, v, w, h


def _beside(px: Array, known: np.ndarray) -> Array:
    """For each corner of quads (Q, 4, 2) the one before it if that is known (Q, 4), else the one after it."""
    return np.where(known[:, BEFORE, None], px[:, BEFORE], px[:, AFTER])


def _convex(quads: Array) -> np.ndarray:
    """Which of quads (Q, 4, 2) are convex, clockwise and large enough."""
    along = quads[:, AFTER] - quads
    after = along[:, AFTER]
    bends = along[..., 0] * after[..., 1] - along[..., 1] * after[..., 0]
    return np.asarray((bends > 0).all(-1) & (np.linalg.norm(along, axis=-1).min(-1) > SIDE_MIN_PX))


def _best(found: list[Detection]) -> list[Detection]:
    """Each gate once, best first: those with most corners, and of these the surest, keep theirs from others."""
    kept: list[Detection] = []
    for one in sorted(found, key=lambda d: (-int(d.visible.sum()), -d.score)):
        if not any(_same(one, other) for other in kept):
            kept.append(one)
    return sorted(kept, key=lambda d: -d.score)


def completed(px: Array) -> tuple[Array, float]:
    """Corners (4, 2) with those that are NaN guessed, and how sure the guess is, px.

    Three corners make a parallelogram; two, which are neighbours, make a square upon the side between them.
    """
    px, seen = px.copy(), np.isfinite(px[:, 0])
    side = max(np.linalg.norm(a - b) for a in px[seen] for b in px[seen])
    for k in np.flatnonzero(~seen):
        before, across, after = ((k + step) % 4 for step in (3, 2, 1))
        if seen[[before, across, after]].all():
            px[k] = px[before] + px[after] - px[across]
        elif seen[after] and seen[across]:
            px[k] = px[after] + _inward(px[across] - px[after])
        else:
            px[k] = px[before] + _inward(px[before] - px[across])
    return px, float(GUESS * side)


def _inward(way: Array) -> Array:
    """A step along an edge, turned into the opening: clockwise as seen, v down."""
    return np.array([-way[1], way[0]])


def _same(a: Detection, b: Detection) -> bool:
    """Whether two gates are one: whole ones share two corners, others one."""
    near = np.linalg.norm(a.corners_px[a.visible][:, None] - b.corners_px[b.visible], axis=-1) < SAME_PX
    return int(near.any(1).sum()) >= (2 if a.visible.all() and b.visible.all() else 1)
