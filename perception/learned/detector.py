"""Learned detector: that of Swift (Nature 2023) at half resolution, on the CPU, with measured edges.

    preprocess -> maps -> group corners -> measure edges -> verify

The network maps the part of an image that is redder than green to heat maps of corners and fields of edges. These propose gates;
missing corners of a group are guessed. The edges between the corners are measured in the image, whose resolution exceeds that of
the maps, and the frame around them is verified:

A frame is equally wide on all sides, whatever its proportion; so, scaled about the opening's centre, it ends at the same multiple
of the opening, `ends` (Q, 4). A side that is another gate's edge cuts the opening: its frame continues, and the opposite frame,
measured relative to the rest of the opening, appears too wide. An oblique view widens frames as well, since it shows their depth,
but no more than it flattens the opening.

Thresholds are *derived* from geometry, the network's stride or quantisation, or *tuned*: set by hand for recall and precision of
`benchmarks/perception.py` on rendered flights, and checked on real frames. Those that depend on the trained weights (heights of
peaks with their errors, least scores) are in the network's card, `gate_net.yaml`, measured on held-out frames.
"""

from dataclasses import replace
from typing import NamedTuple

import cv2
import numpy as np

from gate_racer.common.compiled import Image
from gate_racer.model.quadrilateral import (
    NEXT,
    OPPOSITE,
    PREVIOUS,
    concentric,
    first_corner,
    is_convex,
    is_inside,
    side_lengths,
    skew_px,
)
from gate_racer.model.rims import OUTLINE_RATIO, SILHOUETTE_RATIO
from gate_racer.perception.detection import BORDER_PX, Detection, Detector, suppress_duplicates
from gate_racer.perception.edges import OPENING_EDGES, fit_edges
from gate_racer.perception.learned.network import CornerGroup, GateNetwork, NetworkCard, group_corners, padded
from gate_racer.perception.networks import STRIDE, to_image
from gate_racer.perception.roi import SearchWindow
from gate_racer.perception.sampling import PixelBox, gate_region, normalise_exposure
from gate_racer.vehicle.camera import LEAST_SIDE_PX, Camera
from gate_racer.vehicle.rotation import Array, Mask

# Measurement of the frame's end beside each side. Ratios over the opening. Tuned.
FIRST_SQUARE = 0.06  # distance of the first square beyond the opening, and ...
GROWTH = 1.14  # ... its growth from square to square: frames end at 1.4 to 2, if the opening is not cut
SQUARES = 33  # number of squares
FRAME_SQUARES = 8  # number of first squares that lie on any frame
PLACES = (-0.7, 0.7, 7)  # first, last and number of samples along each side
DARK = 0.55  # of the frame's brightness: lower levels are beyond the frame
CONTRAST = 40  # grey levels, least difference between the frame and the inside of an opening
INSIDE = (0.7, 0.8, 0.92)  # squares inside the opening: dark, unless another gate is behind
BEYOND = (0.55, 0.65, 0.75, 0.85)  # of a side's length, points beyond its ends, past its frame
BESIDE = 0.12  # of a side's length, offset to both sides of these points, by which a longer edge is found
LONGER_SHARE = 0.7  # least share of these points with an edge


def frame_ends(image: Image, quads: Array) -> tuple[Array, Array]:
    """Find where the frames about quads (Q, 4, 2) end in a one-channel image in which they are bright.

    Returns:
        (Q, 4) multiples of the opening, infinite where the frame does not end and NaN where the image ends before it; and
        the share (Q, 4) of each side's samples in the image at which the frame is bright and the inside is not.
    """
    scales = 1 + FIRST_SQUARE * GROWTH ** np.arange(SQUARES)
    places = np.linspace(*PLACES)
    squares = concentric(quads, np.concatenate([INSIDE, scales]))  # (Q, S, 4, 2)
    a, b = squares[..., None, :], squares[:, :, NEXT, None]
    grid = (((a + b) + places[:, None] * (b - a)) / 2).astype(np.float32)  # (Q, S, 4, P, 2)
    shape = grid.shape[:-1]
    level = cv2.remap(image, grid.reshape(len(quads), -1, 2), None, cv2.INTER_LINEAR).reshape(shape).astype(np.float32)
    inside = np.asarray(((grid >= 0) & (grid <= np.array(image.shape[::-1]) - 1)).all(-1))
    n = len(INSIDE)
    within, level = level[:, :n].min(1), level[:, n:]
    frame = level[:, :FRAME_SQUARES].max(1)  # (Q, 4, P)
    sampled = inside[:, : n + FRAME_SQUARES].all(1)
    shines = np.where(sampled, frame > within + CONTRAST, False).sum(-1) / np.maximum(sampled.sum(-1), 1)

    dark = level <= DARK * frame[:, None]
    over = dark & np.roll(np.pad(dark, ((0, 0), (0, 1), (0, 0), (0, 0)), constant_values=True), -1, 1)[:, :-1]
    first = over.argmax(1)[:, None]  # (Q, 1, 4, P)
    before = np.maximum(first - 1, 0)
    fall = [np.take_along_axis(level, at, 1)[:, 0] for at in (before, first)]
    share = (fall[0] - DARK * frame) / np.maximum(fall[0] - fall[1], 1.0)
    ends = (scales[before] + np.clip(share, 0.0, 1.0)[:, None] * (scales[first] - scales[before]))[:, 0]
    ends = np.where(over.any(1), np.where(first[:, 0] > 0, ends, 1.0), np.inf)
    shown = np.take_along_axis(inside[:, n:], np.where(over.any(1)[:, None], first, -1), 1)[:, 0]
    middle = np.sort(np.where(shown, ends, np.nan), -1)  # NaN last
    known = shown.sum(-1, keepdims=True)
    median = np.take_along_axis(middle, np.maximum(known - 1, 0) // 2, -1)[..., 0]
    return np.where(known[..., 0] >= len(places) // 2, median, np.nan), np.where(sampled.any(-1), shines, np.nan)


def goes_on(image: Image, quads: Array) -> Mask:
    """Find sides (Q, 4) of quads (Q, 4, 2) that are part of a longer edge, which continues past the end of their own frame."""
    along, beyond = quads[:, NEXT] - quads, np.array(BEYOND)
    outward = BESIDE * np.stack([along[..., 1], -along[..., 0]], -1)
    at = np.stack([-beyond, 1 + beyond])[..., None] * along[..., None, None, :] + quads[..., None, None, :]
    hands = at + outward[..., None, None, :], at - outward[..., None, None, :]
    at = np.stack(hands, -2)  # (Q, 4, 2 ends, n, 2 hands, 2)
    level = cv2.remap(image, at.reshape(len(quads), -1, 2).astype(np.float32), None, cv2.INTER_LINEAR)
    edge = level.reshape(at.shape[:-1]).astype(float) @ [1.0, -1.0] > CONTRAST
    inside = ((at >= 0) & (at <= np.array(image.shape[::-1]) - 1)).all((-1, -2))
    return np.asarray(((edge & inside).mean(-1) > LONGER_SHARE).any(-1))


# Consistency of a frame's widths. Ratios over the opening, or between widths. Tuned, except where a source is named.
DEPTH = 0.17  # greatest depth of a gate over its opening: 0.26 m of 1.5 m by the specification (derived)
FLATTEST = 0.85  # greatest part of an opening hidden by its depth
SLANTED = 0.1  # hidden part above which the view is oblique
WIDER = 1.15  # greatest ratio of apparent to true width, with
WIDER_PX = 0.5  # ... a tolerance in px,
BULGE = 0.12  # ... and one over the opening, for nearby gates
ALONE = 1.7  # as `WIDER`, if only one of a side and its opposite is in the image
OCCLUDER = 1.3  # ratio to the opposite width above which a side may be another gate's edge,
OCCLUDER_SURE = 1.75  # ... above which it is
ALIKE = 1.3  # greatest ratio between the widths of a frame that is taken to be as wide as it appears
GUESSED_WIDTH = (0.35, 1.45)  # over the expected width about a guess: least; greatest on three sides


def occluded_sides(ends: Array, quads: Array, longer: Mask, ratio: float) -> Mask:
    """Find sides (Q, 4) of quads (Q, 4, 2) that may be the edge of another gate, by the frames' ends (Q, 4).

    Args:
        longer: (Q, 4) sides that are part of a longer edge.
        ratio: silhouette over hole of the frames.
    """
    width = np.where(np.isnan(ends), np.inf, ends - 1)
    facing = width[:, OPPOSITE]
    factor = np.where(np.isnan(ends), ALONE, WIDER)
    flat = factor * _frame(width, ratio) + 2 * WIDER_PX / _apart(quads)[:, [0, 1, 0, 1]]
    other = (width > OCCLUDER * facing) & ((facing > flat + BULGE) | longer)
    return np.asarray(np.isfinite(facing) & (other | ((facing > flat) & (width > OCCLUDER_SURE * facing))))


def is_even(ends: Array, quads: Array, hidden: Mask, ratio: float) -> Mask:
    """Check which quads (Q, 4, 2) are consistent with a frame `ratio` times as large that ends at (Q, 4).

    The frame is equally wide in both directions, or widened by other gates beside a `hidden` side (Q, 4), or by an oblique
    view.
    """
    width, apart = np.where(np.isnan(ends), np.inf, ends - 1), _apart(quads)
    least = np.minimum(width[:, :2], width[:, 2:])
    beside = np.isnan(ends[:, :2]) | np.isnan(ends[:, 2:])
    wall = _wall(quads)
    px = 2 * WIDER_PX / apart
    factor = np.where(beside, ALONE, WIDER)
    as_wide = least < factor * (_frame(width, ratio) + 2 * wall) / (1 - wall) + BULGE + px
    unknown = np.isinf(least) & beside
    covered = hidden & ~np.isnan(ends)
    narrow = (wall > SLANTED) & np.isfinite(least) & ~beside[:, ::-1] & (least[:, ::-1] > WIDER * least + px)
    possible = as_wide | unknown | covered[:, :2] | covered[:, 2:]
    return np.asarray((width.min(-1) > 0) & possible.all(-1) & (as_wide | unknown).any(-1) & ~narrow.any(-1))


def fitting_share(ends: Array, quads: Array, ratio: float) -> Array:
    """Return the share (Q,) of the sides of quads (Q, 4, 2) beside which a frame ending at (Q, 4) has its expected width."""
    width = ends - 1
    known, wall = ~np.isnan(width), _wall(quads)
    frame = _frame(np.where(known, width, np.inf), ratio)
    most, px = (x[:, [0, 1, 0, 1]] for x in ((frame + 2 * wall) / (1 - wall), 2 * WIDER_PX / _apart(quads)))
    fits = known & (width > frame / ALIKE - px) & (width < ALIKE * most + px)
    return np.asarray(fits.sum(-1) / np.maximum(known.sum(-1), 1))


def guess_is_even(ends: Array, ratio: float) -> Mask:
    """Check which squares (Q,) guessed on one side fit a frame ending at (Q, 4): as `is_even`, for an unknown view angle."""
    low, high = (share * (ratio - 1) for share in GUESSED_WIDTH)
    width = ends - 1
    return np.asarray((np.nanmin(width, -1, initial=np.inf) > low) & ((width > high).sum(-1) < 2))


def _frame(width: Array, ratio: float) -> Array:
    """Return the widths (Q, 1) of frames: the apparent ones (Q, 4) if these agree, else the expected one."""
    alike = width.max(-1) < ALIKE * width.min(-1)
    return np.where(alike, width.min(-1), ratio - 1)[:, None]


def _wall(quads: Array) -> Array:
    """Return the parts (Q, 2) of openings (Q, 4, 2) hidden by their depth between sides 0 and 2, and 1 and 3."""
    apart = _apart(quads)
    slant = np.sqrt(np.maximum((apart.max(-1, keepdims=True) / apart) ** 2 - 1, 0.0))  # tangent of the view angle
    return np.asarray(np.minimum(DEPTH * slant, FLATTEST))


def _apart(quads: Array) -> Array:
    """Return the distances (Q, 2) px between sides 0 and 2, and 1 and 3, of quads (Q, 4, 2)."""
    side = np.linalg.norm(quads[:, NEXT] - quads, axis=-1)
    return np.asarray(np.maximum((side[:, [1, 0]] + side[:, [3, 2]]) / 2, 1e-9))


# Measurement of quadrilaterals from groups of corners. Tuned, except where a source is named.
MOVED_PX = 2.5  # greatest displacement of a mapped corner: three standard deviations of the card (derived)
MOVED_SIDE = 0.15  # ... or this share of the longest side, if greater: beyond it is another line
SUPPORT_MIN = 0.4  # -, least share of a side's profiles for a measured edge
SUPPORT_CLEAR = 0.8  # ... for one that is accepted at any distance from its prediction
NEARBY = 0.5  # -, scale of the square on a single edge within which its sides' directions are measured
GUESS_SIDE = 0.5  # -, standard deviation of an unseen corner over the longest visible side
PART_MIN_PX = 24.0  # least longest side of a partly visible gate
SKEW_PX = 1.0  # greatest skew beyond that of perspective
SKEW_SIDE = 0.02  # -, part of the side that is added to it


class EdgeStart(NamedTuple):
    """Quads (Q) near whose sides edges are searched."""

    corners_px: Array  # (Q, 4, 2)
    mapped: Mask  # (Q, 4) corners found in the maps; the others are guessed
    nearby: Mask  # (Q,) guessed corners represent only the direction of a side
    sigma_px: Array  # (Q, 4) standard deviation of a coordinate
    guess_px: Array  # (Q, 1) ... of a guessed corner
    score: Array  # (Q,) by the maps


class MeasuredQuads(NamedTuple):
    """Quads (Q) with measured edges."""

    corners_px: Array  # (Q, 4, 2)
    cov_px: Array  # (Q, 4, 2, 2) px^2
    found: Mask  # (Q, 4) corners that are measured, unless another gate's edge forms them
    expected: Mask  # (Q, 4) sides that were searched for
    guessed: Mask  # (Q,) squares guessed on a single side
    guess_px: Array  # (Q, 1) standard deviation of a guessed corner
    score: Array  # (Q,)


def measure(red: Image, groups: list[CornerGroup], card: NetworkCard, focal_px: float) -> MeasuredQuads:
    """Measure groups in an image (H, W) in which gates are bright; return those with enough edges."""
    start = _start(groups, card, focal_px)
    mapped, nearby = start.mapped, ~start.mapped & start.nearby[:, None]
    edges = fit_edges(red, start.corners_px, SILHOUETTE_RATIO, OPENING_EDGES)
    side_px = side_lengths(start.corners_px).max(-1, keepdims=True)
    moved_px = np.linalg.norm(edges.corners_px - start.corners_px, axis=-1)
    most_px = np.where(mapped, np.maximum(MOVED_PX, MOVED_SIDE * side_px), 2 * start.guess_px)
    measured = edges.measured & (edges.support > SUPPORT_MIN)
    clear = (measured & (edges.support > SUPPORT_CLEAR)).sum(-1)
    # A corner is the intersection of its sides, unless that is far from its position in the map.
    fits = measured & measured[:, PREVIOUS] & ((clear == 4)[:, None] | (moved_px < most_px))
    corners_px = np.where(fits[..., None], edges.corners_px, start.corners_px)
    onward = nearby & (measured | measured[:, PREVIOUS]) & ~fits
    beside = _beside(corners_px, mapped)
    corners_px = np.where(onward[..., None], beside + (edges.corners_px - beside) / NEARBY, corners_px)
    # One side or corner of a whole gate may merge with a bright background; its ends are then those of the map.
    trusted = mapped.all(-1) & ((fits.sum(-1) == 3) | (clear == 3))
    mapped_cov = start.sigma_px[..., None, None] ** 2 * np.eye(2)
    cov_px = np.where((fits | onward)[..., None, None], edges.cov_px2, mapped_cov)
    expected = mapped | mapped[:, NEXT] | fits & fits[:, NEXT]
    score = start.score * np.where(measured & expected, edges.support, 0.0).sum(-1) / expected.sum(-1)

    is_whole = fits.all(-1) | trusted
    large = side_lengths(corners_px).min(-1) > LEAST_SIDE_PX
    square = (excess_skew_px(corners_px, focal_px) < SKEW_PX) | nearby.any(-1)
    good = (score > np.where(is_whole, card.sure, card.sure_part)) & is_convex(corners_px) & large & square
    good &= is_whole | ((side_px[:, 0] > PART_MIN_PX) & (fits | ~mapped).all(-1))
    guessed = (mapped.sum(-1) == 2) & ~fits.all(-1)
    columns = corners_px, cov_px, fits | trusted[:, None], expected, guessed, start.guess_px, score
    return MeasuredQuads(*(column[good] for column in columns))


def excess_skew_px(quads: Array, focal_px: float) -> Array:
    """Return the skew (Q,) px of quads (Q, 4, 2) beyond that of perspective and a tolerance relative to their size."""
    side_px = side_lengths(quads).max(-1)
    return np.asarray(skew_px(quads) - side_px**2 / (2 * focal_px) - SKEW_SIDE * side_px)


def completed(px: Array) -> tuple[Array, float]:
    """Return corners (4, 2) px with guesses in place of NaN, and the guesses' standard deviation, px.

    Three corners complete to a parallelogram; two neighbouring ones to a square on the side between them.
    """
    px, seen = px.copy(), np.isfinite(px[:, 0])
    side_px = max(np.linalg.norm(a - b) for a in px[seen] for b in px[seen])
    for k in np.flatnonzero(~seen):
        before, across, after = ((k + step) % 4 for step in (3, 2, 1))
        if seen[[before, across, after]].all():
            px[k] = px[before] + px[after] - px[across]
        elif seen[after] and seen[across]:
            px[k] = px[after] + _inward(px[across] - px[after])
        else:
            px[k] = px[before] + _inward(px[before] - px[across])
    return px, float(GUESS_SIDE * side_px)


def _start(groups: list[CornerGroup], card: NetworkCard, focal_px: float) -> EdgeStart:
    """Return the quads near which the edges of groups are searched.

    The continuation of a pair is a guess that an oblique view falsifies: its gate is searched as a square, and as a smaller one.
    """
    found = [part for group in groups for part in _parts(group, focal_px)]
    pairs = [group for group in found if (group.height > 0).sum() == 2]
    nearby = np.repeat([False, True], [len(found), len(pairs)])
    found = found + pairs
    height = np.array([group.height for group in found])
    filled = [completed(to_image(group.at)) for group in found]
    px, guess_px = np.array([px for px, _ in filled]), np.array([[sigma] for _, sigma in filled])
    mapped = height > 0
    beside = _beside(px, mapped)
    px = np.where((~mapped & nearby[:, None])[..., None], beside + NEARBY * (px - beside), px)
    sigma_px = np.where(mapped, np.interp(height, card.peak, card.sigma_px), guess_px)
    return EdgeStart(px, mapped, nearby, sigma_px, guess_px, np.array([group.score for group in found]))


def _parts(group: CornerGroup, focal_px: float) -> list[CornerGroup]:
    """Return the group itself, or, if its corners cannot be a square's, its four subsets with one corner left out."""
    if not group.height.all() or excess_skew_px(to_image(group.at)[None], focal_px)[0] < SKEW_PX:
        return [group]
    others = ~np.eye(4, dtype=bool)
    return [replace(group, at=np.where(k[:, None], group.at, np.nan), height=group.height * k) for k in others]


def _beside(px: Array, known: Mask) -> Array:
    """Return for each corner of quads (Q, 4, 2) the previous one if it is known (Q, 4), else the next one."""
    return np.where(known[:, PREVIOUS, None], px[:, PREVIOUS], px[:, NEXT])


def _inward(step: Array) -> Array:
    """Return a step along an edge rotated into the opening, clockwise as seen (v down)."""
    return np.array([-step[1], step[0]])


# Acceptance of measured gates. Tuned, except where a source is named.
SHINES_MIN = 0.6  # -, least share of each side's samples at which the frame is brighter than the opening
CORNERS_MIN = 2  # least number of visible corners
SCORE_MIN = 0.4  # -, least score of a detection
SAME_PX = 3.0  # distance below which two corners are the same


def verify(red: Image, quads: MeasuredQuads, ratio: float, card: NetworkCard) -> list[Detection]:
    """Return the quads surrounded by a frame `ratio` times as large, in an image (H, W) in which gates are bright."""
    if not len(quads.score):
        return []
    corners_px, whole = quads.corners_px, quads.found.all(-1)
    ends, shines = (np.where(quads.expected, x, np.nan) for x in frame_ends(red, corners_px))
    longer = goes_on(red, corners_px)
    hidden = occluded_sides(ends, corners_px, longer, ratio) & ~quads.guessed[:, None]
    covered = hidden | hidden[:, PREVIOUS]  # corners of hidden sides
    seen = quads.found & ~covered & is_inside(corners_px, red, BORDER_PX)
    guess_cov = quads.guess_px[..., None, None] ** 2 * np.eye(2)
    cov_px = np.where(covered[..., None, None], guess_cov, quads.cov_px)

    framed_guess, framed = guess_is_even(ends, ratio), is_even(ends, corners_px, hidden, ratio)
    frame_ok = np.where(quads.guessed, framed_guess, framed)
    shines_ok = np.nan_to_num(shines, nan=1.0).min(-1) > SHINES_MIN
    corners_ok = seen.sum(-1) >= CORNERS_MIN
    sure_ok = whole | (quads.score > card.sure_part)
    score = quads.score * (1 + fitting_share(ends, corners_px, ratio)) / 2
    accepted = np.flatnonzero(frame_ok & shines_ok & corners_ok & sure_ok & (score > SCORE_MIN))

    detections = []
    for k in accepted:
        order = (np.arange(4) + first_corner(corners_px[k])) % 4
        detections.append(Detection(corners_px[k, order], cov_px[k, order], seen[k, order], float(score[k])))
    return detections


def is_same_gate(a: Detection, b: Detection) -> bool:
    """Check whether two detections are of one gate: whole ones share two corners, others one."""
    near = np.linalg.norm(a.corners_px[a.visible][:, None] - b.corners_px[b.visible], axis=-1) < SAME_PX
    return int(near.any(1).sum()) >= (2 if a.visible.all() and b.visible.all() else 1)


class LearnedDetector(Detector):
    """Gate detector by a network, for gates with at least two visible corners."""

    def __init__(self, camera: Camera):
        """Load the network.

        Raises:
            UserError: the network's file is missing or has the wrong outputs.
        """
        super().__init__(camera)
        self._network = GateNetwork(self._shape)

    def _detect(self, image: Image, window: SearchWindow) -> list[Detection]:
        card = self._network.card
        image = normalise_exposure(image)
        red = cv2.extractChannel(image, 2)
        box = self._reddish(image, red, window)
        groups = self._propose(image, box) if box.width else []
        if not groups:
            return []
        measured = measure(red, groups, card, self.camera.fx_px)
        # The depth of frames narrower than usual appears as wide as theirs.
        ratio = max(OUTLINE_RATIO * window.frame_ratio, SILHOUETTE_RATIO)
        found = verify(red, measured, ratio, card)
        return suppress_duplicates(found, is_same_gate)

    def _reddish(self, image: Image, red: Image, window: SearchWindow) -> PixelBox:
        """Return the part of the image, or of its window, in which gates may be."""
        rows, columns = window.region or (slice(0, image.shape[0]), slice(0, image.shape[1]))
        box = gate_region(cv2.subtract(red[rows, columns], image[rows, columns, 1]))[1]
        return box._replace(u=box.u + columns.start, v=box.v + rows.start)

    def _propose(self, image: Image, box: PixelBox) -> list[CornerGroup]:
        """Return groups of corners in and around a box of the image, in map pixels of the whole image."""
        u, v, w, h = padded(box, image.shape[1], image.shape[0])
        groups = group_corners(self._network.maps(image[v : v + h, u : u + w]))
        likely = [group for group in groups if group.score >= self._network.card.score]
        return [replace(group, at=group.at + np.array([u, v]) / STRIDE) for group in likely]
