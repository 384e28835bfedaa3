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


def messages(store, k):
    """At step k of 10 ms, from 10 s on: an IMU, odometry rolled by 0.2 rad at 1 m/s forward, and a red image of 4 x 3 px."""
    types = {name.rpartition("/")[2]: kind for name, kind in store.types.items()}
    stamp = store.types["builtin_interfaces/msg/Time"](sec=10, nanosec=10_000_000 * k)
    extra = {"seq": k} if store is ROS1 else {}
    header = types["Header"](stamp=stamp, frame_id="base_link", **extra)
    q = types["Quaternion"](x=float(np.sin(0.1)), y=0.0, z=0.0, w=float(np.cos(0.1)))
    xyz, nine, thirty_six = types["Vector3"], np.zeros(9), np.zeros(36)
    imu = types["Imu"](header, q, nine, xyz(0.1, 0.2, 0.3), nine, xyz(1.0, 2.0, GRAVITY), nine)
    pose = types["PoseWithCovariance"](types["Pose"](types["Point"](4.0, 5.0, 6.0), q), thirty_six)
    twist = types["TwistWithCovariance"](types["Twist"](xyz(1.0, 0.0, 0.0), xyz(0.0, 0.0, 0.0)), thirty_six)
    red = np.tile(np.array([0, 0, 255], np.uint8), 12)
    image = types["Image"](header, height=3, width=4, encoding="bgr8", is_bigendian=0, step=12, data=red)
    return imu, types["Odometry"](header, "base_link", pose, twist), image


def write_bag(folder: Path, made: str) -> Path:
    """Write a bag of "ROS 1", "MCAP" or "SQLite", and return its one file."""
    storage = StoragePlugin.MCAP if made == "MCAP" else StoragePlugin.SQLITE3
    first = made == "ROS 1"
    store, path = (ROS1, folder / "a.bag") if first else (ROS2, folder / f"bag of {made}")
    pack = ROS1.serialize_ros1 if first else ROS2.serialize_cdr
    with Rosbag1(path) if first else Rosbag2(path, version=9, storage_plugin=storage) as bag:
        found = [bag.add_connection(topic, kind, typestore=store) for topic, kind in TOPICS.items()]
        for k in range(MESSAGES):
            for one, message in zip(found, messages(store, k), strict=True):
                bag.write(one, 10**10 + 10**7 * k, pack(message, one.msgtype))
    return path if first else next(file for file in path.iterdir() if file.suffix != ".yaml")
