"""Bags of ROS give signals in our axes, whatever axes their writers chose, and the images of their cameras."""

import cv2
import numpy as np
import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.logs.reader import read_log_signals
from gate_racer.link.logs.ros import ros_images
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import from_euler, matrix, product
from tests.link import log_writers
from tests.link.log_writers import write_bag


@pytest.mark.parametrize("made", ["ROS 1", "folder", "MCAP", "SQLite"])
def test_bags_of_ros_are_read_in_our_axes(made, tmp_path):
    path = write_bag(tmp_path, made)
    path = path.parent if made == "folder" else path
    log = read_log_signals(path)
    assert log.get("force").values[5] == pytest.approx([1, -2, -GRAVITY])
    assert log.get("omega").values[5] == pytest.approx([0.1, -0.2, -0.3])
    assert log.get("q").values[5] == pytest.approx(from_euler(0.2, 0, 0))
    assert log.get("p").values[5] == pytest.approx([4, -5, -6]) and log.get("v").values[5] == pytest.approx([1, 0, 0])
    assert log.get("force").t[5] == pytest.approx(10.05)
    images = [(t, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)) for t, data in ros_images(path)]
    assert len(images) == 30 and images[5][0] == pytest.approx(10.05) and (images[5][1] == [0, 0, 255]).all()
    with pytest.raises(UserError, match=r"no commanded throttle \(AttitudeTarget"):
        log.require(path, ("throttle",), "identify-vehicle")


ODOM, IMU_KIND, IMAGE = "nav_msgs/msg/Odometry", "sensor_msgs/msg/Imu", "sensor_msgs/msg/Image"


def circling(k):
    """Position, attitude and velocity (m/s, world z up) of a body that turns left at 1 rad/s and pitches, at step k of 10 ms."""
    t = 0.01 * k
    q = product(from_euler(0, 0, t), from_euler(0, 0.4 * np.sin(2 * t), 0))
    return (3 * t, 2 * t, 0.0), q, (3.0, 2.0, 0.0)


@pytest.mark.parametrize("in_world", [False, True])
def test_velocities_of_odometry_are_read_in_body_or_world_axes(in_world, tmp_path):
    def at(store, k):
        p, q, v = circling(k)
        return (log_writers.odometry(store, k, p, q, v if in_world else matrix(q).T @ v),)

    log = read_log_signals(write_bag(tmp_path, "MCAP", {"/odom": ODOM}, at, 150))
    assert log.get("v").values[::30] == pytest.approx(np.tile([3, -2, 0], (5, 1)))
    assert ("velocities of /odom are in world axes" in log.notes) == in_world


R_CAMERA = np.array([[0.0, -1, 0], [0, 0, -1], [1, 0, 0]])  # from FLU to a camera's optical axes


def felt(k):
    """Specific force and rates, in axes x forward, y left, z up, of a body that turns as `circling` says."""
    q, ahead = circling(k)[1], circling(k + 1)[1]
    turn = matrix(q).T @ matrix(ahead)
    omega = 50 * np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    return matrix(q).T @ [0, 0, GRAVITY], omega


LEVEL = (1.0, 0.0, 0.0, 0.0)
TOLD = {  # attitudes of odometry and of the IMU, at a true one, and what is said
    "the IMU's": (lambda q: LEVEL, lambda q: q, "the attitude is that of /imu, which agrees with the gyro"),
    "w first": (
        None,
        lambda q: np.roll(q, 1),
        "the attitude is that of /imu, with w first, which agrees with the gyro",
    ),
    "none": (None, lambda q: LEVEL, "its attitude does not turn though its gyro does, which is none and is left out"),
    "an opposite one": (None, lambda q: q * [1, -1, -1, -1], "no attitude agrees with the gyro and gravity of /imu"),
}


@pytest.mark.parametrize(("wheels", "own", "said"), TOLD.values(), ids=TOLD)
def test_of_several_attitudes_the_one_that_turns_as_the_gyro_is_read(wheels, own, said, tmp_path):
    def at(store, k):
        p, q, v = circling(k)
        imu = log_writers.imu(store, k, *felt(k), own(np.array(q)))
        return (imu, log_writers.odometry(store, k, p, wheels(q), matrix(q).T @ v)) if wheels else (imu,)

    topics = {"/imu": IMU_KIND, "/odom": ODOM} if wheels else {"/imu": IMU_KIND}
    log = read_log_signals(write_bag(tmp_path, "MCAP", topics, at, 400))
    assert said in log.notes
    if wheels:  # whose velocities are turned by the attitude that is read
        assert log.get("v").values[100] == pytest.approx([3, -2, 0], abs=0.05)
    if "which agrees" in said:
        assert log.get("q").values[100] == pytest.approx(np.array(circling(100)[1]) * [1, 1, -1, -1])
    else:
        assert ("q" in log.signals) == ("no attitude" in said)


def test_the_imu_that_agrees_with_the_attitude_is_used(tmp_path):
    """The IMU of a camera has twice the rate of the autopilot's, in optical axes."""

    def at(store, k):
        p, q, v = circling(k)
        force, omega = felt(k)
        camera = log_writers.imu(store, k, R_CAMERA @ force, R_CAMERA @ omega)
        own = log_writers.imu(store, k, force, omega) if k % 2 == 0 else None
        return camera, own, log_writers.odometry(store, k, p, q, matrix(q).T @ v)

    topics = {"/camera/imu": IMU_KIND, "/mavros/imu/data": IMU_KIND, "/odom": ODOM}
    log = read_log_signals(write_bag(tmp_path, "MCAP", topics, at, 300))
    assert len(log.get("force")) == 150 and log.get("omega").values[0, 2] == pytest.approx(-1, abs=0.01)
    assert "not /camera/imu, which agrees less with the attitude" in log.notes


UP = {"z": (0, 0, 1), "x": (1, 0, 0), "-y": (0, -1, 0), "-z": (0, 0, -1), "y": (0, 1, 0)}


@pytest.mark.parametrize("axes", UP)
def test_gravity_tells_the_axes_of_an_imu_alone(axes, tmp_path):
    force = tuple(GRAVITY * share for share in UP[axes])
    path = write_bag(tmp_path, topics={"/imu0": IMU_KIND}, at=lambda *at: (log_writers.imu(*at, force, (0, 0, 0)),))
    if axes == "y":
        with pytest.raises(UserError, match=r"y of /imu0 is up, but x forward, y left and z up are expected"):
            read_log_signals(path)
        return
    log = read_log_signals(path)
    assert log.get("force").values[3] == pytest.approx([0, 0, -GRAVITY])
    assert (f"{axes} of /imu0 is up; its axes are turned" in log.notes) == (axes != "z")


RED = np.tile(np.array([0, 0, 255], np.uint8), (2, 4, 1))


ENCODED = {
    "8UC3": RED,
    "rgb8": RED[..., ::-1],
    "bgra8": cv2.cvtColor(RED, cv2.COLOR_BGR2BGRA),
    "rgba8": cv2.cvtColor(RED, cv2.COLOR_BGR2RGBA),
    "yuv422_yuy2": np.tile(np.array([[82, 90], [82, 240]], np.uint8), (2, 2, 1)),
}


@pytest.mark.parametrize(("encoding", "pixels"), ENCODED.items(), ids=ENCODED)
def test_a_camera_is_found_beside_a_busier_one_of_depths(encoding, pixels, tmp_path):
    def at(store, k):
        depth = log_writers.image(store, k, "16UC1", np.zeros((2, 4, 2), np.uint8))
        return depth, log_writers.image(store, k, encoding, pixels) if k % 2 else None

    path = write_bag(tmp_path, "MCAP", {"/depth": IMAGE, "/camera": IMAGE}, at, 6)
    images = [cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) for _, data in ros_images(path)]
    assert len(images) == 3 and np.abs(images[0].astype(int) - RED).max() < 4


def test_images_that_cannot_be_shown_are_refused(tmp_path):
    depth = lambda store, k: (log_writers.image(store, k, "16UC1", np.zeros((2, 4, 2), np.uint8)),)  # noqa: E731
    with pytest.raises(UserError, match="its images cannot be shown; encodings that are read are mono8"):
        list(ros_images(write_bag(tmp_path, "MCAP", {"/depth": IMAGE}, depth)))


def test_an_mcap_of_ros_that_was_cut_is_one_line(tmp_path):
    path = write_bag(tmp_path, "MCAP")
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(UserError, match=r"cannot be read as a bag of ROS .* `mcap recover` makes a whole one"):
        read_log_signals(path)
