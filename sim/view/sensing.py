"""Sensors of RflySim requests: mounts, gimbals, rendered images and ray-cast measurements.

Rays are cast against the solids of the course and the boxes of the hall's furniture, which does not collide. Sensor axes are
front-right-down on the mount; points of clouds are front-left-up, or world NED for type 21.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from gate_racer.common.errors import UserError
from gate_racer.link.rflysim import request as kinds
from gate_racer.link.rflysim.desk import GimbalOrder, GimbalState
from gate_racer.link.rflysim.request import SensorRequest, mount_deg, pinhole
from gate_racer.link.rflysim.stream import LOCAL, WORLD, Cloud, Range, depth_counts, encode_cloud, encode_payload
from gate_racer.sim.physics.contact import NO_RAY as NOTHING
from gate_racer.sim.physics.contact import Colliders, Solids, cast
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.renderer import RenderedCamera, in_light
from gate_racer.sim.view.scene import SOLID, hall_of
from gate_racer.sim.view.style import RenderingStyle
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array, as_vector, from_euler, matrix, normalised, product, to_euler


@dataclass(frozen=True)
class Mount:
    """Pose of a sensor: p_bs (3,) m, q_bs (4,). Of an Earth-fixed one q_bs, of one on the ground both are in world axes."""

    p_bs: Array
    q_bs: Array
    kind: int

    def seen(self, exposure: Exposure) -> Exposure:
        """Return the exposure with the sensor's pose and motion in place of the body's."""
        if self.kind == kinds.ON_GROUND:
            still = np.zeros(3)
            return replace(exposure, p_wb=self.p_bs, q_wb=self.q_bs, v_w=still, omega_b=still)
        R_wb = matrix(exposure.q_wb)
        p_ws = exposure.p_wb + R_wb @ self.p_bs
        v_w = exposure.v_w + R_wb @ np.cross(exposure.omega_b, self.p_bs)
        if self.kind == kinds.EARTH_FIXED:
            return replace(exposure, p_wb=p_ws, q_wb=self.q_bs, v_w=v_w, omega_b=np.zeros(3))
        q_ws, omega_s = np.array(product(exposure.q_wb, self.q_bs)), matrix(self.q_bs).T @ exposure.omega_b
        return replace(exposure, p_wb=p_ws, q_wb=q_ws, v_w=v_w, omega_b=omega_s)


def mount_of(request: SensorRequest) -> Mount:
    q_bs = from_euler(*map(math.radians, mount_deg(request)))
    return Mount(np.array(request.position_m), q_bs, request.mount_type)


BOX_VERTICES = 36  # vertices of `sim.view.scene.box`
FLAT_M = 0.05  # m, thickness assigned to a plain quad
GOLDEN = (math.sqrt(5) - 1) / 2  # step of hues, and of the low-discrepancy sequence of a Livox pattern


@dataclass(frozen=True)
class Surroundings:
    """What sensors sense: the course as rendered with a style and a seed, and its boxes."""

    track: Track
    style: RenderingStyle
    seed: int
    solids: Solids
    things: int  # number of distinct objects; all furniture counts as one

    def colours(self) -> np.ndarray:
        """Return the segmentation colours (things + 1, 3), BGR, 8 bit; the last, black, is the background."""
        hue = (np.arange(self.things) * GOLDEN) % 1.0
        channels = [np.clip(np.abs((hue * 6 + shift) % 6 - 3) - 1, 0, 1) for shift in (4, 2, 0)]  # blue, green, red
        return np.vstack([(64 + 191 * np.stack(channels, -1)).astype(np.uint8), np.zeros((1, 3), np.uint8)])


def surroundings(track: Track, style: RenderingStyle, seed: int) -> Surroundings:
    """Return the boxes of a course as rendered with a style and a seed. Parts not axis-aligned boxes or quads are left out."""
    colliders = Colliders(track)
    things = len(colliders.things)
    boxes = [edges for part in hall_of(track, style.varied(seed), seed).solids if (edges := _edges(part)) is not None]
    low, high = np.array(boxes).reshape(-1, 2, 3).transpose(1, 0, 2)
    axes, half = np.tile(np.eye(3), (len(low), 1, 1)), np.maximum((high - low) / 2, FLAT_M / 2)
    drawn = Solids((low + high) / 2, axes, half, np.full(len(low), things))
    solids = Solids(*(np.concatenate([known, more]) for known, more in zip(colliders.solids, drawn, strict=True)))
    return Surroundings(track, style, seed, solids, things + 1)


def _edges(part: Array) -> tuple[Array, Array] | None:
    """Return the lowest and highest corner of an axis-aligned box or quad; None for other shapes."""
    p_w = part.reshape(-1, SOLID)[:, :3]
    low, high = p_w.min(0), p_w.max(0)
    if len(p_w) == BOX_VERTICES:
        at_corners = np.isclose(p_w, low) | np.isclose(p_w, high)
        return (low, high) if at_corners.all() else None
    return (low, high) if (high - low).min() < FLAT_M else None


MOST_RAYS = 1 << 16  # largest number of rays per frame (chosen)
FRD_TO_FLU = np.array([1.0, -1.0, -1.0])
RANGE_M = 100.0  # m, range where the request has none
SEEN_M = 400.0  # m, range of a segmentation camera: that of the rendered ones
# Their data sheets; left, right, low, high.
CONES_DEG = {kinds.MID40: (-19.2, 19.2, -19.2, 19.2), kinds.MID360: (-180.0, 180.0, -7.0, 52.0)}


class Sense(ABC):
    """Sensor that produces the payload of its frames."""

    def __init__(self, request: SensorRequest, around: Surroundings):
        self._request, self._mount, self._around = request, mount_of(request), around

    @abstractmethod
    def payload(self, exposure: Exposure) -> bytes:
        """Return the payload of the frame of an exposure."""

    def pose(self, exposure: Exposure) -> Exposure:
        """Return the exposure with the sensor's pose and motion in place of its carrier's."""
        return self._mount.seen(exposure)

    def close(self) -> None:
        """Release the sensor's resources, where it has any."""
        return

    def _ahead(self, at: Exposure, range_m: float) -> tuple[float, Array, int]:
        """Return distance, m, and end (3,) of a ray along the x axis of the mount, and the index of the box hit."""
        ahead = matrix(at.q_wb)[:, 0]
        (distance,), (box,) = cast(self._around.solids, at.p_wb, ahead[None], range_m)
        reach = min(float(distance), range_m)
        return reach, at.p_wb + reach * ahead, box


class Rangefinder(Sense):
    """Rangefinder: one ray along the x axis of the mount; without a hit the distance is the maximum range."""

    def payload(self, exposure: Exposure) -> bytes:
        at, request = self.pose(exposure), self._request
        reach, hit, box = self._ahead(at, request.other[0] or RANGE_M)
        places = hit, hit if box == NOTHING else self._around.solids.centre[box]
        return Range(reach, request.copter, as_vector(at.p_wb), mount_deg(request), *map(as_vector, places)).encode()


class Scanner(Sense):
    """Sensors with many rays: depth images, depth clouds and LiDARs."""

    def __init__(self, request: SensorRequest, around: Surroundings):
        super().__init__(request, around)
        self._range_m = (request.other[1] if request.type_id == kinds.DEPTH else request.other[0]) or RANGE_M
        self._rays, count = np.zeros((0, 3)), request.width_px * request.height_px
        if request.type_id in (kinds.DEPTH, kinds.DEPTH_CLOUD):
            widest = max(request.width_px, request.height_px)
            step = 1 if request.type_id == kinds.DEPTH else round(min(max(request.other[1], 1.0), widest))
            self._rays = _pixel_rays(request, step)
        elif not 0 < count <= MOST_RAYS:
            raise UserError(f"sensor {request.seq_id}: DataWidth x DataHeight: {count} rays, expected 1 to {MOST_RAYS}")

    def payload(self, exposure: Exposure) -> bytes:
        request, at = self._request, self.pose(exposure)
        rays = self._rays if len(self._rays) else _lidar_rays(request, exposure.id)
        R_ws = matrix(at.q_wb)
        distance, box = cast(self._around.solids, at.p_wb, rays @ R_ws.T, self._range_m)
        if request.type_id == kinds.DEPTH:
            depth = (distance * rays[:, 0]).reshape(request.height_px, request.width_px)
            depth[depth < request.other[0]] = np.inf  # below the sensor's minimum range
            return encode_payload(depth_counts(depth, request), request.mode)
        hit = box != NOTHING
        points_s = rays[hit] * distance[hit, None]
        points = at.p_wb + points_s @ R_ws.T if request.type_id == kinds.LIDAR_WORLD else points_s * FRD_TO_FLU
        labelled = request.type_id != kinds.DEPTH_CLOUD and request.send[7] == 1
        segments = self._around.solids.thing[box[hit]].astype(np.float32) if labelled else None
        pose = as_vector(exposure.p_wb), to_euler(exposure.q_wb)
        axes = WORLD if request.type_id == kinds.LIDAR_WORLD else LOCAL
        return encode_cloud(Cloud(*pose, points.astype(np.float32), segments, request.copter, axes))


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


class Segmenter(Sense):
    """Segmentation camera: one colour per object."""

    def __init__(self, request: SensorRequest, around: Surroundings):
        super().__init__(request, around)
        self._rays, self._colours = _pixel_rays(request, 1), around.colours()

    def payload(self, exposure: Exposure) -> bytes:
        at, solids = self.pose(exposure), self._around.solids
        _, box = cast(solids, at.p_wb, self._rays @ matrix(at.q_wb).T, SEEN_M)
        thing = np.where(box == NOTHING, self._around.things, solids.thing[box])
        image = self._colours[thing].reshape(self._request.height_px, self._request.width_px, 3)
        return encode_payload(image, self._request.mode)


FACES = ((0, 0), (0, 90), (0, -90), (0, 180), (90, 0), (-90, 0))  # pitch and yaw of each face, deg
FACE_DEG = 92.0  # deg, field of view of a face, over 90 so that no seam shows
LEAST_PX, MOST_PX = 64, 1024  # limits of a face's side (chosen)


def fisheye_rays(request: SensorRequest) -> tuple[Array, NDArray[np.bool_]]:
    """Return unit vectors (H, W, 3), front-right-down, of all pixels, and the mask (H, W) of those in the field of view."""
    focal = request.width_px / math.radians(request.fov_deg)
    u, v = np.meshgrid(np.arange(request.width_px), np.arange(request.height_px))
    x, y = (u - request.width_px / 2) / focal, (v - request.height_px / 2) / focal
    theta = np.hypot(x, y)
    scale = np.sinc(theta / np.pi)  # sin(theta) / theta
    return np.stack([np.cos(theta), x * scale, y * scale], -1), theta <= math.radians(request.fov_deg) / 2


class DrawnCamera(Sense):
    """Rendered camera: RGB, grey or infrared, with brightness taken for temperature."""

    def __init__(self, request: SensorRequest, around: Surroundings, of: SensorRequest | None = None):
        """Open the camera; `of`: request whose pinhole is rendered, if another."""
        super().__init__(request, around)
        self._quality, self._light = around.style.jpeg_quality, request.type_id
        self._camera = self._open(of or request)

    def _open(self, of: SensorRequest) -> RenderedCamera:
        return RenderedCamera(self._around.track, pinhole(of), self._around.style, self._around.seed)

    def payload(self, exposure: Exposure) -> bytes:
        at = self.pose(exposure)
        image = self._camera.expose(at.p_wb, at.q_wb, at.v_w, at.omega_b, at.t)
        return encode_payload(in_light(image, self._light), self._request.mode, self._quality)

    def close(self) -> None:
        self._camera.close()


class Fisheye(DrawnCamera):
    """Equidistant fisheye camera, r = f theta with f = W / FOV, sampled from the faces of a cube within its field of view.

    Kannala and Brandt, "A generic camera model ... for conventional, wide-angle and fish-eye lenses", 2006, its first term.
    """

    def __init__(self, request: SensorRequest, around: Surroundings):
        """Open the cube camera. otherParams[0]: side of a face in px; 0 for the resolution of the image."""
        side = round(request.other[0]) or math.ceil(request.width_px * FACE_DEG / request.fov_deg)
        side = min(max(side, LEAST_PX), MOST_PX)
        face = replace(request, width_px=side, height_px=side, fov_deg=FACE_DEG)
        super().__init__(request, around, face)
        camera = self._camera.camera
        rays, self._inside = fisheye_rays(request)
        self._faces = []
        for pitch, yaw in FACES:
            q_sf = from_euler(0.0, math.radians(pitch), math.radians(yaw))
            rays_c = rays @ matrix(q_sf) @ camera.R_bc
            here = self._inside & (rays_c[..., 2] > 0) & (rays_c[..., 2] >= np.abs(rays_c[..., :2]).max(-1) - 1e-9)
            if here.any():
                at = camera.project(np.where(here[..., None], rays_c, [0.0, 0.0, 1.0])).astype(np.float32)
                self._faces.append((q_sf, here, at[..., 0], at[..., 1]))

    def payload(self, exposure: Exposure) -> bytes:
        at = self.pose(exposure)
        image = np.zeros((self._request.height_px, self._request.width_px, 3), np.uint8)
        for q_sf, here, u, v in self._faces:
            drawn = self._camera.image(at.p_wb, product(at.q_wb, q_sf), at.t)
            image[here] = cv2.remap(drawn, u, v, cv2.INTER_LINEAR)[here]
        return encode_payload(image, self._request.mode, self._quality)


LIGHTS = kinds.RGB, kinds.INFRARED, kinds.INFRARED_GREY  # TypeID of the spectrum for each value of `GimbalOrder.light`
LEAST_FOV_DEG = 1.0  # lower limit of the field of view under zoom (chosen)
MOST_RATE_DEG_S = 720.0  # deg/s, rate limit where the request has none (chosen)
PITCH, YAW = 1, 2  # indices in roll, pitch, yaw


class Gimbal(DrawnCamera):
    """Gimbal camera. otherParams of its request: pitch limits (deg), rate limits (deg/s), zoom, range limit (m); 0: default."""

    def __init__(self, request: SensorRequest, around: Surroundings):
        self._rest = mount_deg(request)
        self._euler, self._fov_deg = list(self._rest), request.fov_deg
        self._focal, self._rates, self._zoom = 0.0, (0.0, 0.0), max(request.other[4], 1.0)
        super().__init__(request, around, replace(request, fov_deg=self._seen_deg))
        self._ranging, self._light, self._t = False, kinds.RGB, -math.inf

    @property
    def _seen_deg(self) -> float:
        """Horizontal field of view at the current zoom, deg."""
        half = math.tan(math.radians(self._fov_deg) / 2) / self._zoom
        return max(2 * math.degrees(math.atan(half)), LEAST_FOV_DEG)

    def order(self, order: GimbalOrder) -> None:
        """Execute a command. Raises UserError if the command is invalid or not supported."""
        if order.track is not None or order.box is not None:
            raise UserError("the gimbals of this simulator support neither tracking nor target boxes")
        zoom, light = order.zoom or 0.0, order.light or 0
        fov_deg = self._fov_deg if order.fov_deg is None else order.fov_deg
        if not (0 <= light < len(LIGHTS) and zoom >= 0 and 0 < fov_deg < 180):
            raise UserError(f"light {light}, zoom {zoom:g}, view {fov_deg:g} deg: expected 0 to 2, 0 or more, 0 to 180")
        size_px = order.size_px or (self._request.width_px, self._request.height_px)
        if max(size_px) > MOST_SIDE_PX:
            raise UserError(f"an image of {size_px[0]} x {size_px[1]} px: at most {MOST_SIDE_PX} px a side")
        before = self._seen_deg, self._request.width_px, self._request.height_px
        self._request = replace(self._request, width_px=size_px[0], height_px=size_px[1])
        self._fov_deg = fov_deg
        self._zoom = max(order.zoom, 1.0) if order.zoom is not None else self._zoom
        self._focal = self._focal if order.focal is None else order.focal
        self._rates = order.rates or self._rates
        if order.centre:
            self._euler, self._rates = list(self._rest), (0.0, 0.0)
        if order.quat is not None:
            self._euler = [math.degrees(angle) for angle in to_euler(normalised(order.quat))]
        if order.euler is not None:
            self._euler = [math.remainder(angle, 360.0) for angle in order.euler]
        self._ranging = self._ranging if order.ranging is None else order.ranging
        self._light = self._light if order.light is None else LIGHTS[order.light]
        if (self._seen_deg, *size_px) != before:
            self._camera.close()
            self._camera = self._open(replace(self._request, fov_deg=self._seen_deg))

    def payload(self, exposure: Exposure) -> bytes:
        self._turn(exposure.t)
        return super().payload(exposure)

    def pose(self, exposure: Exposure) -> Exposure:
        self._mount = mount_of(replace(self._request, euler=tuple(self._euler), by_quat=0.0, quat=kinds.IDENTITY))
        return super().pose(exposure)

    def state(self, exposure: Exposure) -> GimbalState:
        camera, roll_pitch_yaw = self._camera.camera, (self._euler[0], self._euler[PITCH], self._euler[YAW])
        q = from_euler(*map(math.radians, roll_pitch_yaw)).tolist()
        return GimbalState(
            self._request.seq_id, self._request.copter, roll_pitch_yaw, tuple(q), self._seen_deg, self._focal, self._rates,
            camera.fx_px, camera.fy_px, camera.width_px, camera.height_px,
            self._ahead(self.pose(exposure), self._request.other[5] or RANGE_M)[0] if self._ranging else 0.0,
        )  # fmt: skip

    def _turn(self, t: float) -> None:
        """Integrate the commanded rates up to time t, s, within the limits."""
        passed = t - self._t if 0.0 < t - self._t < 1.0 else 0.0
        self._t = t
        low, high, *limits = self._request.other[:4]
        for axis, rate, limit in zip((PITCH, YAW), self._rates, limits, strict=True):
            most = limit if limit > 0 else MOST_RATE_DEG_S
            turned = self._euler[axis] + passed * min(max(math.degrees(rate), -most), most)
            self._euler[axis] = math.remainder(turned, 360.0)
        if low < high:
            self._euler[PITCH] = float(np.clip(self._euler[PITCH], low, high))


MOST_SIDE_PX = 2048  # largest side of an image (chosen)
SENSES: dict[int, Callable[[SensorRequest, Surroundings], Sense]] = {
    **dict.fromkeys((kinds.RGB, kinds.GREY, kinds.INFRARED_GREY, kinds.INFRARED), DrawnCamera),
    **dict.fromkeys(
        (kinds.DEPTH, kinds.DEPTH_CLOUD, kinds.LIDAR, kinds.LIDAR_WORLD, kinds.MID40, kinds.MID360), Scanner
    ),
    kinds.FISHEYE: Fisheye,
    kinds.GIMBAL: Gimbal,
    kinds.SEGMENTATION: Segmenter,
    kinds.RANGE: Rangefinder,
}


def open_sense(request: SensorRequest, around: Surroundings) -> Sense:
    """Open the sensor that a valid request describes. Raises UserError if the size or mount is not supported."""
    where = f"sensor {request.seq_id}"
    if request.mount_type > kinds.ON_SENSOR:
        raise UserError(f"{where}: TargetMountType {request.mount_type}: must be 0 to {kinds.ON_SENSOR}")
    if max(request.width_px, request.height_px) > MOST_SIDE_PX:
        raise UserError(f"{where}: {request.width_px} x {request.height_px} px: at most {MOST_SIDE_PX} px a side")
    return SENSES[request.type_id](request, around)
