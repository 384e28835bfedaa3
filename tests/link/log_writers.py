"""Write logs of others: DataFlash, .tlog, ULog (docs.px4.io/main/en/dev_log/ulog_file_format) and bags of ROS 1 and 2."""

import struct
from pathlib import Path

import numpy as np
from pymavlink.dialects.v20 import common as dialect
from rosbags.rosbag1 import Writer as Rosbag1
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as Rosbag2
from rosbags.typesys import Stores, get_typestore

from gate_racer.link.logs.mavlink import FORMAT_TYPE, HEAD, STAMP
from gate_racer.vehicle.dynamics import GRAVITY

CODES = {"B": "B", "n": "4s", "N": "16s", "Z": "64s", "Q": "Q", "f": "f", "H": "H", "h": "h", "I": "I"}


def dataflash(path, kinds, rows):
    """Write a DataFlash log: formats by name as (letters, columns), rows as (name, values)."""
    kinds = {"FMT": ("BBnNZ", "Type,Length,Name,Format,Columns"), **kinds}
    numbers = {name: FORMAT_TYPE if name == "FMT" else k for k, name in enumerate(kinds)}
    layouts = {name: struct.Struct("<" + "".join(CODES[c] for c in letters)) for name, (letters, _) in kinds.items()}

    def record(name, *values):
        return HEAD + bytes([numbers[name]]) + layouts[name].pack(*values)

    heads = [
        record("FMT", numbers[name], layouts[name].size + 3, name.encode(), letters.encode(), columns.encode())
        for name, (letters, columns) in kinds.items()
    ]
    path.write_bytes(b"".join([*heads, *(record(*row) for row in rows)]))
    return path


def tlog(path, packets):
    """Write a ground station's log of (time in us, system, component, message)."""
    out = bytearray()
    for us, system, component, message in packets:
        out += STAMP.pack(10**15 + us) + message.pack(dialect.MAVLink(None, system, component))
    path.write_bytes(out)
    return path


ULOG_HEAD = b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0)


def message(kind: str, content: bytes) -> bytes:
    return struct.pack("<HB", len(content), ord(kind)) + content


class ULogWriter:
    """Topics of float fields after the stamp; a field of several values is written `name[3]`."""

    def __init__(self, topics: dict[str, str]):
        """Topics by name with their fields, such as `float[3] xyz`, separated by semicolons."""
        self._ids = {name: k for k, name in enumerate(topics)}
        self.definitions = ULOG_HEAD + message("B", bytes(40))
        for name, fields in topics.items():
            self.definitions += message("F", f"{name}:uint64_t timestamp;{fields};".encode())
        self.data = b"".join(message("A", struct.pack("<BH", 0, k) + name.encode()) for name, k in self._ids.items())

    def write(self, topic: str, t: float, *values: float) -> None:
        stamp = struct.pack("<HQ", self._ids[topic], round(t * 1e6))
        self.data += message("D", stamp + struct.pack(f"<{len(values)}f", *values))

    def bytes(self) -> bytes:
        return self.definitions + self.data


ROS1, ROS2 = get_typestore(Stores.ROS1_NOETIC), get_typestore(Stores.LATEST)
TOPICS = {"/imu": "sensor_msgs/msg/Imu", "/odom": "nav_msgs/msg/Odometry", "/camera": "sensor_msgs/msg/Image"}
MESSAGES = 30


def named(store):
    return {name.rpartition("/")[2]: kind for name, kind in store.types.items()}


def header(store, k):
    stamp = store.types["builtin_interfaces/msg/Time"](sec=10 + k // 100, nanosec=10_000_000 * (k % 100))
    return named(store)["Header"](stamp=stamp, frame_id="base_link", **({"seq": k} if store is ROS1 else {}))


def imu(store, k, force, omega, q=(0.0, 0.0, 0.0, 0.0)):
    """At step k of 10 ms; the attitude is wxyz, zeros: unknown."""
    types, nine = named(store), np.zeros(9)
    w, x, y, z = map(float, q)
    known = np.array([0.0 if any(q) else -1.0, *nine[1:]])
    xyz = types["Vector3"]
    turned = types["Quaternion"](x=x, y=y, z=z, w=w)
    return types["Imu"](header(store, k), turned, known, xyz(*map(float, omega)), nine, xyz(*map(float, force)), nine)


def odometry(store, k, p, q, v):
    types, thirty_six = named(store), np.zeros(36)
    w, x, y, z = map(float, q)
    pose = types["Pose"](types["Point"](*map(float, p)), types["Quaternion"](x=x, y=y, z=z, w=w))
    twist = types["Twist"](types["Vector3"](*map(float, v)), types["Vector3"](0.0, 0.0, 0.0))
    with_pose = types["PoseWithCovariance"](pose, thirty_six)
    return types["Odometry"](header(store, k), "base_link", with_pose, types["TwistWithCovariance"](twist, thirty_six))


def image(store, k, encoding, pixels):
    height, width, channels = pixels.shape
    about = {"height": height, "width": width, "encoding": encoding, "is_bigendian": 0, "step": width * channels}
    return named(store)["Image"](header(store, k), **about, data=np.ascontiguousarray(pixels).reshape(-1))


def messages(store, k):
    """At step k of 10 ms, from 10 s on: an IMU, odometry rolled by 0.2 rad at 1 m/s forward, and a red image of 4 x 3 px."""
    q = np.cos(0.1), np.sin(0.1), 0.0, 0.0
    sensed = imu(store, k, (1.0, 2.0, GRAVITY), (0.1, 0.2, 0.3), q)
    red = np.tile(np.array([0, 0, 255], np.uint8), (3, 4, 1))
    return sensed, odometry(store, k, (4.0, 5.0, 6.0), q, (1.0, 0.0, 0.0)), image(store, k, "bgr8", red)


def write_bag(folder: Path, made: str = "MCAP", topics=TOPICS, at=messages, count=MESSAGES) -> Path:
    """Write a bag of "ROS 1", "MCAP" or "SQLite", and return its one file.

    Topics have kinds by name, and `at` returns their messages of a store at step k; None: nothing.
    """
    storage = StoragePlugin.MCAP if made == "MCAP" else StoragePlugin.SQLITE3
    first = made == "ROS 1"
    store, path = (ROS1, folder / "a.bag") if first else (ROS2, folder / f"bag of {made}")
    pack = ROS1.serialize_ros1 if first else ROS2.serialize_cdr
    with Rosbag1(path) if first else Rosbag2(path, version=9, storage_plugin=storage) as bag:
        found = [bag.add_connection(topic, kind, typestore=store) for topic, kind in topics.items()]
        for k in range(count):
            for one, message in zip(found, at(store, k), strict=True):
                if message is not None:
                    bag.write(one, 10**10 + 10**7 * k, pack(message, one.msgtype))
    return path if first else next(file for file in path.iterdir() if file.suffix != ".yaml")
