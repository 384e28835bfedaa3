"""CameraInfo and transforms beside the streams: types as ROS 2 defines them, and a tree that leads from a pixel to the world."""

import math
from dataclasses import replace

import numpy as np
import pytest
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_typestore

from gate_racer.link.rflysim.config import pinhole
from gate_racer.link.rflysim.desk import GimbalState
from gate_racer.link.rflysim.request import ImuSample
from gate_racer.link.rflysim.ros import RosMessages
from gate_racer.link.rflysim.stream import LOCAL, WORLD, Cloud, Range, Sample, StreamHealth
from gate_racer.sim.view.sensing import mount_of
from gate_racer.vehicle.rotation import as_vector, from_euler, matrix, to_euler
from tests.link.rflysim_sensor import sensor
from tests.sim.rflysim_requests import at


def typed(store, name, values):
    """The message of a type with the fields of a dictionary; all others have their defaults."""
    fields = dict(store.fielddefs[name][1])
    assert values.keys() <= fields.keys(), f"{name} has no {values.keys() - fields.keys()}"
    return store.types[name](**{field: valued(store, *of, values.get(field)) for field, of in fields.items()})


def valued(store, kind, of, value):
    if kind == Nodetype.NAME:
        return typed(store, of, value or {})
    if kind == Nodetype.BASE:
        assert value is None or isinstance(value, str) == (of[0] == "string")
        return value if value is not None else "" if of[0] == "string" else 0
    (inner, what), count = of
    assert value is None or kind == Nodetype.SEQUENCE or len(value) == count
    if inner == Nodetype.BASE and what[0] != "string":
        return np.array(value if value is not None else [0] * count, what[0])
    return [valued(store, inner, what, one) for one in value or []]


CLOUD = Cloud((3.0, 1.0, -2.0), (0.1, 0.2, 0.3), np.ones((2, 3), np.float32), np.ones(2, np.float32), 1, LOCAL)
IMAGE = np.zeros((48, 64, 3), np.uint8)
ROS = RosMessages("/u")
MESSAGES = [
    *ROS.sample(Sample(sensor(1), 1.5, 1, IMAGE)),
    *ROS.sample(Sample(sensor(8), 1.5, 1, IMAGE)),
    *ROS.sample(Sample(sensor(23), 1.5, 1, CLOUD)),
    *ROS.sample(Sample(sensor(5), 1.5, 1, Range(2.5, 1, *[(0.0,) * 3] * 4))),
    ROS.imu(ImuSample(1, 0.5, (0.0, 0.0, -9.8), (0.0, 0.0, 0.0))),
    ROS.fixed([sensor(1), sensor(23)], 1),
]


@pytest.mark.parametrize("distribution", [Stores.ROS2_HUMBLE, Stores.ROS2_JAZZY])
@pytest.mark.parametrize("message", MESSAGES, ids=[message.kind for message in MESSAGES])
def test_messages_have_the_fields_and_types_of_ros_2(distribution, message):
    store, name = get_typestore(distribution), message.kind.replace("/", "/msg/")
    data = store.serialize_cdr(typed(store, name, message.values), name)
    assert bytes(store.serialize_cdr(store.deserialize_cdr(data, name), name)) == bytes(data)


def test_a_camera_is_told_as_it_is():
    about = sensor(1, fov_deg=80.0)
    (told, camera), named = (ROS.camera_info(about, 2.5), pinhole(about)), RosMessages(names={1: "/camera/image_raw"})
    assert told["k"] == [camera.fx_px, 0, camera.cx_px, 0, camera.fy_px, camera.cy_px, 0, 0, 1] and not any(told["d"])
    assert (told["width"], told["height"], told["header"]["frame_id"]) == (64, 48, "u/sensor2_optical")
    fisheye = ROS.camera_info(sensor(8, fov_deg=180.0), 2.5)
    assert fisheye["distortion_model"] == "equidistant" and fisheye["k"][0] == pytest.approx(64 / math.pi)
    assert [one.topic for one in named.sample(Sample(about, 0.0, 1, IMAGE))] == [
        "/camera/image_raw",
        "/camera/camera_info",
    ]
    state = GimbalState(2, 1, (0.0,) * 3, (1.0, 0.0, 0.0, 0.0), 45.0, 0.0, (0.0, 0.0), 0.0, 0.0, 64, 48, 0.0)
    for fov_deg, seen_deg in ((45.0, 45.0), (3e38, 45.0), (0.0, 45.0), (60.0, 60.0)):
        list(named.gimbal(replace(state, fov_deg=fov_deg), 0.0, sensor(9), StreamHealth(), "p"))
        assert (
            named.camera_info(sensor(9), 0.0)["k"] == named.camera_info(sensor(1, seq_id=3, fov_deg=seen_deg), 0.0)["k"]
        )


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
    moved = RosMessages("/u").body_transform(cloud_at(exposure, WORLD), 1.0)
    root, found = Tree([*fixed(about), moved]).to_root("u/sensor2_optical", p_c)
    assert root == "world_enu"
    np.testing.assert_allclose(found, [p_w[1], p_w[0], -p_w[2]], atol=1e-9)


@pytest.mark.parametrize("first", [LOCAL, WORLD])
def test_a_body_has_one_parent_whichever_odometry_comes_first(vq1, first):
    """The local frame began elsewhere; both odometries put the body at the same place of the world."""
    messages, shift = RosMessages("/u"), (5.0, -3.0, 1.0)
    exposure, later = at(vq1, yaw=1.0), replace(at(vq1, yaw=2.0), p_wb=np.array([9.0, 8.0, -7.0]))
    clouds = {LOCAL: cloud_at(exposure, LOCAL, shift), WORLD: cloud_at(exposure, WORLD)}
    told = [messages.body_transform(clouds[axes], 1.0) for axes in (first, 1 - first)]
    assert messages.body_transform(cloud_at(later, 1 - first), 1.5) is None, "of another moment"
    moved = messages.body_transform(cloud_at(later, first, shift if first == LOCAL else (0.0, 0.0, 0.0)), 1.5)
    root, p = Tree([*told, moved, *fixed(sensor(1))]).to_root("u/uav1_flu")
    assert root == "world_enu"
    np.testing.assert_allclose(p, [8.0, 9.0, 7.0], atol=1e-9)
    root, p = Tree([*told, *fixed(sensor(1))]).to_root("u/uav1_local_enu", (-3.0, 5.0, -1.0))
    assert root == "world_enu"
    np.testing.assert_allclose(p, 0.0, atol=1e-9)


def test_every_header_names_a_frame_of_the_tree():
    sensors = [sensor(1, seq_id=0), sensor(23, seq_id=1), sensor(21, seq_id=2), sensor(9, seq_id=3)]
    values = [IMAGE, replace(CLOUD, axes=WORLD), replace(CLOUD, axes=WORLD), IMAGE]
    told, ned = [ROS.imu(ImuSample(1, 0.0, (0.0,) * 3, (0.0,) * 3))], RosMessages("/u", ned=True)
    for about, value in zip(sensors, values, strict=True):
        told += [one for messages in (RosMessages("/u"), ned) for one in messages.sample(Sample(about, 0.0, 1, value))]
    moved = [motion for one in told if one.topic == "/tf" for motion in one.values["transforms"]]
    tree = Tree([*fixed(*sensors), *moved, ROS.mount_transform(sensors[3])])
    named = [one.values for one in told if one.topic != "/tf"]
    frames = {one["header"]["frame_id"] for one in named} | {one.get("child_frame_id", "world_enu") for one in named}
    assert len(frames) == 8 and {tree.to_root(frame)[0] for frame in frames} == {"world_enu"}


def test_a_sensor_on_another_one_hangs_on_it_and_one_fixed_to_the_earth_on_nothing():
    on = ROS.mount_transform(sensor(5, mount_type=4, copter=3, seq_id=4))
    assert (on["header"]["frame_id"], on["child_frame_id"]) == ("u/sensor3_flu", "u/sensor4_flu")
    assert ROS.mount_transform(sensor(1, mount_type=3)) is None
