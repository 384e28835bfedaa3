"""Signals and images of ROS: bags of ROS 1, and those of ROS 2 in MCAP or SQLite, by `rosbags`.

| signal              | message of the topic with the most                             | frame there                       |
|---------------------|----------------------------------------------------------------|-----------------------------------|
| `force`, `omega`    | sensor_msgs/Imu                                                | body FLU (REP 103)                |
| `q`, `p`, `v`       | nav_msgs/Odometry; q else of Imu                               | world z up, velocity in body axes |
| `true_p`, `true_q`  | geometry_msgs/PoseStamped                                      | world z up                        |
| `throttle`, `omega_cmd` | mavros_msgs/AttitudeTarget                                 | body FLU                          |
| `voltage`           | sensor_msgs/BatteryState                                       | -                                 |

The world's x axis is taken as north. Times are those of the headers; where they are 0, those of recording.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from gate_racer.common.files import read_bytes, read_start
from gate_racer.link.logs.samples import (
    FRD,
    LOG_BYTES,
    LoggedSignals,
    SignalError,
    Source,
    found,
    masked,
    same,
    scaled,
    table,
    turned,
)
from gate_racer.link.record import MAGIC
from gate_racer.vehicle.rotation import Array, matrix

TURNED_Q = scaled(1.0, 1.0, -1.0, -1.0)
Q, P = ("qw", "qx", "qy", "qz"), ("px", "py", "pz")
RATES_IGNORED = 7  # bits of type_mask
ROS1 = b"#ROSBAG V2.0"  # first bytes of a bag of ROS 1


def _into_world(columns: Array) -> Array:
    """Return velocities in the world, from attitude and velocity in body axes, both x forward, y left, z up."""
    q, v = columns[:, :4] * [1.0, 1.0, -1.0, -1.0], columns[:, 4:] * FRD
    return np.array([matrix(one / np.linalg.norm(one)) @ u for one, u in zip(q, v, strict=True)]).reshape(-1, 3)


MESSAGES: dict[str, tuple[Source, ...]] = {
    "force": (Source("Imu", ("ax", "ay", "az"), turned),),
    "omega": (Source("Imu", ("wx", "wy", "wz"), turned),),
    "q": (Source("Odometry", Q, TURNED_Q), Source("Imu", Q, TURNED_Q)),
    "p": (Source("Odometry", P, turned),),
    "v": (Source("Odometry", (*Q, "vx", "vy", "vz"), _into_world),),
    "true_p": (Source("PoseStamped", P, turned),),
    "true_q": (Source("PoseStamped", Q, TURNED_Q),),
    "throttle": (Source("AttitudeTarget", ("thrust",), same),),
    "omega_cmd": (Source("AttitudeTarget", ("type_mask", "wx", "wy", "wz"), masked(RATES_IGNORED, False, turned)),),
    "voltage": (Source("BatteryState", ("voltage",), same),),
}


def _fields(kind: str, m: Any) -> dict[str, float]:
    """Return the fields of a message."""
    match kind:
        case "Imu":
            known = {} if m.orientation_covariance[0] == -1 else _named("q", m.orientation)
            return {**_named("a", m.linear_acceleration), **_named("w", m.angular_velocity), **known}
        case "Odometry":
            pose, twist = m.pose.pose, m.twist.twist
            return {**_named("p", pose.position), **_named("q", pose.orientation), **_named("v", twist.linear)}
        case "PoseStamped":
            return {**_named("p", m.pose.position), **_named("q", m.pose.orientation)}
        case "AttitudeTarget":
            return {"thrust": m.thrust, "type_mask": m.type_mask, **_named("w", m.body_rate)}
        case _:
            return {"voltage": m.voltage}


KINDS = ("Imu", "Odometry", "PoseStamped", "AttitudeTarget", "BatteryState")
IMAGES = ("CompressedImage", "Image")


def _named(prefix: str, value: Any) -> dict[str, float]:
    return {f"{prefix}{axis}": getattr(value, axis) for axis in "xyzw" if hasattr(value, axis)}


def ros_signals(path: Path) -> LoggedSignals:
    """Return the signals of a bag, of the busiest topic of each kind of message. Raises SignalError."""
    rows: dict[str, list[dict[str, float]]] = {}
    seen: dict[str, str] = {}
    for kind, topic, t, message in _messages(path, KINDS):
        seen[kind] = topic
        rows.setdefault(kind, []).append({"t": t, **_fields(kind, message)})
    if not rows:
        raise SignalError(f"{path}: holds no topic that is read: {', '.join((*KINDS, *IMAGES))}")
    tables = {kind: table(records) for kind, records in rows.items()}
    return found(tables, MESSAGES, [f"read are {', '.join(f'{topic} ({kind})' for kind, topic in seen.items())}"])


def ros_images(path: Path) -> Iterator[tuple[float, bytes]]:
    """Yield time (s) and JPEG or PNG of the images of a bag's busiest camera. Raises SignalError."""
    for kind, _, t, message in _messages(path, IMAGES):
        if kind == "CompressedImage":
            yield t, bytes(message.data)
        elif (image := _pixels(message)) is not None:
            yield t, cv2.imencode(".png", image)[1].tobytes()


def _pixels(message: Any) -> Any:
    """Return an image (height, width[, 3]) of 8 bits, BGR; None for another encoding."""
    channels = {"mono8": 1, "bgr8": 3, "rgb8": 3}.get(message.encoding)
    if channels is None or message.height * message.step != len(message.data):
        return None
    rows = np.frombuffer(bytes(message.data), np.uint8).reshape(message.height, message.step)
    image = rows[:, : message.width * channels].reshape(message.height, message.width, channels)
    return image[:, :, ::-1] if message.encoding == "rgb8" else image


def _messages(path: Path, kinds: tuple[str, ...]) -> Iterator[tuple[str, str, float, Any]]:
    """Yield kind, topic, time (s) and message of the busiest topic of every kind; unreadable ones are skipped."""
    from rosbags import rosbag1, rosbag2  # slow to load
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    first = path.is_file() and read_start(path, len(ROS1)) == ROS1
    store = get_typestore(Stores.ROS1_NOETIC if first else Stores.LATEST)
    decode = store.deserialize_ros1 if first else store.deserialize_cdr
    try:
        with rosbag1.Reader(path) if first else rosbag2.Reader(path) as reader:
            busiest: dict[str, Any] = {}
            for one in sorted(reader.connections, key=lambda one: one.msgcount):
                if (kind := _kind(one)) in kinds:
                    busiest[kind] = one
            for one in busiest.values():
                if one.msgtype not in store.types:  # the bag brings the definition
                    with contextlib.suppress(Exception):
                        store.register(get_types_from_msg(one.msgdef.data, one.msgtype))
            # Without any connection the library would yield all messages.
            for connection, stamp, data in reader.messages(connections=list(busiest.values())) if busiest else ():
                with contextlib.suppress(Exception):
                    message: Any = decode(data, connection.msgtype)
                    header = message.header.stamp
                    t = header.sec + 1e-9 * header.nanosec
                    yield _kind(connection), connection.topic, t or 1e-9 * stamp, message
    except Exception as error:  # those of the library, SQLite, zstd and lz4 have no class in common
        why = _cut(path) or str(error) or type(error).__name__
        raise SignalError(f"{path}: cannot be read as a bag of ROS ({why})") from None


def _cut(path: Path) -> str:
    """Return where an MCAP file was cut, before its index; empty if it was not."""
    data = read_bytes(path, LOG_BYTES) if path.is_file() else b""
    cut = data.startswith(MAGIC) and not data.endswith(MAGIC)
    return f"it is truncated after {len(data) / 1e3:.1f} kB, without its index: `mcap recover` makes one" if cut else ""


def _kind(connection: Any) -> str:
    kind: str = connection.msgtype.rpartition("/")[2]
    return kind
