"""Write bags of ROS 1 and 2: an IMU at rest, odometry rolled by 0.2 rad at 1 m/s forward, and a red image of 4 x 3 px."""

from pathlib import Path

import numpy as np
from rosbags.rosbag1 import Writer as Rosbag1
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as Rosbag2
from rosbags.typesys import Stores, get_typestore

from gate_racer.vehicle.dynamics import GRAVITY

ROS1, ROS2 = get_typestore(Stores.ROS1_NOETIC), get_typestore(Stores.LATEST)
TOPICS = {"/imu": "sensor_msgs/msg/Imu", "/odom": "nav_msgs/msg/Odometry", "/camera": "sensor_msgs/msg/Image"}
MESSAGES = 30


def messages(store, k):
    """Messages of ROS at step k, 10 ms apart from 10 s on."""
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
