"""Parameters check themselves; the camera keeps its axes, and its lens is OpenCV's or Kalibr's model."""

import math
import re
from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from gate_racer.common.config import names
from gate_racer.sim.physics.plant import Truth
from gate_racer.sim.simulator import Sensors
from gate_racer.vehicle.camera import Camera
from gate_racer.vehicle.dynamics import GRAVITY, drag, rotors
from gate_racer.vehicle.rotation import from_euler
from gate_racer.vehicle.vehicle import FOLDER, load_vehicle
from tests.conftest import changed, refused

CURVE, ARCHER = load_vehicle("dcl").throttle, load_vehicle("archer")


@pytest.mark.parametrize("name", names(FOLDER))
def test_every_vehicle_loads_and_hovers(name):
    vehicle = load_vehicle(name)
    assert vehicle.thrust_max > 2 * 9.81 and vehicle.source
    assert vehicle.contact_radius_m >= vehicle.half_diagonal - 1e-6  # else what keeps clear of it touches the body


@given(st.floats(0, 59.5))
def test_throttle_and_thrust_are_inverse(thrust):
    assert CURVE.thrust(CURVE.throttle(thrust)) == pytest.approx(thrust, abs=1e-9)


@given(st.one_of(st.floats(-0.5, 1.5), st.just(math.nan), st.sampled_from(CURVE.command)))
def test_thrust_is_interpolated_as_numpy_does(throttle):
    wanted = np.interp(throttle, CURVE.command, CURVE.thrust_m_s2)
    assert np.array_equal(CURVE.thrust(throttle), wanted, equal_nan=True)


def test_every_parameter_changes_the_hash_and_a_default_that_is_stated_does_not(tmp_path, dcl):
    assert replace(dcl, source="another").hash == dcl.hash
    for other in ({"command_delay_s": 0.03}, {"imu": replace(dcl.imu, accel_delay_s=0.01)}, {"mixer": None}):
        assert replace(dcl, **other).hash != dcl.hash
    stated = changed(tmp_path, FOLDER / "dcl.yaml", "  gyro_noise_rad_s:", "  accel_delay_s: 0.0\n  gyro_noise_rad_s:")
    assert load_vehicle(str(stated)).hash == dcl.hash


def test_rotors_turn_it_most_with_those_of_one_side_at_their_most():
    par, own = ARCHER.rotors_parameters, ARCHER.rotors
    for axis, arms in enumerate((-np.array(own.y_m), np.array(own.x_m), np.array(own.torque_m))):
        thrusts = np.where(arms > 0, own.thrust_max_n, 0.0)
        turned = rotors([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0], thrusts.tolist(), par)[10:]
        assert turned[axis] == pytest.approx(own.slew_max_rad_s2[axis])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("thrust_lag_s: 0.03 ", "thrust_lagg_s: 0.03 ", "unknown field 'thrust_lagg_s'"),
        ("thrust_lag_s: 0.03 ", "thrust_lag_s: fast ", "thrust_lag_s: expected a number, found 'fast'"),
        ("thrust_lag_s: 0.03 ", "", "thrust_lag_s: missing"),
        ("name: dcl", "name: dcl\nname: dcl", "duplicate key"),
        ("body_m: [0.28, 0.28, 0.16]", "body_m: [0.28, 0.28]", "body_m: Not enough values"),
        ("slew_max_rad_s2: [390.0, ", "slew_max_rad_s2: [0.0, ", "mixer: slew_max_rad_s2: 0.0 must be positive"),
        ("59.5]", "5.0]", "must increase strictly"),
        ("command_delay_s: 0.04", "command_delay_s: -1", "command_delay_s: -1.0 must lie between 0 and 2"),
        ("speed_max_m_s: 35.0", "speed_max_m_s: 1.0e+12", "speed_max_m_s: 1e+12 is beyond 1000; check the unit"),
        ("rate_max_rad_s: [10.0, 10.0, 5.0]", "rate_max_rad_s: [573, 573, 286]", "573.0 must lie between 0 and 100"),
        ("fx_px: 320.0", "fx_px: 90.0", "camera.fx_px: 90 at 640 px is a field of view of 148.6 deg"),
        ("name: dcl", "name: ../dcl", "name: '../dcl' is used as a file name"),
    ],
)
def test_a_wrong_file_is_named_with_the_path_of_the_fault(tmp_path, old, new, message):
    file = changed(tmp_path, FOLDER / "dcl.yaml", old, new)
    with refused(f"{re.escape(str(file))}.*{re.escape(message)}"):
        load_vehicle(str(file))


@given(st.floats(-80, 80), st.floats(-80, 80), st.floats(-170, 170))
def test_a_mount_is_a_yaw_to_the_right_a_tilt_up_and_a_roll_about_the_axis(yaw, tilt, roll):
    camera = replace(ARCHER.camera, yaw_deg=yaw, tilt_deg=tilt, roll_deg=roll)
    level = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]])  # camera RDF to body FRD
    turned = Rotation.from_euler("ZY", [yaw, tilt], degrees=True).as_matrix() @ level
    R_bc = turned @ Rotation.from_euler("Z", roll, degrees=True).as_matrix()
    assert camera.R_bc == pytest.approx(R_bc, abs=1e-12)
    assert camera.mounted(R_bc).R_bc == pytest.approx(R_bc, abs=1e-9)


def test_the_camera_moves_with_the_body_and_right_and_down_in_it_are_so_in_the_image(dcl):
    camera = replace(dcl.camera, p_bc_m=(0.1, 0.0, -0.03))
    p_wc, R_wc = camera.pose([1.0, 2.0, 3.0], from_euler(0.0, 0.0, np.pi / 2))
    assert p_wc == pytest.approx([1.0, 2.1, 2.97]) and R_wc[:, 0] == pytest.approx([-1, 0, 0])
    places_b = np.array([[10.0, 0.0, 0.0], [10.0, 1.0, 0.0], [10.0, 0.0, 1.0]])
    ahead, right, below = dcl.camera.project(places_b @ dcl.camera.R_bc)
    assert right[0] > ahead[0] and below[1] > ahead[1]


def test_the_edge_of_the_image_lies_half_a_pixel_out():
    camera = Camera(640, 360, 320, 320, 320, 180, 0)
    assert camera.sees([-0.5, 0]) and not camera.sees([-0.51, 0])
    assert camera.sees([639.49, 0]) and not camera.sees([639.5, 0])


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_elevation_is_that_of_the_ray_through_the_images_upper_half(share, dcl):
    camera, e = dcl.camera, dcl.camera.elevation(share)
    px = camera.project(camera.R_bc.T @ [np.cos(e), 0.0, -np.sin(e)])
    assert px == pytest.approx([camera.cx_px, (1 - share) * camera.cy_px])


# Vibration lets the accelerometer read low, as the square of the throttle; the pilot knows it, the simulator has it.


def test_the_loss_is_the_published_one():
    full, nine_tenths = ARCHER.thrust_max, ARCHER.throttle.thrust(0.9)
    assert ARCHER.accel_loss(full) == pytest.approx(0.46 * GRAVITY, rel=0.01)
    assert ARCHER.accel_loss(nine_tenths) == pytest.approx(3.6, rel=0.03)
    assert 0.2 < ARCHER.accel_loss(GRAVITY) < 0.35
    assert ARCHER.accel_loss(0.0) == 0.0


@pytest.mark.parametrize("v_b", [(0.0, 0.0, 0.0), (9.0, 2.0, 8.0)], ids=str)
@pytest.mark.parametrize("thrust", [3.0, GRAVITY, 25.0, 44.0, 58.84])
def test_what_the_sensor_loses_the_pilot_puts_back(thrust, v_b):
    quiet = replace(ARCHER.imu, accel_noise_m_s2=0.0, accel_bias_m_s2=0.0, accel_delay_s=0.0)
    vehicle = replace(ARCHER, imu=quiet)
    x = np.zeros(14)
    x[-1] = thrust
    force = np.array(drag((1.0, 0.0, 0.0, 0.0), v_b, vehicle.drag_linear_1_s, vehicle.drag_quadratic_1_m))
    force[2] -= thrust
    measured = Sensors(vehicle, np.random.default_rng(0)).imu(Truth(0.0, x, force)).accel
    assert measured[2] == pytest.approx(force[2] + vehicle.accel_loss(thrust))
    assert vehicle.steadied(measured, v_b) == pytest.approx(force, abs=1e-2), "the curve is linear in pieces"


# Lenses: OpenCV's and Kalibr's models, their Jacobians and inverses, and what lies outside of the picture.


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
