"""Gates found by colour: a JPEG in, the corners of every opening out, wholly or partly in view.

The red channel stays near 255 on a gate, on its white lettering and on both seen through the cyan corridor of light, and low
in the corridor, so an opening is a dark hole in a bright region. White lamps make such holes as well; the hue of the
ring around a hole and the frame's outer edge tell them apart. Both squares are refined to sub-pixels (`perception.edges`).
"""

import cv2
import numpy as np

from perception.candidates import OUTER, openings, scaled, sound
from perception.colour import RED_BRIGHT, RED_ONLY, levelled, redness, without_glow
from perception.colour import coloured as coloured_beside
from perception.detection import Detection, from_top_left
from perception.edges import AFTER, Edges, refine
from perception.frame import restored
from vehicle.camera import Camera
from vehicle.rotation import Array

BORDER_PX = 2.0  # a corner nearer to the picture's edge may be cut
RING = (1.25, 1.4, 1.55)  # where the ring's colour is looked at, over the opening; the frame ends at 1.8
BEYOND = (2.15, 2.4)  # and where it must have ended: lettering and checkers are holes within the frame
BEYOND_COLOURED = 0.6  # most mean share there; other gates may stand behind some sides
# ... in the second look, which sees lettering as holes; there all four outer edges are asked for.
BEYOND_COLOURED_2 = 0.3
RING_COLOURED_FITS = 0.2  # ... on a side whose outer edge stands where it should: light may have washed it white
DOUBTFUL = 0.3  # share there that makes a side doubtful
RING_COLOURED = 0.5  # least share of them with the gate's colour, on each side that is measured
# Of the longest side: how far outward an outer edge may stand from there; slant moves it out.
FRAME_MISS = (-0.1, 0.15)
FRAME_MISS_PX = 1.2  # ... and at least this
SCORE_MIN = 0.4  # what is less sure is left out
WARP = 0.1  # of the mean side: corners farther from a square's than this are no square's
SAME_GATE = 0.25  # two candidates whose centres and sides differ by less than this share of the side are one gate
# Of the picture, as bright as a gate but of another colour: then the first look may have missed something.
BRIGHT = 0.02
UNEXPLAINED_PX = 150  # ... if as many gate-coloured pixels are left


class ColourDetector:
    """Finds red-orange gates. `refused` counts the pictures that had the wrong form."""

    def __init__(self, camera: Camera):
        self.camera = camera
        self.refused = 0
        self._size = np.array([camera.width_px, camera.height_px])

    def detect(self, image: np.ndarray | None) -> list[Detection]:
        """All gates in a picture (H, W, 3) BGR uint8 with openings of at least 8 px, best first."""
        shape = (self.camera.height_px, self.camera.width_px, 3)
        if image is None or image.shape != shape or image.dtype != np.uint8:
            self.refused += 1
            return []
        image = levelled(image)
        red, colour = cv2.extractChannel(image, 2), redness(image)
        found = self._look(image, red, RED_BRIGHT, BEYOND_COLOURED)
        # Before a bright background the red channel shows nothing; colour does, though a JPEG blurs it.
        rest = cv2.threshold(colour, RED_ONLY, 255, cv2.THRESH_BINARY)[1]
        coloured = cv2.countNonZero(rest)
        for detection in found:
            cv2.fillConvexPoly(rest, np.round(scaled(detection.corners_px[None], 1.1 * OUTER)[0]).astype(int), 0)
        bright = cv2.countNonZero(cv2.threshold(red, RED_BRIGHT, 255, cv2.THRESH_BINARY)[1]) - coloured
        if cv2.countNonZero(rest) > UNEXPLAINED_PX and bright > BRIGHT * red.size:
            found += self._look(image, colour, RED_ONLY, BEYOND_COLOURED_2)
        return _best(found)

    def _look(self, image: np.ndarray, channel: np.ndarray, threshold: int, most_beyond: float) -> list[Detection]:
        """The openings that show as dark holes in what exceeds a threshold of one channel (H, W)."""
        strict = threshold == RED_ONLY
        quads = openings(cv2.threshold(channel, threshold, 255, cv2.THRESH_BINARY)[1], lines_shine=not strict)
        if not len(quads):
            return []
        colours = (coloured_beside(image, quads, RING) > RING_COLOURED).sum(-1)
        free = coloured_beside(image, quads, BEYOND, 0.0).mean(-1) < min(1.5 * most_beyond, 1.0)
        quads = quads[(colours >= 2) & free]
        if not len(quads):
            return []
        inner = refine(channel, quads, wide=not strict)
        keep = np.flatnonzero((inner.measured.sum(-1) >= 2) & sound(inner.corners_px) & (self._warp(inner) < WARP))
        if not len(keep):
            return []
        inner = Edges(*(column[keep] for column in inner))
        inner, doubtful, hidden = restored(channel, threshold, inner)
        coloured = coloured_beside(image, inner.corners_px, RING)
        expected = scaled(inner.corners_px, OUTER)
        outer = refine(channel if strict else without_glow(image), expected, bright_inside=True, wide=not strict)
        fits = self._on_frame(outer, expected, inner.corners_px)
        # A side may be a nearer gate's edge that cuts the opening, unless the frame ends where it should.
        beyond = coloured_beside(image, inner.corners_px, BEYOND, 0.0)
        inner = inner._replace(measured=inner.measured & (fits | ((beyond < DOUBTFUL) & ~doubtful)))
        cov_px, outer_cov_px = inner.cov_px(), outer.cov_px()
        visible = self._visible(inner)
        # The frame's outer edge stands where the opening says on one side at least, and in both directions if the opening
        # seems whole: one whose side is a nearer gate's edge has a false proportion.
        seemly = fits.all(-1) | (beyond.mean(-1) < most_beyond)
        upright, across = fits[:, [1, 3]].any(-1), fits[:, [0, 2]].any(-1)
        frame = np.where(inner.measured.all(-1), upright & across, upright | across)
        enough = np.where(fits, RING_COLOURED_FITS, RING_COLOURED)
        good = (
            ((coloured > enough) | ~(inner.measured | hidden)).all(-1)
            & (fits | ~hidden).all(-1)
            & frame
            & seemly
            & visible.any(-1)
        )
        if strict:
            good &= (fits | ~self._middle_inside(outer)).all(-1)
        score = (
            (inner.support * coloured * inner.measured).sum(-1)
            / np.maximum(inner.measured.sum(-1), 1)
            * (2 + fits.sum(-1))
            / 6
        )
        found = []
        for i in np.flatnonzero(good & (score > SCORE_MIN)):
            start = from_top_left(inner.corners_px[i])
            turn = (np.arange(4) + start) % 4
            eight = fits[i].all() and self._inside(outer.corners_px[i]).all()
            found.append(
                Detection(
                    inner.corners_px[i][turn],
                    cov_px[i][turn],
                    visible[i][turn],
                    float(score[i]),
                    outer.corners_px[i][turn] if eight else None,
                    outer_cov_px[i][turn] if eight else None,
                )
            )
        return sorted(found, key=lambda d: -d.score)

    def _inside(self, px: Array) -> np.ndarray:
        return np.asarray(((px >= BORDER_PX) & (px <= self._size - 1 - BORDER_PX)).all(-1))

    def _middle_inside(self, edges: Edges) -> np.ndarray:
        return self._inside((edges.corners_px + edges.corners_px[:, AFTER]) / 2)

    def _visible(self, edges: Edges) -> np.ndarray:
        """(Q, 4) corners in the picture whose both sides were measured."""
        return edges.measured & np.roll(edges.measured, 1, -1) & self._inside(edges.corners_px)

    def _warp(self, edges: Edges) -> Array:
        """How far (Q,) quads are from a parallelogram beyond what perspective can do, over the side; 0 if cut.

        A square of side s px stands s / f of its distance wide, so perspective alone moves (c0 - c1 + c2 - c3) / 2 by at
        most s^2 / (2 f).
        """
        quads = edges.corners_px
        e = np.linalg.norm(np.array([0.5, -0.5, 0.5, -0.5]) @ quads, axis=-1)
        side = np.linalg.norm(np.roll(quads, -1, -2) - quads, axis=-1)
        warp = np.maximum(e - side.max(-1) ** 2 / (2 * self.camera.fx_px), 0.0) / side.mean(-1)
        return np.where(edges.measured.all(-1), warp, 0.0)

    @staticmethod
    def _on_frame(outer: Edges, expected: Array, inner: Array) -> np.ndarray:
        """(Q, 4) sides of the outer squares that were seen where the openings (Q, 4, 2) expect them, (Q, 4, 2)."""
        side = np.linalg.norm(inner[:, AFTER] - inner, axis=-1).max(-1, keepdims=True)
        off = outer.corners_px - expected
        miss = ((off + off[:, AFTER]) / 2 * outer.outward).sum(-1)
        low, high = np.minimum(FRAME_MISS[0] * side, -FRAME_MISS_PX), np.maximum(FRAME_MISS[1] * side, FRAME_MISS_PX)
        return outer.measured & (low < miss) & (miss < high)


def _best(found: list[Detection]) -> list[Detection]:
    """Each gate once, best first; of two the one with more corners in view is kept, and the first of these."""
    kept: list[Detection] = []
    for detection in sorted(found, key=lambda d: -int(d.visible.sum())):
        if not any(_same_gate(detection.corners_px, other.corners_px) for other in kept):
            kept.append(detection)
    return sorted(kept, key=lambda d: -d.score)


def _same_gate(a: Array, b: Array) -> bool:
    """Whether two quads (4, 2) outline the same opening. One gate seen through another has the same centre, not the size."""
    side_a, side_b = (np.linalg.norm(quad - np.roll(quad, 1, 0), axis=-1).mean() for quad in (a, b))
    apart = np.linalg.norm(a.mean(0) - b.mean(0))
    return bool(max(apart, abs(side_a - side_b)) < SAME_GATE * max(side_a, side_b))
