"""Race as a node of ROS 2: IMU and images in, attitude and thrust out, in the axes of REP 103 (world ENU, body FLU).

    python examples/ros2_node.py vq1 --vehicle dcl

where ROS 2's Python packages and this environment's are found. `imu` is a sensor_msgs/Imu, `image` a sensor_msgs/Image in bgr8
of the camera's size, both stamped by one clock; the vehicle rests on the pad of the track until an std_msgs/Empty on `go`.
From then on `attitude` is a mavros_msgs/AttitudeTarget, at 60 Hz of the IMU's time, with thrust from 0 to 1.
"""

import argparse

import numpy as np
import rclpy
from mavros_msgs.msg import AttitudeTarget
from sensor_msgs.msg import Image, Imu
from std_msgs.msg import Empty

from gate_racer import Racer, load_track, load_vehicle, make_estimator, open_detector
from gate_racer.link.messages import Imu as Sample
from gate_racer.pilot.flight import set_point
from gate_racer.vehicle.rotation import product

HZ = 60.0
HALF_TURN, TO_ENU = (0.0, 1.0, 0.0, 0.0), (0.0, 0.5**0.5, 0.5**0.5, 0.0)  # about x: FLU to FRD; NED to ENU
QUEUE = 50  # samples that arrive while an image is searched for gates


def seconds(header):
    return header.stamp.sec + 1e-9 * header.stamp.nanosec


def flipped(v):
    """A vector from FLU to FRD."""
    return v.x, -v.y, -v.z


class Node:
    def __init__(self, node, track, vehicle):
        self.vehicle, self.detector = vehicle, open_detector("classical", vehicle.camera)
        self.estimator = make_estimator("eskf", track.start, vehicle)
        self.racer = Racer(track, vehicle, estimator=self.estimator)
        self.due = None  # s, of the next command; None before GO
        node.create_subscription(Imu, "imu", self.sense, QUEUE)
        node.create_subscription(Image, "image", self.see, 1)
        node.create_subscription(Empty, "go", self.go, 1)
        self.out = node.create_publisher(AttitudeTarget, "attitude", 1)

    def go(self, message):
        self.due = self.estimator.t

    def see(self, message):
        if self.due is not None:
            image = np.frombuffer(bytearray(message.data), np.uint8).reshape(message.height, message.step)
            image = image[:, : 3 * message.width].reshape(message.height, message.width, 3)
            self.racer.see(seconds(message.header), self.detector.detect(image))

    def sense(self, message):
        t = seconds(message.header)
        accel, gyro = flipped(message.linear_acceleration), flipped(message.angular_velocity)
        self.estimator.imu(Sample(t, accel, gyro))
        if self.due is None or t < self.due:
            return
        self.due = max(self.due + 1 / HZ, t)
        told = set_point(self.racer.step(t).control, self.vehicle, by_rates=False)
        target = AttitudeTarget(type_mask=7, thrust=told.throttle)  # its body rates are to be ignored
        target.header.stamp = message.header.stamp
        q = target.orientation
        q.w, q.x, q.y, q.z = map(float, product(product(TO_ENU, told.q_wb), HALF_TURN))
        self.out.publish(target)
        if self.racer.end is not None:
            print(self.racer.end.reason, self.racer.passages.times_s, flush=True)
            raise SystemExit


parser = argparse.ArgumentParser(description="Race as a node of ROS 2.")
parser.add_argument("track", nargs="?", default="vq1", help="name or YAML file")
parser.add_argument("--vehicle", default="dcl", help="name or YAML file")
told, rest = parser.parse_known_args()
rclpy.init(args=rest)
node = rclpy.create_node("gate_racer")
racing = Node(node, load_track(told.track), load_vehicle(told.vehicle))
rclpy.spin(node)
