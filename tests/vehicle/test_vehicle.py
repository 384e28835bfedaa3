"""Parameters check themselves; the camera keeps its axes."""

import math
import re
from dataclasses import replace

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
