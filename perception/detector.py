"""Gates found by colour: a JPEG in, the corners of every opening out, wholly or partly in view.

The red channel stays near 255 on a gate, on its white lettering and on both seen through the cyan corridor of light, and low
in the corridor, so an opening is a dark hole in a bright region. White lamps make such holes as well; the hue of the
ring around a hole and the frame's outer edge tell them apart. Both squares are refined to sub-pixels (`perception.edges`).
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import cv2
import numpy as np

from perception.candidates import openings, sound, whole_holes
from perception.colour import Scene, View, coloured
from perception.detection import Detection, from_top_left
from perception.edges import Edges, refine
from perception.frame import restored
from perception.search import Expected
from perception.squares import AFTER, BEFORE, leans, scaled, silhouettes
from perception.style import ASKED, SAME_FRAME, Style, frame, other_hues, proportion
from vehicle.camera import Camera
from vehicle.rotation import Array

ORIGIN = np.zeros(2)
ALONG_SIDE, SHOWS = 21, 0.25  # points of a side asked, and the least share of them in a picture that shows it
UNSHOWN = 0.5  # of the frame's width: an outer edge nearer to the picture's may not be seen
BORDER_PX = 2.0  # a corner nearer to the picture's edge may be cut
# Most mean share of the gates' colour beyond the frame, where other gates may stand behind some sides; less in the second look,
# which sees lettering as holes.
MOST_BEYOND = {True: 0.6, False: 0.3}
DOUBTFUL = 0.3  # ... that makes a side doubtful
FULL, FREE = 0.8, 0.1  # more on the frame and less beyond show its end as well as an edge does
RING_COLOURED = 0.5  # least share of the gates' colour on the frame beside each side that is measured
RING_COLOURED_FITS = 0.2  # ... on a side whose outer edge stands where it should: light may have washed it white
FRAME_MISS = 0.16  # of the frame's width: how far an outer edge may stand from where it should
DEEPER = 0.6  # gates may be than they are drawn, by this share
FRAME_MISS_PX = 1.2  # ... and at least this
SCORE_MIN = 0.4  # what is less sure is left out
SURE, SURE_PX = 0.6, 14.0  # least score and size of a gate that tells the style of the others
EVERY = 10  # of a row of pictures in which no gate is surely seen one in so many is asked for other styles
EXPECTED = Style()
WARP = 0.1  # of the mean side: corners farther from a square's than this are no square's
SAME_CORNER_PX = 2.0
SAME_GATE = 0.5  # of two openings' joint area: what overlaps more is one gate
# The first look may have missed something when so much of the picture is as bright as a gate but of another colour, or so
# little of what has the colour is bright.
BRIGHT, DIM = 0.02, 0.5
UNEXPLAINED_PX = 150  # ... if as many gate-coloured pixels are left


class ColourDetector:
    """Finds gates by the style of their frames. `refused` counts the pictures that had the wrong form.

    As long as no gate of the expected style was surely seen, and when none is seen any more, a picture is asked for other
    styles. Gates of the style that was surely seen first, or twice when no other was, are looked for from then on.
    """

    def __init__(self, camera: Camera, style: Style = EXPECTED):
        self.camera = camera
        self.refused = 0
        self._expected = self._style = style
        self._confirmed = False  # a gate of this style was surely seen
        self._rumour: Style | None = None  # ... of this one since, once
        self._unsure = 0  # pictures since a gate was surely seen

    def detect(self, image: np.ndarray | None, expected: Expected | None = None) -> list[Detection]:
        """All gates in a picture (H, W, 3) BGR uint8 with openings of at least 8 px, best first.

        In a window only, and of the known style, if one is expected: what its edges cut is taken as cut by the picture.
        """
        shape = (self.camera.height_px, self.camera.width_px, 3)
        if image is None or image.shape != shape or image.dtype != np.uint8:
            self.refused += 1
            return []
        if expected is not None and expected.proportion:
            self._expect(Style.of(expected.proportion))
        if expected is not None and expected.window is not None:
            rows, columns = expected.window
            at = np.array([columns.start, rows.start])
            found = self._of_style(np.ascontiguousarray(image[rows, columns]), self._style, at)
            return [detection.moved(at) for detection in found]
        found = self._of_style(image, self._style)
        if any(self._sure(detection) for detection in found):
            self._confirmed, self._unsure, self._rumour = True, 0, None
            return found
        self._unsure += 1
        due = self._unsure % EVERY == 0 or (self._unsure == 1 and not found)
        if self._confirmed and self._rumour is None and not due:
            return found
        for style in self._others(image):
            others = self._of_style(image, style)
            sure = [detection for detection in others if self._sure(detection)]
            if sure:
                if style.outer != self._expected.outer:
                    style = replace(style, outer=float(np.median([proportion(one, self.camera) for one in sure])))
                    others = self._of_style(image, style)
                if not (self._confirmed or found) or (self._rumour is not None and style.like(self._rumour)):
                    self._style, self._confirmed, self._unsure, self._rumour = style, True, 0, None
                    return others
                self._rumour = style
                return found or others
        return found

    def _expect(self, style: Style) -> None:
        if style != self._expected:
            self._expected = self._style = style
            self._confirmed = False

    def _others(self, image: np.ndarray) -> Iterator[Style]:
        """Styles besides the last of which there seems to be a frame in the picture."""
        hues = (self._style.hue_deg, *other_hues(image, self._style))
        for paler, hue_deg in product((False, True), hues):
            scene = Scene.of(image, hue_deg, paler)
            for view in () if scene.empty else scene.views:
                holes = whole_holes(scene.mask(view), ASKED) + scene.origin_px
                outer = frame(scene.image, holes, leans(holes, self.camera, ORIGIN))
                if outer is None:
                    continue
                likely = self._expected.outer
                style = Style(hue_deg, likely if abs(outer / likely - 1) < SAME_FRAME else outer, paler)
                if style != self._style:
                    yield style
                break

    @staticmethod
    def _sure(detection: Detection) -> bool:
        """Whether a gate is seen so well that others must be of its style."""
        size_px = np.ptp(detection.corners_px, axis=0).min()
        return detection.outer_px is not None and detection.score > SURE and bool(size_px > SURE_PX)

    def _of_style(self, image: np.ndarray, style: Style, at: Array = ORIGIN) -> list[Detection]:
        """The gates of a style in the part of a picture that begins at `at` (2,) px."""
        scene = Scene.of(image, style.hue_deg, style.paler)
        if scene.empty:
            return []
        red, over = scene.views
        found = self._look(scene, red, style.outer, at)
        # Before a bright background, or of dark gates, the red channel shows nothing; colour does, though a JPEG blurs it.
        rest = cv2.threshold(over.holes, over.threshold, 255, cv2.THRESH_BINARY)[1]
        coloured_px = cv2.countNonZero(rest)
        for detection in found:
            covered = scaled(detection.corners_px[None], 1.1 * style.outer)[0]
            cv2.fillConvexPoly(rest, np.round(covered).astype(int), 0)
        bright_px = cv2.countNonZero(cv2.threshold(red.holes, red.threshold, 255, cv2.THRESH_BINARY)[1])
        hides = bright_px > coloured_px + BRIGHT * rest.size or bright_px < DIM * coloured_px
        if hides and cv2.countNonZero(rest) > UNEXPLAINED_PX:
            found += self._look(scene, over, style.outer, at)
        return _best(found)

    def _look(self, scene: Scene, view: View, outer: float, at: Array) -> list[Detection]:
        """The openings that show as dark holes in a view, best first."""
        image = scene.image
        quads = openings(scene.mask(view), outer, view.whole) + scene.origin_px
        if not len(quads):
            return []
        on_frame, beyond = coloured(image, quads, silhouettes(quads, outer, leans(quads, self.camera, at)))
        quads = quads[
            ((on_frame > RING_COLOURED).sum(-1) >= 2) & (beyond.mean(-1) < min(1.5 * MOST_BEYOND[view.whole], 1.0))
        ]
        if not len(quads):
            return []
        inner = refine(view.holes, quads, outer, wide=view.whole)
        keep = np.flatnonzero((inner.measured.sum(-1) >= 2) & sound(inner.corners_px) & (self._warp(inner) < WARP))
        if not len(keep):
            return []
        return self._verified(image, view, Edges(*(column[keep] for column in inner)), outer, at)

    def _verified(self, image: np.ndarray, view: View, inner: Edges, outer_scale: float, at: Array) -> list[Detection]:
        """Those of the openings, best first, that a frame of the gates' colour and proportion surrounds."""
        inner, doubtful, hidden, origin = restored(view.holes, view.threshold, inner, outer_scale, self.camera, at)
        lean_px = leans(inner.corners_px, self.camera, at)
        expected = silhouettes(inner.corners_px, outer_scale, lean_px)
        on_frame, beyond = coloured(image, inner.corners_px, expected)
        outer = refine(view.frame, expected, outer_scale, bright_inside=True, wide=view.whole)
        fits = self._on_frame(outer, expected, inner.corners_px, outer_scale, lean_px)
        # A side may be a nearer gate's edge that cuts the opening, unless the frame ends where it should.
        inner = inner._replace(measured=inner.measured & (fits | ((beyond < DOUBTFUL) & ~doubtful)))
        visible = inner.measured & inner.measured[:, BEFORE] & _inside(inner.corners_px, image)
        # Where it is in the picture the frame's outer edge stands where the opening says on one side at least, and in both
        # directions if the opening seems whole: one whose side is a nearer gate's edge has a false proportion.
        seemly = fits.all(-1) | (beyond.mean(-1) < MOST_BEYOND[view.whole])
        asked = _shows(expected, image, UNSHOWN * _frame_px(inner.corners_px, outer_scale))
        ends_there = fits | ((on_frame > FULL) & (beyond < FREE))
        upright, across = (ends_there[:, pair].any(-1) | ~asked[:, pair].any(-1) for pair in ([1, 3], [0, 2]))
        frame = np.where(inner.measured.all(-1), upright & across, fits.any(-1) | ~asked.any(-1))
        enough = np.where(fits, RING_COLOURED_FITS, RING_COLOURED)
        framed = (on_frame > enough) | ~(inner.measured | hidden)
        nearly = ((fits | ~asked).sum(-1) >= 3) & ((on_frame > RING_COLOURED).sum(-1) >= 3)
        framed |= nearly[:, None]  # ... wholly so, if it is one of four
        # Of a side that was put the frame's edge shows, unless it is covered.
        ends = fits | ~hidden | (beyond > RING_COLOURED)
        good = (framed & ends).all(-1) & frame & seemly & visible.any(-1)
        good[origin[good & fits.all(-1) & hidden.any(-1)]] = False  # a gate's edge behind was taken for theirs
        if not view.whole:
            good &= (fits | ~_inside((outer.corners_px + outer.corners_px[:, AFTER]) / 2, image)).all(-1)
        sure = (inner.support * on_frame * inner.measured).sum(-1) / np.maximum(inner.measured.sum(-1), 1)
        score = sure * (2 + fits.sum(-1) + (~asked & ~fits).sum(-1) / 2) / 6 * (1 - (doubtful & ~fits).mean(-1))
        chosen = np.flatnonzero(good & (score > SCORE_MIN))
        if not len(chosen):
            return []
        found, cov_px, outer_cov_px = [], inner.cov_px(), outer.cov_px()
        for i in chosen:
            start = from_top_left(inner.corners_px[i])
            turn = (np.arange(4) + start) % 4
            eight = fits[i].all() and _inside(outer.corners_px[i], image).all()
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

    def _warp(self, edges: Edges) -> Array:
        """How far (Q,) quads are from a parallelogram beyond what perspective can do, over the side; 0 if cut.

        A square of side s px stands s / f of its distance wide, so perspective alone moves (c0 - c1 + c2 - c3) / 2 by at
        most s^2 / (2 f).
        """
        quads = edges.corners_px
        e = np.linalg.norm(np.array([0.5, -0.5, 0.5, -0.5]) @ quads, axis=-1)
        along = quads[:, AFTER] - quads
        side = np.hypot(along[..., 0], along[..., 1])
        warp = np.maximum(e - side.max(-1) ** 2 / (2 * self.camera.fx_px), 0.0) / side.mean(-1)
        return np.where(edges.measured.all(-1), warp, 0.0)

    @staticmethod
    def _on_frame(outer: Edges, expected: Array, inner: Array, outer_scale: float, lean_px: Array) -> np.ndarray:
        """(Q, 4) sides of the outer squares that were seen where the openings (Q, 4, 2) expect them, (Q, 4, 2)."""
        width = _frame_px(inner, outer_scale)
        off = outer.corners_px - expected
        miss = ((off + off[:, AFTER]) / 2 * outer.outward).sum(-1)
        most, lean_px = np.maximum(FRAME_MISS * width, FRAME_MISS_PX), (1 + outer_scale) / 2 * lean_px
        near = outer.measured & (np.abs(miss) < most + lean_px)
        # The gate may be flat or deeper, but it is so on all sides.
        deeper = (near * miss * lean_px).sum(-1) / np.maximum((near * lean_px**2).sum(-1), 1e-9)
        return near & (np.abs(miss - np.clip(deeper, -1.0, DEEPER)[:, None] * lean_px) < most)


def _inside(px: Array, image: np.ndarray, edge_px: float | Array = BORDER_PX) -> np.ndarray:
    """Which places (..., 2) are not too near to the edge of a picture (H, W, 3)."""
    limit = np.array([image.shape[1], image.shape[0]]) - 1 - edge_px
    return np.asarray(((px >= edge_px) & (px <= limit)).all(-1))


def _frame_px(inner: Array, outer_scale: float) -> Array:
    """Widths (Q, 1) of the frames around openings (Q, 4, 2), where they look widest."""
    return (outer_scale - 1) / 2 * np.linalg.norm(inner[:, AFTER] - inner, axis=-1).max(-1, keepdims=True)


def _shows(quads: Array, image: np.ndarray, edge_px: Array) -> np.ndarray:
    """Of which sides of quads (Q, 4, 2) enough lies in a picture (H, W, 3), edge_px (Q, 1) from its edge, to be seen."""
    t = np.linspace(0.0, 1.0, ALONG_SIDE)[:, None]
    along = quads[..., None, :] + t * (quads[:, AFTER] - quads)[..., None, :]
    return np.asarray(_inside(along, image, edge_px[..., None, None]).mean(-1) > SHOWS)


def _best(found: list[Detection]) -> list[Detection]:
    """Each gate once, best first; of two the one with more corners in view is kept, and the first of these."""
    if len(found) < 2:
        return found
    kept: list[Detection] = []
    for detection in sorted(found, key=lambda d: (-int(d.visible.sum()), -d.score)):
        if not any(_same_gate(detection, other) for other in kept):
            kept.append(detection)
    return sorted(kept, key=lambda d: -d.score)


def _same_gate(a: Detection, b: Detection) -> bool:
    """Whether two are of one opening: no two gates show theirs at places that overlap so much, or share a corner."""
    quads = [detection.corners_px.astype(np.float32) for detection in (a, b)]
    both = cv2.intersectConvexConvex(*quads)[0]
    either = cv2.contourArea(quads[0]) + cv2.contourArea(quads[1]) - both
    apart = a.corners_px[a.visible][:, None] - b.corners_px[b.visible]
    return bool(both > SAME_GATE * either) or bool((np.hypot(apart[..., 0], apart[..., 1]) < SAME_CORNER_PX).any())
