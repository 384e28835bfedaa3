"""An image corrects the estimate: the state at the exposure, the gates that its detections are, the correction."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from estimation.estimator import ExposureState, MapEstimator
from perception.association import Associator, GateSighting
from perception.detection import Detection


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
    if exposure is None:
        return Localised()
    at = exposure.state
    sightings, unexplained = associator.associate(
        at.t, detections, at.p_wb, at.cov_p, at.q_wb, at.sigma_attitude_rad, exposure.camera
    )
    used = estimator.correct(exposure, sightings, unexplained)
    return Localised(used, unexplained, sightings, exposure)
