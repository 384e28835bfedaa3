"""The ROS bridge as a process over UDP, with a stand-in for rclpy that writes down what is published and gives one order."""

import json
import math
import socket
import struct
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from gate_racer.common.errors import exit_code
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim.desk import DOCUMENT, GimbalOrder, ImuReceiver, gimbal_request
from gate_racer.link.rflysim.request import ImuRequest, ImuSample, decode_request
from gate_racer.link.rflysim.stream import LOCAL, Cloud, Payload, encode_cloud, fragments
from gate_racer.link.sockets import UdpEndpoint
from tests.conftest import ROOT
from tests.processes import free_port
from tools import rflysim_bridge

QOS = """
class DurabilityPolicy:
    TRANSIENT_LOCAL = "transient local"

class QoSProfile:
    def __init__(self, depth, durability):
        self.durability = durability
"""
RCLPY = '''
"""Enough of rclpy for one node: what is published goes to stdout, and the first spin delivers what was ordered."""
import json
from gimbals.msg import CameraAICtrl, CameraCtrl

heard = []

def written(value):
    return vars(value) if hasattr(value, "__dict__") else list(value)

class Node:
    def create_publisher(self, kind, topic, quality):
        class Publisher:
            def publish(self, message):
                kept = getattr(quality, "durability", "")
                print(json.dumps([topic, kind.__name__, vars(message), kept], default=written), flush=True)
        return Publisher()
    def create_subscription(self, kind, topic, callback, depth):
        heard.append((kind, topic, callback))
    def destroy_node(self):
        print(json.dumps(["closed"]), flush=True)

def init(): pass
def shutdown(): pass
def create_node(name): return Node()
def spin_once(node, timeout_sec):
    while heard:
        kind, topic, callback = heard.pop()
        callback(kind())
'''
MESSAGES = '''
class Message:
    """Any field can be read or written; those that are read first are messages themselves."""
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = Message()
        setattr(self, name, value)
        return value
    def get_fields_and_field_types(self):
        return dict.fromkeys(self.asked, "sequence<tf2_msgs/Message>")

class Imu(Message): pass
class Image(Message): pass
class CameraInfo(Message): pass
class PointCloud2(Message): asked = ("fields",)
class Odometry(Message): pass
class TFMessage(Message): asked = ("transforms",)
class CameraStatus(Message): pass

class CameraCtrl(Message):
    asked = ("ctrl_type", "pitch", "others")
    ctrl_type, pitch, others = 4, -3000, [0, 0, 0, 0, 0]

class CameraAICtrl(Message):
    asked = ("ctrl_id", "pixel_pos")
    ctrl_id, pixel_pos = 1, []  # no pixel: an order that cannot be carried out
'''


@pytest.fixture
def ros(tmp_path):
    """A folder of packages that stand in for ROS."""
    (tmp_path / "rclpy").mkdir()
    (tmp_path / "rclpy/__init__.py").write_text(RCLPY)
    (tmp_path / "rclpy/qos.py").write_text(QOS)
    for package in ("gimbals", "nav_msgs", "sensor_msgs", "tf2_msgs"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        (tmp_path / package / "msg.py").write_text(MESSAGES)
    return tmp_path


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
def bridge(ros):
    """Start the bridge with sensors and options; the server that it asks, and the process."""
    with UdpEndpoint("127.0.0.1", 0) as server:
        server.socket.settimeout(20)

        def start(entries, *options):
            (ros / "Config.json").write_text(json.dumps({"VisionSensors": entries}))
            command = [
                sys.executable, "tools/rflysim_bridge.py", ros / "Config.json", "--ros", "--seconds", "1.5", "--prefix", "/uav2",
                "--server", f"rflysim://127.0.0.1:{server.address[1]}", *options,
            ]  # fmt: skip
            return server.socket, subprocess.Popen(
                list(map(str, command)), cwd=ROOT, env={"PYTHONPATH": f"{ROOT}:{ros}"}, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            )  # fmt: skip

        yield start


def published(process):
    told, errors = process.communicate(timeout=30)
    *lines, last = (json.loads(line) for line in told.splitlines() if line.startswith("["))
    assert last == ["closed"] and process.returncode == 0 and "Traceback" not in errors, errors
    return lines, errors


def test_gimbals_take_orders_and_tell_their_state_and_an_impossible_order_costs_nothing(bridge):
    states = free_port()
    server, process = bridge([sensor_entry(3, 9)], "--gimbal-messages", "gimbals", "--state-port", states)
    with process:
        asked = received(server, ordered)
        said = gimbal_request(asked, GimbalOrder(euler=(0.0, -30.0, 0.0), fov_deg=60.0), DOCUMENT)
        wild = replace(said, fov_deg=3e38, euler=(3e38,) * 3)
        for datagram in (b"\0" * 148, b"short", wild.encode(), said.encode()):
            server.sendto(datagram, ("127.0.0.1", states))
        frame = Payload(1.5, 1, bytes(64 * 48 * 3))
        for datagram in fragments(frame):
            server.sendto(datagram, ("127.0.0.1", asked.port))
        lines, errors = published(process)
    assert asked.seq_id == 3 and asked.euler == (0.0, -30.0, 0.0)
    status = [message for topic, _, message, _ in lines if topic == "/uav2/rflysim/sensor3/camera/status"]
    assert status[-1]["pitch"] == -3000
    turned = [message["transforms"][0] for topic, _, message, _ in lines if topic == "/tf"]
    assert turned[-1]["child_frame_id"] == "uav2/sensor3_flu" and turned[-1]["header"]["frame_id"] == "uav2/uav1_flu"
    assert turned[-1]["transform"]["rotation"]["y"] == pytest.approx(math.sin(math.radians(15))), (
        "nose down, about the left axis"
    )
    assert errors.count("invalid command to sensor 3 ignored") == 1


def test_streams_come_with_the_intrinsics_and_the_tree_of_frames(bridge):
    lidar, camera = sensor_entry(1, 20, otherParams=[50, 1, -20, 20, -20, 20, *[0] * 10]), sensor_entry(2, 1)
    server, process = bridge([lidar, camera], "--topic", "1=/camera/image_raw", "--stamps", "simulation")
    cloud = Cloud((3.0, 1.0, -2.0), (0.0, 0.0, 0.0), np.zeros((2, 3), np.float32), None, 1, LOCAL)
    with process:
        ports = {asked.seq_id: asked.port for asked in (received(server, decode_request) for _ in range(2))}
        for seq_id, data in ((1, encode_cloud(cloud)), (2, bytes(64 * 48 * 3))):
            for datagram in fragments(Payload(1.5, 1, data)):
                server.sendto(datagram, ("127.0.0.1", ports[seq_id]))
        lines, _ = published(process)
    by_topic = {topic: (message, kept) for topic, _, message, kept in lines}
    assert {topic: kind for topic, kind, _, _ in lines} == {
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


@pytest.mark.parametrize(("missing", "type_id"), [("tf2_msgs", 1), ("rflysim_ros_pkg", 9)])
def test_a_package_of_ros_that_is_missing_is_one_line(bridge, ros, missing, type_id):
    for file in (ros / missing).glob("*.py"):
        file.unlink()
    _, process = bridge([sensor_entry(3, type_id)], "--state-port", free_port())
    with process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2 and f"no ROS package {missing}" in errors and "Traceback" not in errors


def ordered(datagram):
    """A gimbal's order; requests for frames have another length."""
    request = decode_request(datagram)
    if request.mask is None:
        raise MalformedError("a request for frames")
    return request


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--server", "rflysim://127.0.0.1?config=x"], "unknown option 'config'; known: none"),
        (["--copter", "0"], "--copter 0"),
        (["--seconds", "nan"], "--seconds nan"),
        (["--topic", "\u00b2=/x"], "expected TYPE=NAME"),
        (["--imu", "127.0.0.1:x"], "expected HOST:PORT"),
    ],
)
def test_a_command_line_that_means_nothing_is_one_line(arguments, words, capfd, tmp_path):
    (tmp_path / "Config.json").write_text(
        (ROOT / "examples/rflysim.json").read_text().replace("9999", str(free_port()))
    )
    code = exit_code(
        lambda: rflysim_bridge.run(rflysim_bridge.parser().parse_args([f"{tmp_path}/Config.json", *arguments]))
    )
    told = capfd.readouterr().err.splitlines()
    assert code == 2 and sum(words in line for line in told) == 1 and "Traceback" not in "".join(told)


def test_copter_sim_is_asked_for_its_imu():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as copter:
        copter.bind(("127.0.0.1", 0))
        copter.settimeout(5)
        ear = ImuReceiver("127.0.0.1", 200, ask_port=copter.getsockname()[1], port=0)
        try:
            assert list(ear.samples()) == []
            request = ImuRequest.decode(copter.recv(100))
            assert (request.rate_hz, request.address) == (200, (127, 0, 0, 1))
            sample = ImuSample(7, 1.5, (0.0, 0.0, -9.75), (0.5, 0.0, 0.0))
            for datagram in (struct.pack("<i", 3), sample.encode()):
                copter.sendto(datagram, ("127.0.0.1", request.port))
            assert "no sample yet from 127.0.0.1" in ear.report(time.monotonic())
            assert list(ear.samples()) == [sample] and ear.malformed == 1
            assert "1 samples" in ear.report(time.monotonic()) and "1 malformed" in ear.report(time.monotonic())
        finally:
            ear.close()
