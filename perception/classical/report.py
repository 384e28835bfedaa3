"""Stage 7, report: accepted hypotheses as detections, each corner with the covariance of its two lines' intersection."""

import cv2
import numpy as np

from gate_racer.perception.classical.config import ClassicalConfig, DuplicateConfig
from gate_racer.perception.classical.evidence import Evidence
from gate_racer.perception.classical.refine import Rims
from gate_racer.perception.common.quadrilateral import first_corner
from gate_racer.perception.detection import Detection
from gate_racer.vehicle.rotation import Array, Indices


def report(evidence: Evidence, accepted: Indices, score: Array, rims: Rims, config: ClassicalConfig) -> list[Detection]:
    """Return the accepted hypotheses, best first, with corners in image order; a silhouette only if wholly visible."""
    silhouette = evidence.silhouette
    silhouette_cov_px2 = silhouette.cov_px2(config.silhouette_edges.floor_px)
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


def is_same_gate(a: Detection, b: Detection, config: DuplicateConfig) -> bool:
    """Check whether two detections are of one opening: they overlap, or share a corner."""
    quads = [detection.corners_px.astype(np.float32) for detection in (a, b)]
    both = cv2.intersectConvexConvex(*quads)[0]
    either = cv2.contourArea(quads[0]) + cv2.contourArea(quads[1]) - both
    apart = a.corners_px[a.visible][:, None] - b.corners_px[b.visible]
    shares_corner = bool((np.hypot(apart[..., 0], apart[..., 1]) < config.corner_px).any())
    return bool(both > config.overlap * either) or shares_corner
