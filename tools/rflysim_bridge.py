"""Receive the sensors of a Config.json, publish them to ROS 2 where rclpy is installed, and report every stream's health.

Topics are /rflysim/sensorN/img_rgb and so on; `--topic 1=/camera/image` renames those of a TypeID, `--prefix /uav2` is the name
space of a vehicle. `--imu HOST` requests the IMU from CopterSim there, published on /rflysim/imu. With ROS, gimbals take commands
on /rflysim/sensorN/camera/ctrl and ai_ctrl and publish their status. Without rclpy it only receives and reports.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from gate_racer.common.errors import UserError, exit_code
from gate_racer.link.rflysim import desk
from gate_racer.link.rflysim.client import SensorReceiver, parse_server
from gate_racer.link.rflysim.desk import GimbalClient, GimbalOrder, HeartbeatReceiver, ImuReceiver, ImuSample, imu_port
from gate_racer.link.rflysim.request import GIMBAL, LAST_COPTER, SENSORS, SensorRequest, load_sensors
from gate_racer.link.rflysim.ros import Message, RosMessages, box_order, fields, fill, gimbal_order
from gate_racer.link.rflysim.stream import Sample
from gate_racer.link.sockets import Address, LinkError, parse_address

ABSOLUTE, SIMULATION = "absolute", "simulation"  # stamps
REPORT_S = 2.0  # s between two reports
POLL_S = 0.1  # s, greatest wait for a sample
QUEUE = 5  # depth of ROS queues
IMU_HZ = 200  # requested rate of the IMU


class RosNode:
    """ROS node that publishes RflySim's sensors and forwards commands to its gimbals."""

    def __init__(
        self, arguments: argparse.Namespace, sensors: Sequence[SensorRequest], server: Address, closing: ExitStack
    ):
        """Create the node, which `closing` closes. Raises UserError."""
        try:
            self._rclpy, qos = importlib.import_module("rclpy"), importlib.import_module("rclpy.qos")
        except ImportError:
            raise UserError("rclpy is not installed: source ROS 2's setup file, or leave out --ros") from None
        self._messages = RosMessages(arguments.prefix, topics(arguments.topic), arguments.ned)
        self._package, self._publishers = arguments.gimbal_messages, dict[str, tuple]()
        self._heartbeat = _heartbeat(arguments, server, closing) if arguments.stamps == ABSOLUTE else None
        self._rclpy.init()
        closing.callback(self._rclpy.shutdown)
        self._node = self._rclpy.create_node("rflysim_bridge")
        closing.callback(self._node.destroy_node)
        kept = qos.QoSProfile(depth=1, durability=qos.DurabilityPolicy.TRANSIENT_LOCAL)
        self._publish([self._messages.fixed(sensors, arguments.copter)], kept)
        self._desk: GimbalClient | None = None
        if any(sensor.type_id == GIMBAL for sensor in sensors):
            client = GimbalClient(sensors, server, desk.MASKS[arguments.masks], arguments.state_port)
            self._desk = closing.enter_context(client)
            self._serve(self._desk)

    def _serve(self, client: GimbalClient) -> None:
        types = _messages(self._package)
        kinds = (types.CameraCtrl, "ctrl", gimbal_order), (types.CameraAICtrl, "ai_ctrl", box_order)
        for kind, suffix, order_of in kinds:
            for seq_id, gimbal in client.gimbals.items():
                received = partial(_order, client, seq_id, order_of)
                self._node.create_subscription(kind, self._messages.gimbal_topic(gimbal, suffix), received, QUEUE)

    def turn(self, samples: list[Sample], felt: list[ImuSample], receiver: SensorReceiver) -> None:
        """Process received commands, and publish what was received since the last turn."""
        self._rclpy.spin_once(self._node, timeout_sec=0.0)
        for sample in samples:
            self._publish(self._messages.sample(sample, self._start(sample.t)))
        newest = samples[-1].t if samples else 0.0
        now = time.time() if self._heartbeat is not None else newest
        for state in self._desk.states() if self._desk is not None else ():
            if gimbal := self._desk.gimbals.get(state.seq_id):
                self._publish(self._messages.gimbal(state, now, gimbal, receiver.health(state.seq_id), self._package))
        self._publish(self._messages.imu(sample, self._start(sample.t)) for sample in felt)

    def _start(self, t: float) -> float:
        """Return the start of the simulation for a sample stamped t (s): s since 1970, or 0 for stamps of the simulation."""
        if self._heartbeat is None:
            return 0.0
        self._heartbeat.listen(time.time() - time.monotonic())
        return self._heartbeat.start(t, time.time())

    def _publish(self, messages: Iterable[Message], quality: Any = QUEUE) -> None:
        """Publish messages; `quality` is that of new topics."""
        for name, kind, values in messages:
            if name not in self._publishers:
                package, cls = kind.split("/")
                made = getattr(_messages(package), cls)
                self._publishers[name] = made, self._node.create_publisher(made, name, quality)
            made, publisher = self._publishers[name]
            publisher.publish(fill(made(), values))


def _messages(package: str) -> Any:
    """Return the module of a ROS package's messages. Raises UserError where it is not installed."""
    try:
        return importlib.import_module(f"{package}.msg")
    except ImportError:
        raise UserError(f"this environment has no ROS package {package} (for gimbals see --gimbal-messages)") from None


def _heartbeat(arguments: argparse.Namespace, server: Address, closing: ExitStack) -> HeartbeatReceiver:
    try:
        heartbeat = HeartbeatReceiver(server, arguments.copter, arguments.heartbeat_port)
    except LinkError as error:  # another program uses the port: fall back to the first frame
        print(f"{error}; times are estimated from the first frame", file=sys.stderr, flush=True)
        heartbeat = HeartbeatReceiver(server, arguments.copter, 0)
    return closing.enter_context(heartbeat)


def _order(client: GimbalClient, seq_id: int, order_of: Callable[[dict], GimbalOrder], command: Any) -> None:
    """Forward a command to a gimbal; an invalid one is reported and ignored."""
    try:
        client.order(seq_id, order_of(fields(command)))
    except (ValueError, KeyError) as error:
        print(f"invalid command to sensor {seq_id} ignored: {error}", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = arguments.add_argument
    add("config", help="RflySim's Config.json with the sensors")
    add("--server", default="rflysim://127.0.0.1:20010", metavar="URL", help="server of the sensor streams")
    add("--ros", action="store_true", help="publish to ROS 2; needs rclpy")
    renamed = "topic of a TypeID; {seq} stands for the SeqID"
    add("--topic", action="append", default=[], metavar="TYPE=NAME", help=renamed)
    add("--prefix", default="", help="prefix of all topics and frames, such as /uav2")
    add("--ned", action="store_true", help="publish odometry in NED and FRD instead of ENU and FLU")
    add("--imu", metavar="HOST[:PORT]", help="request the IMU of CopterSim there, for /rflysim/imu")
    add("--copter", type=int, default=1, help="number of the vehicle with the IMU (default: 1)")
    add("--masks", choices=desk.MASKS, default=desk.DOCUMENTED, help="numbering of gimbal commands")
    package = "ROS package that defines CameraCtrl, CameraAICtrl and CameraStatus"
    add("--gimbal-messages", default="rflysim_ros_pkg", help=package)
    add("--state-port", type=int, default=desk.STATE_PORT, help="UDP port of the gimbals' states")
    stamps = "stamps since 1970, by CopterSim's heartbeat or else the first frame; or since the start of the simulation"
    add("--stamps", choices=(ABSOLUTE, SIMULATION), default=ABSOLUTE, help=stamps)
    add("--heartbeat-port", type=int, default=desk.HEARTBEAT_PORT, help="UDP port of CopterSim's heartbeat")
    add("--seconds", type=float, default=float("inf"), help="duration, s (default: until Ctrl-C)")
    return arguments


def topics(pairs: list[str]) -> dict[int, str]:
    """Return topic names by TypeID. Raises UserError: a pair is not TYPE=NAME, or there is no such type."""
    names = {}
    for pair in pairs:
        number, _, name = pair.partition("=")
        if not (number.isascii() and number.isdigit()) or int(number) not in SENSORS or not name:
            raise UserError(f"--topic {pair}: expected TYPE=NAME with a TypeID of {', '.join(map(str, SENSORS))}")
        names[int(number)] = name
    return names


def run(arguments: argparse.Namespace) -> int:
    """Bridge until the time is over; returns the exit code."""
    server, _ = parse_server(arguments.server)
    if not arguments.seconds >= 0:
        raise UserError(f"--seconds {arguments.seconds:g}: must not be negative")
    if not 1 <= arguments.copter <= LAST_COPTER:
        raise UserError(f"--copter {arguments.copter}: must lie between 1 and {LAST_COPTER}")
    topics(arguments.topic)
    sensors = load_sensors(arguments.config)
    begin = reported = time.monotonic()
    with ExitStack() as closing:
        node = RosNode(arguments, sensors, server, closing) if arguments.ros else None
        receiver = closing.enter_context(SensorReceiver(sensors, server))
        imus = list[ImuReceiver]()
        if arguments.imu:
            host, port = parse_address(arguments.imu, imu_port(arguments.copter))
            imus.append(closing.enter_context(ImuReceiver(host, IMU_HZ, arguments.copter, port)))
        while (now := time.monotonic()) - begin < arguments.seconds:
            samples = [sample for sample, _ in receiver.receive(POLL_S)]
            felt = [sample for imu in imus for sample in imu.samples()]
            if node is not None:
                node.turn(samples, felt, receiver)
            if now - reported > REPORT_S:
                reported = now
                _report(receiver, *imus)
        _report(receiver, *imus)
    return 0


def _report(receiver: SensorReceiver, *imus: ImuReceiver) -> None:
    now = time.monotonic()
    print(*receiver.report(now), *(imu.report(now) for imu in imus), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(lambda: run(parser().parse_args())))
