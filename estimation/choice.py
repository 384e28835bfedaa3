"""The estimators by name."""

from estimation.drift import RELEASED_NOISE, STRAPDOWN_NOISE, SWIFT_NOISE
from estimation.drift_estimator import DriftEstimator
from estimation.error_state import ErrorStateEstimator
from estimation.estimator import Estimator
from estimation.imu_samples import Agility
from estimation.noise import Noise
from perception.association import Look
from tracks.track import Start
from vehicle.vehicle import Vehicle

DRIFT = {"drift": STRAPDOWN_NOISE, "drift-swift": SWIFT_NOISE, "drift-released": RELEASED_NOISE}
ESTIMATORS = ("eskf", *DRIFT)
DEFAULT = "eskf"


def make_estimator(name: str, start: Start, vehicle: Vehicle, look: Look) -> Estimator:
    """One of `ESTIMATORS` on its pad; `look` says how far drawn gates differ from ideal ones."""
    if name == "eskf":
        return ErrorStateEstimator(start, vehicle.camera, Noise(vehicle.imu), look, Agility.of(vehicle))
    return DriftEstimator(start, DRIFT[name])
