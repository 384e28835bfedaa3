"""Gimbal: a rendered camera that turns, zooms and ranges on command, and reports its state."""

import math
from dataclasses import replace

import numpy as np

from gate_racer.link.rflysim.config import UNIT_TOLERANCE, pinhole
from gate_racer.link.rflysim.gimbal import GimbalOrder, GimbalState
from gate_racer.link.rflysim.images import encode_payload
from gate_racer.link.rflysim.request import IDENTITY, Floats, SensorRequest
from gate_racer.link.rflysim.sensors import INFRARED, INFRARED_GREY, RGB
from gate_racer.sim.physics.rays import cast
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.infrared import in_light
from gate_racer.sim.view.look import Look
from gate_racer.sim.view.mount import mount_of
from gate_racer.sim.view.ranging import RANGE_M
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.sim.view.surroundings import Surroundings
from gate_racer.tracks.track import Track
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import from_euler, matrix, normalised, to_euler

LIGHTS = RGB, INFRARED, INFRARED_GREY  # TypeID of the spectrum for each value of `GimbalOrder.light`
LEAST_FOV_DEG = 1.0  # lower limit of the field of view under zoom (chosen)
MOST_RATE_DEG_S = 720.0  # deg/s, rate limit where the request has none (chosen)
PITCH, YAW = 1, 2  # indices in roll, pitch, yaw


class Gimbal:
    """Gimbal camera. otherParams of its request: pitch limits (deg), rate limits (deg/s), zoom, range limit (m); 0: default."""

    def __init__(self, request: SensorRequest, track: Track, around: Surroundings, look: Look, seed: int):
        self._request, self._around, self._quality = request, around, look.jpeg_quality
        self._drawn = track, look, seed
        self._rest: Floats = request.euler
        self._euler, self._fov_deg = list(request.euler), request.fov_deg
        self._focal, self._rates, self._zoom = 0.0, (0.0, 0.0), max(request.other[4], 1.0)
        self._ranging, self._light, self._t = False, RGB, -math.inf
        self._camera = self._open()

    def _open(self) -> RenderedCamera:
        track, look, seed = self._drawn
        return RenderedCamera(track, pinhole(replace(self._request, fov_deg=self._seen_deg)), look, seed)

    @property
    def _seen_deg(self) -> float:
        """Horizontal field of view at the current zoom, deg."""
        half = math.tan(math.radians(self._fov_deg) / 2) / self._zoom
        return max(2 * math.degrees(math.atan(half)), LEAST_FOV_DEG)

    def order(self, order: GimbalOrder) -> None:
        """Execute a command.

        Raises:
            UserError: the command is invalid or not supported.
        """
        if order.track is not None or order.box is not None:
            raise UserError("the gimbals of this simulator support neither tracking nor target boxes")
        if order.light is not None and not 0 <= order.light < len(LIGHTS):
            raise UserError(f"light {order.light}: expected 0 (RGB), 1 (thermal) or 2 (grey infrared)")
        if (order.zoom is not None and order.zoom < 0) or (order.fov_deg is not None and not 0 < order.fov_deg < 180):
            raise UserError("the zoom must not be negative, and the field of view must lie between 0 and 180 degrees")
        if order.quat is not None and abs(math.hypot(*order.quat) - 1) > UNIT_TOLERANCE:
            raise UserError(f"SensorAngQuat: must have length 1, found {order.quat}")
        before = self._seen_deg
        self._fov_deg = order.fov_deg or self._fov_deg
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
        if self._seen_deg != before:
            self._camera.close()
            self._camera = self._open()

    def payload(self, exposure: Exposure) -> bytes:
        self._turn(exposure.t)
        at = mount_of(self._aimed).seen(exposure)
        image = self._camera.expose(at.p_wb, at.q_wb, at.v_w, at.omega_b, at.t)
        return encode_payload(in_light(image, self._light), self._request.mode, self._quality)

    def state(self, exposure: Exposure) -> GimbalState:
        """Return the reported state at an exposure."""
        camera, roll_pitch_yaw = self._camera.camera, (self._euler[0], self._euler[PITCH], self._euler[YAW])
        q = from_euler(*map(math.radians, roll_pitch_yaw)).tolist()
        return GimbalState(
            self._request.seq_id, self._request.copter, roll_pitch_yaw, tuple(q), self._seen_deg, self._focal, self._rates,
            camera.fx_px, camera.fy_px, camera.width_px, camera.height_px, self._range_m(exposure),
        )  # fmt: skip

    @property
    def _aimed(self) -> SensorRequest:
        return replace(self._request, euler=tuple(self._euler), by_quat=0.0, quat=IDENTITY)

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

    def _range_m(self, exposure: Exposure) -> float:
        """Return the range along the optical axis, m; 0 while ranging is off."""
        if not self._ranging:
            return 0.0
        at, most = mount_of(self._aimed).seen(exposure), self._request.other[5] or RANGE_M
        (distance,), _ = cast(self._around.solids, at.p_wb, matrix(at.q_wb)[:, :1].T, most)
        return min(float(distance), most)

    def close(self) -> None:
        self._camera.close()
