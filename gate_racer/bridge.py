"""`gate-racer rflysim-bridge`: sensors of RflySim to ROS 2, to a bag, and to viewers; gimbals take commands from ROS.

RflySim3D, CopterSim -> samples -> RosMessages -> sinks: RosNode, Bag, Viewer
"""

import argparse
import importlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.rosbag2 import StoragePlugin, Writer, WriterError

from gate_racer.common.command import remark, write_json
from gate_racer.common.config import from_dict, parse_value
from gate_racer.common.errors import UserError, say
from gate_racer.common.settings import Limited, limited
from gate_racer.link.options import VIEW_PORT
from gate_racer.link.rflysim import desk, ros
from gate_racer.link.rflysim.client import EXAMPLE, SensorReceiver, parse_server
from gate_racer.link.rflysim.desk import GimbalClient, GimbalOrder, HeartbeatReceiver, ImuReceiver, imu_port
from gate_racer.link.rflysim.request import GIMBAL, LARGEST_WORD, LAST_COPTER, SENSORS, load_sensors
from gate_racer.link.rflysim.ros import PACKAGE, Encoder, Message, RosMessages, full_name
from gate_racer.link.sockets import Address, LinkError, parse_address
from gate_racer.pilot.records.view import guarded_server

REPORT_S = 2.0  # s between two reports
POLL_S = 0.1  # s, greatest wait for a sample
QUEUE = 5  # depth of ROS queues
IMU_HZ = 200  # requested rate of the IMU
ROS, VIEW = "ros", "view"  # outputs beside folders of bags
KEPT_S = 1.0  # s, after which viewers are told it again
KEPT = "/tf_static"  # topic whose last message late subscribers get as well


ABSOLUTE, SIMULATION = "absolute", "simulation"  # stamps


@dataclass(frozen=True)
class BridgeSettings(Limited):
    """Keys of the server's URL."""

    config: str = ""  # RflySim's Config.json
    imu: str = ""  # HOST[:PORT] of CopterSim, whose IMU is requested
    copter: int = limited(1, least=1, most=LAST_COPTER)  # number of the vehicle with the IMU
    masks: str = limited(desk.DOCUMENTED, choices=tuple(desk.MASKS))  # numbering of gimbal commands
    prefix: str = ""  # of all topics and frames, such as /uav2
    topics: str = ""  # TYPE=NAME, of TypeIDs; {seq} stands for the SeqID
    ned: bool = False  # odometry in NED and FRD instead of ENU and FLU
    # Since 1970, by CopterSim's heartbeat or else the first frame; or since the start of the simulation.
    stamps: str = limited(ABSOLUTE, choices=(ABSOLUTE, SIMULATION))
    seconds: float = limited(math.inf, least=0)
    view: str = f"127.0.0.1:{VIEW_PORT}"  # address that viewers connect to
    gimbal_messages: str = PACKAGE  # ROS package of CameraCtrl, CameraAICtrl and CameraStatus
    state_port: int = limited(desk.STATE_PORT, least=0, most=LARGEST_WORD)  # UDP, of the gimbals' states
    heartbeat_port: int = limited(desk.HEARTBEAT_PORT, least=0, most=LARGEST_WORD)  # UDP, of CopterSim


def read_url(url: str) -> tuple[Address, BridgeSettings]:
    """Return the server and the settings in its URL. Raises UserError."""
    known = {field.name: field for field in fields(BridgeSettings)}
    server, given = parse_server(url, *known)
    texts = {key for key, field in known.items() if isinstance(field.default, str)}
    values = {key: text if key in texts else parse_value(text, f"{url}: {key}") for key, text in given.items()}
    settings = from_dict(values, BridgeSettings, url)
    if not settings.config:
        raise UserError(f"{url}: no sensors given; expected something like {EXAMPLE}")
    return server, settings


class RosNode:
    """ROS node that publishes messages, and forwards commands to gimbals."""

    def __init__(self, package: str, client: GimbalClient | None, messages: RosMessages, closing: ExitStack):
        """Create the node, which `closing` closes; `package` has the gimbals' messages. Raises UserError."""
        try:
            self._rclpy, self._qos = importlib.import_module("rclpy"), importlib.import_module("rclpy.qos")
        except ImportError:
            raise UserError("rclpy is not installed: source ROS 2's setup file, or leave out `ros`") from None
        self._package, self._publishers = package, dict[str, tuple[Any, Any]]()
        self._rclpy.init()
        closing.callback(self._rclpy.shutdown)
        self._node = self._rclpy.create_node("rflysim_bridge")
        closing.callback(self._node.destroy_node)
        if client is not None and client.gimbals:
            types = self._module(package)
            kinds = (types.CameraCtrl, "ctrl", ros.gimbal_order), (types.CameraAICtrl, "ai_ctrl", ros.box_order)
            for kind, suffix, order_of in kinds:
                for seq_id, gimbal in client.gimbals.items():
                    received = partial(_order, client, seq_id, order_of)
                    self._node.create_subscription(kind, messages.gimbal_topic(gimbal, suffix), received, QUEUE)

    def publish(self, message: Message) -> None:
        if message.topic not in self._publishers:
            package, _, name = message.kind.partition("/")
            made = getattr(self._module(self._package if package == PACKAGE else package), name)
            kept = {"depth": 1, "durability": self._qos.DurabilityPolicy.TRANSIENT_LOCAL}
            quality = self._qos.QoSProfile(**kept) if message.topic == KEPT else QUEUE
            self._publishers[message.topic] = made, self._node.create_publisher(made, message.topic, quality)
        made, publisher = self._publishers[message.topic]
        publisher.publish(ros.fill(made(), message.values))

    def turn(self) -> None:
        """Process received commands."""
        self._rclpy.spin_once(self._node, timeout_sec=0.0)

    def _module(self, package: str) -> Any:
        try:
            return importlib.import_module(f"{package}.msg")
        except ImportError:
            raise UserError(
                f"this environment has no ROS package {package} (for gimbals see the key gimbal_messages)"
            ) from None


def _order(client: GimbalClient, seq_id: int, order_of: Callable[[dict[str, Any]], GimbalOrder], command: Any) -> None:
    """Forward a command to a gimbal; an invalid one is reported and ignored."""
    try:
        client.order(seq_id, order_of(ros.fields(command)))
    except (ValueError, KeyError) as error:
        remark(f"invalid command to sensor {seq_id} ignored: {error}")


class Bag:
    """Bag of ROS 2 (MCAP), stamped with the time of writing, as `ros2 bag record` does."""

    def __init__(self, folder: Path, closing: ExitStack):
        """Begin a bag in a new folder; `closing` completes it. Raises UserError where the folder exists or cannot be made."""
        self._encoder, self._connections = Encoder(), dict[str, Any]()
        try:
            self._writer = closing.enter_context(Writer(folder, version=8, storage_plugin=StoragePlugin.MCAP))
        except (WriterError, OSError) as error:
            why = str(error).rstrip(".")
            raise UserError(f"{why}; expected a new folder, `{ROS}` or `{VIEW}`") from None

    def publish(self, message: Message) -> None:
        if message.topic not in self._connections:
            quality = [LATCHED] if message.topic == KEPT else []
            kind = full_name(message.kind)
            self._connections[message.topic] = self._writer.add_connection(
                message.topic, kind, typestore=self._encoder.store, offered_qos_profiles=quality
            )
        data = self._encoder.encode(message)
        self._writer.write(self._connections[message.topic], time.time_ns(), data)

    def turn(self) -> None:
        """Do nothing: nothing comes back."""


NEVER = QosTime(0, 0)
LATCHED = Qos(
    QosHistory.KEEP_LAST, 1, QosReliability.RELIABLE, QosDurability.TRANSIENT_LOCAL, NEVER, NEVER,
    QosLiveliness.AUTOMATIC, NEVER, avoid_ros_namespace_conventions=False,
)  # fmt: skip


class Viewer:
    """Server for Foxglove's viewers."""

    def __init__(self, address: Address, closing: ExitStack):
        """Start serving at an address; `closing` stops it. Raises UserError: unavailable, or Foxglove's SDK not installed."""
        self._foxglove, server, port = guarded_server("rflysim-bridge", address)
        closing.callback(server.stop)
        self._encoder, self._channels = Encoder(), dict[str, Any]()
        self._kept: Message | None = None  # which viewers that come later get as well
        self._kept_t = -math.inf
        remark(f"live view: https://app.foxglove.dev, Foxglove WebSocket, ws://{address[0]}:{port}")

    def publish(self, message: Message) -> None:
        if message.topic not in self._channels:
            kind = full_name(message.kind)
            schema = self._foxglove.Schema(
                name=kind, encoding="ros2msg", data=self._encoder.definition(kind).encode("utf-8")
            )
            self._channels[message.topic] = self._foxglove.Channel(message.topic, schema=schema, message_encoding="cdr")
        self._channels[message.topic].log(self._encoder.encode(message), log_time=time.time_ns())
        if message.topic == KEPT:
            self._kept, self._kept_t = message, time.monotonic()

    def turn(self) -> None:
        if self._kept is not None and time.monotonic() - self._kept_t > KEPT_S:
            self.publish(self._kept)


Sink = RosNode | Bag | Viewer


def heartbeats(server: Address, settings: BridgeSettings) -> HeartbeatReceiver:
    try:
        return HeartbeatReceiver(server, settings.copter, settings.heartbeat_port)
    except LinkError as error:  # another program uses the port
        remark(f"{error}; times are estimated from the first frame")
        return HeartbeatReceiver(server, settings.copter, 0)


def start_of(t: float, beats: HeartbeatReceiver | None) -> float:
    """Return the start of the simulation for a sample stamped t (s): s since 1970, or 0 for stamps of the simulation."""
    if beats is None:
        return 0.0
    beats.listen(time.time() - time.monotonic())
    return beats.start(t, time.time())


def topics(pairs: Iterable[str]) -> dict[int, str]:
    """Return topic names by TypeID. Raises UserError: a pair is not TYPE=NAME, or there is no such type."""
    names = {}
    for pair in pairs:
        number, _, name = pair.partition("=")
        if not (number.isascii() and number.isdigit()) or int(number) not in SENSORS or not name:
            raise UserError(f"topics: {pair}: expected TYPE=NAME with a TypeID of {', '.join(map(str, SENSORS))}")
        names[int(number)] = name
    return names


def run_bridge(arguments: argparse.Namespace) -> int:
    """Bridge until the time is over; returns the exit code. Raises UserError."""
    server, settings = read_url(arguments.server)
    messages = RosMessages(settings.prefix, topics(settings.topics.split()), settings.ned)
    sensors, imus = load_sensors(settings.config), list[ImuReceiver]()
    with ExitStack() as closing:
        gimbals = None
        if arguments.outputs and any(sensor.type_id == GIMBAL for sensor in sensors):
            client = GimbalClient(sensors, server, desk.MASKS[settings.masks], settings.state_port)
            gimbals = closing.enter_context(client)
        receiver = closing.enter_context(SensorReceiver(sensors, server))
        if settings.imu:
            host, port = parse_address(settings.imu, imu_port(settings.copter))
            imus.append(closing.enter_context(ImuReceiver(host, IMU_HZ, settings.copter, port)))
        beats = closing.enter_context(heartbeats(server, settings)) if settings.stamps == ABSOLUTE else None
        sinks = list[Sink]()
        # Bags last: no bag of what is refused.
        for output in sorted(arguments.outputs, key=lambda o: o not in (ROS, VIEW)):
            if output == ROS:
                sinks.append(RosNode(settings.gimbal_messages, gimbals, messages, closing))
            elif output == VIEW:
                sinks.append(Viewer(parse_address(settings.view, VIEW_PORT), closing))
            else:
                sinks.append(Bag(Path(output), closing))
        _pass(sinks, [messages.fixed(sensors, settings.copter)])
        begin = reported = time.monotonic()
        try:
            while (now := time.monotonic()) - begin < settings.seconds:
                _pass(sinks, _received(receiver, imus, gimbals, messages, beats))
                if now - reported > REPORT_S:
                    reported = now
                    _report(receiver, imus)
        finally:
            write_json(arguments.json, _report(receiver, imus))
    return 0


def _received(
    receiver: SensorReceiver,
    imus: list[ImuReceiver],
    gimbals: GimbalClient | None,
    messages: RosMessages,
    beats: HeartbeatReceiver | None,
) -> Iterator[Message]:
    """Yield the messages of what is received within `POLL_S`."""
    newest = 0.0
    for sample, _ in receiver.receive(POLL_S):
        newest = sample.t
        yield from messages.sample(sample, start_of(sample.t, beats))
    known = gimbals.gimbals if gimbals is not None else {}
    for state in gimbals.states() if gimbals is not None else ():
        if gimbal := known.get(state.seq_id):
            now = ros.nanoseconds(newest if beats is None else time.time())  # the state carries no time
            yield from messages.gimbal(state, now, gimbal, receiver.health(state.seq_id))
    for imu in imus:
        for felt in imu.samples():
            yield messages.imu(felt, start_of(felt.t, beats))


def _pass(sinks: list[Sink], found: Iterable[Message]) -> None:
    for message in found:
        for sink in sinks:
            sink.publish(message)
    for sink in sinks:
        sink.turn()


def _report(receiver: SensorReceiver, imus: list[ImuReceiver]) -> list[str]:
    now = time.monotonic()
    lines = [*receiver.report(now), *(imu.report(now) for imu in imus)]
    say("\n".join(lines))
    return lines
