"""Ray-cast sensors: rangefinder, depth, point clouds, LiDARs and segmentation, against the solids and the furniture.

Sensor axes are front-right-down on the mount; points of clouds are front-left-up, or world NED for type 21.
"""

import math

import numpy as np

from gate_racer.link.rflysim.clouds import LOCAL, WORLD, Cloud, CloudLayout, encode_cloud
from gate_racer.link.rflysim.config import pinhole
from gate_racer.link.rflysim.images import depth_counts, encode_payload
from gate_racer.link.rflysim.ranges import Range
from gate_racer.link.rflysim.request import SensorRequest
from gate_racer.link.rflysim.sensors import DEPTH, DEPTH_CLOUD, LIDAR_WORLD, MID40, MID360
from gate_racer.sim.physics.rays import NOTHING, cast
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.mount import mount_of
from gate_racer.sim.view.surroundings import Surroundings
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array, matrix, to_euler

MOST_RAYS = 1 << 16  # largest number of rays per frame (chosen)
FRD_TO_FLU = np.array([1.0, -1.0, -1.0])
RANGE_M = 100.0  # m, range where the request has none
SEEN_M = 400.0  # m, range of a segmentation camera: that of the rendered ones
# Their data sheets; left, right, low, high.
CONES_DEG = {MID40: (-19.2, 19.2, -19.2, 19.2), MID360: (-180.0, 180.0, -7.0, 52.0)}
GOLDEN = (math.sqrt(5) - 1) / 2  # step of the low-discrepancy sequence of a Livox pattern


class Rangefinder:
    """Rangefinder: one ray along the x axis of the mount; without a hit the distance is the maximum range."""

    def __init__(self, request: SensorRequest, around: Surroundings):
        self._request, self._mount, self._around = request, mount_of(request), around
        self._range_m = request.other[0] or RANGE_M

    def payload(self, exposure: Exposure) -> bytes:
        at, solids = self._mount.seen(exposure), self._around.solids
        ahead = matrix(at.q_wb)[:, 0]
        (distance,), (box,) = cast(solids, at.p_wb, ahead[None], self._range_m)
        reach = min(float(distance), self._range_m)
        hit = at.p_wb + reach * ahead
        target = hit if box == NOTHING else solids.centre[box]
        mount = self._request.euler[0], self._request.euler[1], self._request.euler[2]
        return Range(reach, self._request.copter, _vector(at.p_wb), mount, _vector(hit), _vector(target)).encode()

    def close(self) -> None:
        pass


class Scanner:
    """Sensors with many rays: depth images, depth clouds and LiDARs."""

    def __init__(self, request: SensorRequest, around: Surroundings):
        self._request, self._mount, self._around = request, mount_of(request), around
        self._range_m = (request.other[1] if request.type_id == DEPTH else request.other[0]) or RANGE_M
        if request.type_id in (DEPTH, DEPTH_CLOUD):
            widest = max(request.width_px, request.height_px)
            step = 1 if request.type_id == DEPTH else round(min(max(request.other[1], 1.0), widest))
            self._rays = _pixel_rays(request, step)
        else:
            self._rays = np.zeros((0, 3))
            if not 0 < self._count <= MOST_RAYS:
                raise UserError(
                    f"sensor {request.seq_id}: DataWidth x DataHeight: {self._count} rays, expected 1 to {MOST_RAYS}"
                )

    @property
    def _count(self) -> int:
        return self._request.width_px * self._request.height_px

    def payload(self, exposure: Exposure) -> bytes:
        request, at = self._request, self._mount.seen(exposure)
        rays = self._rays if len(self._rays) else _lidar_rays(request, exposure.id)
        R_ws = matrix(at.q_wb)
        distance, box = cast(self._around.solids, at.p_wb, rays @ R_ws.T, self._range_m)
        if request.type_id == DEPTH:
            depth = (distance * rays[:, 0]).reshape(request.height_px, request.width_px)
            depth[depth < request.other[0]] = np.inf  # below the sensor's minimum range
            return encode_payload(depth_counts(depth, request), request.mode)
        hit = box != NOTHING
        points_s = rays[hit] * distance[hit, None]
        points = at.p_wb + points_s @ R_ws.T if request.type_id == LIDAR_WORLD else points_s * FRD_TO_FLU
        labelled = request.type_id != DEPTH_CLOUD and request.send[7] == 1
        segments = self._around.solids.thing[box[hit]].astype(np.float32) if labelled else None
        pose = _vector(exposure.p_wb), to_euler(exposure.q_wb)
        layout = CloudLayout.XYZ_SEG if labelled else CloudLayout.XYZ
        axes = WORLD if request.type_id == LIDAR_WORLD else LOCAL
        return encode_cloud(Cloud(*pose, points.astype(np.float32), segments, request.copter, axes, layout))

    def close(self) -> None:
        pass


def _pixel_rays(request: SensorRequest, step: int) -> Array:
    """Return unit vectors (N, 3), front-right-down, through every step-th pixel, row by row."""
    camera = pinhole(request)
    u, v = np.meshgrid(np.arange(0, camera.width_px, step), np.arange(0, camera.height_px, step))
    rays_c = np.stack([(u - camera.cx_px) / camera.fx_px, (v - camera.cy_px) / camera.fy_px, np.ones(u.shape)], -1)
    rays = rays_c.reshape(-1, 3) @ camera.R_bc.T
    return rays / np.linalg.norm(rays, axis=1)[:, None]


def _lidar_rays(request: SensorRequest, frame: int) -> Array:
    """Return unit vectors (N, 3), front-right-down: DataHeight lines of DataWidth rays, or a non-repeating Livox pattern."""
    columns, lines = request.width_px, request.height_px
    if request.type_id in CONES_DEG:
        left, right, low, high = CONES_DEG[request.type_id]
        n = np.arange(columns * lines)
        across, up = (n * GOLDEN + frame * GOLDEN**2) % 1, (n + 0.5) / len(n)
    else:
        left, right, low, high = request.other[2:6]
        across, up = (
            grid.ravel() for grid in np.meshgrid((np.arange(columns) + 0.5) / columns, (np.arange(lines) + 0.5) / lines)
        )
    yaw, pitch = np.radians(left + (right - left) * across), np.radians(low + (high - low) * up)
    return np.stack([np.cos(pitch) * np.cos(yaw), np.cos(pitch) * np.sin(yaw), -np.sin(pitch)], -1)


class Segmenter:
    """Segmentation camera: one colour per object."""

    def __init__(self, request: SensorRequest, around: Surroundings):
        self._request, self._mount, self._around = request, mount_of(request), around
        self._rays, self._colours = _pixel_rays(request, 1), around.colours()

    def payload(self, exposure: Exposure) -> bytes:
        at, solids = self._mount.seen(exposure), self._around.solids
        _, box = cast(solids, at.p_wb, self._rays @ matrix(at.q_wb).T, SEEN_M)
        thing = np.where(box == NOTHING, self._around.things, solids.thing[box])
        image = self._colours[thing].reshape(self._request.height_px, self._request.width_px, 3)
        return encode_payload(image, self._request.mode)

    def close(self) -> None:
        pass


def _vector(p: Array) -> tuple[float, float, float]:
    x, y, z = p.tolist()
    return x, y, z
