"""Hears the sensors of a Config.json; publishes them to ROS 2 where rclpy is installed, and tells of every stream's health.

Topics are /rflysim/sensorN/img_rgb and so on; `--topic 1=/camera/image` gives those of a TypeID another name, `--prefix /uav2`
sets a vehicle apart. Without rclpy it only listens and reports.
"""

import argparse
import importlib
import sys
import time

from link.rflysim.clouds import LAYOUTS, Cloud
from link.rflysim.config import load_sensors
from link.rflysim.ros import fill, message, message_type, odometry, odometry_topic, topic
from link.rflysim.sensors import SENSORS
from link.rflysim.stream import Sample
from link.rflysim.udp import SensorReceiver
from link.rflysim.vision import parse_server
from vehicle.errors import UserError, exit_code

REPORT_S = 2.0
POLL_S = 0.1
QUEUE = 5


class RosPublisher:
    """Publishes samples under their topics."""

    def __init__(self, names: dict[int, str], prefix: str, ned: bool):
        """Raises UserError without rclpy."""
        try:
            self._rclpy = importlib.import_module("rclpy")
        except ImportError:
            raise UserError("rclpy is not installed: source ROS 2's setup file, or leave --ros out") from None
        self._rclpy.init()
        self._node = self._rclpy.create_node("rflysim_bridge")
        self._names, self._prefix, self._ned = names, prefix, ned
        self._publishers: dict[str, tuple] = {}

    def publish(self, sample: Sample) -> None:
        """The sample's message, and the odometry that a cloud brings."""
        values = message(sample)
        if values is not None:
            self._send(topic(sample.sensor, self._names, self._prefix), message_type(sample.sensor), values)
        if isinstance(sample.value, Cloud):
            pose = odometry(sample.value, sample.t, self._ned)
            self._send(odometry_topic(sample.value, self._prefix), "nav_msgs/Odometry", pose)

    def _send(self, name: str, kind: str, values: dict) -> None:
        if name not in self._publishers:
            package, cls = kind.split("/")
            made = getattr(importlib.import_module(f"{package}.msg"), cls)
            self._publishers[name] = made, self._node.create_publisher(made, name, QUEUE)
        made, publisher = self._publishers[name]
        publisher.publish(fill(made(), values))

    def close(self) -> None:
        self._node.destroy_node()
        self._rclpy.shutdown()


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("config", help="Config.json")
    arguments.add_argument(
        "--server", default="rflysim://127.0.0.1:20010", metavar="URL", help="whom to ask for sensors"
    )
    arguments.add_argument("--ros", action="store_true", help="publish to ROS 2; needs rclpy")
    arguments.add_argument(
        "--topic", action="append", default=[], metavar="TYPE=NAME", help="of a TypeID; {seq} is the SeqID"
    )
    arguments.add_argument("--prefix", default="", help="before every topic, such as /uav2")
    arguments.add_argument("--ned", action="store_true", help="odometry in NED and FRD in place of ENU and FLU")
    arguments.add_argument("--layout", choices=sorted(LAYOUTS), help="of clouds (default: found out)")
    arguments.add_argument("--seconds", type=float, default=float("inf"), help="end after so long")
    return arguments


def topics(pairs: list[str]) -> dict[int, str]:
    """Names by TypeID.

    Raises:
        UserError: not TYPE=NAME, or no such type.
    """
    names = {}
    for pair in pairs:
        number, _, name = pair.partition("=")
        if not number.isdigit() or int(number) not in SENSORS or not name:
            raise UserError(f"--topic {pair}: expected TYPE=NAME with a TypeID of {', '.join(map(str, SENSORS))}")
        names[int(number)] = name
    return names


def run(arguments: argparse.Namespace) -> int:
    names, (server, _) = topics(arguments.topic), parse_server(arguments.server)
    sensors = load_sensors(arguments.config)
    layout = LAYOUTS[arguments.layout] if arguments.layout else None
    publisher = RosPublisher(names, arguments.prefix, arguments.ned) if arguments.ros else None
    begin = told = time.monotonic()
    try:
        with SensorReceiver(sensors, server, layout=layout) as receiver:
            while (now := time.monotonic()) - begin < arguments.seconds:
                for sample, _ in receiver.receive(POLL_S):
                    if publisher is not None:
                        publisher.publish(sample)
                if now - told > REPORT_S:
                    told = now
                    print(*receiver.report(now), sep="\n", flush=True)
            print(*receiver.report(time.monotonic()), sep="\n")
    finally:
        if publisher is not None:
            publisher.close()
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(lambda: run(parser().parse_args())))
