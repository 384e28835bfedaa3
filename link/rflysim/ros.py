"""Samples as dictionaries with the field names of ROS 2 messages, without ROS installed.

`fill` converts them to messages, and `Encoder`, for bags and viewers, to the encoding of ROS 2 (CDR), by `rosbags`.

World axes are ROS's east-north-up unless NED is requested, body axes front-left-up (REP 103); every header names its frame. The
tree of frames: world_enu, uavN_local_enu, uavN_flu, sensorM_flu, sensorM_optical.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from gate_racer.link.rflysim import request
from gate_racer.link.rflysim.desk import GimbalOrder, GimbalState, ImuSample, flu
from gate_racer.link.rflysim.request import SENSORS, SensorRequest, mount_deg, pinhole
from gate_racer.link.rflysim.stream import WORLD, Cloud, Range, Sample, StreamHealth
from gate_racer.vehicle.rotation import Array, Vector, from_euler, from_matrix, matrix

RosMessage = dict[str, Any]

PACKAGE = "rflysim_ros_pkg"  # of the messages of gimbals

FLOAT32 = 7  # PointField.datatype
INT32_MAX = 2**31 - 1  # largest value of a message's field, such as the seconds of a stamp
GYRO_VARIANCE = 0.001  # (rad/s)^2, as in the SDK
ENU_FROM_NED = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
FRD_FROM_FLU = np.diag([1.0, -1.0, -1.0])
FLU_FROM_OPTICAL = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
EARTH, IMU_FRAME, NOWHERE = "world_enu", "imu_flu", np.zeros(3)
SAME_STAMP_NS = 1_000_000  # of two odometries from whose poses a transform between their frames follows
RESOLUTION, FOV, ATTITUDE, ZOOM = 1, 2, 4, 8  # CameraCtrl.ctrl_type
SECOND_NS = 1_000_000_000
CENTI = 100  # CameraCtrl and CameraStatus are in hundredths of a degree
FOV_DEG = 0.01, 179.0  # deg, bounds of the field of view
TO_GROUND, TO_AIRCRAFT = 0, 2  # CameraStatus.type
PLANE_TO_CAM_VALID, NED_TO_CAM_VALID = 1, 2  # CameraParams.att_type_valid_mask
WHOLE_ZOOM = 0x7FFFFFFF  # this value doubles the zoom, its negative halves it


class Message(NamedTuple):
    topic: str
    kind: str  # package/Name
    values: RosMessage


class RosMessages:
    """Messages with topics and frames behind a prefix such as /uav1. A body's parent is the frame of its first odometry."""

    def __init__(self, prefix: str = "", names: Mapping[int, str] | None = None, ned: bool = False):
        """Create it; `names`: topics by TypeID, with {seq} for the SeqID; `ned`: odometry in NED and FRD, not ENU and FLU."""
        self._prefix, self._names, self._ned = prefix, names or {}, ned
        self._fov_deg = dict[int, float]()  # of gimbals, by SeqID
        self._poses = dict[int, tuple[bool, int, Array, Array]]()  # by copter: whether of the world, t_ns, p, R

    def topic(self, sensor: SensorRequest) -> str:
        default = "/rflysim/sensor{seq}/" + SENSORS[sensor.type_id].topic
        return self._prefix + self._names.get(sensor.type_id, default).replace("{seq}", str(sensor.seq_id))

    def gimbal_topic(self, sensor: SensorRequest, what: str) -> str:
        return f"{self._prefix}/rflysim/sensor{sensor.seq_id}/camera/{what}"

    def frame(self, name: str) -> str:
        """Return a frame_id, without the slash that TF 2 refuses: uav1/sensor0_optical."""
        return f"{self._prefix.strip('/')}/{name}" if self._prefix.strip("/") else name

    def sample(self, sample: Sample, start: float = 0.0) -> Iterator[Message]:
        """Yield the messages of a sample; `start` of the simulation, s since 1970, or 0 for stamps in simulation time."""
        sensor, name = sample.sensor, self.topic(sample.sensor)
        t_ns = nanoseconds(start, sample.t)
        match sample.value:
            case np.ndarray() as image:
                yield Message(name, "sensor_msgs/Image", self._image(image, sensor, t_ns))
                about = f"{name.rpartition('/')[0]}/camera_info"
                size = replace(sensor, height_px=image.shape[0], width_px=image.shape[1])  # a gimbal's may change
                yield Message(about, "sensor_msgs/CameraInfo", self.camera_info(size, t_ns))
            case Cloud() as cloud:
                yield Message(name, "sensor_msgs/PointCloud2", self._cloud(cloud, sensor, t_ns))
                kind = "global" if cloud.axes == WORLD else "local"
                topic = f"{self._prefix}/rflysim/uav{cloud.copter or 1}/{kind}/odom"
                yield Message(topic, "nav_msgs/Odometry", self.odometry(cloud, t_ns))
                if (moved := self.body_transform(cloud, t_ns)) is not None:
                    yield transforms("/tf", moved)
            case Range(distance_m=distance):
                yield Message(name, "std_msgs/Float32", {"data": distance})

    def _image(self, image: np.ndarray, sensor: SensorRequest, t_ns: int) -> RosMessage:
        kind = SENSORS[sensor.type_id]
        return {
            "header": self._optical(sensor, t_ns),
            "height": image.shape[0],
            "width": image.shape[1],
            "encoding": kind.encoding,
            "step": image.shape[1] * kind.bytes_per_pixel,
            "data": _octets(image.astype(image.dtype.newbyteorder("<"), copy=False)),
        }

    def _optical(self, sensor: SensorRequest, t_ns: int) -> RosMessage:
        return header(t_ns, self.frame(f"sensor{sensor.seq_id}_optical"))

    def camera_info(self, sensor: SensorRequest, t_ns: int) -> RosMessage:
        now = replace(sensor, fov_deg=self._fov_deg.get(sensor.seq_id, sensor.fov_deg))
        fisheye, cx, cy = now.type_id == request.FISHEYE, now.width_px / 2, now.height_px / 2
        f = now.width_px / math.radians(now.fov_deg) if fisheye else pinhole(now).fx_px
        return {
            "header": self._optical(sensor, t_ns),
            "height": now.height_px,
            "width": now.width_px,
            "distortion_model": "equidistant" if fisheye else "plumb_bob",
            "d": [0.0] * (4 if fisheye else 5),
            "k": [f, 0.0, cx, 0.0, f, cy, 0.0, 0.0, 1.0],
            "r": np.eye(3).ravel().tolist(),
            "p": [f, 0.0, cx, 0.0, 0.0, f, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
        }

    def _cloud(self, cloud: Cloud, sensor: SensorRequest, t_ns: int) -> RosMessage:
        """Return a cloud with its points in their original axes: those of the sensor, or world NED (type 21)."""
        names, columns = ["x", "y", "z"], [cloud.points]
        if cloud.segments is not None:
            names.append("seg")
            columns.append(cloud.segments[:, None])
        data, step = np.hstack(columns).astype("<f4"), 4 * len(names)
        world = SENSORS[sensor.type_id].axes == "ned"
        return {
            "header": header(t_ns, "world_ned" if world else self.frame(f"sensor{sensor.seq_id}_flu")),
            "height": 1,
            "width": len(data),
            "fields": [{"name": n, "offset": 4 * k, "datatype": FLOAT32, "count": 1} for k, n in enumerate(names)],
            "point_step": step,
            "row_step": step * len(data),
            "data": _octets(data),
            "is_dense": bool(np.isfinite(data).all()),
        }

    def odometry(self, cloud: Cloud, t_ns: int) -> RosMessage:
        """Return nav_msgs/Odometry of the pose in a cloud. Its twist, not transmitted, is 0; covariances begin with -1."""
        copter, (p, R) = cloud.copter or 1, _pose_enu(cloud)
        origin, axes = EARTH if cloud.axes == WORLD else self.frame(f"uav{copter}_local_enu"), "flu"
        if self._ned:
            p, R = ENU_FROM_NED @ p, ENU_FROM_NED @ R @ FRD_FROM_FLU
            origin, axes = origin.replace("_enu", "_ned"), "frd"
        return {
            "header": header(t_ns, origin),
            "child_frame_id": self.frame(f"uav{copter}_{axes}"),
            "pose": {
                "pose": {"position": _xyz(p.tolist()), "orientation": _quaternion(from_matrix(R))},
                "covariance": _unknown(36),
            },
            "twist": {"covariance": _unknown(36)},
        }

    def body_transform(self, cloud: Cloud, t_ns: int) -> RosMessage | None:
        """Return the transform that a cloud stamped t_ns tells, of its vehicle's body or local frame; None if it tells none."""
        world, copter, (p, R) = cloud.axes == WORLD, cloud.copter or 1, _pose_enu(cloud)
        local, body = self.frame(f"uav{copter}_local_enu"), self.frame(f"uav{copter}_flu")
        of_world, known_ns, p_known, R_known = self._poses.get(copter, (world, t_ns, p, R))
        if world == of_world:
            self._poses[copter] = world, t_ns, p, R
            return transform(t_ns, EARTH if world else local, body, p, R)
        if abs(t_ns - known_ns) > SAME_STAMP_NS:
            return None
        if not world:
            p, R, p_known, R_known = p_known, R_known, p, R
        return transform(t_ns, EARTH, local, p - R @ R_known.T @ p_known, R @ R_known.T)

    def mount_transform(self, sensor: SensorRequest, t_ns: int = 0) -> RosMessage | None:
        """Return the transform of a sensor; None where its attitude is fixed to the earth, and so none of its carrier's."""
        if sensor.mount_type == request.EARTH_FIXED:
            return None
        carrier = self.frame(f"{'sensor' if sensor.mount_type == request.ON_SENSOR else 'uav'}{sensor.copter}_flu")
        parent, axes = (EARTH, ENU_FROM_NED) if sensor.mount_type == request.ON_GROUND else (carrier, FRD_FROM_FLU)
        p, R = np.array(sensor.position_m), matrix(from_euler(*map(math.radians, mount_deg(sensor))))
        return transform(t_ns, parent, self.frame(f"sensor{sensor.seq_id}_flu"), axes @ p, axes @ R @ FRD_FROM_FLU)

    def fixed(self, sensors: Iterable[SensorRequest], copter: int) -> Message:
        """Return the transforms that never change: mounts but those of gimbals, optical axes, NED and FRD, and a copter's IMU."""
        found = [transform(0, EARTH, "world_ned", NOWHERE, ENU_FROM_NED)]
        found.append(transform(0, self.frame(f"uav{copter}_flu"), self.frame(IMU_FRAME), NOWHERE, np.eye(3)))
        for sensor in sensors:
            mounted = self.mount_transform(sensor) if sensor.type_id != request.GIMBAL else None
            found += [mounted] if mounted is not None else []
            name = self.frame(f"sensor{sensor.seq_id}_")
            if SENSORS[sensor.type_id].encoding:
                found.append(transform(0, f"{name}flu", f"{name}optical", NOWHERE, FLU_FROM_OPTICAL))
        carriers = {one.copter for one in sensors if one.mount_type not in (request.ON_GROUND, request.ON_SENSOR)}
        for number in sorted({copter, *carriers}):
            name = self.frame(f"uav{number}_")
            found.append(transform(0, f"{name}local_enu", f"{name}local_ned", NOWHERE, ENU_FROM_NED))
            found.append(transform(0, f"{name}flu", f"{name}frd", NOWHERE, FRD_FROM_FLU))
        return transforms("/tf_static", *found)

    def imu(self, sample: ImuSample, start: float = 0.0) -> Message:
        variance = np.diag([GYRO_VARIANCE] * 3).ravel().tolist()
        values = {
            "header": header(nanoseconds(start, sample.t), self.frame(IMU_FRAME)),
            "orientation": _quaternion(np.array([1.0, 0.0, 0.0, 0.0])),
            "orientation_covariance": _unknown(9),
            "angular_velocity": _xyz(flu(sample.gyro)),
            "angular_velocity_covariance": variance,
            "linear_acceleration": _xyz(flu(sample.accel)),
        }
        return Message(f"{self._prefix}/rflysim/imu", "sensor_msgs/Imu", values)

    def gimbal(self, state: GimbalState, t_ns: int, gimbal: SensorRequest, health: StreamHealth) -> Iterator[Message]:
        """Yield CameraStatus, from the state, the gimbal's request and its frames, and the gimbal's transform."""
        if 0.0 < state.fov_deg < 180.0:
            self._fov_deg[state.seq_id] = state.fov_deg
        status = {"header": self._optical(gimbal, t_ns)} | _camera_status(state, gimbal, health)
        yield Message(self.gimbal_topic(gimbal, "status"), f"{PACKAGE}/CameraStatus", status)
        if (turned := self.mount_transform(replace(gimbal, euler=state.euler, by_quat=0.0), t_ns)) is not None:
            yield transforms("/tf", turned)


def nanoseconds(start: float, t: float = 0.0) -> int:
    """Return the time t (s) after a start, s since 1970 to the microsecond. Their sum as a float would be rounded to 0.2 us."""
    far = float(INT32_MAX)
    return round(min(max(start, -far), far) * 1e6) * 1000 + round(min(max(t, -far), far) * SECOND_NS)


def header(t_ns: int, frame_id: str) -> RosMessage:
    """Return std_msgs/Header; stamps beyond 32 bit are clipped."""
    most = INT32_MAX * SECOND_NS
    sec, nanosec = divmod(min(max(t_ns, -most), most), SECOND_NS)
    return {"stamp": {"sec": sec, "nanosec": nanosec}, "frame_id": frame_id}


def transform(t_ns: int, parent: str, child: str, p: Array, R: Array) -> RosMessage:
    """Return geometry_msgs/TransformStamped of a child at p (3,) m, whose axes R (3, 3) turns into the parent's."""
    return {
        "header": header(t_ns, parent),
        "child_frame_id": child,
        "transform": {"translation": _xyz(p.tolist()), "rotation": _quaternion(from_matrix(R))},
    }


def transforms(topic: str, *found: RosMessage) -> Message:
    return Message(topic, "tf2_msgs/TFMessage", {"transforms": list(found)})


def _pose_enu(cloud: Cloud) -> tuple[Array, Array]:
    """Return position (3,) and rotation (3, 3), FLU to ENU, of the body."""
    return ENU_FROM_NED @ np.array(cloud.p_wb), ENU_FROM_NED @ matrix(from_euler(*cloud.rpy)) @ FRD_FROM_FLU


def gimbal_order(ctrl: RosMessage) -> GimbalOrder:
    """Return the command of a CameraCtrl, in hundredths of a degree."""
    kind, others = ctrl["ctrl_type"], [*ctrl.get("others", ()), *[0] * 5][:5]
    multiply = ctrl.get("optics_multiply", 0)
    by = 0.0 if not kind & ZOOM or abs(multiply) < WHOLE_ZOOM else 2.0 if multiply > 0 else 0.5
    centre, yaw_way, yaw_rate, pitch_way, pitch_rate = others
    pitch, yaw = (way * math.radians(rate / CENTI) for way, rate in ((pitch_way, pitch_rate), (yaw_way, yaw_rate)))
    euler = ctrl.get("roll", 0) / CENTI, ctrl.get("pitch", 0) / CENTI, ctrl.get("yaw", 0) / CENTI
    return GimbalOrder(
        centre=True if centre else None,
        rates=(pitch, yaw) if yaw_way or pitch_way else None,
        zoom=float(multiply) if kind & ZOOM and not by else None,
        zoom_by=by or None,
        zoom_base=float(ctrl["base_optics"]) if kind & ZOOM and ctrl.get("base_optics") else None,
        fov_deg=ctrl["fov"] / CENTI if kind & FOV else None,
        euler=euler if kind & ATTITUDE else None,
        size_px=(ctrl["width"], ctrl["height"]) if kind & RESOLUTION else None,
    )


def box_order(ctrl: RosMessage) -> GimbalOrder:
    """Return the command of a CameraAICtrl: 0 boxes around all, 1 around the object at the pixel."""
    if ctrl["ctrl_id"] == 0:
        return GimbalOrder(box=1)
    u, v = ctrl["pixel_pos"][:2]
    return GimbalOrder(box=2, pixel=(float(u), float(v)))


def _camera_status(state: GimbalState, gimbal: SensorRequest, health: StreamHealth) -> RosMessage:
    roll, pitch, yaw = (_int32(CENTI * angle) for angle in state.euler)
    pitch_rate, yaw_rate = (_int32(CENTI * math.degrees(rate)) for rate in state.rates)
    to_ground = gimbal.mount_type == request.EARTH_FIXED
    fixed, valid = ("ned2c", NED_TO_CAM_VALID) if to_ground else ("p2c", PLANE_TO_CAM_VALID)
    angles = {f"{fixed}_{angle}_deg": value for angle, value in zip(("roll", "pitch", "yaw"), state.euler, strict=True)}
    place = dict(zip(("p2c_front_m", "p2c_right_m", "p2c_down_m"), gimbal.position_m, strict=True))
    lens = {"fx": state.fx_px, "fy": state.fy_px, "cx": state.width_px / 2, "cy": state.height_px / 2}
    return {
        "id": state.seq_id % 256,
        "frame_rate": health.hz,
        "capture_max_sec": health.longest_gap_s,
        "capture_min_sec": health.shortest_gap_s,
        "capture_cur_sec": health.gap_s,
        "height": max(_int32(state.height_px), 0),
        "width": max(_int32(state.width_px), 0),
        "fov": max(_int32(CENTI * state.fov_deg), 0),
        "type": TO_GROUND if to_ground else TO_AIRCRAFT,
        "roll": roll,
        "pitch": pitch,
        "yaw": yaw,
        "optics_multiply": _int32(_half_width(gimbal.fov_deg) / _half_width(state.fov_deg)),
        "others": [0, 0, yaw_rate, 0, pitch_rate],
        "camera_params": {"att_type_valid_mask": valid, **lens, **angles, **place},
    }


def _half_width(fov_deg: float) -> float:
    return math.tan(math.radians(min(max(fov_deg, FOV_DEG[0]), FOV_DEG[1])) / 2)


def fill(target: Any, values: RosMessage) -> Any:
    for name, value in values.items():
        current = getattr(target, name)
        if isinstance(value, dict):
            fill(current, value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            setattr(target, name, [fill(_element(target, name), item) for item in value])
        else:
            setattr(target, name, value)
    return target


def fields(source: Any) -> RosMessage:
    return {name: getattr(source, name) for name in source.get_fields_and_field_types()}


def _element(target: Any, field: str) -> Any:
    """Return an empty element of a sequence field, whose type rosidl spells "sequence<sensor_msgs/PointField>"."""
    package, name = target.get_fields_and_field_types()[field].split("<")[1].split(">")[0].split(",")[0].split("/")
    return getattr(import_module(f"{package}.msg"), name)()


def _octets(values: np.ndarray) -> "array[int]":
    """Return bytes in the form that rclpy copies at once; other sequences are checked per element, 100 ms per image."""
    octets = array("B")
    octets.frombytes(np.ascontiguousarray(values).data.cast("B"))
    return octets


def _int32(value: float) -> int:
    return round(min(max(value, -INT32_MAX), INT32_MAX))


def _xyz(v: Vector | list[float]) -> RosMessage:
    return {"x": float(v[0]), "y": float(v[1]), "z": float(v[2])}


def _quaternion(q: Array) -> RosMessage:
    w, x, y, z = (float(c) for c in q)
    return {"x": x, "y": y, "z": z, "w": w}


def _unknown(n: int) -> list[float]:
    return [-1.0, *[0.0] * (n - 1)]


DEFINITIONS = Path(__file__).parents[2] / "examples/ros" / PACKAGE / "msg"


def full_name(kind: str) -> str:
    """Return `package/msg/Name` for `package/Name`."""
    return kind.replace("/", "/msg/")


class Encoder:
    """Encoder of messages by the types of a ROS distribution and of `PACKAGE`."""

    def __init__(self, distribution: Stores = Stores.ROS2_HUMBLE) -> None:
        self.store = get_typestore(distribution)
        for path in sorted(DEFINITIONS.glob("*.msg")):
            self.store.register(get_types_from_msg(path.read_text(encoding="utf-8"), f"{PACKAGE}/msg/{path.stem}"))

    def definition(self, kind: str) -> str:
        """Return the text that defines the type called `package/msg/Name`."""
        return self.store.generate_msgdef(kind, ros_version=2)[0]

    def encode(self, message: Message) -> bytes:
        """Return the CDR of a message. Raises KeyError for a field that its type has not."""
        kind = full_name(message.kind)
        return bytes(self.store.serialize_cdr(self._typed(kind, message.values), kind))

    def _typed(self, name: str, values: RosMessage) -> Any:
        """Return the message of a type with the fields of a dictionary; all others are empty."""
        kinds: Any = dict(self.store.fielddefs[name][1])
        if unknown := values.keys() - kinds.keys():
            raise KeyError(f"{name} has no {unknown}")
        return self.store.types[name](**{field: self._valued(of, values.get(field)) for field, of in kinds.items()})

    def _valued(self, of: Any, value: Any) -> Any:
        kind, what = of
        if kind == Nodetype.NAME:
            return self._typed(what, value or {})
        if kind == Nodetype.BASE:
            return value if value is not None else "" if what[0] == "string" else 0
        item, count = what
        if item[0] == Nodetype.BASE and item[1][0] != "string":
            return np.asarray(value if value is not None else [0] * count, item[1][0])
        return [self._valued(item, one) for one in value or ()]
