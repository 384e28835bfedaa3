"""Gimbals take orders; messages have ROS's names, types, units and axes, and a tree that leads from a pixel to the world."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from rosbags.typesys import Stores

from gate_racer.link.profile import load_profile
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim import desk, ros
from gate_racer.link.rflysim.desk import DOCUMENT, SDK306, GimbalOrder, gimbal_request
from gate_racer.link.rflysim.request import decode_request, pinhole
from gate_racer.link.rflysim.ros import RosMessages
from gate_racer.link.rflysim.stream import LOCAL, WORLD, Cloud, Range, Sample, StreamHealth
from gate_racer.link.sockets import bind_udp
from gate_racer.sim.view.sensing import mount_of
from gate_racer.vehicle.rotation import as_vector, from_euler, matrix, to_euler
from tests.conftest import ROOT
from tests.rflysim import at, sensor


def status_of(state, t, gimbal, health, prefix=""):
    return next(iter(RosMessages(prefix).gimbal(state, ros.nanoseconds(t), gimbal, health))).values


def said_of(value, sensor, start=0.0, prefix=""):
    return next(RosMessages(prefix).sample(Sample(sensor, 0.0, 1, value), start)).values


def test_a_command_keeps_the_attitude_and_field_of_view_of_those_before_it():
    """They are part of every request: a zoom must not undo them."""
    with bind_udp("127.0.0.1", 0) as server:
        server.settimeout(2.0)
        client = desk.GimbalClient([sensor(9)], server.getsockname(), port=0)
        before = sensor(9)
        client.order(before.seq_id, GimbalOrder(euler=(0.0, -20.0, 30.0), fov_deg=30.0))
        client.order(before.seq_id, GimbalOrder(zoom=2.0))
        for by in (2.0, 0.5, 0.5, 0.5, 1e9):
            client.order(before.seq_id, GimbalOrder(zoom_by=by))
        first, second, *zooms = (decode_request(server.recv(200)) for _ in range(7))
        client.close()
    assert [desk.read_order(one, second, DOCUMENT).zoom for one in zooms] == [4.0, 2.0, 1.0, 1.0, desk.ZOOM_MOST]
    assert (second.euler, second.fov_deg) == (first.euler, first.fov_deg) == ((0.0, -20.0, 30.0), 30.0)
    assert desk.read_order(second, first, DOCUMENT) == GimbalOrder(zoom=2.0)


def test_orders_to_a_gimbal_follow_the_numbering_asked_for():
    order = GimbalOrder(rates=(0.25, -0.5), zoom_base=30.0)
    document, sdk = (gimbal_request(sensor(9), order, masks) for masks in (DOCUMENT, SDK306))
    assert document.mask == 1 << 6 | 1 << 13 and sdk.mask == 1 << 11 | 1 << 13
    assert document.other[2:6] == (0.25, -0.5, 0.0, 30.0) and len(document.encode()) == 148
    assert decode_request(document.encode()) == document
    pixel = gimbal_request(sensor(9), GimbalOrder(box=2, pixel=(320.0, 240.0), quat=(1.0, 0.0, 0.0, 0.0)), DOCUMENT)
    assert pixel.other[8:11] == (2.0, 320.0, 240.0) and pixel.by_quat == 1.0 and pixel.mask == 1 << 11


@pytest.mark.parametrize(
    ("order", "masks", "words"),
    [
        (GimbalOrder(zoom_base=30.0, track=2), DOCUMENT, "otherParams"),
        (GimbalOrder(box=1), SDK306, "no bit for box"),
        (GimbalOrder(pixel=(1.0, 1.0)), DOCUMENT, "needs box"),
        (GimbalOrder(size_px=(0, 240)), DOCUMENT, "0 x 240 px: expected 1 to 65535"),
        (GimbalOrder(size_px=(320, 240)), DOCUMENT, "do not tell their size"),
    ],
)
def test_orders_that_contradict_each_other_or_raw_images_are_refused(order, masks, words):
    with pytest.raises(ValueError, match=words):
        gimbal_request(sensor(9, mode=2), order, masks)


ROWS = (
    "fov_deg", "euler", "quat", "focal", "centre", "rates", "zoom", "zoom_base", "track", "ranging", "light", "box",
)  # fmt: skip


def test_the_page_has_the_bits_and_places_of_both_numberings():
    """And the ports that MAVROS and the profile have."""
    page = (ROOT / "docs/rflysim.md").read_text(encoding="utf-8")
    table = page[page.index("| command | bit") :].split("\n\n")[0].splitlines()[2:]
    for name, row in zip(ROWS, table, strict=True):
        _, document, sdk, places = (cell.strip() for cell in row.strip("|").split("|"))
        assert [document, sdk] == [str(masks.get(name) or "-") for masks in (DOCUMENT, SDK306)], row
        listed = [*desk.PLACES.get(name, ()), *(desk.PLACES["pixel"] if name == "box" else ())]
        assert places.startswith("`") or [int(n) for n in re.findall(r"\d+", places)] == listed, row
    for copter in (1, 2):
        profile = load_profile("px4").of_copter(copter)
        assert f"udp://:{profile.mavlink_port}@192.168.1.10:{profile.simulator_port}" in page


CTRL = {"ctrl_type": 2 | 4, "fov": 6000, "roll": 0, "pitch": -3000, "yaw": 4500, "others": [0, -1, 9000, 1, 18000]}


def test_the_camera_messages_of_ros_convert_units_at_the_edge():
    order = ros.gimbal_order(CTRL)
    assert order.fov_deg == 60.0 and order.euler == (0.0, -30.0, 45.0) and order.centre is None
    assert order.rates == pytest.approx((math.pi, -math.pi / 2))
    whole = {"optics_multiply": 2**31 - 1}, {"optics_multiply": -(2**31)}, {"optics_multiply": 3}
    zooms = [ros.gimbal_order({"ctrl_type": 8, **zoom}) for zoom in whole]
    assert zooms == [GimbalOrder(zoom_by=2.0), GimbalOrder(zoom_by=0.5), GimbalOrder(zoom=3.0)]
    assert ros.gimbal_order({"ctrl_type": 1, "width": 320, "height": 240}) == GimbalOrder(size_px=(320, 240))
    assert ros.box_order({"ctrl_id": 1, "pixel_pos": [3, 4]}) == GimbalOrder(box=2, pixel=(3.0, 4.0))
    values = (18.0, math.pi, 0.0, 640.0, 640.0, 1280.0, 720.0, 37.5, *[0.0] * 8)
    state = desk.decode_state(replace(sensor(9), mask=0, other=values, check_sum=12346).encode())
    health = StreamHealth()
    for now in (10.0, 10.1, 10.4, 10.6):
        health.saw(now)
    gimbal = replace(sensor(9), position_m=(0.1, 0.0, 0.2))
    status = status_of(state, 2.5, gimbal, health, "/uav1")
    gaps = [status[f"capture_{which}_sec"] for which in ("max", "min", "cur")]
    assert gaps == pytest.approx([0.3, 0.1, 0.2]) and status["frame_rate"] == pytest.approx(5.0)
    params = status["camera_params"]
    assert (params["p2c_front_m"], params["p2c_down_m"]) == (0.1, 0.2)
    assert (params["att_type_valid_mask"], status["type"]) == (1, 2)
    earth = status_of(state, 2.5, replace(gimbal, mount_type=3), health)
    assert (earth["type"], earth["camera_params"]["att_type_valid_mask"]) == (0, 2)
    assert (status["fov"], status["width"], status["others"][4]) == (9000, 1280, 18000)
    assert (status["camera_params"]["fx"], status["camera_params"]["cy"]) == (640.0, 360.0)
    assert status["header"] == {"stamp": {"sec": 2, "nanosec": 500_000_000}, "frame_id": "uav1/sensor2_optical"}


def test_the_package_of_messages_has_the_fields_that_are_filled():
    folder = ROOT / "examples/ros/rflysim_ros_pkg"

    def defined(name):
        lines = (folder / f"msg/{name}.msg").read_text().splitlines()
        return {line.split()[1] for line in lines if line and line[0] != "#" and "=" not in line.split("#")[0]}

    state = desk.decode_state(replace(sensor(9), mask=0, check_sum=12346).encode())
    status = status_of(state, 0.0, sensor(9), StreamHealth())
    assert defined("CameraStatus") == status.keys() and defined("CameraParams") >= status["camera_params"].keys()
    assert defined("CameraCtrl") >= {"optics_multiply", "base_optics", *CTRL}
    assert defined("CameraAICtrl") == {"header", "ctrl_id", "pixel_pos"}
    built = (folder / "CMakeLists.txt").read_text()
    assert all(f"msg/{path.name}" in built for path in (folder / "msg").iterdir())


def test_values_out_of_a_messages_range_are_clipped():
    """rclpy refuses a field out of range, which would end the bridge."""
    huge = 3e38
    wild = replace(
        sensor(9), seq_id=65535, fov_deg=-huge, euler=(huge,) * 3, mask=0, other=(huge,) * 16, check_sum=12346
    )
    status = status_of(desk.decode_state(wild.encode()), 1e300, sensor(9), StreamHealth())
    assert status["id"] == 255 and status["fov"] == 0
    assert {status[name] for name in ("roll", "pitch", "yaw", "height", "width")} == {2**31 - 1}
    assert all(abs(rate) < 2**31 for rate in status["others"])
    assert status["header"]["stamp"] == {"sec": 2**31 - 1, "nanosec": 0}
    for t in (-1e300, -1.25):
        stamp = ros.header(ros.nanoseconds(t), "")["stamp"]
        assert stamp["sec"] >= -(2**31) and 0 <= stamp["nanosec"] < 10**9


def test_numbers_of_copter_sim_that_are_none_are_malformed():
    good = desk.ImuSample(1, 0.5, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0))
    for bad in (replace(good, t=math.nan), replace(good, t=math.inf), replace(good, gyro=(math.nan, 0.0, 0.0))):
        with pytest.raises(MalformedError, match="not finite"):
            desk.ImuSample.decode(bad.encode())
    assert desk.ImuSample.decode(good.encode()).number == 1


def test_what_other_hosts_send_is_counted_and_not_heard():
    """Any machine of the network could turn a gimbal's picture, shift the clock or shake the IMU."""
    state = replace(sensor(9), mask=0, check_sum=12346).encode()
    sample, beat = desk.ImuSample(1, 0.5, (0.0, 0.0, -9.8), (0.0,) * 3), desk.CopterHeartbeat(1, 5000, 9000, 1)
    server = "127.0.0.1", 1
    with (
        bind_udp("127.0.0.1", 0) as honest, bind_udp("127.0.0.2", 0) as liar,
        desk.GimbalClient([sensor(9)], server, port=0) as gimbals, desk.ImuReceiver("127.0.0.1", 100, ask_port=1, port=0) as felt,
        desk.HeartbeatReceiver(server, port=0) as heartbeats,
    ):  # fmt: skip
        for wire, count in ((liar, 0), (honest, 1)):
            for client, datagram in ((gimbals, state), (felt, sample.encode()), (heartbeats, beat.encode())):
                wire.sendto(datagram, ("127.0.0.1", client.port))
            assert len(list(gimbals.states())) == len(list(felt.samples())) == count
            heartbeats.listen(0.0)
            assert heartbeats.from_heartbeat == bool(count)
        assert gimbals.foreign == felt.foreign == heartbeats.foreign == 1


def test_a_simulation_that_begins_anew_is_noticed_where_no_heartbeat_tells():
    ear = desk.HeartbeatReceiver(("127.0.0.1", 1), port=0)
    try:
        first, later = ear.start(100.0, 1_700_000_100.0), ear.start(160.0, 1_700_000_170.0)
        assert first == later, "late frames, or a slow simulation, begin nothing"
        assert ear.start(0.5, 1_700_000_200.0) == pytest.approx(1_700_000_199.5, abs=0.02)
    finally:
        ear.close()


def test_odometry_and_imu_stand_in_ros_axes():
    """North and nose are +y and +x of the body; down is -z."""
    cloud = Cloud((3.0, 1.0, -2.0), (0.0, 0.0, 0.0), np.zeros((1, 3), np.float32), None, 2, WORLD)
    pose = RosMessages().odometry(cloud, 1_000_000_000)
    topics = [one.topic for one in RosMessages("/a").sample(Sample(sensor(23), 0.0, 1, cloud))]
    assert pose["pose"]["pose"]["position"] == {"x": 1.0, "y": 3.0, "z": 2.0}
    q = pose["pose"]["pose"]["orientation"]
    assert (abs(q["w"]), abs(q["z"]), q["x"], q["y"]) == pytest.approx((math.sqrt(0.5), math.sqrt(0.5), 0, 0))
    assert pose["header"]["frame_id"] == "world_enu" and pose["child_frame_id"] == "uav2_flu"
    assert pose["twist"]["covariance"][0] == -1 and "/a/rflysim/uav2/global/odom" in topics
    q = RosMessages(ned=True).odometry(cloud, 1_000_000_000)["pose"]["pose"]["orientation"]
    assert q == {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}
    rest = RosMessages().imu(desk.ImuSample(1, 0.0, (0.0, 0.0, -9.81), (0.1, 0.2, 0.3))).values
    assert rest["linear_acceleration"]["z"] == 9.81 and rest["orientation_covariance"][0] == -1
    assert list(rest["angular_velocity"].values()) == [0.1, -0.2, -0.3]


def test_clouds_and_ranges_as_ros_has_them():
    points = np.arange(6, dtype=np.float32).reshape(2, 3)
    cloud = Cloud((0.0,) * 3, (0.0,) * 3, points, np.array([7, 8], np.float32), 1, 0)
    said = said_of(cloud, sensor(23), start=100.0)
    assert [f["name"] for f in said["fields"]] == ["x", "y", "z", "seg"] and said["point_step"] == 16
    assert np.frombuffer(said["data"], np.float32).reshape(2, 4).tolist() == [[0, 1, 2, 7], [3, 4, 5, 8]]
    assert said["header"] == {"stamp": {"sec": 100, "nanosec": 0}, "frame_id": "sensor2_flu"}
    seen = Range(7.25, 1, (0.0,) * 3, (0.0,) * 3, (0.0,) * 3, (0.0,) * 3)
    assert said_of(seen, sensor(5)) == {"data": 7.25}


CLOUD = Cloud((3.0, 1.0, -2.0), (0.1, 0.2, 0.3), np.ones((2, 3), np.float32), np.ones(2, np.float32), 1, LOCAL)
IMAGE = np.zeros((48, 64, 3), np.uint8)
ROS = RosMessages("/u")
MESSAGES = [
    *ROS.sample(Sample(sensor(1), 1.5, 1, IMAGE)),
    *ROS.sample(Sample(sensor(8), 1.5, 1, IMAGE)),
    *ROS.sample(Sample(sensor(23), 1.5, 1, CLOUD)),
    *ROS.sample(Sample(sensor(5), 1.5, 1, Range(2.5, 1, *[(0.0,) * 3] * 4))),
    ROS.imu(desk.ImuSample(1, 0.5, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0))),
    ROS.fixed([sensor(1), sensor(23)], 1),
]


@pytest.mark.parametrize("distribution", [Stores.ROS2_HUMBLE, Stores.ROS2_JAZZY])
@pytest.mark.parametrize("message", MESSAGES, ids=[message.kind for message in MESSAGES])
def test_messages_have_the_fields_and_types_of_ros_2(distribution, message):
    encoder, name = ros.Encoder(distribution), ros.full_name(message.kind)
    data, store = encoder.encode(message), encoder.store
    assert bytes(store.serialize_cdr(store.deserialize_cdr(data, name), name)) == data
    with pytest.raises(KeyError, match="has no"):
        encoder.encode(message._replace(values=message.values | {"colour": 1}))


def test_a_camera_is_told_as_it_is():
    about = sensor(1, fov_deg=80.0)
    (told, camera), named = (
        (ROS.camera_info(about, 2_500_000_000), pinhole(about)),
        RosMessages(names={1: "/camera/image_raw"}),
    )
    assert told["k"] == [camera.fx_px, 0, camera.cx_px, 0, camera.fy_px, camera.cy_px, 0, 0, 1] and not any(told["d"])
    assert (told["width"], told["height"], told["header"]["frame_id"]) == (64, 48, "u/sensor2_optical")
    fisheye = ROS.camera_info(sensor(8, fov_deg=180.0), 2_500_000_000)
    assert fisheye["distortion_model"] == "equidistant" and fisheye["k"][0] == pytest.approx(64 / math.pi)
    topics = [one.topic for one in named.sample(Sample(about, 0.0, 1, IMAGE))]
    assert topics == ["/camera/image_raw", "/camera/camera_info"]
    state = desk.GimbalState(2, 1, (0.0,) * 3, (1.0, 0.0, 0.0, 0.0), 45.0, 0.0, (0.0, 0.0), 0.0, 0.0, 64, 48, 0.0)
    for fov_deg, seen_deg in ((45.0, 45.0), (3e38, 45.0), (0.0, 45.0), (60.0, 60.0)):
        list(named.gimbal(replace(state, fov_deg=fov_deg), 0.0, sensor(9), StreamHealth()))
        seen = named.camera_info(sensor(1, seq_id=3, fov_deg=seen_deg), 0)
        assert named.camera_info(sensor(9), 0)["k"] == seen["k"]


class Tree:
    """Transforms to a root, as TF 2 chains them: each frame has one parent."""

    def __init__(self, transforms):
        self.parents = {}
        for one in transforms:
            child, motion = one["child_frame_id"], one["transform"]
            assert self.parents.get(child, (one["header"]["frame_id"],))[0] == one["header"]["frame_id"], child
            t, q = motion["translation"], motion["rotation"]
            R = matrix([q["w"], q["x"], q["y"], q["z"]])
            self.parents[child] = one["header"]["frame_id"], np.array([t["x"], t["y"], t["z"]]), R

    def to_root(self, frame, p=(0.0, 0.0, 0.0)):
        while frame in self.parents:
            frame, origin, R = self.parents[frame]
            p = origin + R @ p
        return frame, np.array(p)


def fixed(*sensors):
    return ROS.fixed(sensors, 1).values["transforms"]


def cloud_at(exposure, axes, shift=(0.0, 0.0, 0.0)):
    return replace(CLOUD, p_wb=as_vector(exposure.p_wb + shift), rpy=to_euler(exposure.q_wb), axes=axes)


@pytest.mark.parametrize("by_quat", [0.0, 1.0])
@pytest.mark.parametrize("mount", [0, 2])
def test_a_pixel_leads_to_the_place_that_is_seen(vq1, mount, by_quat):
    """Through optical axes, mount and odometry, to the point that the simulated camera has on that ray."""
    euler = (10.0, -20.0, 30.0)
    quat = tuple(from_euler(*map(math.radians, euler)))
    about = sensor(1, position_m=(0.3, -0.1, 0.2), mount_type=mount, by_quat=by_quat, quat=quat,
                   euler=euler if not by_quat else (0.0, 0.0, 0.0))  # fmt: skip
    exposure, p_c = at(vq1, yaw=2.0), np.array([0.4, -0.3, 5.0])
    sensed = mount_of(about).seen(exposure)
    p_w = sensed.p_wb + matrix(sensed.q_wb) @ pinhole(about).R_bc @ p_c
    moved = RosMessages("/u").body_transform(cloud_at(exposure, WORLD), 1_000_000_000)
    root, found = Tree([*fixed(about), moved]).to_root("u/sensor2_optical", p_c)
    assert root == "world_enu"
    np.testing.assert_allclose(found, [p_w[1], p_w[0], -p_w[2]], atol=1e-9)


@pytest.mark.parametrize("first", [LOCAL, WORLD])
def test_a_body_has_one_parent_whichever_odometry_comes_first(vq1, first):
    """The local frame began elsewhere; both odometries put the body at the same place of the world."""
    messages, shift = RosMessages("/u"), (5.0, -3.0, 1.0)
    exposure, later = at(vq1, yaw=1.0), replace(at(vq1, yaw=2.0), p_wb=np.array([9.0, 8.0, -7.0]))
    clouds = {LOCAL: cloud_at(exposure, LOCAL, shift), WORLD: cloud_at(exposure, WORLD)}
    told = [messages.body_transform(clouds[axes], 1_000_000_000) for axes in (first, 1 - first)]
    assert messages.body_transform(cloud_at(later, 1 - first), 1_500_000_000) is None, "of another moment"
    moved = messages.body_transform(cloud_at(later, first, shift if first == LOCAL else (0.0, 0.0, 0.0)), 1_500_000_000)
    root, p = Tree([*told, moved, *fixed(sensor(1))]).to_root("u/uav1_flu")
    assert root == "world_enu"
    np.testing.assert_allclose(p, [8.0, 9.0, 7.0], atol=1e-9)
    root, p = Tree([*told, *fixed(sensor(1))]).to_root("u/uav1_local_enu", (-3.0, 5.0, -1.0))
    assert root == "world_enu"
    np.testing.assert_allclose(p, 0.0, atol=1e-9)


def test_a_sensor_on_another_one_hangs_on_it_and_one_fixed_to_the_earth_on_nothing():
    on = ROS.mount_transform(sensor(5, mount_type=4, copter=3, seq_id=4))
    assert (on["header"]["frame_id"], on["child_frame_id"]) == ("u/sensor3_flu", "u/sensor4_flu")
    assert ROS.mount_transform(sensor(1, mount_type=3)) is None
