"""Gates found by a small convolutional network: the detector of Swift (Nature 2023), at half resolution, on the CPU.

`gate_net.onnx` turns a picture into the maps that `perception.heatmaps` reads; how it was made stands in
`gate_net.yaml` and `tools/training`. The edges between the corners are then measured in the picture itself
(`perception.edges`), which is finer than the maps.
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from perception.colour import levelled
from perception.detection import Detection, from_top_left
from perception.edges import AFTER, BEFORE, refine
from perception.heatmaps import CORNERS, FIELDS, STRIDE, Found, gates, to_picture
from vehicle.camera import Camera
from vehicle.config import load
from vehicle.errors import UserError
from vehicle.rotation import Array

NET = Path(__file__).parent / "gate_net.onnx"
CARD = NET.with_suffix(".yaml")
SIDE_MIN_PX = 5.0  # shortest side of an opening that is worth measuring; shorter ones have not been taught
MOVED_PX = 2.0  # most that measuring the edges may move a corner; beyond it has found another line
MOVED_SIDE = 0.04  # ... or this share of the opening's side, if that is more
SAME_PX = 4.0  # corners so near are one
GUESS = 0.5  # standard deviation of a corner that is not seen, over the longest side that is


@dataclass(frozen=True)
class Card:
    """What is known about the network's file."""

    source: str
    command: str  # how it was made
    peak: tuple[float, ...]  # heights of a corner's peak, rising, and
    sigma_px: tuple[float, ...]  # ... standard deviation of a coordinate of its place, from held-out frames
    score: float  # least score of a gate that is reported
    score_part: float  # ... of one that lacks corners

    def __post_init__(self) -> None:
        if len(self.peak) != len(self.sigma_px) or list(self.peak) != sorted(set(self.peak)) or min(self.sigma_px) <= 0:
            raise ValueError("peak must rise, sigma_px must be positive, and both as long")


class LearnedDetector:
    """Finds gates wholly or partly in view, two corners at least. `refused` counts the pictures that had the wrong form."""

    def __init__(self, camera: Camera):
        """Raises UserError when the network's file is missing or made for pictures of another size."""
        self.refused = 0
        self._shape = (camera.height_px, camera.width_px, 3)
        self._card = load(CARD, Card)
        try:
            self._net = cv2.dnn.readNetFromONNX(str(NET))
            maps = self._maps(np.zeros(self._shape, np.uint8))
        except cv2.error as error:
            size = f"{camera.width_px} x {camera.height_px}"
            raise UserError(f"{NET}: cannot be loaded for pictures of {size} px ({error.err})") from None
        wanted = (CORNERS + FIELDS, camera.height_px // STRIDE, camera.width_px // STRIDE)
        if maps.shape != wanted:
            raise UserError(f"{NET}: gives maps of shape {maps.shape} where {wanted} is needed")

    def detect(self, image: np.ndarray | None) -> list[Detection]:
        """All gates in a picture (H, W, 3) BGR uint8, best first."""
        if not isinstance(image, np.ndarray) or image.shape != self._shape or image.dtype != np.uint8:
            self.refused += 1
            return []
        image = levelled(image)
        kept: list[tuple[Found, Array]] = []
        for gate in gates(self._maps(image)):
            px = to_picture(gate.at)
            least = self._card.score if gate.height.all() else self._card.score_part
            large = np.nanmin(np.linalg.norm(px[AFTER] - px, axis=-1)) > SIDE_MIN_PX
            if gate.score >= least and large and not any(_same(px, other) for _, other in kept):
                kept.append((gate, px))
        return self._measured(image, kept)

    def _maps(self, image: np.ndarray) -> np.ndarray:
        """The network's maps (12, H / 2, W / 2) of a picture."""
        self._net.setInput(cv2.dnn.blobFromImage(image))
        return self._net.forward()[0]

    def _measured(self, image: np.ndarray, kept: list[tuple[Found, Array]]) -> list[Detection]:
        """Gates with the places of their corners, measured by their edges where these agree with the maps."""
        if not kept:
            return []
        height = np.array([gate.height for gate, _ in kept])
        seen = height > 0
        filled = [completed(px) for _, px in kept]
        corners_px = np.array([px for px, _ in filled])
        guess_px = np.array([sigma for _, sigma in filled])[:, None]
        sigma_px = np.where(seen, np.interp(height, self._card.peak, self._card.sigma_px), guess_px)
        cov_px = sigma_px[..., None, None] ** 2 * np.eye(2)

        edges = refine(cv2.extractChannel(image, 2), corners_px)
        side_px = np.linalg.norm(corners_px[:, AFTER] - corners_px, axis=-1).mean(-1, keepdims=True)
        moved_px = np.linalg.norm(edges.corners_px - corners_px, axis=-1)
        held = edges.measured & edges.measured[:, BEFORE]  # both sides of a corner
        fits = held & (moved_px < np.maximum(MOVED_PX, MOVED_SIDE * side_px))
        # A guess may move as far as it is unsure, if the corners that are seen agree on the edges.
        agreed = (fits | ~seen).all(-1, keepdims=True)
        fits = np.asarray(fits | (~seen & held & agreed & (moved_px < 2 * guess_px)))
        corners_px = np.where(fits[..., None], edges.corners_px, corners_px)
        cov_px = np.where(fits[..., None, None], edges.cov_px(), cov_px)
        # Near 45 deg of roll a corner has two names, and a gate may be joined from both: then edges and maps disagree.
        sure = (seen & ~fits).sum(-1) <= np.where(seen.all(-1), 1, 0)
        found = []
        for k in np.flatnonzero(sure):
            gate = kept[k][0]
            order = (np.arange(4) + from_top_left(corners_px[k])) % 4
            found.append(Detection(corners_px[k, order], cov_px[k, order], seen[k, order], gate.score))
        return found


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


def _same(a: Array, b: Array) -> bool:
    """Whether two gates (4, 2) with NaN where a corner is not seen are one: whole ones share two corners, others one.

    Near 45 deg of roll corners have two names, and one gate can be joined twice.
    """
    near = np.linalg.norm(a[:, None] - b, axis=-1) < SAME_PX
    whole = np.isfinite(a).all() and np.isfinite(b).all()
    return int(near.any(1).sum()) >= (2 if whole else 1)
