"""Stages 0 to 3: the prepared image, proposed quadrilaterals, their measured sides, and the hypotheses that complete them.

0. `PreparedImage.prepare`: thresholds apply to red and orange gates; for others the colours are rotated about the grey axis until
   the gates are red. Then the image is normalised to the exposure of the real simulator, so that the thresholds hold in dim light
   and in haze as well.
1. `propose`: quadrilaterals around the dark holes of a bright mask, and within its connected components. A hole is the opening
   itself; a gate behind or the corridor of light may distort the hole, but rarely the frame's silhouette, which gives the opening
   by its known proportion. A hole cut by the image border gives its remaining sides, and the others as those of a square.
   Samples on the frame and beyond its end tell the gates' colour: lettering and checkers are holes within a continuous frame, and
   white lamps have a gate's shape without its colour.
2. `measure`: sub-pixel sides of proposed openings, restricted to those that may be projections of a square.
3. `complete`: a side may be outside the image, or be mistaken for that of a gate behind. Three sides determine the fourth of a
   square. With fewer, the width of the frame, which is equal on all sides, gives the opening's size.

Quadrilaterals run clockwise as seen (u right, v down).
"""

from functools import lru_cache
from math import dist
from typing import NamedTuple

import cv2
import numpy as np

from gate_racer.common.compiled import Image
from gate_racer.model import quadrilateral
from gate_racer.model.quadrilateral import NEXT, OPPOSITE, PREVIOUS, GateModel, intersect_lines, outward_normals
from gate_racer.perception.edges import OPENING_EDGES, QuadEdges, bar_widths, count_red, fit_edges
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Indices, Mask, exp, matrix

# Positions of the samples of the gates' colour about an opening, and limits of its share.
ON_FRAME = (0.28, 0.45, 0.63)  # squares on the frame, over its width: clear of its edges
BEYOND_FRAME = (1.14, 1.28)  # squares beyond the frame, over its size: clear of its outline
COLOURED_MIN = 0.5  # -, least share of the gates' colour on the frame beside each measured side
# -, greatest mean share of the gates' colour beyond the frame: other gates may be behind some sides. In the second view
# lettering forms holes, so its limit is lower.
BACKGROUND_MAX = 0.6
BACKGROUND_MAX_SECOND = 0.3


def background_limit(first_view: bool) -> float:
    """Return the greatest mean share of the gates' colour beyond the frame."""
    return BACKGROUND_MAX if first_view else BACKGROUND_MAX_SECOND


def colour_shares(image: Image, openings: Array, silhouettes: Array) -> tuple[Array, Array]:
    """Return shares (Q, 4) of gate-coloured samples beside sides: on the frame (1 outside the image), and beyond it (0)."""
    across = np.array(ON_FRAME)[:, None, None]
    on_frame = openings[:, None] + across * (silhouettes - openings)[:, None]
    squares = np.concatenate([on_frame, quadrilateral.concentric(silhouettes, np.array(BEYOND_FRAME))], 1)
    sampled, coloured = count_red(image, squares)
    on, beyond = np.s_[..., : len(ON_FRAME)], np.s_[..., len(ON_FRAME) :]
    return _share(sampled[on], coloured[on], 1.0), _share(sampled[beyond], coloured[beyond], 0.0)


def _share(sampled: Array, coloured: Array, of_none: float) -> Array:
    n = sampled.sum(-1)
    return np.where(n > 0, coloured.sum(-1) / np.maximum(n, 1), of_none)


# Estimate of the exposure. Levels are of 255; tuned on real and rendered frames, except where noted.
EXPOSURE_EVERY_PX = 4  # px, sampling step of rows and columns: 14,400 samples of an image suffice
SATURATION = 0.45  # -, least (red - green) / red of a sample that may be a lit gate
VIVID_RED_MIN = 60  # least red of such a sample
VIVID_MIN = 12  # least number of such samples
GATE_RED = 250.0  # red of a lit gate after normalisation; 234 to 255 in real frames (measured)
SPAN_MIN = 75.0  # least red of a lit gate over black before it, so that noise is not amplified to gates
EXPOSURE_TOLERANCE = 0.1  # -, relative change below which normalisation is skipped
# Region that may contain gates. Tuned on real frames to contain all of their gates.
CELL_PX = 8  # px, resolution of the search
RED_OVER_GREEN = 8  # of 255, least mean in a cell that may show a gate
GROW_CELLS = 5  # cells, width of the dilation: an overexposed frame is partly white


class PixelBox(NamedTuple):
    """Rectangle of pixels, from its top left at (u, v)."""

    u: int  # px
    v: int  # px
    width: int  # px
    height: int  # px


def normalise_exposure(image: Image) -> Image:
    """Scale an image (H, W, 3) BGR so that saturated red is as bright as a gate of the real simulator."""
    step = EXPOSURE_EVERY_PX
    red, green = (image[::step, ::step, k].astype(np.float32) for k in (2, 1))
    vivid = np.sort(red[(red > VIVID_RED_MIN) & (green < (1 - SATURATION) * red)])
    if len(vivid) < VIVID_MIN:
        return image
    some = np.sort(red[::2, ::2], None)
    gate, black = vivid[len(vivid) * 3 // 4], some[len(some) // 20]
    gain = GATE_RED / max(gate - black, SPAN_MIN)
    if abs(gain - 1) < EXPOSURE_TOLERANCE and black < EXPOSURE_TOLERANCE * GATE_RED:
        return image
    table = np.clip((np.arange(256) - black) * gain, 0, 255).astype(np.uint8)
    return np.asarray(cv2.LUT(image, table))


def gate_region(red_over_green: Image) -> tuple[Image, PixelBox]:
    """Return a mask (0 or 255) of where gates may be, by red over green (H, W), and its bounding box, empty if there is none."""
    height, width = red_over_green.shape
    size = max(width // CELL_PX, 1), max(height // CELL_PX, 1)
    cells = cv2.resize(red_over_green, size, interpolation=cv2.INTER_AREA)
    grow = np.ones((GROW_CELLS, GROW_CELLS), np.uint8)
    cells = cv2.dilate(cv2.threshold(cells, RED_OVER_GREEN, 255, cv2.THRESH_BINARY)[1], grow)
    mask = cv2.resize(cells, (width, height), interpolation=cv2.INTER_NEAREST)
    return mask, PixelBox(*cv2.boundingRect(mask))


# Channels in which gates are bright, and conditions for using the second one.
RED_MIN = 140  # threshold of red; gates have 234 to 255, corridor and lit floor under 110 (measured)
RED_OVER_GREEN_MIN = 60  # likewise of red over green; gates over 130, wood and skin under 50 (measured)
GLOW_OVER_BLUE = 85  # green - blue; the gates' outline has as much, the glow on the floor over 150 (measured)
# px; wider areas of the gates' own hue are background, as no side of a frame is so wide (tuned).
BACKGROUND_WIDTH_PX = 100
BACKGROUND_EVERY_PX = 4  # px, sampling step of that search (tuned: its cost)
# The second channel is used if the share of bright pixels exceeds that of gate-coloured ones by BRIGHT_SHARE, or the ratio
# of bright to gate-coloured pixels is below DIM_SHARE; and UNEXPLAINED_PX gate-coloured pixels remain (tuned).
BRIGHT_SHARE = 0.02
DIM_SHARE = 0.5
UNEXPLAINED_PX = 150
RED_DEG = 5.0  # hue of the real simulator's gates, to which the thresholds apply (measured)


class View(NamedTuple):
    """Channels (H, W) in which gates are bright."""

    opening: Image  # channel with dark openings
    silhouette: Image  # channel with dark surroundings of the frame
    threshold: int  # level above which a pixel may be a gate's
    first: bool  # lettering and the corridor's lines are as bright as the gates; in the second view they are dark


class PreparedImage(NamedTuple):
    """Image in which gates are red and bright."""

    image: Image  # (H, W, 3) BGR
    red: View
    red_over_green: View  # for bright backgrounds and dark gates, invisible in the red; blurred by JPEG
    region: Image  # (H, W) 255 where gates may be, else 0
    box: PixelBox  # bounding box of the region

    @classmethod
    def prepare(cls, image: Image, hue_deg: float, own_background: bool) -> "PreparedImage":
        """Prepare an image (H, W, 3) BGR for gates of a hue; `own_background` for a background in a paler shade of it."""
        image = image if hue_deg == RED_DEG else cv2.transform(image, _hue_turn(hue_deg))
        image = _foreground(image) if own_background else image
        image = normalise_exposure(image)
        red, red_over_green = _views(image)
        return cls(image, red, red_over_green, *gate_region(red_over_green.opening))

    @property
    def empty(self) -> bool:
        """Whether no part of the image can be a gate."""
        return not self.box.width

    @property
    def box_origin_px(self) -> Array:
        """Origin (2,) px of the masks in the image."""
        return np.array(self.box[:2], float)

    def mask(self, view: View) -> Image:
        """Return a mask (h, w) of the box: 255 where a gate is bright in a view, else 0."""
        u, v, w, h = self.box
        part = np.s_[v : v + h, u : u + w]
        shines = _above(view.opening[part], view.threshold)
        return np.asarray(cv2.bitwise_and(shines, self.region[part]))

    def leaves_unexplained(self, silhouettes: list[Array]) -> bool:
        """Check whether the second view may show gates missed in the first, given the silhouettes (4, 2) px found there."""
        rest = _above(self.red_over_green.opening, self.red_over_green.threshold)
        coloured_px = cv2.countNonZero(rest)
        for silhouette in silhouettes:
            cv2.fillConvexPoly(rest, np.round(silhouette).astype(int), 0)
        bright_px = cv2.countNonZero(_above(self.red.opening, self.red.threshold))
        too_bright = bright_px > coloured_px + BRIGHT_SHARE * rest.size
        too_dim = bright_px < DIM_SHARE * coloured_px
        return bool((too_bright or too_dim) and cv2.countNonZero(rest) > UNEXPLAINED_PX)


def _above(channel: Image, threshold: int) -> Image:
    return np.asarray(cv2.threshold(channel, threshold, 255, cv2.THRESH_BINARY)[1])


def _views(image: Image) -> tuple[View, View]:
    """Return the views by red, less the glow on the floor, and by red over green, of an image (H, W, 3) BGR."""
    blue, green, red = cv2.split(image)
    glow = cv2.subtract(cv2.subtract(green, blue), GLOW_OVER_BLUE)
    over = cv2.subtract(red, green)
    without_glow = cv2.subtract(red, cv2.add(glow, glow))
    return View(red, without_glow, RED_MIN, True), View(over, over, RED_OVER_GREEN_MIN, False)


def _foreground(image: Image) -> Image:
    """Return the red over green of an image (H, W, 3) BGR in excess of its wide surroundings, as the red channel."""
    over = cv2.subtract(image[..., 2], image[..., 1])
    height, width = over.shape
    step = BACKGROUND_EVERY_PX
    coarse = cv2.resize(over, (max(width // step, 1), max(height // step, 1)), interpolation=cv2.INTER_AREA)
    size = BACKGROUND_WIDTH_PX // step
    wide = cv2.morphologyEx(coarse, cv2.MORPH_OPEN, np.ones((size, size), np.uint8))
    more = cv2.subtract(over, cv2.resize(wide, (width, height), interpolation=cv2.INTER_LINEAR))
    none = np.zeros_like(more)
    return np.asarray(cv2.merge([none, none, more]))


@lru_cache(maxsize=64)
def _hue_turn(hue_deg: float) -> Array:
    """Return the rotation (3, 3) of BGR about the grey axis that turns a hue to red; hues run from red to blue to green."""
    angle = np.radians(hue_deg - RED_DEG)
    return matrix(exp(np.full(3, angle / np.sqrt(3))))


# Proposal of quadrilaterals by holes and connected components of the mask. Tuned, except where a source is named.
LINES_PX = (0, 4)  # widths of lines (the corridor's borders) that are erased, one trial each
SIDE_MIN_PX = 8.0  # least side of an opening; profiles across a shorter one reach its other side (derived)
CUT_MIN_PX = 20.0  # least extent of a hole cut by the image border
IMAGE_SHARE_MAX = 0.95  # -, greatest share of the image: a larger hole surrounds all gates
CANDIDATES_MOST = 64  # greatest number, the largest first; more than any image of a course has, with bounded cost
FILLED_MIN = 0.7  # -, least share of a quadrilateral filled by its hole or component
ASPECT_MAX = 15.0  # -, greatest ratio of longest to shortest side; beyond it no hole is measurable
BEND = 0.03  # -, greatest deviation of a polygon from the hull of a cut hole, over its circumference
SAME_PX = 1.0  # candidates whose centres and radii differ by less lead to the same edges
HOLE_BORDER_PX = 2.5  # a side of a hole nearer to the image border is that border
COLOURED_SIDES_MIN = 2  # least number of sides with the gates' colour beside them
BACKGROUND_SLACK = 1.5  # -, times verification's limit of colour beyond the frame, before any measurement
# Acceptance of measured openings. Tuned.
SIDES_MIN = 2  # least number of measured sides: fewer have no corner
PARALLELOGRAM = np.array([0.5, -0.5, 0.5, -0.5])  # weights of the corners; zero sum for a parallelogram
SKEW_MAX = 0.1  # -, greatest skew beyond that of perspective, over the mean side
# Prediction of unmeasured sides by the width of the frame. Tuned.
ACROSS_BAR = (0.11, 2.7, 48)  # first and last sample over the frame's width, and number
ALONG_BAR = (0.15, 0.85, 9)  # first and last profile along a side over its length, and number
# -, least ratio of the size predicted by the frame's width to the measured one, for a side of a gate behind.
OCCLUDER_WIDTH_RATIO = 1.2


def cut_quadrilateral(contour: Image, width: int, height: int) -> Array | None:
    """Return a quadrilateral (4, 2) on the uncut sides of a hole, the others as of a frontal square; None with one side."""
    polygon = _polygon(contour, width, height)
    if polygon is None:
        return None
    after = np.arange(1, len(polygon) + 1) % len(polygon)
    near = np.abs(np.hstack([polygon, polygon - [width - 1, height - 1]])) < HOLE_BORDER_PX  # (P, 4 borders)
    free = np.flatnonzero(~(near & near[after]).any(-1))
    if not 2 <= len(free) <= 4:
        return None
    free = _from_widest_gap(free, len(polygon))
    a, b = polygon[free], polygon[after][free]
    if len(free) == 4:
        return np.asarray(intersect_lines(a[None], (b - a)[None])[0])
    if len(free) == 3:
        return _on_three_sides(a, b)
    return _on_two_sides(a, b)


def _polygon(contour: Image, width: int, height: int) -> Array | None:
    """Return the clockwise polygon (P, 2) around a hole; None if it fills the image or the hole is too ragged."""
    hull = cv2.convexHull(contour, clockwise=True)
    hull_px = cv2.contourArea(hull)
    if len(hull) < 4 or hull_px > IMAGE_SHARE_MAX * width * height:
        return None
    if cv2.contourArea(contour) < FILLED_MIN * hull_px:
        return None
    bend_px = BEND * cv2.arcLength(hull, True)
    polygon: Array = cv2.approxPolyDP(hull, bend_px, True).reshape(-1, 2).astype(float)
    return polygon[::-1] if cv2.contourArea(polygon.astype(np.float32), oriented=True) < 0 else polygon


def _from_widest_gap(free: Indices, sides: int) -> Indices:
    """Return the indices of a polygon's free sides in order, beginning after the widest gap."""
    follows = np.append(free[1:], free[0] + sides) - free
    return np.asarray(free[(follows.argmax() + 1 + np.arange(len(free))) % len(free)])


def _on_three_sides(a: Array, b: Array) -> Array:
    """Return a quad (4, 2) on three consecutive sides from a to b (3, 2)."""
    left, right = (b[0] + a[1]) / 2, (b[1] + a[2]) / 2
    side = dist(left, right)
    return np.array([_reach(left, a[0], side), left, right, _reach(right, b[2], side)])


def _on_two_sides(a: Array, b: Array) -> Array:
    """Return a quad (4, 2) on two sides from a to b (2, 2): a parallelogram if they meet, else the quad between them."""
    length = np.hypot(*(b - a).T)
    if (b[0] == a[1]).all():
        one, other = (_reach(a[1], end, float(length.max())) for end in (a[0], b[1]))
        return np.array([one, a[1], other, one + other - a[1]])
    middle = (a + b) / 2
    half = np.maximum(length, dist(*middle)) / 2
    along = (b - a) / length[:, None] * half[:, None]
    return np.array([middle[0] - along[0], middle[0] + along[0], middle[1] - along[1], middle[1] + along[1]])


def _reach(p: Array, toward: Array, length: float) -> Array:
    """Return the point at distance `length` from p (2,) through `toward` (2,), not nearer than that."""
    return p + (toward - p) * max(1.0, length / max(dist(p, toward), 1.0))


def propose(scene: PreparedImage, view: View, model: GateModel) -> Array:
    """Return quadrilaterals (Q, 4, 2) px that may be openings, surrounded by the gates' colour, the largest first."""
    quads = _of_mask(scene.mask(view), model.ratio, view.first) + scene.box_origin_px
    if not len(quads):
        return quads
    silhouettes = model.silhouettes(quads, model.depth_extent_px(quads))
    on_frame, beyond = colour_shares(scene.image, quads, silhouettes)
    coloured_sides = (on_frame > COLOURED_MIN).sum(-1)
    most_beyond = BACKGROUND_SLACK * background_limit(view.first)
    coloured = coloured_sides >= COLOURED_SIDES_MIN
    return np.asarray(quads[coloured & (beyond.mean(-1) < min(most_beyond, 1.0))])


def whole_holes(mask: Image, most: int) -> Array:
    """Return the largest quadrilaterals (Q <= most, 4, 2) that are holes of a mask (H, W), none cut by its border."""
    framed = cv2.copyMakeBorder(mask, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    return _largest(_of_holes(framed, False), most)


def is_measurable(quads: Array) -> Mask:
    """Check which quads (Q, 4, 2) are convex, clockwise, large enough and within the greatest aspect ratio."""
    side_px = quadrilateral.side_lengths(quads)
    long_enough = side_px.min(-1) >= SIDE_MIN_PX
    return np.asarray(quadrilateral.is_convex(quads) & long_enough & (side_px.max(-1) <= ASPECT_MAX * side_px.min(-1)))


def _of_mask(mask: Image, ratio: float, lines_shine: bool) -> Array:
    """Return the quadrilaterals (Q, 4, 2) of a mask (H, W), after erasing bright lines from it or closing dark ones."""
    quads: list[Array] = []
    wipe = cv2.MORPH_OPEN if lines_shine else cv2.MORPH_CLOSE
    for width in LINES_PX:
        wiped = cv2.morphologyEx(mask, wipe, np.ones((width, width), np.uint8)) if width else mask
        # A bright rim closes the holes that the image's border cuts.
        quads += _of_holes(cv2.copyMakeBorder(wiped, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=255), True)
        if not width:
            quads += _of_components(mask, ratio)
    return _distinct(_largest(quads, CANDIDATES_MOST))


def _of_holes(rimmed: Image, cut: bool) -> list[Array]:
    contours, tree = cv2.findContours(rimmed, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE, offset=(-1, -1))
    height, width = rimmed.shape[0] - 2, rimmed.shape[1] - 2
    quads = []
    for contour, (_, _, _, parent) in zip(contours, tree[0] if contours else (), strict=True):
        if parent < 0 or len(contour) < 4:
            continue
        u, v, w, h = cv2.boundingRect(contour)
        if min(w, h) < SIDE_MIN_PX:
            continue
        quad: Array | None = None
        if u >= 0 and v >= 0 and u + w <= width and v + h <= height:
            quad = _quadrilateral(contour)
        elif cut and max(w, h) > CUT_MIN_PX:
            quad = cut_quadrilateral(contour, width, height)
        if quad is not None:
            quads.append(quad)
    return quads


def _of_components(mask: Image, ratio: float) -> list[Array]:
    """Return the openings within silhouettes that are connected components of a mask."""
    silhouettes = []
    for contour in cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)[0]:
        if len(contour) >= 4 and min(cv2.boundingRect(contour)[2:]) >= ratio * SIDE_MIN_PX:
            silhouette = _quadrilateral(contour)
            if silhouette is not None:
                silhouettes.append(silhouette)
    return list(quadrilateral.enlarged(np.array(silhouettes), 1 / ratio)) if silhouettes else []


def _quadrilateral(contour: Image) -> Array | None:
    """Return the tight clockwise quadrilateral (4, 2) around a contour; None if the contour has another shape.

    Sides of the hull are extended until four remain, which restores an occluded corner (Low and Ilie, 2003).
    """
    hull = cv2.convexHull(contour)
    if len(hull) < 4:
        return None
    quad: Array = cv2.approxPolyN(hull, 4, ensure_convex=True).reshape(-1, 2).astype(float)
    if len(quad) != 4 or cv2.contourArea(hull) < FILLED_MIN * cv2.contourArea(quad.astype(np.float32)):
        return None
    return quad if cv2.contourArea(quad.astype(np.float32), oriented=True) > 0 else quad[::-1]


def _largest(quads: list[Array], most: int) -> Array:
    """Return the measurable ones of quads (4, 2), the largest first: (Q <= most, 4, 2)."""
    found = np.array(quads).reshape(-1, 4, 2)
    found = found[is_measurable(found)]
    size = np.linalg.norm(found[:, :2] - found[:, 2:], axis=-1).sum(-1)
    return found[np.argsort(-size, kind="stable")][:most]


def _distinct(quads: Array) -> Array:
    """Return the quads (Q, 4, 2) without those that repeat an earlier one."""
    if not len(quads):
        return quads
    centre, size = quads.mean(1), np.linalg.norm(quads - quads.mean(1, keepdims=True), axis=-1).mean(-1)
    apart = np.linalg.norm(centre[:, None] - centre, axis=-1) + np.abs(size[:, None] - size)
    repeats = np.tril(apart < SAME_PX, -1).any(1)
    return np.asarray(quads[~repeats])


def measure(view: View, quads: Array, model: GateModel) -> QuadEdges:
    """Measure quads (Q, 4, 2) px; return those with enough sides and no more skew than perspective allows."""
    edges = fit_edges(view.opening, quads, model.ratio, OPENING_EDGES, wide=view.first)
    enough = edges.measured.sum(-1) >= SIDES_MIN
    side_px = quadrilateral.side_lengths(edges.corners_px)
    # A square of side s px is s / f of its distance wide, so perspective alone contributes at most s^2 / (2 f).
    skew_px = np.linalg.norm(PARALLELOGRAM @ edges.corners_px, axis=-1)
    excess_px = skew_px - side_px.max(-1) ** 2 / (2 * model.camera.fx_px)
    square = (excess_px / side_px.mean(-1) < SKEW_MAX) | ~edges.measured.all(-1)
    return edges.select(enough & is_measurable(edges.corners_px) & square)


class Hypotheses(NamedTuple):
    """Hypotheses of openings (R), the measured ones first, then alternatives to them."""

    edges: QuadEdges
    suspect: Mask  # (R, 4) measured sides that may be those of a gate behind
    replaced: Mask  # (R, 4) sides predicted in place of suspect ones
    source: Indices  # (R,) the measured opening that each derives from

    def select(self, which: Indices) -> "Hypotheses":
        return Hypotheses(self.edges.select(which), self.suspect[which], self.replaced[which], self.source[which])


def complete(view: View, edges: QuadEdges, model: GateModel) -> Hypotheses:
    """Place the unmeasured sides of openings (Q) by the width of the frame beside the opposite sides.

    Each suspect side adds a hypothesis with that side predicted instead of measured; hypotheses with three measured sides add
    one with the fourth side predicted from these: near a gate the apparent frame width differs between sides, and the frame
    may be outside the image.
    """
    opposite_says_px = _size_beside_opposite(view, edges, model)
    suspect = edges.measured & _stands_nearer(edges.corners_px, opposite_says_px, model)
    which, side = np.nonzero(suspect)
    source = np.append(np.arange(len(suspect)), which)
    replaced = np.vstack([np.zeros_like(suspect), np.arange(4) == side[:, None]])
    suspect = np.vstack([suspect, np.zeros((len(which), 4), bool)])
    as_measured = edges.select(source)
    placed = _placed(as_measured, replaced, opposite_says_px[source])
    return _with_fourth_sides(Hypotheses(placed, suspect, replaced, source), as_measured.corners_px, model)


def _size_beside_opposite(view: View, edges: QuadEdges, model: GateModel) -> Array:
    """Return sizes (Q, 4) px of the openings across each side by the frame's width beside the opposite one; NaN if unknown."""
    px = edges.corners_px
    about_px = model.frame_width_px(px)[:, 0]
    along, across = np.linspace(*ALONG_BAR), np.linspace(*ACROSS_BAR)
    normals = outward_normals(px, px[:, NEXT])
    width_px = bar_widths(view.opening, view.threshold, px, normals, about_px, along, across)
    width_px[~edges.measured] = np.nan
    return width_px[:, OPPOSITE] / ((model.ratio - 1) / 2)


def _stands_nearer(quads: Array, opposite_says_px: Array, model: GateModel) -> Mask:
    """Find sides (Q, 4) nearer to their opposites than predicted by the frame's width there, allowing for the gate's depth."""
    a, b = quads, quads[:, NEXT]
    middle = (a + b) / 2
    size_px = ((middle - middle[:, OPPOSITE]) * outward_normals(a, b)).sum(-1)
    extent_px, frame = model.depth_extent_px(quads), (model.ratio - 1) / 2
    return np.asarray(opposite_says_px - extent_px / frame > OCCLUDER_WIDTH_RATIO * (size_px + extent_px))


def _placed(edges: QuadEdges, replaced: Mask, opposite_says_px: Array) -> QuadEdges:
    """Return the openings (R) with replaced and unmeasured sides at the predicted distance from their opposites."""
    a, b = edges.corners_px, edges.corners_px[:, NEXT]
    middle, across = (a + b) / 2, outward_normals(a, b)[:, OPPOSITE]
    put = ((~edges.measured | replaced) & np.isfinite(opposite_says_px))[..., None]
    start = np.where(put, middle[:, OPPOSITE] - np.nan_to_num(opposite_says_px)[..., None] * across, a)
    direction = np.where(put, (a - b)[:, OPPOSITE], b - a)
    outward = np.where(put, -across, edges.outward)
    corners_px = intersect_lines(start, direction)
    return edges._replace(corners_px=corners_px, outward=outward, measured=edges.measured & ~replaced)


def _with_fourth_sides(found: Hypotheses, as_measured_px: Array, model: GateModel) -> Hypotheses:
    """Add copies of hypotheses with three measured sides, as_measured_px (R, 4, 2), whose fourth completes a square."""
    which = np.flatnonzero(found.edges.measured.sum(-1) == 3)
    if not len(which):
        return found
    side = found.edges.measured[which].argmin(-1)
    ends_px = fourth_sides(as_measured_px[which] + model.origin_px, model.camera)
    ends_px = ends_px[np.arange(len(which)), side] - model.origin_px  # (N, 2 ends, 2)
    known = np.isfinite(ends_px).all((-1, -2))
    which, side, ends_px = which[known], side[known], ends_px[known]
    fourth = found.select(which)
    row = np.arange(len(which))
    fourth.edges.corners_px[row, side], fourth.edges.corners_px[row, np.take(NEXT, side)] = ends_px[:, 0], ends_px[:, 1]
    fourth.edges.outward[row, side] = outward_normals(ends_px[:, 0], ends_px[:, 1])
    edges = QuadEdges(*(np.concatenate(pair) for pair in zip(found.edges, fourth.edges, strict=True)))
    return Hypotheses(edges, *(np.concatenate(pair) for pair in zip(found[1:], fourth[1:], strict=True)))


@np.errstate(all="ignore")
def fourth_sides(quads: Array, camera: Camera) -> Array:
    """Return the ends (Q, 4, 2, 2) px of each side of quads (Q, 4, 2) by the three others; NaN where no square fits them.

    The two adjacent sides meet in the vanishing point of their direction v. The plane through the eye and the opposite side, of
    normal n, contains that side, which is perpendicular to v: its direction is n x v, its length that of the sides along v.
    """
    x = camera.rays(quads)
    x = np.concatenate([x, np.ones_like(x[..., :1])], -1)
    # Rays to the ends of the opposite side; the adjacent sides lead from there to the ends of this side.
    base, end = x[:, OPPOSITE], x[:, PREVIOUS]
    to_base, to_end = x[:, NEXT], x
    v = _cross(_cross(to_base, base), _cross(to_end, end))
    n = _cross(base, end)
    along = _cross(n, v)
    v, along = (d / np.linalg.norm(d, axis=-1, keepdims=True) for d in (v, along))
    n2 = (n * n).sum(-1, keepdims=True)
    depth = [(_cross(a, b) * n).sum(-1, keepdims=True) / n2 for a, b in ((end, along), (base, along))]
    sign = np.sign(depth[0])
    near = np.stack([end * depth[1] * sign, base * depth[0] * sign], -2)  # (Q, 4, 2 ends, 3), of a side of length 1
    ways = near[..., None, :, :] + np.array([1.0, -1.0])[:, None, None] * v[..., None, None, :]
    px = ways[..., :2] / ways[..., 2:]
    ahead = (ways[..., 2] > 0) & (near[..., 2] > 0)[..., None, :]
    there = np.stack([to_end - end, to_base - base], -2)[..., None, :, :2]
    toward = ((px - near[..., None, :, :2] / near[..., None, :, 2:]) * there).sum(-1)
    right = np.all(ahead & (toward > 0), axis=-1)
    chosen = np.where(right[..., :1, None], px[..., 0, :, :], px[..., 1, :, :])
    chosen = np.where(right.any(-1)[..., None, None], chosen, np.nan)
    return camera.project(np.concatenate([chosen, np.ones_like(chosen[..., :1])], -1))


def _cross(a: Array, b: Array) -> Array:
    """Return a x b (..., 3); NumPy's is slow for few vectors."""
    return a[..., [1, 2, 0]] * b[..., [2, 0, 1]] - a[..., [2, 0, 1]] * b[..., [1, 2, 0]]
