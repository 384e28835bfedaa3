"""Rendering of one image to a file, for `race-sim --shot`."""

from pathlib import Path

import cv2
import numpy as np

from gate_racer.sim.view.look import Look
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.tracks.track import Track
from gate_racer.vehicle.errors import UserError
from gate_racer.vehicle.rotation import Array, from_euler
from gate_racer.vehicle.vehicle import Vehicle


def shoot(file: Path, track: Track, vehicle: Vehicle, look: Look, seed: int, pose: str) -> None:
    """Render the camera's image at rest and write it as PNG.

    Args:
        pose: "x,y,z,roll,pitch,yaw" of the body in m and degrees, or "" for the start.

    Raises:
        UserError: the pose is malformed, the file cannot be written, or OpenGL is not available.
    """
    p_wb, q_wb = parse_pose(pose) if pose else (track.start.p_wb, track.start.q_wb)
    if file.suffix.lower() != ".png":
        raise UserError(f"--shot {file}: the name must end in .png")
    with RenderedCamera(track, vehicle.camera, look, seed) as camera:
        image = camera.image(p_wb, q_wb)
    try:
        file.write_bytes(cv2.imencode(".png", image)[1].tobytes())
    except OSError as error:
        raise UserError(f"--shot {file}: cannot be written ({error.strerror})") from None


def parse_pose(text: str) -> tuple[Array, Array]:
    """Return position (3,) m and attitude (4,) from "x,y,z,roll,pitch,yaw" in m and degrees.

    Raises:
        UserError: not six finite numbers.
    """
    try:
        numbers = np.array([float(number) for number in text.split(",")])
    except ValueError:
        numbers = np.empty(0)
    if numbers.shape != (6,) or not np.isfinite(numbers).all():
        raise UserError(f"--pose-at {text}: expected six numbers x,y,z,roll,pitch,yaw in m and degrees")
    return numbers[:3], from_euler(*np.radians(numbers[3:]))
