"""An image corrects the estimate: the state at the exposure, the gates that its detections are, the correction."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from estimation.estimator import ExposureState, MapEstimator
from perception.association import Associator, GateSighting
from perception.detection import Detection
from perception.resting_focal import resting_focal

FROM_PAD = 20  # images before GO that tell of the camera


@dataclass(frozen=True, slots=True)
class Localised:
    """What an image has told an estimator."""

    used: int = 0  # gates
    unexplained: int = 0  # detections
    sightings: list[GateSighting] = field(default_factory=list)  # of gates on the map
    at: ExposureState | None = None  # before the correction; None where the image went unused

    @property
    def recognised(self) -> int:
        """Gates that the image showed, of the map or of the mapper's own; the filter may refuse some of the former."""
        return max(self.used, len(self.sightings))


def localise(
    estimator: MapEstimator, associator: Associator, stamp: float, detections: Sequence[Detection]
) -> Localised:
    """Correct an estimator by the detections of an image with this stamp, s."""
    exposure = estimator.predict(stamp)
    return Localised() if exposure is None else correct(estimator, recognise(exposure, associator, detections))


def recognise(exposure: ExposureState, associator: Associator, detections: Sequence[Detection]) -> Localised:
    """The gates that an image shows, none of them used so far."""
    at = exposure.state
    sightings, unexplained = associator.associate(
        at.t, detections, at.p_wb, at.cov_p, at.q_wb, at.sigma_attitude_rad, exposure.camera
    )
    return Localised(0, unexplained, sightings, exposure)


def correct(estimator: MapEstimator, found: Localised) -> Localised:
    """Correct an estimator by the gates that an image shows."""
    if found.at is None:
        return found
    return replace(found, used=estimator.correct(found.at, found.sightings, found.unexplained))


def refocused(estimator: MapEstimator, associator: Associator, from_pad: Sequence[Sequence[Detection]]) -> Associator:
    """At the end of the rest, make an estimator and the associator of a camera whose focal length is far from what is believed.

    Args:
        from_pad: the detections of the newest images from the pad, `FROM_PAD` at most.
    """
    at, camera = estimator.state(), associator.camera
    scale = resting_focal(from_pad, associator.rims, camera, at.p_wb, at.q_wb)
    if scale is None:
        return associator
    estimator.refocus(scale)
    return associator.through(camera.zoomed(scale))
