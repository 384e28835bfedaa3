"""Signals and images of ROS: bags of ROS 1, and those of ROS 2 in MCAP or SQLite, by `rosbags`.

Of the kinds of message in `MESSAGES` the topic with the most is read. Body axes are FLU (REP 103, or see `UP`), the world has z
up, and velocities of Odometry are in body axes, or in world axes where that fits the positions better.

The world's x axis is taken as north. Times are those of the headers; where they are 0, those of recording.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from gate_racer.common.files import read_start
from gate_racer.link.logs import samples
from gate_racer.link.logs.inertial import LAYOUTS
from gate_racer.link.logs.samples import FRD, Samples, SignalError, Source, Table, found, turned, turned_q
from gate_racer.vehicle.dynamics import GRAVITY
from gate_racer.vehicle.rotation import Array, matrix

Q, P, V, FORCE, OMEGA = ("qw", "qx", "qy", "qz"), *(tuple(f"{name}{axis}" for axis in "xyz") for name in "pvaw")
W_FIRST = ("qx", "qy", "qz", "qw")  # fields of w, x, y, z for drivers that put w first
RATES_IGNORED = 7  # bits of type_mask
ROS1 = b"#ROSBAG V2.0"  # first bytes of a bag of ROS 1


def _into_world(columns: Array) -> Array:
    """Return velocities in the world, from attitude and velocity in body axes, both x forward, y left, z up."""
    q, v = columns[:, :4] * [1.0, 1.0, -1.0, -1.0], columns[:, 4:] * FRD
    return np.array([matrix(one / np.linalg.norm(one)) @ u for one, u in zip(q, v, strict=True)]).reshape(-1, 3)


MESSAGES = (
    Source("q", "Odometry", Q, turned_q),
    Source("q", "Imu", Q, turned_q),
    Source("p", "Odometry", P, turned),
    Source("v", "Odometry", (*Q, *V), _into_world),
    Source("true_p", "PoseStamped", P, turned),
    Source("true_q", "PoseStamped", Q, turned_q),
    Source("throttle", "AttitudeTarget", ("thrust",)),
    Source("omega_cmd", "AttitudeTarget", ("type_mask", *OMEGA), samples.masked(RATES_IGNORED, False, turned)),
    Source("voltage", "BatteryState", ("voltage",)),
)


def _fields(kind: str, m: Any) -> dict[str, float]:
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


STEP_S = 0.05  # s, over which rotations and positions are compared (chosen)
LONGEST_S = 600.0  # s, for which they are compared (chosen)
AGREES = 0.5  # -, error of gravity, and of the rates, with which an IMU agrees with an attitude (chosen)
UPRIGHT = 0.8  # -, share of gravity along the axis that is taken as up (chosen)
# From the axes of an IMU to FRD, by the axis that is up; without z up those of EuRoC, of a camera's optical frame, of FRD.
UP = {
    "z": np.diag(FRD),
    "x": LAYOUTS[0].R_bs,
    "-y": np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    "-z": np.eye(3),
}


def ros_signals(path: Path) -> samples.LoggedSignals:
    """Return the signals of a bag: of the IMU that agrees with the attitude, and the busiest other topics.

    Raises SignalError: it cannot be read, or gravity lies along no axis of the IMU that is known.
    """
    rows: dict[str, dict[str, list[dict[str, float]]]] = {}
    with _opened(path) as (connections, read):
        known = [one for one in connections if _kind(one) in KINDS]
        busiest = {_kind(one): one for one in reversed(known)}.values()
        for kind, topic, t, message in read([one for one in known if _kind(one) == "Imu" or one in busiest]):
            rows.setdefault(kind, {}).setdefault(topic, []).append({"t": t, **_fields(kind, message)})
    if not rows:
        raise SignalError(f"{path}: holds no topic that is read: {', '.join((*KINDS, *IMAGES))}")
    topics = {kind: {topic: samples.table(records) for topic, records in found.items()} for kind, found in rows.items()}
    seen = {kind: next(iter(tables)) for kind, tables in topics.items()}
    ours, notes = list[Source](), list[str]()  # sources in place of those of MESSAGES
    attitude: Attitude | None = None
    if "Imu" in topics:
        seen["Imu"], R_bs, attitude, notes = _imu(path, topics)
        ours += [Source(name, "Imu", axes, lambda v: v @ R_bs.T) for name, axes in (("force", FORCE), ("omega", OMEGA))]
        if attitude is not None and attitude.kind != "Odometry":
            signal = "true_q" if attitude.kind == "PoseStamped" else "q"
            ours.append(Source(signal, attitude.kind, attitude.fields, turned_q))
    tables = {kind: topics[kind][topic] for kind, topic in seen.items()}
    if "Odometry" in tables and attitude is not None and (attitude.kind, attitude.fields) != ("Odometry", Q):
        # Which turns its velocities as well.
        told, odometry = topics[attitude.kind][attitude.topic], tables["Odometry"]
        q = Samples(told["t"], _columns(told, attitude.fields)).at(odometry["t"])
        tables["Odometry"] = {**odometry, **dict(zip(Q, q.T, strict=True))}
    if "Odometry" in tables and _moves_in_world(tables["Odometry"]):
        ours.append(Source("v", "Odometry", V, turned))
        notes.append(f"velocities of {seen['Odometry']} are in world axes")
    listed = ", ".join(f"{topic} ({kind})" for kind, topic in seen.items())
    replaced = {one.signal for one in ours}
    ours += [one for one in MESSAGES if one.signal not in replaced]
    return found(tables, ours, [f"read are {listed}", *notes])


class Attitude(NamedTuple):
    """Where a bag tells the attitude: kind of message, topic, and fields of w, x, y, z."""

    kind: str
    topic: str
    fields: tuple[str, ...] = Q


def _imu(path: Path, topics: Mapping[str, samples.Tables]) -> tuple[str, Array, Attitude | None, list[str]]:
    """Return the topic of the IMU that is used, the matrix from its axes to FRD, an attitude that agrees, and remarks."""
    imus = dict(sorted(topics["Imu"].items(), key=lambda one: -len(one[1]["t"])))
    told = [Attitude(kind, topic) for kind in ("Odometry", "PoseStamped", "Imu") for topic in topics.get(kind, {})]
    told = [one for one in told if _turns(topics[one.kind][one.topic])]
    known = told + [one._replace(fields=W_FIRST) for one in told]
    errors = {
        (one, name): _disagreement(imu, topics[one.kind][one.topic], one.fields)
        for one in known
        for name, imu in imus.items()
    }
    attitude, best = next((pair for pair, error in errors.items() if error < AGREES), (None, next(iter(imus))))
    notes = list[str]()
    if attitude is not None:
        notes = [
            f"not {name}, which agrees less with the attitude"
            for name in imus
            if errors[attitude, name] > errors[attitude, best]
        ]
        if attitude != told[0]:
            order = ", with w first" if attitude.fields == W_FIRST else ""
            notes.append(f"the attitude is that of {attitude.topic}{order}, which agrees with the gyro")
    elif told:
        best = min(imus, key=lambda name: errors[told[0], name])
    force = np.median(np.nan_to_num(_columns(imus[best], FORCE)), axis=0)
    axis = int(np.abs(force).argmax())
    up = f"{'-' if force[axis] < 0 else ''}{'xyz'[axis]}"
    if attitude is not None or up == "z" or abs(force[axis]) < UPRIGHT * GRAVITY:
        doubt = [f"no attitude agrees with the gyro and gravity of {best}"] if told and attitude is None else []
        return best, UP["z"], attitude, notes + doubt
    if up not in UP:
        raise SignalError(f"{path}: {up} of {best} is up, but x forward, y left and z up are expected (REP 103)")
    return best, UP[up], None, [*notes, f"{up} of {best} is up; its axes are turned"]


def _columns(one: Table, names: Sequence[str]) -> Array:
    return np.column_stack([one[name] for name in names])


def _grid(*tables: Table) -> Array:
    """Return the times (N,) s at which all tables have samples, STEP_S apart."""
    begin, end = max(one["t"][0] for one in tables), min(one["t"][-1] for one in tables)
    return np.arange(begin, min(end, begin + LONGEST_S), STEP_S)


def _turns(one: Table) -> bool:
    return set(Q) <= one.keys() and bool(np.all(np.abs(np.linalg.norm(_columns(one, Q), axis=1) - 1) < 0.5))


def _disagreement(imu: Table, attitude: Table, fields: Sequence[str]) -> float:
    """Return the relative error of gravity and rates of an IMU, as FLU, against attitudes of z up; infinite if unknown."""
    from scipy.spatial.transform import Rotation  # slow to load

    t = _grid(imu, attitude)
    if len(t) < 3:
        return float("inf")
    turns = Rotation.from_quat(Samples(attitude["t"], _columns(attitude, fields)).at(t), scalar_first=True)
    force, omega = (Samples(imu["t"], _columns(imu, names)).at(t) for names in (FORCE, OMEGA))
    off = np.median(turns.apply(force), axis=0) - [0.0, 0.0, GRAVITY]
    rates = (turns[:-1].inv() * turns[1:]).as_rotvec() / STEP_S
    compared = (samples.mean_over(one, t[:-1]) for one in (rates - omega[:-1], rates))
    wrong, size = (np.median(np.linalg.norm(one, axis=1)) for one in compared)
    return float(max(np.linalg.norm(off) / GRAVITY, wrong / (size + 0.2)))


def _moves_in_world(odometry: Table) -> bool:
    """Return whether the velocities fit the differences of the positions better as they are than turned from body axes."""
    t = _grid(odometry)
    if len(t) < 3:
        return False
    p, q, v = (Samples(odometry["t"], _columns(odometry, names)).at(t) for names in (P, Q, V))
    moved = np.gradient(p * FRD, STEP_S, axis=0)
    both = v * FRD, _into_world(np.hstack([q, v]))
    plain, rotated = (np.median(np.linalg.norm(one - moved, axis=1)) for one in both)
    return bool(plain < rotated)


# Channels of encodings, and OpenCV's conversion to BGR (Bayer's names there are those of the second row's second pixels).
ENCODINGS = {
    **dict.fromkeys(("mono8", "8UC1"), (1, None)),
    **dict.fromkeys(("bgr8", "8UC3"), (3, None)),
    **{"rgb8": (3, cv2.COLOR_RGB2BGR), "bgra8": (4, cv2.COLOR_BGRA2BGR), "rgba8": (4, cv2.COLOR_RGBA2BGR)},
    **{"yuv422_yuy2": (2, cv2.COLOR_YUV2BGR_YUY2), "yuv422": (2, cv2.COLOR_YUV2BGR_UYVY)},
    **{"bayer_rggb8": (1, cv2.COLOR_BayerBG2BGR), "bayer_bggr8": (1, cv2.COLOR_BayerRG2BGR)},
    **{"bayer_gbrg8": (1, cv2.COLOR_BayerGR2BGR), "bayer_grbg8": (1, cv2.COLOR_BayerGB2BGR)},
}


def ros_images(path: Path) -> Iterator[tuple[float, bytes]]:
    """Yield time (s) and JPEG or PNG of the images of a bag's busiest camera. Raises SignalError, also if none can be shown."""
    with _opened(path) as (topics, read):
        cameras = [one for one in topics if _kind(one) in IMAGES]
        shown = (one for one in cameras if any(_image(message) for *_, message in islice(read([one]), 1)))
        seen = next(shown, None)
        if cameras and seen is None:
            raise SignalError(f"{path}: its images cannot be shown; encodings that are read are {', '.join(ENCODINGS)}")
        for _, _, t, message in read([seen] if seen else []):
            if image := _image(message):
                yield t, image


def _image(message: Any) -> bytes:
    if hasattr(message, "format"):
        return b"" if "compressedDepth" in message.format else bytes(message.data)
    channels, to_bgr = ENCODINGS.get(getattr(message, "encoding", ""), (0, None))
    if not channels or message.height * message.step != len(message.data):
        return b""
    rows = np.frombuffer(bytes(message.data), np.uint8).reshape(message.height, message.step)
    image = rows[:, : message.width * channels].reshape(message.height, message.width, channels)
    return cv2.imencode(".png", image if to_bgr is None else cv2.cvtColor(image, to_bgr))[1].tobytes()


Messages = Iterator[tuple[str, str, float, Any]]  # kind, topic, time (s) and message


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[list[Any], Callable[[list[Any]], Messages]]]:
    """Open a bag; give its topics, the busiest first, and a function that reads the messages of some of them."""
    from rosbags import rosbag1, rosbag2  # slow to load
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    first = path.is_file() and read_start(path, len(ROS1)) == ROS1
    store = get_typestore(Stores.ROS1_NOETIC if first else Stores.LATEST)
    decode = store.deserialize_ros1 if first else store.deserialize_cdr
    try:
        with rosbag1.Reader(path) if first else rosbag2.Reader(path) as reader:
            topics = sorted(reader.connections, key=lambda one: -one.msgcount)
            for one in topics:
                if _kind(one) in (*KINDS, *IMAGES) and one.msgtype not in store.types:  # the bag brings the definition
                    with contextlib.suppress(Exception):
                        store.register(get_types_from_msg(one.msgdef.data, one.msgtype))

            def read(connections: list[Any]) -> Messages:
                # Without any connection the library would yield all messages.
                for connection, stamp, data in reader.messages(connections=connections) if connections else ():
                    with contextlib.suppress(Exception):
                        message: Any = decode(data, connection.msgtype)
                        header = message.header.stamp
                        t = header.sec + 1e-9 * header.nanosec
                        yield _kind(connection), connection.topic, t or 1e-9 * stamp, message

            yield topics, read
    except SignalError:
        raise
    except Exception as error:  # those of the library, SQLite, zstd and lz4 have no class in common
        why = str(error) or type(error).__name__
        cure = ": of one that was cut, `mcap recover` makes a whole one" if path.suffix == ".mcap" else ""
        raise SignalError(f"{path}: cannot be read as a bag of ROS ({why}){cure}") from None


def _kind(connection: Any) -> str:
    kind: str = connection.msgtype.rpartition("/")[2]
    return kind
