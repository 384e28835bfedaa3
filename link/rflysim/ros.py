"""Samples as dictionaries with the field names of ROS 2 messages, without ROS installed; `fill` converts them to messages.

World axes are ROS's east-north-up unless NED is requested, body axes front-left-up (REP 103); every header names its frame. The
tree of frames: world_enu, uavN_local_enu, uavN_flu, sensorM_flu, sensorM_optical. A body's parent is the frame of its odometry.
"""

import math
from array import array
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from gate_racer.link.rflysim.config import EARTH_FIXED, ON_GROUND, ON_SENSOR, mount_deg, pinhole
from gate_racer.link.rflysim.desk import GimbalOrder, GimbalState
from gate_racer.link.rflysim.payloads import WORLD, Cloud, Range
from gate_racer.link.rflysim.request import FISHEYE, GIMBAL, SENSORS, ImuSample, SensorKind, SensorRequest, flu
from gate_racer.link.rflysim.stream import Sample, StreamHealth
from gate_racer.vehicle.rotation import Array, Vector, from_euler, from_matrix, matrix

RosMessage = dict[str, Any]

FLOAT32 = 7  # PointField.datatype
INT32_MAX = 2**31 - 1  # largest value of a message's field, such as the seconds of a stamp
GYRO_VARIANCE = 0.001  # (rad/s)^2, as in the SDK
ENU_FROM_NED = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
FRD_FROM_FLU = np.diag([1.0, -1.0, -1.0])
FLU_FROM_OPTICAL = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
EARTH, IMU_FRAME, NOWHERE = "world_enu", "imu_flu", np.zeros(3)
SAME_STAMP_S = 1e-3  # s, of two odometries from whose poses a transform between their frames follows
RESOLUTION, FOV, ATTITUDE, ZOOM = 1, 2, 4, 8  # CameraCtrl.ctrl_type
CENTI = 100  # CameraCtrl and CameraStatus are in hundredths of a degree
FOV_DEG = 0.01, 179.0  # deg, bounds of the field of view
TO_GROUND, TO_AIRCRAFT = 0, 2  # CameraStatus.type
PLANE_TO_CAM_VALID, NED_TO_CAM_VALID = 1, 2  # CameraParams.att_type_valid_mask
WHOLE_ZOOM = 0x7FFFFFFF  # this value doubles the zoom, its negative halves it


def topic(sensor: SensorRequest, names: Mapping[int, str] | None = None, prefix: str = "") -> str:
    """Return the topic of a sensor: /rflysim/sensorN/..., or from `names` by TypeID, with {seq} for N; after a prefix."""
    default = "/rflysim/sensor{seq}/" + SENSORS[sensor.type_id].topic
    return prefix + (names or {}).get(sensor.type_id, default).replace("{seq}", str(sensor.seq_id))


def odometry_topic(cloud: Cloud, prefix: str = "") -> str:
    """Return the topic of the odometry in a cloud."""
    return f"{prefix}/rflysim/uav{cloud.copter or 1}/{'global' if cloud.axes == WORLD else 'local'}/odom"


def header(t: float, frame_id: str) -> RosMessage:
    """Return std_msgs/Header at t, s; stamps beyond 32 bit are clipped."""
    sec, nanosec = divmod(round(min(max(t, -INT32_MAX), INT32_MAX) * 1e9), 1_000_000_000)
    return {"stamp": {"sec": sec, "nanosec": nanosec}, "frame_id": frame_id}


def frame(name: str, prefix: str = "") -> str:
    """Return a frame_id after a vehicle's prefix, without the slash that TF 2 refuses: uav1/sensor0_optical."""
    return f"{prefix.strip('/')}/{name}" if prefix.strip("/") else name


def message(sample: Sample, start: float = 0.0, prefix: str = "") -> RosMessage | None:
    """Return sensor_msgs/Image, sensor_msgs/PointCloud2 or std_msgs/Float32 of a sample; None without a matching message.

    Args:
        start: start of the simulation, s since 1970; 0 for stamps in simulation time.
    """
    sensor, t, value = sample.sensor, start + sample.t, sample.value
    match value:
        case np.ndarray():
            return _image(value, sensor, t, prefix)
        case Cloud():
            return _cloud(value, sensor, t, prefix)
        case Range():
            return {"data": value.distance_m}
    return None


def gimbal_topic(sensor: SensorRequest, what: str, prefix: str = "") -> str:
    """Return a topic of a gimbal: `what` is "ctrl", "ai_ctrl" or "status"."""
    return f"{prefix}/rflysim/sensor{sensor.seq_id}/camera/{what}"


def message_type(sensor: SensorRequest) -> str:
    """Return package and name of the message of `message`; empty if there is none."""
    kinds = {
        SensorKind.IMAGE: "sensor_msgs/Image",
        SensorKind.CLOUD: "sensor_msgs/PointCloud2",
        SensorKind.RANGE: "std_msgs/Float32",
    }
    return kinds.get(SENSORS[sensor.type_id].kind, "")


def _image(image: np.ndarray, sensor: SensorRequest, t: float, prefix: str) -> RosMessage:
    kind = SENSORS[sensor.type_id]
    return {
        "header": header(t, frame(f"sensor{sensor.seq_id}_optical", prefix)),
        "height": image.shape[0],
        "width": image.shape[1],
        "encoding": kind.encoding,
        "is_bigendian": 0,
        "step": image.shape[1] * kind.bytes_per_pixel,
        "data": _octets(image.astype(image.dtype.newbyteorder("<"), copy=False)),
    }


def camera_info(sensor: SensorRequest, t: float, prefix: str = "") -> RosMessage | None:
    """Return sensor_msgs/CameraInfo of a camera without distortion (a fisheye is equidistant); None for another sensor."""
    if SENSORS[sensor.type_id].kind is not SensorKind.IMAGE:
        return None
    fisheye, cx, cy = sensor.type_id == FISHEYE, sensor.width_px / 2, sensor.height_px / 2
    f = sensor.width_px / math.radians(sensor.fov_deg) if fisheye else pinhole(sensor).fx_px
    return {
        "header": header(t, frame(f"sensor{sensor.seq_id}_optical", prefix)),
        "height": sensor.height_px,
        "width": sensor.width_px,
        "distortion_model": "equidistant" if fisheye else "plumb_bob",
        "d": [0.0] * (4 if fisheye else 5),
        "k": [f, 0.0, cx, 0.0, f, cy, 0.0, 0.0, 1.0],
        "r": np.eye(3).ravel().tolist(),
        "p": [f, 0.0, cx, 0.0, 0.0, f, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
    }


def info_topic(image_topic: str) -> str:
    """Return the topic of CameraInfo beside that of an image."""
    return f"{image_topic.rpartition('/')[0]}/camera_info"


def _cloud(cloud: Cloud, sensor: SensorRequest, t: float, prefix: str) -> RosMessage:
    """Return a cloud with its points in their original axes: those of the sensor, or world NED (type 21)."""
    world = SENSORS[sensor.type_id].axes == "ned"
    names, columns = ["x", "y", "z"], [cloud.points]
    if cloud.segments is not None:
        names.append("seg")
        columns.append(cloud.segments[:, None])
    data, step = np.hstack(columns).astype("<f4"), 4 * len(names)
    return {
        "header": header(t, "world_ned" if world else _sensor_frame(sensor.seq_id, prefix)),
        "height": 1,
        "width": len(data),
        "fields": [{"name": n, "offset": 4 * k, "datatype": FLOAT32, "count": 1} for k, n in enumerate(names)],
        "is_bigendian": False,
        "point_step": step,
        "row_step": step * len(data),
        "data": _octets(data),
        "is_dense": bool(np.isfinite(data).all()),
    }


def odometry(cloud: Cloud, t: float, ned: bool = False, prefix: str = "") -> RosMessage:
    """Return nav_msgs/Odometry of the pose in a cloud. Velocity is not transmitted: its twist is 0; covariances begin with -1.

    Args:
        ned: world NED and body FRD instead of ROS's ENU and FLU.
    """
    copter, zero = cloud.copter or 1, _xyz((0.0, 0.0, 0.0))
    if ned:
        p, R = np.array(cloud.p_wb), matrix(from_euler(*cloud.rpy))
    else:
        p, R = _pose_enu(cloud)
    origin = EARTH if cloud.axes == WORLD else _local_frame(copter, prefix)
    return {
        "header": header(t, origin.replace("_enu", "_ned") if ned else origin),
        "child_frame_id": _body_frame(copter, prefix, "frd" if ned else "flu"),
        "pose": {
            "pose": {"position": _xyz(p.tolist()), "orientation": _quaternion(from_matrix(R))},
            "covariance": _unknown(36),
        },
        "twist": {"twist": {"linear": zero, "angular": dict(zero)}, "covariance": _unknown(36)},
    }


def _pose_enu(cloud: Cloud) -> tuple[Array, Array]:
    """Return position (3,) and rotation (3, 3), FLU to ENU, of the body."""
    return ENU_FROM_NED @ np.array(cloud.p_wb), ENU_FROM_NED @ matrix(from_euler(*cloud.rpy)) @ FRD_FROM_FLU


def _body_frame(copter: int, prefix: str, axes: str = "flu") -> str:
    return frame(f"uav{copter}_{axes}", prefix)


def _local_frame(copter: int, prefix: str) -> str:
    return frame(f"uav{copter}_local_enu", prefix)


def _sensor_frame(seq_id: int, prefix: str) -> str:
    return frame(f"sensor{seq_id}_flu", prefix)


def transform(t: float, parent: str, child: str, p: Array, R: Array) -> RosMessage:
    """Return geometry_msgs/TransformStamped of a child at p (3,) m, whose axes R (3, 3) turns into the parent's."""
    return {
        "header": header(t, parent),
        "child_frame_id": child,
        "transform": {"translation": _xyz(p.tolist()), "rotation": _quaternion(from_matrix(R))},
    }


def mount_transform(sensor: SensorRequest, t: float = 0.0, prefix: str = "") -> RosMessage | None:
    """Return the transform of a sensor; None where its attitude is fixed to the earth, and so none of its carrier's."""
    if sensor.mount_type == EARTH_FIXED:
        return None
    on_ground = sensor.mount_type == ON_GROUND
    axes = ENU_FROM_NED if on_ground else FRD_FROM_FLU
    carrier = (_sensor_frame if sensor.mount_type == ON_SENSOR else _body_frame)(sensor.copter, prefix)
    R = matrix(from_euler(*map(math.radians, mount_deg(sensor))))
    parent, child = EARTH if on_ground else carrier, _sensor_frame(sensor.seq_id, prefix)
    return transform(t, parent, child, axes @ np.array(sensor.position_m), axes @ R @ FRD_FROM_FLU)


def static_transforms(sensors: Iterable[SensorRequest], prefix: str = "") -> list[RosMessage]:
    """Return the transforms that never change: mounts but those of gimbals, optical axes, NED and FRD."""
    found: list[RosMessage | None] = [transform(0.0, EARTH, "world_ned", NOWHERE, ENU_FROM_NED)]
    for sensor in sensors:
        if sensor.type_id != GIMBAL:
            found.append(mount_transform(sensor, 0.0, prefix))
        if SENSORS[sensor.type_id].kind is SensorKind.IMAGE:
            parent, optical = _sensor_frame(sensor.seq_id, prefix), frame(f"sensor{sensor.seq_id}_optical", prefix)
            found.append(transform(0.0, parent, optical, NOWHERE, FLU_FROM_OPTICAL))
    for copter in sorted({sensor.copter for sensor in sensors if sensor.mount_type not in (ON_GROUND, ON_SENSOR)}):
        local, body = _local_frame(copter, prefix), _body_frame(copter, prefix)
        found.append(transform(0.0, local, local.replace("_enu", "_ned"), NOWHERE, ENU_FROM_NED))
        found.append(transform(0.0, body, _body_frame(copter, prefix, "frd"), NOWHERE, FRD_FROM_FLU))
    return [one for one in found if one is not None]


def imu_transform(copter: int, prefix: str = "") -> RosMessage:
    """Return the transform of CopterSim's IMU, at the body's origin."""
    return transform(0.0, _body_frame(copter, prefix), frame(IMU_FRAME, prefix), NOWHERE, np.eye(3))


class BodyTransforms:
    """Transforms of the bodies by the odometry in clouds.

    A body has one parent, the frame of its first odometry. Where another comes with the same stamp, world to local follows.
    """

    def __init__(self, prefix: str = ""):
        self._prefix = prefix
        self._last: dict[int, tuple[bool, float, Array, Array]] = {}  # by copter: whether of the world, t, p, R

    def of(self, cloud: Cloud, t: float) -> RosMessage | None:
        """Return the transform that a cloud stamped t (s) tells; None if it tells none."""
        world, copter, (p, R) = cloud.axes == WORLD, cloud.copter or 1, _pose_enu(cloud)
        local = _local_frame(copter, self._prefix)
        of_world, t_known, p_known, R_known = self._last.get(copter, (world, t, p, R))
        if world == of_world:
            self._last[copter] = world, t, p, R
            return transform(t, EARTH if world else local, _body_frame(copter, self._prefix), p, R)
        if abs(t - t_known) > SAME_STAMP_S:
            return None
        if not world:
            p, R, p_known, R_known = p_known, R_known, p, R
        return transform(t, EARTH, local, p - R @ R_known.T @ p_known, R @ R_known.T)


def imu(sample: ImuSample, start: float = 0.0, frame: str = IMU_FRAME) -> RosMessage:
    """Return sensor_msgs/Imu, front-left-up; the orientation is not transmitted."""
    variance = np.diag([GYRO_VARIANCE] * 3).ravel().tolist()
    return {
        "header": header(start + sample.t, frame),
        "orientation": _quaternion(np.array([1.0, 0.0, 0.0, 0.0])),
        "orientation_covariance": _unknown(9),
        "angular_velocity": _xyz(flu(sample.gyro)),
        "angular_velocity_covariance": variance,
        "linear_acceleration": _xyz(flu(sample.accel)),
        "linear_acceleration_covariance": [0.0] * 9,
    }


def gimbal_order(ctrl: RosMessage) -> GimbalOrder:
    """Return the command of a CameraCtrl. Attitude, field of view and rates are in hundredths of a degree.

    Raises:
        ValueError: `ctrl_type` requests what one command cannot carry.
    """
    kind, others = ctrl["ctrl_type"], [*ctrl.get("others", ()), *[0] * 5][:5]
    if kind & RESOLUTION:
        raise ValueError("the resolution of a gimbal cannot be changed")
    multiply = ctrl.get("optics_multiply", 0)
    if kind & ZOOM and abs(multiply) >= WHOLE_ZOOM:
        raise ValueError("a relative zoom is not supported: command the absolute value")
    centre, yaw_way, yaw_rate, pitch_way, pitch_rate = others
    pitch, yaw = (way * math.radians(rate / CENTI) for way, rate in ((pitch_way, pitch_rate), (yaw_way, yaw_rate)))
    euler = ctrl.get("roll", 0) / CENTI, ctrl.get("pitch", 0) / CENTI, ctrl.get("yaw", 0) / CENTI
    return GimbalOrder(
        centre=True if centre else None,
        rates=(pitch, yaw) if yaw_way or pitch_way else None,
        zoom=float(multiply) if kind & ZOOM else None,
        zoom_base=float(ctrl["base_optics"]) if kind & ZOOM and ctrl.get("base_optics") else None,
        fov_deg=ctrl["fov"] / CENTI if kind & FOV else None,
        euler=euler if kind & ATTITUDE else None,
    )


def box_order(ctrl: RosMessage) -> GimbalOrder:
    """Return the command of a CameraAICtrl: 0 boxes around all, 1 around the object at the pixel."""
    if ctrl["ctrl_id"] == 0:
        return GimbalOrder(box=1)
    u, v = ctrl["pixel_pos"][:2]
    return GimbalOrder(box=2, pixel=(float(u), float(v)))


def camera_status(
    state: GimbalState, t: float, gimbal: SensorRequest, health: StreamHealth, prefix: str = ""
) -> RosMessage:
    """Return CameraStatus, with CameraParams, from the state, the gimbal's first request and its frames; the rest is 0."""
    roll, pitch, yaw = (_int32(CENTI * angle) for angle in state.euler)
    pitch_rate, yaw_rate = (_int32(CENTI * math.degrees(rate)) for rate in state.rates)
    gaps = health.longest_gap_s, health.shortest_gap_s, health.gap_s
    exposure = dict(zip(("capture_max_sec", "capture_min_sec", "capture_cur_sec"), gaps, strict=True))
    return {
        "header": header(t, frame(f"sensor{state.seq_id}_optical", prefix)),
        "id": state.seq_id % 256,
        "frame_rate": health.hz,
        **exposure,
        "height": max(_int32(state.height_px), 0),
        "width": max(_int32(state.width_px), 0),
        "fov": max(_int32(CENTI * state.fov_deg), 0),
        "type": TO_GROUND if gimbal.mount_type == EARTH_FIXED else TO_AIRCRAFT,
        "roll": roll,
        "pitch": pitch,
        "yaw": yaw,
        "optics_multiply": _int32(_half_width(gimbal.fov_deg) / _half_width(state.fov_deg)),
        "others": [0, 0, yaw_rate, 0, pitch_rate],
        "camera_params": _camera_params(state, gimbal),
    }


def _half_width(fov_deg: float) -> float:
    """Return half the width seen at a distance of 1; the ratio of two is a zoom."""
    return math.tan(math.radians(min(max(fov_deg, FOV_DEG[0]), FOV_DEG[1])) / 2)


def _camera_params(state: GimbalState, gimbal: SensorRequest) -> RosMessage:
    params: RosMessage = dict.fromkeys(("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3"), 0.0)
    params |= {"fx": state.fx_px, "fy": state.fy_px, "cx": state.width_px / 2, "cy": state.height_px / 2}
    for frame in ("p2c", "ned2c", "level2c"):
        params |= {f"{frame}_{angle}_deg": 0.0 for angle in ("roll", "pitch", "yaw")}
    fixed = "ned2c" if gimbal.mount_type == EARTH_FIXED else "p2c"
    params["att_type_valid_mask"] = NED_TO_CAM_VALID if fixed == "ned2c" else PLANE_TO_CAM_VALID
    params |= {
        f"{fixed}_{angle}_deg": value for angle, value in zip(("roll", "pitch", "yaw"), state.euler, strict=True)
    }
    return params | dict(zip(("p2c_front_m", "p2c_right_m", "p2c_down_m"), gimbal.position_m, strict=True))


def fill(target: Any, values: RosMessage) -> Any:
    """Write a dictionary into a ROS message with the same fields, and return it."""
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
    """Return the fields of a ROS message by name, one level deep."""
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
    """Return the value rounded and clipped to the field's range, which a message checks."""
    return round(min(max(value, -INT32_MAX), INT32_MAX))


def _xyz(v: Vector | list[float]) -> RosMessage:
    return {"x": float(v[0]), "y": float(v[1]), "z": float(v[2])}


def _quaternion(q: Array) -> RosMessage:
    w, x, y, z = (float(c) for c in q)
    return {"x": x, "y": y, "z": z, "w": w}


def _unknown(n: int) -> list[float]:
    return [-1.0, *[0.0] * (n - 1)]
