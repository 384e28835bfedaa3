"""The drawn camera is the pinhole, draws the same bytes for a seed, and draws only what is there."""

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from gate_racer.common.errors import UserError
from gate_racer.sim.view.projected import ProjectedCamera
from gate_racer.sim.view.renderer import CameraError, RenderedCamera, shoot
from gate_racer.sim.view.scene import hole_m
from gate_racer.sim.view.style import FOLDER, load_style
from gate_racer.tracks.track import Obstacle
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.rotation import from_euler
from tests.sim.drawn import GATE, ONE_GATE, RACE, SMOOTH, STYLES, VADR, facing, track

SMALL = Camera(320, 180, 160.0, 160.0, 160.0, 90.0, 20.0)  # for what more pixels tell no better
ODD = Camera(400, 300, 250.0, 260.0, 190.3, 155.8, 0.0, (0.2, -0.1, 0.05))


def projected(camera: Camera, p_wb, q_wb, p_w):
    p_wc, R_wc = camera.pose(p_wb, q_wb)
    return camera.project((p_w - p_wc) @ R_wc)


def found_corners(red, corners, camera):
    """The corners (4, 2) of a bright-dark square near `corners`: lines through the half-level points of its sides.

    A lens bends lines, so they are fitted to the rays.
    """
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
        points = camera.rays(on + s[:, None] * normal)
        centre = points.mean(0)
        direction = np.linalg.svd(points - centre)[2][0]
        lines.append((np.array([-direction[1], direction[0]]), centre))
    found = np.array(
        [
            np.linalg.solve(np.array([n1, n0]), [n1 @ c1, n0 @ c0])
            for (n0, c0), (n1, c1) in zip(np.roll(np.array(lines), 1, 0), lines, strict=True)
        ]
    )
    return camera.project(np.column_stack([found, np.ones(4)]))


LENS = replace(VADR, cx_px=VADR.cx_px + 4, yaw_deg=2.0, roll_deg=-3.0, k1=-0.02, k2=0.004, k3=-0.005, p1=1e-3)
CAMERAS = {id(VADR): "vadr", id(ODD): "odd", id(LENS): "lens"}


# Through the opening one sees past the far edge of the frame; against the hall its outline is the near edge.
# The hole is narrower than the nominal opening by the outline, which straddles it. Other looks differ in light alone.
SHAPES = {(style.depth_m, style.outline_m, style.samples): style.name for style in map(load_style, STYLES)}
CASES = [(ODD, "smooth"), (LENS, "race"), *((VADR, name) for name in SHAPES.values())]


@pytest.mark.parametrize(("camera", "name"), CASES, ids=[f"{CAMERAS[id(c)]} {n}" for c, n in CASES])
def test_drawn_corners_are_the_camera_s(draw, camera, name):
    style = load_style(name)
    drawn = draw(ONE_GATE, camera, style=style, gates_only=True)
    for side_m, face in ((hole_m(GATE, style), 1), (GATE.outer_m, -1)):
        rng, errors = np.random.default_rng(1), []
        corners_w = GATE.corners(side_m) + face * style.depth_m / 2 * GATE.R_wg[:, 0]
        while len(errors) < 4:
            pose = facing(GATE, camera, rng.uniform(2, 6), *rng.uniform(-0.5, 0.5, 2), rng.uniform(-0.4, 0.4, 3))
            corners = projected(camera, *pose, corners_w)
            if camera.sees(corners - 6).all() and camera.sees(corners + 6).all():
                errors.append(found_corners(drawn.image(*pose)[..., 2], corners, camera) - corners)
        assert np.sqrt(np.mean(np.square(errors), axis=(0, 1))).max() < 0.1
        assert np.abs(np.mean(errors, axis=(0, 1))).max() < 0.02


def test_same_seed_same_bytes_other_seed_other_bytes(draw):
    vq1 = track("vq1")
    pose = vq1.start.p_wb, vq1.start.q_wb
    first, again, other = draw(vq1, seed=3), draw(vq1, seed=3), draw(vq1, seed=4)
    image = first.image(*pose)
    assert image.shape == (360, 640, 3) and image.dtype == np.uint8
    assert image.tobytes() == again.image(*pose).tobytes() != other.image(*pose).tobytes()
    assert image.tobytes() == first.image(*pose).tobytes(), "another camera in between leaves no trace"
    assert first.image(*pose, t=1.0).tobytes() != first.image(*pose, t=1.3).tobytes(), "light runs along the corridor"


@pytest.mark.parametrize("camera", [VADR, LENS], ids=["pinhole", "lens"])
def test_rows_of_an_image_are_those_of_the_whole(draw, camera):
    drawn, pose = draw(ONE_GATE, camera), facing(GATE, camera, 2.0, 0.3, 0.2)
    whole = drawn.image(*pose)
    for rows in (slice(0, 40), slice(170, 201), slice(351, 360)):
        assert drawn.image(*pose, rows=rows).tobytes() == whole[rows].tobytes()


def test_what_this_machine_cannot_render_is_refused_with_what_to_install(draw, monkeypatch):
    draw(ONE_GATE)
    with pytest.raises(CameraError, match="1024 samples"):
        RenderedCamera(ONE_GATE, VADR, replace(RACE, samples=1024), 0)

    def fail(**_):
        raise OSError("libEGL.so: cannot open shared object file")

    monkeypatch.setattr("moderngl.create_context", fail)
    with pytest.raises(CameraError, match=r"^[^\n]*apt-get install libegl1 libgl1 libgl1-mesa-dri$"):
        RenderedCamera(ONE_GATE, VADR, RACE, 0)
    monkeypatch.setattr("gate_racer.sim.view.renderer.moderngl", None)
    with pytest.raises(CameraError, match=r"^the rendered camera needs moderngl: pip install 'gate-racer\[render\]'$"):
        RenderedCamera(ONE_GATE, VADR, RACE, 0)


def test_a_turning_camera_blurs_by_its_exposure_only(draw):
    drawn = draw(ONE_GATE, style=replace(RACE, exposure_s=0.01), gates_only=True)
    p_wb, q_wb = facing(GATE, VADR, 4.0, 0.0, 0.0)
    rest, still = np.zeros(3), drawn.image(p_wb, q_wb)
    assert (drawn.expose(p_wb, q_wb, rest, rest, 0.0) == still).all()
    turned = drawn.expose(p_wb, q_wb, rest, np.array([0, 0, 2.0]), 0.0)
    row = turned[180, :, 2].astype(int)
    mixed = ((row > 20) & (row < 230)).sum()
    edges = (np.diff((still[180, :, 2] > 127).astype(int)) != 0).sum()
    assert mixed / edges == pytest.approx(320 * 2.0 * 0.01, abs=2)  # focal length times rate times exposure
    # The exposure is centred on the frame's time: the blurred edges lie about where the sharp ones are.
    assert abs(turned[..., 2].astype(float).mean() - still[..., 2].mean()) < 1
    u = np.arange(640)
    assert abs((row * u).sum() / row.sum() - (still[180, :, 2] * u).sum() / still[180, :, 2].sum(dtype=float)) < 0.5


def test_a_shot_is_the_image_from_the_pose(draw, tmp_path, dcl):
    vq1 = track("vq1")
    image = draw(vq1, camera=dcl.camera).image(
        np.array([-10.0, 0.5, -1.0]), from_euler(0, math.radians(-10), math.radians(180))
    )
    shoot(tmp_path / "shot.png", vq1, dcl, RACE, 0, "-10,0.5,-1,0,-10,180")
    assert (cv2.imread(str(tmp_path / "shot.png")) == image).all()
    for pose in ("1,2,3", "1,2,3,4,5,nan", "a,b,c,d,e,f"):
        with pytest.raises(UserError, match="six numbers"):
            shoot(tmp_path / "bad.png", vq1, dcl, RACE, 0, pose)


def test_a_rolling_shutter_draws_and_projects_the_same_corners(draw):
    """While the body turns, rows above the middle are from before the frame's time and those below from after it."""
    rolling, turning = replace(SMOOTH, readout_s=0.012), (np.array([1.0, 0, 0]), np.array([0.3, 0, 2.0]))
    drawn = draw(ONE_GATE, style=rolling, gates_only=True)
    shifts = []
    for y in (-0.4, 0.0, 0.4):
        p_wb, q_wb = facing(GATE, VADR, 3.0, y, 0.0)
        rigid = ProjectedCamera(ONE_GATE, VADR, SMOOTH, 0).visible(p_wb, q_wb).corners_px[0]
        corners = ProjectedCamera(ONE_GATE, VADR, rolling, 0).visible(p_wb, q_wb, *turning).corners_px[0]
        found = found_corners(drawn.expose(p_wb, q_wb, *turning, 0.0)[..., 2], corners, VADR)
        shifts += [corners - rigid]
        assert np.abs(found - corners).mean() < 0.35
    assert np.abs(shifts)[..., 0].max() > 1.5


@pytest.mark.parametrize("name", ["vq1", "vq2"])
def test_images_are_as_dark_as_the_real_ones(draw, name):
    drawn = draw(course := track(name))
    gates = [gate for gate in course.gates if not gate.is_ball]
    grey = [drawn.image(*facing(gate, VADR, 10.0, 0.0, 0.0)) @ np.array([0.114, 0.587, 0.299]) for gate in gates]
    assert 22 < np.mean(grey) < 37
    assert all(image.std() > 15 for image in grey)


def test_a_varied_style_differs_from_seed_to_seed():
    mixed = load_style("mixed")
    styles = [mixed.varied(seed) for seed in range(30)]
    assert styles == [mixed.varied(seed) for seed in range(30)]
    assert {style.world for style in styles} == {"neon", "hangar"}
    assert len({style.ambient for style in styles}) == 30 and all(style.ambient > 0 for style in styles)
    assert RACE.varied(5) == RACE


@pytest.mark.parametrize(
    ("change", "words"),
    [("world: cave", "world: 'cave'"), ("jpeg_quality: 0", "jpeg_quality: 0"), ("flicker: 2.0", "flicker")],
)
def test_a_look_that_cannot_be_drawn_is_refused_by_name(tmp_path, change, words):
    key = change.split(":")[0]
    lines = [line for line in (FOLDER / "race.yaml").read_text().splitlines() if not line.startswith(f"{key}:")]
    (tmp_path / "odd.yaml").write_text("\n".join([*lines, change]))
    with pytest.raises(UserError, match=words):
        load_style(str(tmp_path / "odd.yaml"))


@pytest.mark.parametrize("name", STYLES)
def test_every_look_shows_gates(draw, name):
    image = draw(ONE_GATE, SMALL, style=load_style(name)).image(*facing(GATE, SMALL, 6.0, 0.0, 0.0))
    assert ((image[..., 2] > 200) & (image[..., 1] < 110)).mean() > 0.02


def steepest(image):
    return np.abs(np.diff(image[..., 2].astype(int))).max()


DEVELOPED = [
    ("softness_px", 1.0, lambda a, b: steepest(b) < steepest(a)),
    ("bloom", 0.5, lambda a, b: (b >= a).all() and (b > a).any()),
    ("gamma", 1.3, lambda a, b: (b <= a).all() and (b < a).any()),
]


@pytest.mark.parametrize(("option", "value", "seen"), DEVELOPED, ids=[d[0] for d in DEVELOPED])
def test_other_engines_soften_glow_and_darken(draw, option, value, seen):
    pose, rest = facing(GATE, SMALL, 4.0, 0.0, 0.0), np.zeros(3)
    styles = RACE, replace(RACE, **{option: value})
    plain, other = (draw(ONE_GATE, SMALL, style=style, gates_only=True) for style in styles)
    assert seen(plain.expose(*pose, rest, rest, 0.0), other.expose(*pose, rest, rest, 0.0))


def test_an_obstacle_hides_what_is_behind_it(draw):
    box = Obstacle((3.0, -1.0, -4.0), (3.5, 3.0, 0.0))
    pose = facing(GATE, VADR, 5.0, 0.0, 0.0)
    free, blocked = (draw(replace(ONE_GATE, obstacles=solid)).image(*pose) for solid in ((), (box,)))
    red = [((image[..., 2] > 200) & (image[..., 1] < 100)).sum() for image in (free, blocked)]
    assert red[0] > 5000 and red[1] < 0.2 * red[0]
