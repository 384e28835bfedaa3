"""Classical detector: image in, corners of every opening out, wholly or partly in view.

    scene -> propose -> measure -> complete -> gather -> verify -> refine -> report

Quadrilaterals are proposed by the holes of a mask, and by a network, if there is one: it knows cut and occluded gates better.

The red channel is near 255 on a gate and its white lettering, also through the cyan corridor of light, and low in the corridor,
so an opening is a dark hole in a bright region. White lamps form such holes as well; the colour of the ring around a hole and
the silhouette of the frame discriminate them. Reported corners have the covariance of their two lines' intersection.

Thresholds of all stages are *measured* on the public frames of AI Grand Prix builds, *derived* from geometry, sampling or
quantisation, or *tuned*: set by hand for recall and precision of `benchmarks/perception.py` on rendered flights, and checked on
real frames. Levels are of 255. Ratios are dimensionless. Red over green is red - green, which chroma subsampling and lamps leave
to gates.

The style is common to the gates of a course: the expected one is detected until another is confirmed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import cv2
import numpy as np

from gate_racer.common.compiled import Image
from gate_racer.model import quadrilateral
from gate_racer.model.quadrilateral import OUTLINE_RATIO, SILHOUETTE_RATIO, GateModel, concentric, first_corner
from gate_racer.perception.classical import proposals
from gate_racer.perception.classical.evidence import RIM_FROM_PX, Evidence, Rims, gather, refine, verify
from gate_racer.perception.classical.proposals import RED_DEG, PixelBox, PreparedImage, View
from gate_racer.perception.detection import Detection, Detector
from gate_racer.perception.edges import count_red
from gate_racer.perception.roi import SearchWindow
from gate_racer.perception.taught.detector import PART, STRIDE, GateNetwork, find_gates
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Indices

# Identification and adoption of an unknown style of gates. Tuned.
EVERY_PX = 3  # px, sampling step of rows and columns for the histogram of hues
BINS = 32  # bins of the histogram
SATURATION_MIN = 90  # of 255, least saturation of a pixel with a defined hue
CHROMA_MIN = 40  # of 255, least chroma of such a pixel
WEIGHT_MIN = 10.0  # fully coloured pixels, least weight of a hue that is tried, and ...
WEIGHT_SHARE = 0.02  # ... least share of all
HUES_MAX = 2  # greatest number of hues tried
SAME_HUE_DEG = 50.0  # hues nearer than this belong to one style
SAME_RATIO = 0.08  # -, relative difference below which silhouette ratios are equal
OPENINGS_MOST = 12  # number of openings, the largest, whose frame is examined
SCALES = (1.08, 3.0, 32)  # first, last and number of squares searched for a frame's end
ON_FRAME_MIN = 0.7  # -, least share of a side's samples with the colour before the frame's end
BEYOND_MAX = 0.3  # -, greatest share after it
BEFORE_END = 0.95  # squares up to this multiple of the ratio are on the frame,
BEYOND_FROM = 1.1  # ... from this multiple on beyond it,
BEYOND_TO = 1.3  # ... up to this one
RATIOS = (1.2, 2.8)  # -, range of silhouette over hole
ALIKE = 0.15  # -, greatest difference between sides of one frame, over its width
SURE_SCORE = 0.6  # least score, and ...
SURE_PX = 14.0  # ... least size of a gate by which the style of the others is decided
RETRY_IMAGES = 10  # images between searches for other styles while no gate is seen with high confidence


@dataclass(frozen=True, slots=True)
class FrameStyle:
    """Colour and proportions of gates."""

    hue_deg: float = RED_DEG  # green is at 120, blue at 240
    ratio: float = SILHOUETTE_RATIO  # apparent silhouette over hole
    own_background: bool = False  # background in a paler shade of the gates' hue, or gates too dark for the red view

    def like(self, other: "FrameStyle") -> bool:
        """Check whether two styles may be the same."""
        same_hue = _hue_distance_deg(self.hue_deg, other.hue_deg) < SAME_HUE_DEG
        same_ratio = abs(self.ratio / other.ratio - 1) < SAME_RATIO
        return self.own_background == other.own_background and same_hue and same_ratio


def possible_styles(image: Image, last: FrameStyle, likely: FrameStyle, camera: Camera) -> Iterator[FrameStyle]:
    """Yield styles other than `last` with a frame in the image, with the ratio of `likely` where it fits."""
    hues = (last.hue_deg, *_other_hues(image, last))
    for own_background, hue_deg in product((False, True), hues):
        scene = PreparedImage.prepare(image, hue_deg, own_background)
        ratio = None if scene.empty else _ratio_in(scene, camera)
        if ratio is not None:
            same = abs(ratio / likely.ratio - 1) < SAME_RATIO
            style = FrameStyle(hue_deg, likely.ratio if same else ratio, own_background)
            if style != last:
                yield style


def ratio_of(detection: Detection, camera: Camera) -> float:
    """Return the frontal silhouette over hole of a gate with both measured."""
    assert detection.outer_px is not None
    quads = np.stack([detection.corners_px, detection.outer_px])
    model = GateModel(camera, np.zeros(2), SILHOUETTE_RATIO)
    size_px, depth_px = _sizes(quads), _across(model.depth_extent_px(quads[:1]))[0]
    return float(((size_px[1] - depth_px) / (size_px[0] + depth_px))[depth_px.argmin()])


def _ratio_in(scene: PreparedImage, camera: Camera) -> float | None:
    """Return silhouette over hole of the first frame in the views of a scene, or None."""
    model = GateModel(camera, np.zeros(2), SILHOUETTE_RATIO)
    for view in (scene.red, scene.red_over_green):
        holes = proposals.whole_holes(scene.mask(view), OPENINGS_MOST) + scene.box_origin_px
        ratio = _ratio_about(scene.image, holes, model.depth_extent_px(holes)) if len(holes) else None
        if ratio is not None:
            return ratio
    return None


def _ratio_about(image: Image, openings: Array, extent_px: Array) -> float | None:
    """Return silhouette over hole for the first of openings (Q, 4, 2) with a gate-coloured frame all around, or None.

    It is measured across the pair of sides with the smaller extent of the gate's depth, extent_px (Q, 4).
    """
    scales = np.geomspace(*SCALES)
    sampled, coloured = count_red(image, concentric(openings, scales))  # (Q, 4, S)
    # The outermost coloured square within which most samples are coloured: lettering leaves gaps.
    mostly = 2 * coloured > np.maximum(sampled, 1)
    filled = coloured.cumsum(-1) > ON_FRAME_MIN * np.maximum(sampled.cumsum(-1), 1)
    end = (np.arange(1, len(scales)) * (mostly & filled)[..., :-1]).max(-1)  # (Q, 4), index of the next square
    at = scales[end]
    size_px, depth_px = _sizes(openings), _across(extent_px)
    both = (np.maximum(at[:, :2], at[:, 2:]) * size_px - depth_px) / (size_px + depth_px)
    ratio = np.take_along_axis(both, depth_px.argmin(-1)[:, None], -1)[:, 0]
    even = (end > 0).all(-1) & (np.ptp(at, axis=-1) < 2 * ALIKE * ratio)
    for k in np.flatnonzero(even):
        if RATIOS[0] < ratio[k] < RATIOS[1]:
            before, after = np.searchsorted(scales, ratio[k] * np.array([BEFORE_END, BEYOND_TO]))
            beyond = np.searchsorted(scales, BEYOND_FROM * ratio[k])
            parts = np.s_[:before], np.s_[beyond:after]
            on_frame, beyond_it = (coloured[k, :, p].sum() / max(sampled[k, :, p].sum(), 1) for p in parts)
            if on_frame > ON_FRAME_MIN and beyond_it < BEYOND_MAX:
                return float(ratio[k])
    return None


def _other_hues(image: Image, style: FrameStyle) -> list[float]:
    """Return the most frequent hues (deg) of an image (H, W, 3) BGR other than that of a style."""
    step = EVERY_PX
    hue, saturation, value = cv2.split(cv2.cvtColor(image[::step, ::step], cv2.COLOR_BGR2HSV_FULL))
    chroma = cv2.multiply(saturation, value, scale=1 / 255)
    vivid = (saturation > SATURATION_MIN) & (chroma > CHROMA_MIN)
    count = np.bincount(hue[vivid] // (256 // BINS), chroma[vivid] / 255.0, BINS)
    weight = count + (np.roll(count, 1) + np.roll(count, -1)) / 2
    least = max(WEIGHT_MIN, WEIGHT_SHARE * weight.sum())
    found: list[float] = []
    for peak in np.argsort(-weight, kind="stable"):
        hue_deg = float(peak + 0.5) * 360 / BINS
        if weight[peak] < least or len(found) == HUES_MAX:
            break
        if all(_hue_distance_deg(hue_deg, known) > SAME_HUE_DEG for known in (style.hue_deg, *found)):
            found.append(hue_deg)
    return found


def _hue_distance_deg(a_deg: float, b_deg: float) -> float:
    return abs((a_deg - b_deg + 180) % 360 - 180)


def _sizes(quads: Array) -> Array:
    """Return distances (Q, 2) px between the midpoints of sides 0 and 2, and of sides 1 and 3, of quads (Q, 4, 2)."""
    return np.asarray(np.linalg.norm(quads[:, :2] + quads[:, 1:3] - quads[:, 2:] - quads[:, [3, 0]], axis=-1) / 2)


def _across(extent_px: Array) -> Array:
    """Return the depth's extents (Q, 2) px in the same two directions, from its extents (Q, 4) across the sides."""
    return (extent_px[:, :2] + extent_px[:, 2:]) / 2


def report(evidence: Evidence, accepted: Indices, score: Array, rims: Rims) -> list[Detection]:
    """Return the accepted hypotheses, best first, with corners in image order; a silhouette only if wholly visible."""
    outer_px, outer_cov_px2, found = evidence.silhouette.corners_px, evidence.silhouette.cov_px2, []
    for n, i in enumerate(accepted):
        turn = (np.arange(4) + first_corner(rims.corners_px[n])) % 4
        both = evidence.fits[i].all() and evidence.silhouette_inside[i]
        one = Detection(rims.corners_px[n][turn], rims.cov_px2[n][turn], rims.visible[n][turn], float(score[i]))
        if both:
            one = replace(one, outer_px=outer_px[i][turn], outer_cov_px=outer_cov_px2[i][turn])
        found.append(replace(one, near_face=bool(rims.near_face[n])))
    return sorted(found, key=lambda d: -d.score)


# Criteria for duplicate detections of one gate. Tuned.
SAME_OVERLAP = 0.5  # -, intersection over union above which two openings are the same
SAME_CORNER_PX = 2.0  # distance of corners below which two openings are the same


def is_same_gate(a: Detection, b: Detection) -> bool:
    """Check whether two detections are of one opening: they overlap, or share a corner."""
    apart = a.corners_px[a.visible][:, None] - b.corners_px[b.visible]
    shares_corner = bool((np.hypot(apart[..., 0], apart[..., 1]) < SAME_CORNER_PX).any())
    return quadrilateral.overlap(a.corners_px, b.corners_px) > SAME_OVERLAP or shares_corner


def without_duplicates(found: list[Detection]) -> list[Detection]:
    """Return one detection of each opening, best first. More visible corners take precedence, then the higher score."""
    kept: list[Detection] = []
    for one in sorted(found, key=lambda d: (-int(d.visible.sum()), -d.score)):
        if not any(is_same_gate(one, other) for other in kept):
            kept.append(one)
    return sorted(kept, key=lambda d: -d.score)


IMAGE_ORIGIN_PX = np.zeros(2)  # origin of a whole image
EXPLAINED_RATIO = 1.1  # -, size explained by a gate over its silhouette: outline and glow included (tuned)


class ColourDetector(Detector):
    """Gate detector by the style of the frames, for openings of at least 8 px.

    Until a gate of the expected style is seen with high confidence, and when none is seen any more, images are searched for
    other styles. A style seen with high confidence first, or twice in the absence of the present one, is adopted.
    """

    def __init__(self, camera: Camera, network: GateNetwork | None = None, rim_from_px: float = RIM_FROM_PX):
        """Search with a camera; a network proposes gates, too. Beside holes from `rim_from_px` on the near face is sought."""
        super().__init__(camera)
        self._network, self._rim_from_px = network, rim_from_px
        self._expected = self._style = FrameStyle()
        self._confirmed = False  # whether a gate of the style was seen with high confidence
        self._candidate_style: FrameStyle | None = None  # another style, seen once with high confidence since then
        self._unsure = 0  # images since a gate of the style was seen with high confidence

    def _detect(self, image: Image, window: SearchWindow) -> list[Detection]:
        """Return all gates; if the window has a region, only those of the present style in it, whose edges count as a border."""
        if window.frame_ratio:
            expected = FrameStyle(ratio=OUTLINE_RATIO * window.frame_ratio)
            if expected != self._expected:
                self._expected = self._style = expected
                self._confirmed = False
        if window.region is not None:
            rows, columns = window.region
            origin_px = np.array([columns.start, rows.start])
            found = self._find(np.ascontiguousarray(image[rows, columns]), self._style, origin_px)
            return [detection.moved(origin_px) for detection in found]
        found = self._find(image, self._style)
        if _sure(found):
            self._confirm(self._style)
            return found
        self._unsure += 1
        retry = self._unsure % RETRY_IMAGES == 0 or (self._unsure == 1 and not found)
        others_due = not self._confirmed or self._candidate_style is not None or retry
        return self._of_other_styles(image, found) if others_due else found

    def _confirm(self, style: FrameStyle) -> None:
        self._style, self._confirmed, self._unsure, self._candidate_style = style, True, 0, None

    def _of_other_styles(self, image: Image, found: list[Detection]) -> list[Detection]:
        """Return the gates of another style if it replaces the present one or `found` is empty, else `found`."""
        for style in possible_styles(image, self._style, self._expected, self.camera):
            others = self._find(image, style)
            if sure := _sure(others):
                if style.ratio != self._expected.ratio:
                    style = replace(style, ratio=float(np.median([ratio_of(one, self.camera) for one in sure])))
                    others = self._find(image, style)
                seen_before = self._candidate_style is not None and style.like(self._candidate_style)
                if seen_before or not (self._confirmed or found):
                    self._confirm(style)
                    return others
                self._candidate_style = style
                return found or others
        return found

    def _find(self, image: Image, style: FrameStyle, origin_px: Array = IMAGE_ORIGIN_PX) -> list[Detection]:
        """Return the gates of a style in the part of the camera's image that begins at origin_px (2,), best first."""
        scene = PreparedImage.prepare(image, style.hue_deg, style.own_background)
        if scene.empty:
            return []
        reported = reported_gates(self._network, scene) if self._network else NOTHING
        model = GateModel(self.camera, origin_px, style.ratio)
        found = _find_in_view(scene, scene.red, reported, model, self._rim_from_px)
        explained = EXPLAINED_RATIO * style.ratio
        silhouettes = [quadrilateral.enlarged(detection.corners_px[None], explained)[0] for detection in found]
        if scene.leaves_unexplained(silhouettes):
            found += _find_in_view(scene, scene.red_over_green, reported, model, self._rim_from_px)
        return without_duplicates(found)


def _sure(found: list[Detection]) -> list[Detection]:
    """Return the detections with high confidence, by which the style of the others is decided."""
    return [
        one
        for one in found
        if one.outer_px is not None and one.score > SURE_SCORE and np.ptp(one.corners_px, axis=0).min() > SURE_PX
    ]


NOTHING = np.empty((0, 4, 2))
REPORTED_MIN = 0.3  # -, least score of a gate that the network reports: colour and edges verify it (tuned)


def reported_gates(network: GateNetwork, scene: PreparedImage) -> Array:
    """Return the openings (Q, 4, 2) that a network sees in a scene, which it gets as prepared: gates are red."""
    u, v, w, h = padded(scene.box, scene.image.shape[1], scene.image.shape[0])
    found = find_gates(network, scene.image[v : v + h, u : u + w])
    quads = np.array([one.corners_px for one in found if one.score > REPORTED_MIN]).reshape(-1, 4, 2) + [u, v]
    return np.asarray(quads[proposals.is_measurable(quads)])


def padded(box: PixelBox, width: int, height: int) -> PixelBox:
    """Return the part of an image that contains a box, enlarged to the sizes to which `blocks` pads anyway."""
    parts = []
    for start, size, most in ((box.u, box.width, width), (box.v, box.height, height)):
        length = min(-(-size // (STRIDE * PART)) * STRIDE * PART, most)
        middle = start + size // 2 - length // 2
        parts.append((min(max(middle, 0), most - length) // STRIDE * STRIDE, length))
    (u, w), (v, h) = parts
    return PixelBox(u, v, w, h)


def _find_in_view(
    scene: PreparedImage, view: View, reported: Array, model: GateModel, rim_from_px: float
) -> list[Detection]:
    """Return the openings that appear as dark holes in a view, and verified ones of the reported (Q, 4, 2), best first."""
    quads = np.concatenate([reported, proposals.propose(scene, view, model)])
    if not len(quads):
        return []
    edges = proposals.measure(view, quads, model)
    if not len(edges.measured):
        return []
    hypotheses = proposals.complete(view, edges, model)
    evidence = gather(scene, view, hypotheses, model)
    accepted, score = verify(evidence)
    if not len(accepted):
        return []
    rims = refine(scene, evidence, accepted, model, rim_from_px)
    return report(evidence, accepted, score, rims)
