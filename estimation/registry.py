"""The estimators by name."""

import numpy as np

from gate_racer.estimation.drift import RELEASED_NOISE, STRAPDOWN_NOISE, SWIFT_NOISE, DriftEstimator, PoseFix
from gate_racer.estimation.eskf import ErrorStateEstimator
from gate_racer.estimation.estimator import MapEstimator
from gate_racer.estimation.imu_samples import Agility
from gate_racer.model.rims import GateAppearance
from gate_racer.model.states import Noise, of_camera
from gate_racer.tracks.track import Start
from gate_racer.vehicle.vehicle import Vehicle

DRIFT = {"drift": STRAPDOWN_NOISE, "drift-swift": SWIFT_NOISE, "drift-released": RELEASED_NOISE}
PUBLISHED = ("drift-swift", "drift-released")  # estimators with position fixes by IPPE and perturbed corners
ESTIMATORS = ("eskf", *DRIFT)
DEFAULT = "eskf"
IN_AIR_M_S = 20.0  # standard deviation of an unknown initial velocity, each axis (chosen)


def make_estimator(
    name: str, start: Start, vehicle: Vehicle, look: GateAppearance | None = None, in_air: bool = False
) -> MapEstimator:
    """Return one of `ESTIMATORS` at rest on the pad; `look` describes how drawn gates differ from ideal ones, by default not.

    With `in_air` it begins in flight instead, at an unknown velocity; only `eskf` takes this into account.

    Examples:
        >>> from gate_racer import make_estimator
        >>> estimator = make_estimator("eskf", track.start, vehicle)
        >>> estimator.state().lost
        False
    """
    if name == "eskf":
        states = dict(of_camera(vehicle.camera.doubt))
        if in_air:
            states["v"] = states["v"]._replace(prior=IN_AIR_M_S)
        noise = Noise(vehicle.imu, states)
        return ErrorStateEstimator(start, vehicle.camera, noise, look or GateAppearance(), Agility.of(vehicle))
    fix = PoseFix(vehicle.camera, np.random.default_rng(0)) if name in PUBLISHED else None  # a replay draws the same
    return DriftEstimator(start, DRIFT[name], fix)
