"""Receive the sensors of a Config.json, publish them to ROS 2 where rclpy is installed, and report every stream's health.

Topics are /rflysim/sensorN/img_rgb and so on; `--topic 1=/camera/image` renames those of a TypeID, `--prefix /uav2` is the name
space of a vehicle. `--imu HOST` requests the IMU from CopterSim there, published on /rflysim/imu. With ROS, gimbals take commands
on /rflysim/sensorN/camera/ctrl and ai_ctrl and publish their status. Without rclpy it only receives and reports.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from gate_racer.common.errors import UserError, exit_code
from gate_racer.link.rflysim.client import SensorReceiver, parse_server
from gate_racer.link.rflysim.config import load_sensors
from gate_racer.link.rflysim.desk import (
    HEARTBEAT_PORT,
    MASKS,
    STATE_PORT,
    GimbalClient,
    GimbalOrder,
    HeartbeatReceiver,
    ImuReceiver,
)
from gate_racer.link.rflysim.request import GIMBAL, LAST_COPTER, SENSORS, ImuSample, SensorRequest, imu_port
from gate_racer.link.rflysim.ros import Message, RosMessages, box_order, fields, fill, gimbal_order
from gate_racer.link.rflysim.stream import Sample
from gate_racer.link.sockets import Address, LinkError, parse_address

StartTime = Callable[[float], float]  # from a sample's time (s) to the start of the simulation (s since 1970), or to 0
REPORT_S = 2.0  # s between two reports
POLL_S = 0.1  # s, greatest wait for a sample
QUEUE = 5  # depth of ROS queues
IMU_HZ = 200  # requested rate of the IMU


class RosNode:
    """ROS node that publishes RflySim's sensors and forwards commands to its gimbals."""

    def __init__(self, messages: RosMessages):
        """Create the node.

        Raises:
            UserError: rclpy is not installed.
        """
        try:
            self._rclpy = importlib.import_module("rclpy")
        except ImportError:
            raise UserError("rclpy is not installed: source ROS 2's setup file, or leave out --ros") from None
        self._rclpy.init()
        self._node = self._rclpy.create_node("rflysim_bridge")
        self._messages = messages
        self._publishers: dict[str, tuple] = {}

    def serve(self, desk: GimbalClient, package: str) -> None:
        """Subscribe to gimbal commands; `package` defines CameraCtrl, CameraAICtrl and CameraStatus.

        Raises:
            UserError: there is no such package.
        """
        try:
            types = importlib.import_module(f"{package}.msg")
        except ImportError:
            raise UserError(f"--gimbal-messages {package}: this environment has no such ROS package") from None
        kinds = (types.CameraCtrl, "ctrl", gimbal_order), (types.CameraAICtrl, "ai_ctrl", box_order)
        for kind, suffix, order_of in kinds:
            for seq_id, gimbal in desk.gimbals.items():
                received = partial(_order, desk, seq_id, order_of)
                self._node.create_subscription(kind, self._messages.gimbal_topic(gimbal, suffix), received, QUEUE)

    def stand(self, sensors: Iterable[SensorRequest], copter: int) -> None:
        """Publish the transforms that never change; the IMU is that of a copter."""
        qos = importlib.import_module("rclpy.qos")
        kept = qos.QoSProfile(depth=1, durability=qos.DurabilityPolicy.TRANSIENT_LOCAL)
        self.publish([self._messages.fixed(sensors, copter)], kept)

    def listen(self) -> None:
        """Process received commands."""
        self._rclpy.spin_once(self._node, timeout_sec=0.0)

    def publish(self, messages: Iterable[Message], quality: Any = QUEUE) -> None:
        """Publish messages; `quality` is that of new topics."""
        for name, kind, values in messages:
            if name not in self._publishers:
                package, cls = kind.split("/")
                made = getattr(importlib.import_module(f"{package}.msg"), cls)
                self._publishers[name] = made, self._node.create_publisher(made, name, quality)
            made, publisher = self._publishers[name]
            publisher.publish(fill(made(), values))

    def close(self) -> None:
        """Destroy the node."""
        self._node.destroy_node()
        self._rclpy.shutdown()


def _order(desk: GimbalClient, seq_id: int, order_of: Callable[[dict], GimbalOrder], command: Any) -> None:
    """Forward a command to a gimbal; an invalid one is reported and ignored."""
    try:
        desk.order(seq_id, order_of(fields(command)))
    except (ValueError, KeyError) as error:
        print(f"invalid command to sensor {seq_id} ignored: {error}", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("config", help="RflySim's Config.json with the sensors")
    arguments.add_argument(
        "--server", default="rflysim://127.0.0.1:20010", metavar="URL", help="server of the sensor streams"
    )
    arguments.add_argument("--ros", action="store_true", help="publish to ROS 2; needs rclpy")
    arguments.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TYPE=NAME",
        help="topic name of a TypeID; {seq} stands for the SeqID",
    )
    arguments.add_argument("--prefix", default="", help="prefix of all topics, such as /uav2")
    arguments.add_argument("--ned", action="store_true", help="publish odometry in NED and FRD instead of ENU and FLU")
    arguments.add_argument(
        "--imu", metavar="HOST[:PORT]", help="request the IMU from CopterSim at this address, for /rflysim/imu"
    )
    arguments.add_argument(
        "--copter", type=int, default=1, help="number of the vehicle whose IMU is requested (default: 1)"
    )
    arguments.add_argument("--masks", choices=sorted(MASKS), default="document", help="numbering of gimbal commands")
    arguments.add_argument(
        "--gimbal-messages",
        default="rflysim_ros_pkg",
        help="ROS package that defines CameraCtrl, CameraAICtrl and CameraStatus",
    )
    arguments.add_argument(
        "--state-port", type=int, default=STATE_PORT, help="UDP port on which gimbals send their state"
    )
    arguments.add_argument(
        "--stamps",
        choices=("absolute", "simulation"),
        default="absolute",
        help="time stamps since 1970, by CopterSim's heartbeat or else the first frame; or since the start of the simulation",
    )
    arguments.add_argument(
        "--heartbeat-port", type=int, default=HEARTBEAT_PORT, help="UDP port of CopterSim's heartbeat"
    )
    arguments.add_argument("--seconds", type=float, default=float("inf"), help="duration, s (default: until Ctrl-C)")
    return arguments


def topics(pairs: list[str]) -> dict[int, str]:
    """Return topic names by TypeID.

    Raises:
        UserError: a pair is not TYPE=NAME, or there is no such type.
    """
    names = {}
    for pair in pairs:
        number, _, name = pair.partition("=")
        if not (number.isascii() and number.isdigit()) or int(number) not in SENSORS or not name:
            raise UserError(f"--topic {pair}: expected TYPE=NAME with a TypeID of {', '.join(map(str, SENSORS))}")
        names[int(number)] = name
    return names


def run(arguments: argparse.Namespace) -> int:
    """Bridge until the time is over; returns the exit code."""
    names, (server, options) = topics(arguments.topic), parse_server(arguments.server)
    if options:
        raise UserError(f"--server {arguments.server}: must have no options; give the Config.json as an argument")
    if not arguments.seconds >= 0:
        raise UserError(f"--seconds {arguments.seconds:g}: must not be negative")
    if not 1 <= arguments.copter <= LAST_COPTER:
        raise UserError(f"--copter {arguments.copter}: must lie between 1 and {LAST_COPTER}")
    sensors = load_sensors(arguments.config)
    begin = reported = time.monotonic()
    with ExitStack() as stack:
        messages = RosMessages(arguments.prefix, names, arguments.ned)
        node = stack.enter_context(closing(RosNode(messages))) if arguments.ros else None
        receiver = stack.enter_context(SensorReceiver(sensors, server))
        imu_receiver = stack.enter_context(closing(_imu(arguments))) if arguments.imu else None
        work = _ros(arguments, stack, node, messages, server, receiver) if node is not None else None
        while (now := time.monotonic()) - begin < arguments.seconds:
            samples = [sample for sample, _ in receiver.receive(POLL_S)]
            felt = list(imu_receiver.samples()) if imu_receiver is not None else []
            if work is not None:
                work(samples, felt)
            if now - reported > REPORT_S:
                reported = now
                _report(receiver, imu_receiver)
        _report(receiver, imu_receiver)
    return 0


def _report(receiver: SensorReceiver, imu_receiver: ImuReceiver | None) -> None:
    now = time.monotonic()
    print(
        *receiver.report(now), *([imu_receiver.report(now)] if imu_receiver is not None else []), sep="\n", flush=True
    )


def _imu(arguments: argparse.Namespace) -> ImuReceiver:
    host, port = parse_address(arguments.imu, imu_port(arguments.copter))
    return ImuReceiver(host, IMU_HZ, arguments.copter, port)


def _ros(
    arguments: argparse.Namespace,
    stack: ExitStack,
    node: RosNode,
    messages: RosMessages,
    server: Address,
    receiver: SensorReceiver,
) -> Callable[[list[Sample], list[ImuSample]], None]:
    """Return the function that publishes the samples of one moment to ROS; `stack` closes its resources."""
    sensors = [stream.sensor for stream in receiver.streams]
    start = _start(arguments, stack, server)
    node.stand(sensors, arguments.copter)
    desk = None
    if any(sensor.type_id == GIMBAL for sensor in sensors):
        desk = stack.enter_context(closing(GimbalClient(sensors, server, MASKS[arguments.masks], arguments.state_port)))
        node.serve(desk, arguments.gimbal_messages)

    def work(samples: list[Sample], felt: list[ImuSample]) -> None:
        node.listen()
        for sample in samples:
            node.publish(messages.sample(sample, start(sample.t)))
        if desk is not None:
            newest = samples[-1].t if samples else 0.0
            now = time.time() if arguments.stamps == "absolute" else newest
            for state in desk.states():
                if gimbal := desk.gimbals.get(state.seq_id):
                    health = receiver.health(state.seq_id)
                    node.publish(messages.gimbal(state, now, gimbal, health, arguments.gimbal_messages))
        node.publish(messages.imu(sample, start(sample.t)) for sample in felt)

    return work


def _start(arguments: argparse.Namespace, stack: ExitStack, server: Address) -> StartTime:
    """Return the function that gives the start of the simulation, by `--stamps`."""
    if arguments.stamps == "simulation":
        return lambda t: 0.0
    try:
        heartbeat = HeartbeatReceiver(server, arguments.copter, arguments.heartbeat_port)
    except LinkError as error:  # another program uses the port: fall back to the first frame
        print(f"{error}; times are estimated from the first frame", file=sys.stderr, flush=True)
        heartbeat = HeartbeatReceiver(server, arguments.copter, 0)
    stack.enter_context(closing(heartbeat))

    def start(t: float) -> float:
        heartbeat.listen(time.time() - time.monotonic())
        return heartbeat.start(t, time.time())

    return start


if __name__ == "__main__":
    sys.exit(exit_code(lambda: run(parser().parse_args())))
