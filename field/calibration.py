"""Camera and clock combined from the calibrations of several flights, weighted by their covariances."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gate_racer.link.record_reader import Record
from gate_racer.vehicle.camera import Camera, CameraDoubt
from gate_racer.vehicle.config import ConfigError, from_dict
from gate_racer.vehicle.rotation import Array

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
    values, sigmas = (np.array([of(camera) for camera in cameras]) for of in (_values, _sigmas))
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


def _sigmas(camera: Camera) -> Array:
    """Return the standard deviations (13,) likewise."""
    return np.array([getattr(camera.doubt, name) for name in DOUBT_OF])


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
