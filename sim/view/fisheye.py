"""Equidistant fisheye camera, r = f theta with f = W / FOV, sampled from the rendered faces of a cube.

Kannala and Brandt, "A generic camera model ... for conventional, wide-angle and fish-eye lenses", 2006, its first term.
"""

import math
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from gate_racer.link.rflysim.config import pinhole
from gate_racer.link.rflysim.images import encode_payload
from gate_racer.link.rflysim.request import SensorRequest
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.look import Look
from gate_racer.sim.view.mount import mount_of
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.tracks.track import Track
from gate_racer.vehicle.rotation import Array, from_euler, matrix, product

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


class Fisheye:
    """Fisheye camera that renders the cube faces within its field of view."""

    def __init__(self, request: SensorRequest, track: Track, look: Look, seed: int):
        """Open the cube camera. otherParams[0]: side of a face in px; 0 for the resolution of the image."""
        self._request, self._mount, self._quality = request, mount_of(request), look.jpeg_quality
        side = round(request.other[0]) or math.ceil(request.width_px * FACE_DEG / request.fov_deg)
        side = min(max(side, LEAST_PX), MOST_PX)
        face = replace(request, width_px=side, height_px=side, fov_deg=FACE_DEG)
        camera = pinhole(face)
        self._camera = RenderedCamera(track, camera, look, seed)
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
        at = self._mount.seen(exposure)
        image = np.zeros((self._request.height_px, self._request.width_px, 3), np.uint8)
        for q_sf, here, u, v in self._faces:
            drawn = self._camera.image(at.p_wb, product(at.q_wb, q_sf), at.t)
            image[here] = cv2.remap(drawn, u, v, cv2.INTER_LINEAR)[here]
        return encode_payload(image, self._request.mode, self._quality)

    def close(self) -> None:
        self._camera.close()
