"""Sensors of RflySim requests: rendered images and ray-cast measurements."""

from typing import Protocol

from gate_racer.link.rflysim.checks import EARTH_FIXED
from gate_racer.link.rflysim.config import pinhole
from gate_racer.link.rflysim.images import encode_payload
from gate_racer.link.rflysim.request import SensorRequest
from gate_racer.link.rflysim.sensors import (
    DEPTH,
    DEPTH_CLOUD,
    FISHEYE,
    GIMBAL,
    GREY,
    INFRARED,
    INFRARED_GREY,
    LIDAR,
    LIDAR_WORLD,
    MID40,
    MID360,
    RANGE,
    RGB,
    SEGMENTATION,
    SENSORS,
)
from gate_racer.sim.simulator import Exposure
from gate_racer.sim.view.fisheye import Fisheye
from gate_racer.sim.view.gimbal import Gimbal
from gate_racer.sim.view.infrared import in_light
from gate_racer.sim.view.look import Look
from gate_racer.sim.view.mount import mount_of
from gate_racer.sim.view.ranging import Rangefinder, Scanner, Segmenter
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.sim.view.surroundings import Surroundings
from gate_racer.tracks.track import Track
from gate_racer.vehicle.errors import UserError

MOST_SIDE_PX = 2048  # largest side of an image (chosen)


class Sense(Protocol):
    """Sensor that produces the payload of its frames."""

    def payload(self, exposure: Exposure) -> bytes:
        """Return the payload of the frame of an exposure."""
        ...

    def close(self) -> None:
        """Release the sensor's resources."""
        ...


def open_sense(request: SensorRequest, track: Track, around: Surroundings, look: Look, seed: int) -> Sense:
    """Open the sensor that a request describes.

    Raises:
        UserError: the type, size, field of view or mount is not supported.
    """
    where = f"sensor {request.seq_id}"
    if request.mount_type > EARTH_FIXED:
        raise UserError(
            f"{where}: TargetMountType {request.mount_type}: this simulator mounts sensors on the vehicle or the ground"
        )
    if max(request.width_px, request.height_px) > MOST_SIDE_PX:
        raise UserError(
            f"{where}: {request.width_px} x {request.height_px} px: must be at most {MOST_SIDE_PX} px a side"
        )
    kind = request.type_id
    if kind in (RGB, GREY, INFRARED_GREY, INFRARED):
        return _Drawn(request, track, look, seed)
    if kind == FISHEYE:
        return Fisheye(request, track, look, seed)
    if kind == GIMBAL:
        return Gimbal(request, track, around, look, seed)
    if kind == SEGMENTATION:
        return Segmenter(request, around)
    if kind == RANGE:
        return Rangefinder(request, around)
    if kind in (DEPTH, DEPTH_CLOUD, LIDAR, LIDAR_WORLD, MID40, MID360):
        return Scanner(request, around)
    name = SENSORS[request.type_id].name if request.type_id in SENSORS else f"sensor of type {request.type_id}"
    raise UserError(f"{where}: {name}: is not simulated")


class _Drawn:
    """Rendered camera: RGB, grey or infrared, with brightness taken for temperature."""

    def __init__(self, request: SensorRequest, track: Track, look: Look, seed: int):
        self._request, self._mount, self._quality = request, mount_of(request), look.jpeg_quality
        self._camera = RenderedCamera(track, pinhole(request), look, seed)

    def payload(self, exposure: Exposure) -> bytes:
        at = self._mount.seen(exposure)
        image = self._camera.expose(at.p_wb, at.q_wb, at.v_w, at.omega_b, at.t)
        return encode_payload(in_light(image, self._request.type_id), self._request.mode, self._quality)

    def close(self) -> None:
        self._camera.close()
