"""Gates found by colour: a JPEG in, the corners of every wholly visible opening out.

The red channel stays near 255 on a gate, on its white lettering and on both seen through the cyan corridor of light, and low
in the corridor, so an opening is a dark hole in a bright region. White lamps make such holes as well; the hue of the
ring around a hole tells them apart. The corners are then refined to sub-pixels (`perception.edges`).
"""

import cv2
import numpy as np

from perception.detection import Detection, from_top_left
from perception.edges import refine
from vehicle.camera import Camera
from vehicle.rotation import Array

RED_BRIGHT = 140  # of 255: gates have 234 to 255, the corridor and the lit floor stay under 110
RED_OVER_GREEN = 25  # of 255: half of a gate washed out to pink has over 40, lamps and lettering have 0
RED_ONLY = (
    60  # of 255, red over green: the second look's threshold; unwashed gates have over 130, wood and skin under 50
)
LINES_PX = (
    0,
    3,
    5,
)  # trial by trial, bright lines across an opening (the corridor's borders) up to so wide are wiped out
SIDE_MIN_PX = 8.0  # shortest side of an opening that is worth measuring
BORDER_PX = 2.0  # an opening nearer to the picture's edge may be cut
CANDIDATES = 64  # at most so many, the largest first, are looked at: what has more is no picture of a course
HULL_FILLED = 0.7  # least share of a candidate quadrilateral that its hole fills
ASPECT_MAX = 5.0  # longest over shortest side
RING = (1.25, 1.4, 1.55)  # where the ring's colour is looked at, over the opening; the frame ends at 1.8
BEYOND = (2.1,)  # and where it must have ended: lettering and checkers are holes within the frame
BEYOND_FREE = 2  # least number of sides on which it has; other gates may stand behind the others
RING_SIDE = 12  # samples on each side of the ring
RING_COLOURED = 0.5  # least share of them with the gate's colour, on each of the four sides
SIGMA_SHARE = 0.1  # of the mean side: corners less sure than this are no square's
SUPPORT = 0.3  # least share of an edge's profiles that lie on its line
SAME_GATE = 0.25  # two candidates whose centres and sides differ by less than this share of the side are one gate


class ColourDetector:
    """Finds red-orange gates. `refused` counts the pictures that had the wrong form."""

    def __init__(self, camera: Camera):
        self.camera = camera
        self.refused = 0

    def detect(self, image: np.ndarray | None) -> list[Detection]:
        """All openings of at least 8 px that lie wholly in a picture (H, W, 3) BGR uint8, best first."""
        shape = (self.camera.height_px, self.camera.width_px, 3)
        if image is None or image.shape != shape or image.dtype != np.uint8:
            self.refused += 1
            return []
        red, green = cv2.extractChannel(image, 2), cv2.extractChannel(image, 1)
        found = self._look(image, red, RED_BRIGHT)
        # Before a bright background the red channel shows nothing; colour does, though a JPEG blurs it.
        return found or self._look(image, cv2.subtract(red, green), RED_ONLY)

    def _look(self, image: np.ndarray, channel: np.ndarray, threshold: int) -> list[Detection]:
        """The openings that show as dark holes in what exceeds a threshold of one channel (H, W)."""
        quads = self._candidates(channel, threshold)
        if not len(quads):
            return []
        coloured = _ring_coloured(image, quads, RING).min(-1)
        ends = (_ring_coloured(image, quads, BEYOND) < RING_COLOURED).sum(-1) >= BEYOND_FREE
        quads, coloured = quads[(coloured > RING_COLOURED) & ends], coloured[(coloured > RING_COLOURED) & ends]
        if not len(quads):
            return []
        edges = refine(channel, quads)
        sigma_px = np.maximum(edges.sigma_px, self._warp_px(edges.corners_px))
        score = edges.support * coloured
        side = np.linalg.norm(np.roll(edges.corners_px, -1, -2) - edges.corners_px, axis=-1).mean(-1)
        good = (edges.support > SUPPORT) & (sigma_px < SIGMA_SHARE * side) & self._sound(edges.corners_px)
        order = [i for i in np.argsort(-score) if good[i]]
        found: list[Detection] = []
        for i in order:
            corners = edges.corners_px[i]
            if not any(_same_gate(corners, other.corners_px) for other in found):
                found.append(
                    Detection.whole(np.roll(corners, -from_top_left(corners), 0), float(sigma_px[i]), float(score[i]))
                )
        return found

    def _warp_px(self, quads: Array) -> Array:
        """How far (Q,) quads (Q, 4, 2) are from a parallelogram beyond what perspective can do.

        Four independent errors of std sigma per coordinate give e = (c0 - c1 + c2 - c3) / 2 the same std. A square of
        side s px stands s / f of its distance wide, so perspective alone makes at most e = s^2 / (2 f).
        """
        e = np.linalg.norm(np.array([0.5, -0.5, 0.5, -0.5]) @ quads, axis=-1)
        side = np.linalg.norm(np.roll(quads, -1, -2) - quads, axis=-1).max(-1)
        return np.maximum(e - side**2 / (2 * self.camera.fx_px), 0.0)

    def _candidates(self, channel: np.ndarray, threshold: int) -> Array:
        """Quadrilaterals (Q, 4, 2), clockwise, around the dark holes of the bright parts of a channel."""
        bright = cv2.threshold(channel, threshold, 255, cv2.THRESH_BINARY)[1]
        quads = []
        for width in LINES_PX:
            mask = cv2.morphologyEx(bright, cv2.MORPH_OPEN, np.ones((width, width), np.uint8)) if width else bright
            contours, tree = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
            for contour, (_, _, _, parent) in zip(contours, tree[0] if contours else (), strict=True):
                if parent >= 0 and len(contour) >= 4 and min(cv2.boundingRect(contour)[2:]) >= SIDE_MIN_PX:
                    quad = _quadrilateral(contour)
                    if quad is not None:
                        quads.append(quad)
        found = np.array(quads).reshape(-1, 4, 2)
        found = found[self._sound(found)]
        size = np.linalg.norm(found[:, :2] - found[:, 2:], axis=-1).sum(-1)
        return found[np.argsort(-size)[:CANDIDATES]]

    def _sound(self, quads: Array) -> np.ndarray:
        """Which of quads (Q, 4, 2) are convex, large enough, not absurdly long and inside the picture."""
        along = np.roll(quads, -1, -2) - quads
        after = np.roll(along, -1, -2)
        convex = (along[..., 0] * after[..., 1] - along[..., 1] * after[..., 0] > 0).all(-1)
        side = np.linalg.norm(along, axis=-1)
        shaped = (side.min(-1) >= SIDE_MIN_PX) & (side.max(-1) <= ASPECT_MAX * side.min(-1))
        high = np.array([self.camera.width_px, self.camera.height_px]) - 1 - BORDER_PX
        inside = ((quads >= BORDER_PX) & (quads <= high)).all((-2, -1))
        return convex & shaped & inside


def _quadrilateral(contour: np.ndarray) -> Array | None:
    """The tight quadrilateral (4, 2) around a contour, clockwise, or None if the contour has another shape.

    Sides are extended until four are left, so that a corner hidden behind something is restored (Low and Ilie, 2003).
    """
    hull = cv2.convexHull(contour)
    if len(hull) < 4:
        return None
    quad = cv2.approxPolyN(hull, 4, ensure_convex=True).reshape(-1, 2).astype(float)
    if len(quad) != 4 or cv2.contourArea(hull) < HULL_FILLED * cv2.contourArea(quad.astype(np.float32)):
        return None
    u, v = (quad - quad.mean(0)).T
    return quad[np.argsort(np.arctan2(v, u))]


def _ring_coloured(image: np.ndarray, quads: Array, scales: tuple[float, ...]) -> Array:
    """Share (Q, 4) of gate-coloured samples beside each side of quads (Q, 4, 2), on squares of these scales.

    Samples outside the picture are not asked: near a gate the ring leaves the picture before the opening does.
    """
    t = np.linspace(-1.0, 1.0, RING_SIDE)
    side = np.concatenate([np.stack([k * t, np.full_like(t, -k)], -1) for k in scales])  # above the opening
    quarter = np.array([[0.0, 1.0], [-1.0, 0.0]])
    ring = np.stack([side @ np.linalg.matrix_power(quarter, k) for k in range(4)])  # (4, n, 2)
    square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], np.float32)
    maps = [cv2.getPerspectiveTransform(square, quad.astype(np.float32)) for quad in quads]
    h = np.concatenate([ring, np.ones((*ring.shape[:2], 1))], -1) @ np.swapaxes(np.array(maps), -1, -2)[:, None]
    grid = h[..., :2] / np.where(h[..., 2:] > 0, h[..., 2:], np.inf)
    bgr = cv2.remap(image, grid.reshape(len(quads), -1, 2).astype(np.float32), None, cv2.INTER_LINEAR)
    green, red = bgr[..., 1].astype(int), bgr[..., 2].astype(int)
    coloured = ((red > RED_BRIGHT) & (red - green > RED_OVER_GREEN)).reshape(len(quads), 4, -1)
    inside = ((grid >= 0) & (grid <= np.array([image.shape[1], image.shape[0]]) - 1)).all(-1)
    asked = inside.sum(-1)
    return np.where(asked > 0, (coloured & inside).sum(-1) / np.maximum(asked, 1), 1.0)


def _same_gate(a: Array, b: Array) -> bool:
    """Whether two quads (4, 2) outline the same opening. One gate seen through another has the same centre, not the size."""
    side_a, side_b = (np.linalg.norm(quad - np.roll(quad, 1, 0), axis=-1).mean() for quad in (a, b))
    apart = np.linalg.norm(a.mean(0) - b.mean(0))
    return bool(max(apart, abs(side_a - side_b)) < SAME_GATE * max(side_a, side_b))
