"""Sensors of the platform: encoding, topic and axes by `TypeID`. Topics are spelt correctly where the platform's are not."""

import enum
from dataclasses import dataclass


class SensorKind(enum.Enum):
    """Format of a payload."""

    IMAGE = "image"
    RANGE = "range"
    CLOUD = "cloud"
    BOXES = "boxes"
    SPOTS = "spots"  # "simple lidar"


@dataclass(frozen=True)
class SensorType:
    """One row of the table."""

    name: str
    kind: SensorKind
    topic: str  # below /rflysim/sensorN/
    encoding: str = ""  # for sensor_msgs/Image
    axes: str = ""  # axes of a cloud's points: "flu" of the sensor, or "ned" of the world

    @property
    def channels(self) -> int:
        """Channels of an image."""
        return 3 if self.encoding == "bgr8" else 1

    @property
    def bytes_per_pixel(self) -> int:
        """Bytes of a pixel in raw mode; 0 for a sensor without images."""
        return {"bgr8": 3, "mono16": 2, "mono8": 1}[self.encoding]


RGB, DEPTH, GREY, SEGMENTATION, RANGE, DEPTH_CLOUD, FISHEYE, GIMBAL = 1, 2, 3, 4, 5, 7, 8, 9
LIDAR, LIDAR_WORLD, MID40, MID360, BOXES, SPOTS, INFRARED_GREY, INFRARED = 20, 21, 22, 23, 30, 31, 40, 41

SENSORS: dict[int, SensorType] = {
    RGB: SensorType("RGB camera", SensorKind.IMAGE, "img_rgb", "bgr8"),
    DEPTH: SensorType("depth camera", SensorKind.IMAGE, "img_depth", "mono16"),
    GREY: SensorType("grey camera", SensorKind.IMAGE, "img_gray", "mono8"),
    SEGMENTATION: SensorType("segmentation camera", SensorKind.IMAGE, "img_Segmentation", "bgr8"),
    RANGE: SensorType("rangefinder", SensorKind.RANGE, "distance"),
    DEPTH_CLOUD: SensorType("depth cloud", SensorKind.CLOUD, "Depth_Cloud", axes="flu"),
    FISHEYE: SensorType("fisheye camera", SensorKind.IMAGE, "fisheye", "bgr8"),
    GIMBAL: SensorType("gimballed camera", SensorKind.IMAGE, "img_cine", "bgr8"),
    LIDAR: SensorType("LiDAR in vehicle axes", SensorKind.CLOUD, "vehicle_lidar", axes="flu"),
    LIDAR_WORLD: SensorType("LiDAR in world axes", SensorKind.CLOUD, "global_lidar", axes="ned"),
    MID40: SensorType("Livox Mid-40", SensorKind.CLOUD, "livox_lidar", axes="flu"),
    MID360: SensorType("Livox Mid-360", SensorKind.CLOUD, "mid360_lidar", axes="flu"),
    BOXES: SensorType("boxes", SensorKind.BOXES, "boxes"),
    SPOTS: SensorType("simple LiDAR", SensorKind.SPOTS, "simple_lidar"),
    INFRARED_GREY: SensorType("grey infrared camera", SensorKind.IMAGE, "img_Infrared_Gray", "mono8"),
    INFRARED: SensorType("infrared camera", SensorKind.IMAGE, "img_Infrared", "bgr8"),
}
FLYABLE = (RGB,)  # colour pinhole cameras fixed to the vehicle, the only kind that the pilot supports
