"""Examples that fly `Racer` in other people's simulators, skipped where one is missing, and as a node of ROS 2."""

import importlib.util
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

EXAMPLES = {"crazyflow": "crazyflow_race.py", "rotorpy": "rotorpy_race.py", "PyFlyt": "pyflyt_race.py"}


@pytest.mark.parametrize("package", EXAMPLES)
def test_the_example_finishes_its_race(package, tmp_path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed, see docs/parts.md: no race in it is flown")
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / EXAMPLES[package]],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    end, _, times = done.stdout.splitlines()[-1].partition(" ")
    assert end == "finished" and times.count(",") == 5


# The example of a ROS 2 node races, with a stand-in for rclpy that spins the simulator around it.


RCLPY = '''
"""Enough of rclpy for one node: `spin` lets the simulator run, in the axes of ROS, until the node leaves."""
from dataclasses import replace
from types import SimpleNamespace as Stamped

import numpy as np
from mavros_msgs.msg import Vector
from gate_racer import RunSetup, Simulator, as_believed, load_profile, load_vehicle
from gate_racer.link.messages import Arm, AttitudeTarget, Imu
from gate_racer.sim.view.renderer import RenderedCamera
from gate_racer.sim.view.style import load_style
from gate_racer.tracks.track import load_track
from gate_racer.vehicle.rotation import from_matrix, matrix
import sys

heard, FLIP = {}, np.diag([1.0, -1.0, -1.0])
TURN = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, -1]])  # NED to ENU, and back

class Node:
    def create_subscription(self, kind, topic, callback, depth):
        heard[topic] = callback

    def create_publisher(self, kind, topic, depth):
        return Stamped(publish=lambda message: sent.append(message))

sent = []

def init(args): pass

def create_node(name): return Node()

def header(t):
    return Stamped(stamp=Stamped(sec=int(t), nanosec=round(t % 1 * 1e9)))

def spin(node):
    track, vehicle = load_track(sys.argv[1]), load_vehicle("dcl")
    simulator = Simulator(as_believed(track, vehicle), replace(load_profile("spec"), video_hz=10.0), 0)
    camera = RenderedCamera(track, vehicle.camera, load_style("race"), 0)
    while simulator.t < 20:
        if simulator.t == 1.5:
            simulator.command(Arm(True))
            heard["go"](None)
        tick = simulator.tick()
        for one in tick.telemetry:
            if isinstance(one, Imu):
                accel, gyro = (Vector(*(FLIP @ v)) for v in (one.accel, one.gyro))
                heard["imu"](Stamped(header=header(one.t), linear_acceleration=accel, angular_velocity=gyro))
        seen = tick.exposure
        if seen is not None:
            image = camera.expose(seen.p_wb, seen.q_wb, seen.v_w, seen.omega_b, seen.t, ())
            data = image.tobytes()
            heard["image"](Stamped(header=header(seen.t), height=360, width=640, step=1920, data=data))
        while sent:
            told = sent.pop()
            q = told.orientation
            R = TURN @ matrix((q.w, q.x, q.y, q.z)) @ FLIP
            simulator.command(AttitudeTarget(tuple(from_matrix(R)), (0.0, 0.0, 0.0), told.thrust, by_rates=False))
    raise AssertionError("the race does not end")
'''
MESSAGES = """
from types import SimpleNamespace
from typing import NamedTuple

class Vector(NamedTuple):
    x: float
    y: float
    z: float

class Imu: pass
class Image: pass
class Empty: pass

class AttitudeTarget:
    def __init__(self, type_mask, thrust):
        self.type_mask, self.thrust = type_mask, thrust
        self.header, self.orientation = SimpleNamespace(), SimpleNamespace()
"""


def test_the_node_races_by_camera_and_imu(hop, tmp_path):
    (tmp_path / "rclpy.py").write_text(RCLPY)
    for package in ("mavros_msgs", "sensor_msgs", "std_msgs"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "msg.py").write_text(MESSAGES)
    command = [sys.executable, ROOT / "examples/ros2_node.py", hop]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.startswith("finished ["), done.stdout + done.stderr
    assert done.stdout.count(",") == 0, "one gate"
