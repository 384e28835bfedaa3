"""Files that the field tools write: vehicles with fitted parameters in place of those of a base vehicle, and calibrations.

Camera and clock are combined from the calibrations of several flights, weighted by their covariances.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from gate_racer.common.config import ConfigError, from_dict, write
from gate_racer.field.identify.fit import RISE_M_S2, Fit
from gate_racer.link.record import Record
from gate_racer.vehicle.camera import Camera, CameraDoubt
from gate_racer.vehicle.rotation import Array
from gate_racer.vehicle.vehicle import ThrottleCurve, Vehicle


def identified(fit: Fit, base: Vehicle, name: str, source: str) -> Vehicle:
    """Return the base vehicle with all fitted parameters."""
    lags = [axis.lag_s for axis in fit.rates]
    rate_lag = [lag.value if lag else kept for lag, kept in zip(lags, base.rate_lag_s, strict=True)]
    linear, quadratic = fit.drag_linear_1_s, fit.drag_quadratic_1_m
    return replace(
        base,
        name=name,
        source=source,
        throttle=_curve(fit, base.throttle),
        thrust_lag_s=fit.thrust_lag_s,
        command_delay_s=fit.delay_s,
        rate_lag_s=(rate_lag[0], rate_lag[1], rate_lag[2]),
        drag_linear_1_s=(linear[0].value, linear[1].value, linear[2].value) if linear else base.drag_linear_1_s,
        drag_quadratic_1_m=quadratic.value if quadratic else base.drag_quadratic_1_m,
    )


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
    """Write the YAML file for `load_vehicle`."""
    write_yaml(path, asdict(vehicle))


def write_yaml(path: Path, fields: dict[str, Any]) -> None:
    """Write fields to a file for the strict loader: numbers with six digits, no absent values."""
    write(path, _rounded(fields))


def _rounded(value: Any) -> Any:
    """Round numbers to six digits."""
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


# Factor on the filter's standard deviations, which are up to 2 too small (docs/worlds.md: NEES of 3.9 per degree of freedom).
OVERCONFIDENCE = 2.0
SIGNIFICANT = 2.0  # standard deviations by which a camera must differ from its model
# Standard deviation that applies to each of `_values`: the axes of one quantity share one.
LENS = ("focal", "centre_px", "centre_px", "k1", "k2")
DOUBT_OF = ("yaw_deg", "tilt_deg", "roll_deg", *LENS, "delay_s", "readout_s", *3 * ("position_m",))


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
    """Return (13,): mount, logarithm of the focal length, principal point, distortion, exposure times, position."""
    mount, lens = (camera.yaw_deg, camera.tilt_deg, camera.roll_deg), (camera.cx_px, camera.cy_px, camera.k1, camera.k2)
    return np.array([*mount, np.log(camera.fx_px), *lens, camera.delay_s, camera.readout_s, *camera.p_bc_m])


def _camera(nominal: Camera, mean: Array, sigma: Array) -> Camera:
    (yaw, tilt, roll, log_focal, cx, cy, k1, k2, delay, readout, x, y, z) = np.round(mean, 6).tolist()
    focal = float(np.exp(log_focal)) / nominal.fx_px
    return replace(
        nominal,
        yaw_deg=yaw,
        tilt_deg=tilt,
        roll_deg=roll,
        fx_px=focal * nominal.fx_px,
        fy_px=focal * nominal.fy_px,
        cx_px=cx,
        cy_px=cy,
        k1=k1,
        k2=k2,
        delay_s=delay,
        readout_s=readout,
        p_bc_m=(x, y, z),
        doubt=CameraDoubt(**dict(zip(DOUBT_OF, np.round(sigma, 6).tolist(), strict=True))),
    )
