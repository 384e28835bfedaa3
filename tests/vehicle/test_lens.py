"""Lenses: OpenCV's and Kalibr's models, their Jacobians and inverses, and what lies outside of the picture."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from gate_racer.vehicle.camera import Camera

VADR = Camera(640, 360, 320.0, 320.0, 320.0, 180.0, 20.0)
LENSES = {  # of published cameras
    "none": replace(VADR, cx_px=330.0),
    "two": replace(VADR, k1=-0.02, k2=0.004),
    "race camera": Camera(640, 480, 286.715, 383.222, 316.993, 206.623, 0.0,
        k1=-0.258942, k2=0.075706, p1=7.08e-5, p2=-2.27e-5, k3=-0.010196),
    "airframe": Camera(640, 360, 465.352, 465.474, 330.811, 154.21, 20.0,
        k1=0.1007, k2=-0.3365, p1=-0.00335, p2=0.0073, k3=0.3738),
    "rational": replace(VADR, k1=0.5, k2=0.1, p1=1e-3, p2=-5e-4, k3=0.01, k4=0.8, k5=0.2, k6=0.02),
    "fisheye": Camera(752, 480, 460.0, 459.0, 365.0, 249.0, 0.0,
        k1=-0.0076, k2=0.0149, k3=-0.0128, k4=0.0035, lens_model="equidistant"),
    "wide fisheye": Camera(640, 480, 280.0, 280.0, 320.0, 240.0, 0.0,
        k1=-0.02, k2=0.01, k3=-0.005, k4=0.001, lens_model="equidistant"),
}  # fmt: skip
CAMERAS = pytest.mark.parametrize("camera", LENSES.values(), ids=LENSES)


def pixels(camera, step=16):
    u, v = np.meshgrid(np.arange(0, camera.width_px, step), np.arange(0, camera.height_px, step))
    return np.stack([u, v], -1).reshape(-1, 2).astype(float)


@CAMERAS
def test_it_is_the_model_of_opencv(camera):
    rays = camera.rays(pixels(camera))
    rays = rays[np.linalg.norm(rays, axis=-1) < camera.lens.reach]  # the race camera's folds in the picture's corners
    assert len(rays) > 0.9 * len(pixels(camera))
    p_c = np.column_stack([rays, np.ones(len(rays))])[:, None]
    if camera.lens_model == "equidistant":
        theirs = cv2.fisheye.projectPoints(
            p_c, np.zeros(3), np.zeros(3), camera.K, np.array([camera.k1, camera.k2, camera.k3, camera.k4])
        )[0]
    else:
        k = np.array([camera.k1, camera.k2, camera.p1, camera.p2, camera.k3, camera.k4, camera.k5, camera.k6])
        theirs = cv2.projectPoints(p_c, np.zeros(3), np.zeros(3), camera.K, k)[0]
    np.testing.assert_allclose(camera.project(p_c[:, 0]), theirs[:, 0], atol=1e-8)


@CAMERAS
def test_a_ray_is_where_its_pixel_was(camera):
    px = pixels(camera)
    rays = camera.rays(px)
    np.testing.assert_allclose(camera.project(np.column_stack([rays, np.ones(len(rays))])), px, atol=1e-9)


@CAMERAS
def test_its_jacobians_are_the_differences(camera):
    rng = np.random.default_rng(0)
    lens, xy, h = camera.lens, rng.normal(0, 1.2, (60, 2)), 1e-6
    xy = np.concatenate([xy, 3 * xy, [[0.0, 0.0], [1e-6, -1e-6]]])  # outside the picture and at its centre as well
    at, by, by_k = lens.jacobian(xy)
    np.testing.assert_allclose(at, lens.distort(xy), atol=1e-14)
    for k in range(2):
        step = h * np.eye(2)[k]
        by_difference = (lens.distort(xy + step) - lens.distort(xy - step)) / (2 * h)
        np.testing.assert_allclose(by[..., k], by_difference, atol=3e-7)
        by_difference = (lens.with_excess(step).distort(xy) - lens.with_excess(-step).distort(xy)) / (2 * h)
        np.testing.assert_allclose(by_k[..., k], by_difference, atol=1e-7)


@CAMERAS
def test_nothing_outside_is_folded_into_the_picture(camera):
    direction = np.stack([np.cos(a := np.linspace(0, 2 * np.pi, 48)), np.sin(a)], -1)
    radii = np.linalg.norm(camera.lens.distort(np.linspace(0, 30, 400)[:, None, None] * direction), axis=-1)
    assert (np.diff(radii, axis=0) > 0).all()


@pytest.mark.parametrize(
    ("lens", "says"),
    [
        ({"k1": -3.0}, r"the lens \(radtan: k1 -3\) folds the picture"),
        ({"k1": -2.0, "k2": 0.5}, "folds the picture"),
        ({"p1": 5.0}, r"the lens \(radtan: p1 5\) folds the picture"),
        ({"k1": 1e6}, "stretches the picture 143 times"),
        ({"lens_model": "equidistant", "k1": -2.0}, "folds the picture"),
        ({"lens_model": "equidistant", "fx_px": 100.0, "fy_px": 100.0}, "shows more than 174 deg"),
        ({"lens_model": "equidistant", "p1": 0.1}, "has k1 to k4 only"),
        ({"lens_model": "fov"}, "lens_model: 'fov' must be one of radtan, equidistant"),
    ],
)
def test_a_lens_that_cannot_be_is_refused_with_the_cause(lens, says):
    with pytest.raises(ValueError, match=says):
        replace(VADR, **lens)
