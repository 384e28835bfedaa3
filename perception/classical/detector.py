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
"""

from dataclasses import replace

import numpy as np

from gate_racer.common.compiled import Image
from gate_racer.model.quadrilateral import enlarged, first_corner
from gate_racer.model.rims import GateModel
from gate_racer.perception.classical.evidence import Evidence, gather, verify
from gate_racer.perception.classical.proposals import complete, is_measurable, measure, propose
from gate_racer.perception.classical.refine import RIM_FROM_PX, Rims, refine
from gate_racer.perception.classical.scene import PreparedImage, View
from gate_racer.perception.classical.style import FrameStyle, StyleTracker, possible_styles, ratio_of
from gate_racer.perception.detection import Detection, Detector, overlap
from gate_racer.perception.roi import SearchWindow
from gate_racer.perception.taught.detector import find_gates
from gate_racer.perception.taught.network import GateNetwork, padded
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import Array, Indices


def report(evidence: Evidence, accepted: Indices, score: Array, rims: Rims) -> list[Detection]:
    """Return the accepted hypotheses, best first, with corners in image order; a silhouette only if wholly visible."""
    silhouette = evidence.silhouette
    silhouette_cov_px2 = silhouette.cov_px2
    found = []
    for n, i in enumerate(accepted):
        turn = (np.arange(4) + first_corner(rims.corners_px[n])) % 4
        both = evidence.fits[i].all() and evidence.silhouette_inside[i]
        found.append(
            Detection(
                rims.corners_px[n][turn],
                rims.cov_px2[n][turn],
                rims.visible[n][turn],
                float(score[i]),
                silhouette.corners_px[i][turn] if both else None,
                silhouette_cov_px2[i][turn] if both else None,
                bool(rims.near_face[n]),
            )
        )
    return sorted(found, key=lambda d: -d.score)


# Criteria for duplicate detections of one gate. Tuned.
SAME_OVERLAP = 0.5  # -, intersection over union above which two openings are the same
SAME_CORNER_PX = 2.0  # distance of corners below which two openings are the same


def is_same_gate(a: Detection, b: Detection) -> bool:
    """Check whether two detections are of one opening: they overlap, or share a corner."""
    apart = a.corners_px[a.visible][:, None] - b.corners_px[b.visible]
    shares_corner = bool((np.hypot(apart[..., 0], apart[..., 1]) < SAME_CORNER_PX).any())
    return overlap(a.corners_px, b.corners_px) > SAME_OVERLAP or shares_corner


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

    def __init__(self, camera: Camera, rim_from_px: float = RIM_FROM_PX, network: GateNetwork | None = None):
        """Search with a camera.

        Args:
            rim_from_px: least side of a hole beside which the rim of the near face is looked for.
            network: proposes gates, too.
        """
        super().__init__(camera)
        self._rim_from_px, self._network = rim_from_px, network
        self._tracker = StyleTracker(FrameStyle())

    def _detect(self, image: Image, window: SearchWindow) -> list[Detection]:
        """Return all gates; if the window has a region, only those of the present style in it, whose edges count as a border."""
        if window.frame_ratio:
            self._tracker.expect(FrameStyle.of_frame(window.frame_ratio))
        if window.region is not None:
            rows, columns = window.region
            origin_px = np.array([columns.start, rows.start])
            part = np.ascontiguousarray(image[rows, columns])
            found = self._find(part, self._tracker.style, origin_px)
            return [detection.moved(origin_px) for detection in found]
        found = self._find(image, self._tracker.style)
        return self._of_other_styles(image, found) if self._tracker.others_due(found) else found

    def _of_other_styles(self, image: Image, found: list[Detection]) -> list[Detection]:
        """Return the gates of another style if it replaces the present one or `found` is empty, else `found`."""
        tracker = self._tracker
        for style in possible_styles(image, tracker.style, tracker.expected, self.camera):
            others = self._find(image, style)
            sure = tracker.sure(others)
            if sure:
                if style.ratio != tracker.expected.ratio:
                    style = replace(style, ratio=float(np.median([ratio_of(one, self.camera) for one in sure])))
                    others = self._find(image, style)
                return others if tracker.adopts(style, found) else found or others
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
        silhouettes = [enlarged(detection.corners_px[None], explained)[0] for detection in found]
        if scene.leaves_unexplained(silhouettes):
            found += _find_in_view(scene, scene.red_over_green, reported, model, self._rim_from_px)
        return without_duplicates(found)


NOTHING = np.empty((0, 4, 2))
REPORTED_MIN = 0.3  # -, least score of a gate that the network reports: colour and edges verify it (tuned)


def reported_gates(network: GateNetwork, scene: PreparedImage) -> Array:
    """Return the openings (Q, 4, 2) that a network sees in a scene, which it gets as prepared: gates are red."""
    u, v, w, h = padded(scene.box, scene.image.shape[1], scene.image.shape[0])
    found = find_gates(network, scene.image[v : v + h, u : u + w])
    quads = np.array([one.corners_px for one in found if one.score > REPORTED_MIN]).reshape(-1, 4, 2) + [u, v]
    return np.asarray(quads[is_measurable(quads)])


def _find_in_view(
    scene: PreparedImage, view: View, reported: Array, model: GateModel, rim_from_px: float
) -> list[Detection]:
    """Return the openings that appear as dark holes in a view, and verified ones of the reported (Q, 4, 2), best first."""
    quads = np.concatenate([reported, propose(scene, view, model)])
    if not len(quads):
        return []
    edges = measure(view, quads, model)
    if not len(edges.measured):
        return []
    hypotheses = complete(view, edges, model)
    evidence = gather(scene, view, hypotheses, model)
    accepted, score = verify(evidence)
    if not len(accepted):
        return []
    rims = refine(scene, evidence, accepted, model, rim_from_px)
    return report(evidence, accepted, score, rims)
