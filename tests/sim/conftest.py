"""Cameras that draw, and both ends of the link."""

import pytest

from gate_racer.sim.view.renderer import CameraError, RenderedCamera
from gate_racer.sim.view.style import RenderingStyle
from gate_racer.tracks.track import Track
from gate_racer.vehicle.camera import Camera
from tests.sim.drawn import RACE, VADR
from tests.sim.peer import DCL, Peer


@pytest.fixture(scope="module")
def draw():
    """Make cameras that are closed at the end; skip where there is no OpenGL."""
    made = []

    def make(
        track: Track, camera: Camera = VADR, seed: int = 0, style: RenderingStyle = RACE, **more
    ) -> RenderedCamera:
        try:
            made.append(RenderedCamera(track, camera, style, seed, **more))
        except CameraError as error:
            pytest.skip(str(error))
        return made[-1]

    yield make
    for camera in made:
        camera.close()


@pytest.fixture
def peer(vq1, dcl):
    return lambda profile=DCL, **options: Peer(vq1, dcl, profile, **options)
