"""The drawn camera is the pinhole, draws the same bytes for a seed, and draws only what is there."""

import math
from pathlib import Path

import cv2
import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from sim import scene, texture
from sim.camera import CameraError, RenderedCamera
from tracks.gate import Gate
from tracks.track import Bounds, Start, Track, load_track
from vehicle.camera import Camera
from vehicle.rotation import from_euler, matrix, product

TRACKS = Path(__file__).parents[2] / "tracks"
VADR = Camera(640, 360, 320.0, 320.0, 320.0, 180.0, 20.0)
ODD = Camera(400, 300, 250.0, 260.0, 190.3, 155.8, 0.0)
GATE = Gate((6.0, 1.0, -2.0), 30.0, 10.0, 1.5, 2.72, 0.26)
ONE_GATE = Track("one", Start((0, 0, 0), 0.0), Bounds((-5, -5, -5), (15, 15, 5)), (GATE,), False, None)


@pytest.fixture(scope="module")
def draw():
    """Makes cameras that are closed at the end; skips where there is no OpenGL."""
    made = []

    def make(track: Track, camera: Camera = VADR, seed: int = 0, **more) -> RenderedCamera:
        try:
            made.append(RenderedCamera(track, camera, seed, **more))
        except CameraError as error:
            pytest.skip(str(error))
        return made[-1]

    yield make
    for camera in made:
        camera.close()


def track(name: str) -> Track:
    return load_track(TRACKS / f"{name}.yaml")


def facing(gate: Gate, camera: Camera, back_m: float, y: float, z: float, turn=(0.0, 0.0, 0.0)):
    """Pose (p_wb, q_wb) that far before a gate, offset in its plane, looking along its axis but for a turn in rad."""
    level = product(gate.q_wg, from_euler(0, -math.radians(camera.tilt_deg), 0))
    return gate.p_wg + gate.R_wg @ [-back_m, y, z], np.array(product(level, from_euler(*turn)))


def projected(camera: Camera, p_wb, q_wb, p_w):
    return camera.project((p_w - p_wb) @ matrix(q_wb) @ camera.R_bc)


def found_corners(red, corners):
    """The corners (4, 2) of a bright-dark square near `corners`: lines through the half-level points of its sides."""
    lines = []
    for a, b in zip(corners, np.roll(corners, -1, 0), strict=True):
        normal = np.array([b[1] - a[1], a[0] - b[0]]) / np.linalg.norm(b - a)
        offsets = np.arange(-2.0, 2.01, 0.1)
        on = a + np.linspace(0.1, 0.9, 80)[:, None] * (b - a)
        u, v = (on[:, None] + offsets[None, :, None] * normal).transpose(2, 0, 1)
        profile = map_coordinates(red.astype(float), [v, u], order=1) - 127.5
        k = np.argmax(profile[:, :-1] * profile[:, 1:] <= 0, axis=1)
        rows = np.arange(len(on))
        s = offsets[k] + 0.1 * profile[rows, k] / (profile[rows, k] - profile[rows, k + 1])
        points = on + s[:, None] * normal
        centre = points.mean(0)
        direction = np.linalg.svd(points - centre)[2][0]
        lines.append((np.array([-direction[1], direction[0]]), centre))
    return np.array(
        [
            np.linalg.solve(np.array([n1, n0]), [n1 @ c1, n0 @ c0])
            for (n0, c0), (n1, c1) in zip(np.roll(np.array(lines), 1, 0), lines, strict=True)
        ]
    )


# Through the opening one sees past the far edge of the frame; against the hall its outline is the near edge.
@pytest.mark.parametrize("camera", [VADR, ODD], ids=["vadr", "odd"])
@pytest.mark.parametrize(("side_m", "face"), [(GATE.opening_m, 1), (GATE.outer_m, -1)], ids=["opening", "outline"])
def test_drawn_corners_are_the_pinhole_s(draw, camera, side_m, face):
    rng = np.random.default_rng(1)
    drawn = draw(ONE_GATE, camera, gates_only=True)
    corners_w = GATE.corners(side_m) + face * scene.DRAWN_DEPTH_M / 2 * GATE.R_wg[:, 0]
    errors = []
    while len(errors) < 25:
        pose = facing(GATE, camera, rng.uniform(2, 6), *rng.uniform(-0.5, 0.5, 2), rng.uniform(-0.4, 0.4, 3))
        corners = projected(camera, *pose, corners_w)
        if camera.sees(corners - 6).all() and camera.sees(corners + 6).all():
            errors.append(found_corners(drawn.image(*pose)[..., 2], corners) - corners)
    assert np.sqrt(np.mean(np.square(errors), axis=(0, 1))).max() < 0.1
    assert np.abs(np.mean(errors, axis=(0, 1))).max() < 0.02


def test_same_seed_same_bytes_other_seed_other_bytes(draw):
    vq1 = track("vq1")
    pose = vq1.start.p_wb, vq1.start.q_wb
    first, again, other = draw(vq1, seed=3), draw(vq1, seed=3), draw(vq1, seed=4)
    picture = first.image(*pose)
    assert picture.shape == (360, 640, 3)
    assert picture.dtype == np.uint8
    assert picture.tobytes() == again.image(*pose).tobytes()
    assert picture.tobytes() != other.image(*pose).tobytes()
    assert picture.tobytes() == first.image(*pose).tobytes()  # another camera in between leaves no trace


def test_a_gate_behind_the_camera_is_not_drawn(draw):
    drawn = draw(ONE_GATE, gates_only=True)
    p_wb, q_wb = facing(GATE, VADR, 4.0, 0.0, 0.0)
    assert drawn.image(p_wb, q_wb).max() == 255
    assert drawn.image(p_wb, product(q_wb, from_euler(0, 0, math.pi))).max() == 0


@pytest.mark.parametrize("behind", [False, True])
def test_both_faces_of_a_gate_read_from_left_to_right(draw, behind):
    seen = Gate(GATE.centre_m, 210.0, -10.0, 1.5, 2.72) if behind else GATE
    pose = facing(seen, VADR, 3.0, 0.2, -0.2)
    corners = projected(VADR, *pose, seen.corners(2.72) - scene.DRAWN_DEPTH_M / 2 * seen.R_wg[:, 0])
    last = texture.SIZE - 1
    square = np.float32([[0, 0], [last, 0], [last, last], [0, last]])
    to_face = cv2.getPerspectiveTransform(corners.astype(np.float32), square)
    face = cv2.warpPerspective(draw(ONE_GATE, gates_only=True).image(*pose), to_face, (texture.SIZE, texture.SIZE))
    painted = texture.gate_face(1.5 / 2.72)[..., ::-1]
    bar = slice(0, texture.SIZE // 5)
    difference = np.abs(face[bar].astype(float) - painted[bar]).mean()
    mirrored = np.abs(face[bar].astype(float) - painted[bar, ::-1]).mean()
    assert difference < 12
    assert mirrored > 2 * difference


@pytest.mark.parametrize("name", ["vq1", "vq2"])
def test_pictures_are_as_dark_as_the_real_ones(draw, name):
    drawn = draw(course := track(name))
    gates = [gate for gate in course.gates if not gate.is_ball]
    grey = [drawn.image(*facing(gate, VADR, 10.0, 0.0, 0.0)) @ np.array([0.114, 0.587, 0.299]) for gate in gates]
    assert 22 < np.mean(grey) < 37
    assert all(picture.std() > 15 for picture in grey)


def test_a_course_of_balls_shows_no_gate(draw):
    balls = track("splits_uzh")
    picture = draw(balls).image(balls.start.p_wb, balls.start.q_wb).astype(int)
    assert picture.max() > 50
    assert not ((picture[..., 2] > 150) & (picture[..., 1] < 120)).any()


@pytest.mark.parametrize("seed", range(3))
def test_furniture_keeps_clear_of_the_straight_course(seed):
    vq1 = track("vq1")
    gates = len(scene.build(vq1, seed, gates_only=True).solids)
    pad = 36
    corners = scene.build(vq1, seed).solids[gates:-pad, :3].reshape(-1, 36, 3)
    low, high = corners.min(1)[:, None], corners.max(1)[:, None]
    stations = np.array([vq1.start.p_wb, *(gate.p_wg for gate in vq1.gates)])
    line = np.concatenate([np.linspace(a, b, 100) for a, b in zip(stations[:-1], stations[1:], strict=True)])
    assert len(corners) > 50
    assert np.linalg.norm(line - np.clip(line, low, high), axis=2).min() >= scene.CLEARANCE_M


def test_too_many_samples_are_refused(draw):
    draw(ONE_GATE)
    with pytest.raises(CameraError, match="1024 samples"):
        RenderedCamera(ONE_GATE, VADR, 0, samples=1024)


def test_without_opengl_the_error_says_what_to_install(monkeypatch):
    def fail(**_):
        raise OSError("libEGL.so: cannot open shared object file")

    monkeypatch.setattr("moderngl.create_context", fail)
    with pytest.raises(CameraError, match=r"^[^\n]*apt-get install libegl1 libgl1 libgl1-mesa-dri$"):
        RenderedCamera(ONE_GATE, VADR, 0)
