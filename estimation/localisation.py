"""Localisation by an image: predict to the exposure, associate detections with gates, correct the estimate."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gate_racer.estimation.estimator import ExposureState, MapEstimator
from gate_racer.perception.association import Associator, GateSighting
from gate_racer.perception.detection import Detection
from gate_racer.perception.resting_focal import resting_focal

FROM_PAD = 20  # newest images from the pad by which the focal length is checked (chosen)


@dataclass(frozen=True, slots=True)
class Localised:
    """Result of using an image."""

    used: int = 0  # gates used for the correction
    unexplained: int = 0  # detections associated with no gate
    sightings: list[GateSighting] = field(default_factory=list)  # of gates on the map
    at: ExposureState | None = None  # predicted state, before the correction; None if the image was not used

    @property
    def recognised(self) -> int:
        """Number of gates recognised in the image, on the map or mapped; the filter may reject some of the former."""
        return max(self.used, len(self.sightings))


def localise(
    estimator: MapEstimator, associator: Associator, stamp: float, detections: Sequence[Detection]
) -> Localised:
    """Correct an estimator by the detections of an image stamped `stamp` (s)."""
    exposure = estimator.predict(stamp)
    return Localised() if exposure is None else correct(estimator, recognise(exposure, associator, detections))


def recognise(exposure: ExposureState, associator: Associator, detections: Sequence[Detection]) -> Localised:
    """Associate the detections of an image with gates, without correcting anything."""
    at = exposure.state
    sightings, unexplained = associator.associate(
        at.t, detections, at.p_wb, at.cov_p, at.q_wb, at.sigma_attitude_rad, exposure.camera
    )
    return Localised(0, unexplained, sightings, exposure)


def correct(estimator: MapEstimator, found: Localised) -> Localised:
    """Correct an estimator by the gates recognised in an image."""
    if found.at is None:
        return found
    return replace(found, used=estimator.correct(found.at, found.sightings, found.unexplained))


def refocused(estimator: MapEstimator, associator: Associator, from_pad: Sequence[Sequence[Detection]]) -> Associator:
    """Correct a focal length far from its nominal value, at the end of the rest; return the associator for that camera.

    Args:
        from_pad: detections of the newest images from the pad, at most `FROM_PAD` images.
    """
    at, camera = estimator.state(), associator.camera
    scale = resting_focal(from_pad, associator.rims, camera, at.p_wb, at.q_wb)
    if scale is None:
        return associator
    estimator.refocus(scale)
    return associator.through(camera.zoomed(scale))
