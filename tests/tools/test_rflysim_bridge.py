"""The ROS bridge as a process over UDP, with a stand-in for rclpy that writes down what is published and gives one order."""

import json
import socket
import struct
import subprocess
import sys
import time

import pytest

from gate_racer.common.errors import exit_code
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim.desk import DOCUMENT, GimbalOrder, ImuReceiver, gimbal_request
from gate_racer.link.rflysim.request import ImuRequest, ImuSample, decode_request
from tests.conftest import ROOT
from tests.processes import free_port
from tools import rflysim_bridge

RCLPY = '''
"""Enough of rclpy for one node: what is published goes to stdout, and the first spin delivers what was ordered."""
import json
from gimbals.msg import CameraAICtrl, CameraCtrl

heard = []

class Node:
    def create_publisher(self, kind, topic, depth):
        class Publisher:
            def publish(self, message):
                print(json.dumps([topic, kind.__name__, vars(message)], default=vars), flush=True)
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
        return dict.fromkeys(self.asked)

class Imu(Message): pass
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
    (tmp_path / "rclpy.py").write_text(RCLPY)
    for package in ("gimbals", "sensor_msgs"):
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


def test_gimbals_take_orders_and_tell_their_state_and_an_impossible_order_costs_nothing(ros):
    entry = {
        "SeqID": 3, "TypeID": 9, "TargetCopter": 1, "TargetMountType": 0, "DataWidth": 64, "DataHeight": 48,
        "DataCheckFreq": 30, "SendProtocol": [1, 127, 0, 0, 1, free_port(), 0, 0], "CameraFOV": 90, "EularOrQuat": 0,
        "SensorPosXYZ": [0, 0, 0], "SensorAngEular": [0, 0, 0], "SensorAngQuat": [1, 0, 0, 0], "otherParams": [0] * 16,
    }  # fmt: skip
    (ros / "Config.json").write_text(json.dumps({"VisionSensors": [entry]}))
    states = free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(20)
        command = [
            sys.executable, "tools/rflysim_bridge.py", ros / "Config.json", "--ros", "--seconds", "4", "--prefix", "/uav2",
            "--server", f"rflysim://127.0.0.1:{server.getsockname()[1]}", "--gimbal-messages", "gimbals",
            "--state-port", states,
        ]  # fmt: skip
        with subprocess.Popen(
            list(map(str, command)), cwd=ROOT, env={"PYTHONPATH": f"{ROOT}:{ros}"}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ) as bridge:  # fmt: skip
            asked = received(server, ordered)
            said = gimbal_request(asked, GimbalOrder(euler=(0.0, -30.0, 0.0)), DOCUMENT)
            for datagram in (b"\0" * 148, b"short", said.encode()):
                server.sendto(datagram, ("127.0.0.1", states))
            told, errors = bridge.communicate(timeout=30)
    assert asked.seq_id == 3 and asked.euler == (0.0, -30.0, 0.0)
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("[")]
    (topic, kind, status), *_, last = lines
    assert (topic, kind, status["pitch"]) == ("/uav2/rflysim/sensor3/camera/status", "CameraStatus", -3000)
    assert last == ["closed"] and bridge.returncode == 0, errors
    assert errors.count("invalid command to sensor 3 ignored") == 1 and "Traceback" not in errors


def ordered(datagram):
    """A gimbal's order; requests for frames have another length."""
    request = decode_request(datagram)
    if request.mask is None:
        raise MalformedError("a request for frames")
    return request


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--server", "rflysim://127.0.0.1?config=x"], "must have no options"),
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
