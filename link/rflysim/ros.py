"""Samples as dictionaries with the field names of ROS 2 messages, without ROS installed; `fill` converts them to messages.

World axes are ROS's east-north-up unless NED is requested, body axes front-left-up (REP 103); every header names its frame.
"""

import math
from array import array
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from gate_racer.link.rflysim.config import EARTH_FIXED
from gate_racer.link.rflysim.desk import GimbalOrder, GimbalState
from gate_racer.link.rflysim.payloads import WORLD, Cloud, Range
from gate_racer.link.rflysim.request import SENSORS, ImuSample, SensorKind, SensorRequest, flu
from gate_racer.link.rflysim.stream import Sample, StreamHealth
from gate_racer.vehicle.rotation import Array, Vector, from_euler, from_matrix, matrix

RosMessage = dict[str, Any]

FLOAT32 = 7  # PointField.datatype
INT32_MAX = 2**31 - 1  # largest value of a message's field, such as the seconds of a stamp
GYRO_VARIANCE = 0.001  # (rad/s)^2, as in the SDK
ENU_FROM_NED = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
FRD_FROM_FLU = np.diag([1.0, -1.0, -1.0])
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


def _cloud(cloud: Cloud, sensor: SensorRequest, t: float, prefix: str) -> RosMessage:
    """Return a cloud with its points in their original axes: those of the sensor, or world NED (type 21)."""
    world = SENSORS[sensor.type_id].axes == "ned"
    names, columns = ["x", "y", "z"], [cloud.points]
    if cloud.segments is not None:
        names.append("seg")
        columns.append(cloud.segments[:, None])
    data, step = np.hstack(columns).astype("<f4"), 4 * len(names)
    return {
        "header": header(t, "world_ned" if world else frame(f"sensor{sensor.seq_id}_flu", prefix)),
        "height": 1,
        "width": len(data),
        "fields": [{"name": n, "offset": 4 * k, "datatype": FLOAT32, "count": 1} for k, n in enumerate(names)],
        "is_bigendian": False,
        "point_step": step,
        "row_step": step * len(data),
        "data": _octets(data),
        "is_dense": bool(np.isfinite(data).all()),
    }


def odometry(cloud: Cloud, t: float, ned: bool = False) -> RosMessage:
    """Return nav_msgs/Odometry of the pose in a cloud. Velocity is not transmitted: its twist is 0; covariances begin with -1.

    Args:
        ned: world NED and body FRD instead of ROS's ENU and FLU.
    """
    p, R = np.array(cloud.p_wb), matrix(from_euler(*cloud.rpy))
    if not ned:
        p, R = ENU_FROM_NED @ p, ENU_FROM_NED @ R @ FRD_FROM_FLU
    world = f"{'world' if cloud.axes == WORLD else 'local'}_{'ned' if ned else 'enu'}"
    zero = _xyz((0.0, 0.0, 0.0))
    return {
        "header": header(t, world),
        "child_frame_id": f"uav{cloud.copter or 1}_{'frd' if ned else 'flu'}",
        "pose": {
            "pose": {"position": _xyz(p.tolist()), "orientation": _quaternion(from_matrix(R))},
            "covariance": _unknown(36),
        },
        "twist": {"twist": {"linear": zero, "angular": dict(zero)}, "covariance": _unknown(36)},
    }


def imu(sample: ImuSample, start: float = 0.0, frame: str = "imu_flu") -> RosMessage:
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
