"""The estimators by name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gate_racer.common.parts import PATIENCE_S, Part, is_part

if TYPE_CHECKING:
    from gate_racer.estimation.estimator import MapEstimator
    from gate_racer.model.rims import GateAppearance
    from gate_racer.tracks.track import Start
    from gate_racer.vehicle.vehicle import Vehicle

PUBLISHED = "drift-swift"  # estimator with position fixes by IPPE and perturbed corners
VIO = "drift-vio"  # the drift filter on the odometry of an outside VIO
ESTIMATORS = ("eskf", "drift", PUBLISHED, VIO)
DEFAULT = "eskf"
IN_AIR_M_S = 20.0  # standard deviation of an unknown initial velocity, each axis (chosen)


def make_estimator(
    name: str,
    start: Start,
    vehicle: Vehicle,
    look: GateAppearance | None = None,
    in_air: bool = False,
    patience_s: float = PATIENCE_S,
) -> MapEstimator:
    """Return one of `ESTIMATORS`, or one around a user's class, at rest on the pad.

    `look` describes how drawn gates differ from ideal ones, by default not.

    With `in_air` it begins in flight instead, at an unknown velocity; only `eskf` takes this into account. `patience_s`: longest
    call of a user's class, s, made as `Mine(start, vehicle)`.

    Raises:
        UserError: a class that cannot be loaded or made.

    Examples:
        >>> from gate_racer import make_estimator
        >>> estimator = make_estimator("eskf", track.start, vehicle)
        >>> estimator.state().lost
        False
    """
    if name == "eskf" or is_part(name):
        from gate_racer.estimation.eskf import ErrorStateEstimator
        from gate_racer.estimation.imu_samples import Agility
        from gate_racer.estimation.part import NEEDED, PartEstimator
        from gate_racer.model.rims import GateAppearance
        from gate_racer.model.states import Noise

        noise = Noise.of(vehicle)
        if in_air:
            noise = replace(noise, states={**noise.states, "v": noise.states["v"]._replace(prior=IN_AIR_M_S)})
        given = start, vehicle.camera, noise, look or GateAppearance(), Agility.of(vehicle)
        if is_part(name):
            return PartEstimator(Part(name, "state estimator", NEEDED, (start, vehicle), patience_s), *given)
        return ErrorStateEstimator(*given)
    if name == VIO:
        from gate_racer.estimation.vio import VioDriftEstimator

        return VioDriftEstimator(start)
    import numpy as np

    from gate_racer.estimation import drift

    if name != PUBLISHED:
        return drift.DriftEstimator(start, drift.STRAPDOWN_NOISE)
    fixed_seed = np.random.default_rng(0)  # a replay draws the same
    return drift.DriftEstimator(start, drift.SWIFT_NOISE, drift.PoseFix(vehicle.camera, fixed_seed))
