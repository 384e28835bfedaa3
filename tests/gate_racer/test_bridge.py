"""The bridge over UDP: to bags and viewers, and to a stand-in for rclpy that keeps what is published and gives one order."""

import json
import math
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import urlencode

import numpy as np
import pytest
from rosbags.highlevel import AnyReader

from gate_racer import about, answers
from gate_racer.common.command import perform
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim.desk import DOCUMENT, GimbalOrder, GimbalState, gimbal_request
from gate_racer.link.rflysim.request import decode_request
from gate_racer.link.rflysim.ros import Encoder
from gate_racer.link.rflysim.stream import LOCAL, Cloud, Payload, encode_cloud, fragments
from gate_racer.link.sockets import UdpEndpoint
from tests.conftest import ROOT, refused
from tests.processes import free_port


class Message:
    """Any field can be read or written; those that are read first are messages themselves."""

    asked = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, Message())
        return vars(self)[name]

    def get_fields_and_field_types(self):
        return dict.fromkeys(self.asked, "sequence<tf2_msgs/Message>")


OF_ROS = "Imu", "Image", "CameraInfo", "PointCloud2", "Odometry", "TFMessage"
KINDS = {name: type(name, (Message,), {}) for name in (*OF_ROS, "CameraStatus", "CameraCtrl", "CameraAICtrl")}
KINDS["PointCloud2"].asked, KINDS["TFMessage"].asked = ("fields",), ("transforms",)
KINDS["CameraCtrl"].asked, KINDS["CameraAICtrl"].asked = ("ctrl_type", "pitch", "others"), ("ctrl_id", "pixel_pos")
ORDERS = {
    "CameraCtrl": {"ctrl_type": 4, "pitch": -3000, "others": [0] * 5},
    "CameraAICtrl": {"ctrl_id": 1, "pixel_pos": []},  # no pixel: an order that cannot be carried out
}


class Ros:
    """Enough of rclpy for one node: what is published is kept, and the first spin delivers what was ordered."""

    def __init__(self):
        self.told, self.closed, self._heard = [], False, []

    def init(self):
        pass

    shutdown = init

    def create_node(self, name):
        return self

    def create_publisher(self, kind, topic, quality):
        def publish(message):
            plain = json.loads(json.dumps(message, default=lambda v: vars(v) if hasattr(v, "__dict__") else list(v)))
            self.told.append((topic, kind.__name__, plain, getattr(quality, "durability", "")))

        return SimpleNamespace(publish=publish)

    def create_subscription(self, kind, topic, callback, depth):
        self._heard.append((kind, callback))

    def destroy_node(self):
        self.closed = True

    def spin_once(self, node, timeout_sec):
        while self._heard:
            kind, callback = self._heard.pop()
            order = kind()
            vars(order).update(ORDERS[kind.__name__])
            callback(order)


@pytest.fixture
def ros(monkeypatch):
    """Modules that stand in for ROS."""
    node, quality = Ros(), SimpleNamespace(TRANSIENT_LOCAL="transient local")
    monkeypatch.setitem(sys.modules, "rclpy", node)
    monkeypatch.setitem(sys.modules, "rclpy.qos", SimpleNamespace(QoSProfile=SimpleNamespace, DurabilityPolicy=quality))
    for package in ("gimbals", "nav_msgs", "sensor_msgs", "tf2_msgs"):
        monkeypatch.setitem(sys.modules, package, SimpleNamespace())
        monkeypatch.setitem(sys.modules, f"{package}.msg", SimpleNamespace(Message=Message, **KINDS))
    return node


def received(server, parse):
    """The first datagram that parses."""
    for _ in range(50):
        try:
            return parse(server.recv(2048))
        except MalformedError:
            continue
    raise AssertionError("nothing of the kind came")


def sensor_entry(seq_id, type_id, **fields):
    return {
        "SeqID": seq_id, "TypeID": type_id, "TargetCopter": 1, "TargetMountType": 0, "DataWidth": 64, "DataHeight": 48,
        "DataCheckFreq": 30, "SendProtocol": [2, 127, 0, 0, 1, free_port(), 0, 0], "CameraFOV": 90, "EularOrQuat": 0,
        "SensorPosXYZ": [0, 0, 0], "SensorAngEular": [0, 0, 0], "SensorAngQuat": [1, 0, 0, 0], "otherParams": [0] * 16, **fields,
    }  # fmt: skip


@pytest.fixture
def bridge(ros, tmp_path):
    """Start the bridge with sensors and options in a thread; the server that it asks, and what it will have returned."""
    with UdpEndpoint("127.0.0.1", 0) as server, ThreadPoolExecutor(1) as thread:
        server.socket.settimeout(20)

        def start(entries, *outputs, **keys):
            (tmp_path / "Config.json").write_text(json.dumps({"VisionSensors": entries}))
            keys = {"config": tmp_path / "Config.json", "seconds": 1.0, "prefix": "/uav2", **keys}
            url = f"rflysim://127.0.0.1:{server.address[1]}?{urlencode(keys)}"
            given = about.parser().parse_args(["rflysim-bridge", url, *map(str, outputs)])
            return server.socket, thread.submit(answers.run, given)

        yield start


def test_gimbals_take_orders_and_tell_their_state_and_an_impossible_order_costs_nothing(bridge, ros, capfd):
    states = free_port()
    server, end = bridge([sensor_entry(3, 9)], "ros", gimbal_messages="gimbals", state_port=states)
    asked = received(server, ordered)
    said = gimbal_request(asked, GimbalOrder(euler=(0.0, -30.0, 0.0), fov_deg=60.0), DOCUMENT)
    wild = replace(said, fov_deg=3e38, euler=(3e38,) * 3)
    for datagram in (b"\0" * 148, b"short", wild.encode(), said.encode()):
        server.sendto(datagram, ("127.0.0.1", states))
    frame = Payload(1.5, 1, bytes(64 * 48 * 3))
    for datagram in fragments(frame):
        server.sendto(datagram, ("127.0.0.1", asked.port))
    assert end.result(30) == 0 and ros.closed
    assert asked.seq_id == 3 and asked.euler == (0.0, -30.0, 0.0)
    status = [message for topic, _, message, _ in ros.told if topic == "/uav2/rflysim/sensor3/camera/status"]
    assert status[-1]["pitch"] == -3000
    turned = [message["transforms"][0] for topic, _, message, _ in ros.told if topic == "/tf"]
    assert turned[-1]["child_frame_id"] == "uav2/sensor3_flu" and turned[-1]["header"]["frame_id"] == "uav2/uav1_flu"
    y = turned[-1]["transform"]["rotation"]["y"]
    assert y == pytest.approx(math.sin(math.radians(15))), "nose down, about the left axis"
    assert capfd.readouterr().err.count("invalid command to sensor 3 ignored") == 1


def lidar_and_camera():
    return sensor_entry(1, 20, otherParams=[50, 1, -20, 20, -20, 20, *[0] * 10]), sensor_entry(2, 1)


def stream(server, sensors, t):
    """Send one cloud and one image of time t (s) to the ports that so many sensors have asked for."""
    cloud = Cloud((3.0, 1.0, -2.0), (0.0, 0.0, 0.0), np.ones((2, 3), np.float32), None, 1, LOCAL)
    ports = {asked.seq_id: asked.port for asked in (received(server, decode_request) for _ in range(sensors))}
    for seq_id, data in ((1, encode_cloud(cloud)), (2, bytes(64 * 48 * 3))):
        for datagram in fragments(Payload(t, 1, data)):
            server.sendto(datagram, ("127.0.0.1", ports[seq_id]))


def test_streams_come_with_the_intrinsics_and_the_tree_of_frames(bridge, ros):
    server, end = bridge(lidar_and_camera(), "ros", topics="1=/camera/image_raw", stamps="simulation")
    stream(server, 2, 1.5)
    assert end.result(30) == 0
    by_topic = {topic: (message, kept) for topic, _, message, kept in ros.told}
    assert {topic: kind for topic, kind, _, _ in ros.told} == {
        "/tf_static": "TFMessage", "/tf": "TFMessage", "/uav2/camera/image_raw": "Image",
        "/uav2/camera/camera_info": "CameraInfo",
        "/uav2/rflysim/sensor1/vehicle_lidar": "PointCloud2", "/uav2/rflysim/uav1/local/odom": "Odometry",
    }  # fmt: skip
    fixed, kept = by_topic["/tf_static"]
    assert kept == "transient local" and len(fixed["transforms"]) >= 5
    (moved,) = by_topic["/tf"][0]["transforms"]
    odometry, info = by_topic["/uav2/rflysim/uav1/local/odom"][0], by_topic["/uav2/camera/camera_info"][0]
    assert moved["header"] == odometry["header"] and moved["child_frame_id"] == odometry["child_frame_id"]
    assert moved["transform"]["translation"] == {"x": 1.0, "y": 3.0, "z": 2.0}
    assert info["header"] == by_topic["/uav2/camera/image_raw"][0]["header"] and info["k"][0] == pytest.approx(32.0)


def test_a_bag_holds_what_ros_would_get_and_viewers_are_served(bridge, tmp_path):
    """Without ROS; with the stamps of the frames to the nanosecond."""
    pytest.importorskip("foxglove")
    states, port = free_port(), free_port()
    keys = {"view": f"127.0.0.1:{port}", "stamps": "simulation", "state_port": states}
    server, end = bridge([*lidar_and_camera(), sensor_entry(3, 9)], tmp_path / "bag", "view", **keys)
    stream(server, 3, 1.123456789)
    server.sendto(GIMBAL.encode(), ("127.0.0.1", states))
    begin = time.monotonic()
    while time.monotonic() - begin < 0.9:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 0.1).close()
            break
    else:
        raise AssertionError("nobody listens for viewers")
    assert end.result(30) == 0
    store = Encoder().store
    with AnyReader([tmp_path / "bag"], default_typestore=store) as bag:
        held = {one.topic: bag.deserialize(raw, one.msgtype) for one, _, raw in bag.messages()}
    assert held["/uav2/rflysim/sensor3/camera/status"].fov == 3000
    stamp, image = held["/uav2/rflysim/sensor2/img_rgb"].header.stamp, held["/uav2/rflysim/sensor2/img_rgb"]
    assert (stamp.sec, stamp.nanosec) == (1, 123456789) and bytes(image.data) == bytes(64 * 48 * 3)
    assert held["/uav2/rflysim/sensor1/vehicle_lidar"].width == 2
    assert {"/tf", "/tf_static", "/uav2/rflysim/uav1/local/odom", "/uav2/rflysim/sensor2/camera_info"} <= held.keys()


GIMBAL = GimbalState(3, 1, (0.0,) * 3, (1.0, 0.0, 0.0, 0.0), 30.0, 0.0, (0.0, 0.0), 32.0, 32.0, 64, 48, 0.0)


@pytest.mark.parametrize(("missing", "type_id"), [("tf2_msgs", 1), ("rflysim_ros_pkg", 9)])
def test_a_package_of_ros_that_is_missing_is_one_line(bridge, monkeypatch, missing, type_id):
    monkeypatch.setitem(sys.modules, f"{missing}.msg", None)
    _, end = bridge([sensor_entry(3, type_id)], "ros", state_port=free_port())
    with refused(f"no ROS package {missing}"):
        end.result(30)


def ordered(datagram):
    """A gimbal's order; requests for frames have another length."""
    request = decode_request(datagram)
    if request.mask is None:
        raise MalformedError("a request for frames")
    return request


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("&colour=x", "unknown option 'colour'; known: config, imu"),
        ("&copter=0", "copter: 0 must lie between 1 and 1000"),
        ("&seconds=nan", "seconds"),
        ("&topics=\u00b2=/x", "expected TYPE=NAME"),
        ("&imu=127.0.0.1:x", "expected HOST:PORT"),
        ("&config=", "no sensors given"),
    ],
)
def test_a_url_that_means_nothing_is_one_line(keys, words, capfd, tmp_path, monkeypatch):
    text = (ROOT / "examples/rflysim.json").read_text()
    (tmp_path / "Config.json").write_text(text.replace("9999", str(free_port())))
    url = f"rflysim://127.0.0.1?config={tmp_path}/Config.json{keys}"
    monkeypatch.setattr(sys, "argv", ["gate-racer", "rflysim-bridge", url])
    code = perform(about.parser(), answers.run)
    told = capfd.readouterr().err.splitlines()
    assert code == 2 and sum(words in line for line in told) == 1 and "Traceback" not in "".join(told)


def test_a_bag_goes_to_a_new_folder_only(bridge, tmp_path):
    _, end = bridge([sensor_entry(3, 1)], tmp_path)
    with refused("exists already, .*expected a new folder"):
        end.result(30)
