"""Files that the field tools write: vehicles with fitted parameters in place of those of a base vehicle, and calibrations.

Camera and clock are combined from the calibrations of several flights, weighted by their covariances.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gate_racer.common.config import ConfigError, from_dict, write
from gate_racer.common.errors import UserError
from gate_racer.field.identify.fit import RISE_M_S2, Fit
from gate_racer.link.record import Record
from gate_racer.vehicle.camera import Camera, CameraDoubt
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import ThrottleCurve, Vehicle


def identified(fit: Fit, base: Vehicle, name: str, source: str) -> Vehicle:
    """Return the base vehicle with all fitted parameters. Raises UserError where no vehicle flies with them."""
    lags = [axis.lag_s for axis in fit.rates]
    rate_lag = [lag.value if lag else kept for lag, kept in zip(lags, base.rate_lag_s, strict=True)]
    linear, quadratic = fit.drag_linear_1_s, fit.drag_quadratic_1_m
    try:
        return replace(
            base,
            name=name,
            source=source,
            throttle=_curve(fit, base.throttle),
            thrust_lag_s=fit.timing.lag.value,
            command_delay_s=fit.timing.delay.value,
            rate_lag_s=(rate_lag[0], rate_lag[1], rate_lag[2]),
            drag_linear_1_s=(linear[0].value, linear[1].value, linear[2].value) if linear else base.drag_linear_1_s,
            drag_quadratic_1_m=quadratic.value if quadratic else base.drag_quadratic_1_m,
        )
    except ValueError as error:
        raise UserError(f"{source}: {error}; are throttle and force those of a flight?") from None


def _curve(fit: Fit, base: ThrottleCurve) -> ThrottleCurve:
    """Return the fitted knots; beyond them the base curve, scaled to meet the nearest knot."""
    knots, thrust = np.array(fit.throttle), np.array([point.value for point in fit.thrust_m_s2])
    ends = []
    for u in (0.0, 1.0):
        if u not in knots:
            near = int(np.abs(knots - u).argmin())
            ends.append((u, base.thrust(u) * thrust[near] / max(base.thrust(knots[near]), RISE_M_S2)))
    command, force = zip(*sorted([*ends, *zip(knots.tolist(), thrust.tolist(), strict=True)]), strict=True)
    ramp = RISE_M_S2 * np.arange(len(force))  # the ends of the base curve may lie below the nearest knot
    rising = np.maximum.accumulate(np.array(force) - ramp) + ramp
    return ThrottleCurve(tuple(command), tuple(round(max(0.0, c), 4) for c in rising.tolist()))


def write_vehicle(path: Path, vehicle: Vehicle) -> None:
    write(path, vehicle, DIGITS)


DIGITS = 6  # significant, of all that is measured
# Factor on the filter's standard deviations, which are up to 2 too small (docs/worlds.md: NEES of 3.9 per degree of freedom).
OVERCONFIDENCE = 2.0
SIGNIFICANT = 2.0  # standard deviations by which a camera must differ from its model
# Values of a camera that are averaged, in addition to the focal length's logarithm and the position, and the standard deviation
# that applies to each: the axes of one quantity share one.
SCALARS = ("yaw_deg", "tilt_deg", "roll_deg", "k1", "k2", "delay_s", "readout_s", "cx_px", "cy_px")
DOUBT_OF = (*SCALARS[:-2], "centre_px", "centre_px", "focal", *3 * ("position_m",))


def camera_of(record: Record) -> Camera | None:
    """Return the camera of a log's `/calibration`, with its standard deviations; None where it is absent or invalid."""
    try:
        camera = from_dict(record.get("camera", {}), Camera, "/calibration")
    except ConfigError:
        return None
    return camera if camera.doubt is not None else None


def combined(cameras: Sequence[Camera], nominal: Camera) -> Camera | None:
    """Return the weighted mean of calibrations, with its standard deviations; None if it does not differ from `nominal`."""
    if not cameras:
        return None
    values = np.array([_values(camera) for camera in cameras])
    sigmas = np.array([[getattr(camera.doubt, name) for name in DOUBT_OF] for camera in cameras])
    weights = sigmas**-2.0
    mean = (weights * values).sum(0) / weights.sum(0)
    sigma = OVERCONFIDENCE * np.sqrt(1 / weights.sum(0))
    if (np.abs(mean - _values(nominal)) < SIGNIFICANT * sigma).all():
        return None
    return _camera(nominal, mean, sigma)


def _values(camera: Camera) -> Array:
    return np.array([*(getattr(camera, name) for name in SCALARS), np.log(camera.fx_px), *camera.p_bc_m])


def _camera(nominal: Camera, mean: Array, sigma: Array) -> Camera:
    *scalars, log_focal, x, y, z = np.round(mean, 6).tolist()
    focal = float(np.exp(log_focal)) / nominal.fx_px
    return replace(
        nominal,
        **dict(zip(SCALARS, scalars, strict=True)),
        fx_px=focal * nominal.fx_px,
        fy_px=focal * nominal.fy_px,
        p_bc_m=(x, y, z),
        doubt=CameraDoubt(**dict(zip(DOUBT_OF, np.round(sigma, 6).tolist(), strict=True))),
    )
