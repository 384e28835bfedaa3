"""The sensors of the platform: what `TypeID` says of encoding, topic and axes. Topics as meant, not as misspelt."""

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """How a payload is read."""

    IMAGE = "image"
    RANGE = "range"
    CLOUD = "cloud"
    BOXES = "boxes"
    SPOTS = "spots"  # "simple lidar"


@dataclass(frozen=True)
class SensorType:
    """One line of the table."""

    name: str
    kind: Kind
    topic: str  # below /rflysim/sensorN/
    encoding: str = ""  # of sensor_msgs/Image
    axes: str = ""  # of a cloud's points: "flu" of the sensor, or "ned" of the world

    @property
    def channels(self) -> int:
        """Of an image."""
        return 3 if self.encoding == "bgr8" else 1

    @property
    def bytes_per_pixel(self) -> int:
        return {"bgr8": 3, "mono16": 2, "mono8": 1}[self.encoding]


RGB, DEPTH, GREY, SEGMENTATION, RANGE, DEPTH_CLOUD, FISHEYE, GIMBAL = 1, 2, 3, 4, 5, 7, 8, 9
LIDAR, LIDAR_WORLD, MID40, MID360, BOXES, SPOTS, INFRARED_GREY, INFRARED = 20, 21, 22, 23, 30, 31, 40, 41

SENSORS: dict[int, SensorType] = {
    RGB: SensorType("RGB camera", Kind.IMAGE, "img_rgb", "bgr8"),
    DEPTH: SensorType("depth camera", Kind.IMAGE, "img_depth", "mono16"),
    GREY: SensorType("grey camera", Kind.IMAGE, "img_gray", "mono8"),
    SEGMENTATION: SensorType("segmentation camera", Kind.IMAGE, "img_Segmentation", "bgr8"),
    RANGE: SensorType("rangefinder", Kind.RANGE, "distance"),
    DEPTH_CLOUD: SensorType("depth cloud", Kind.CLOUD, "Depth_Cloud", axes="flu"),
    FISHEYE: SensorType("fisheye camera", Kind.IMAGE, "fisheye", "bgr8"),
    GIMBAL: SensorType("gimballed camera", Kind.IMAGE, "img_cine", "bgr8"),
    LIDAR: SensorType("LiDAR in vehicle axes", Kind.CLOUD, "vehicle_lidar", axes="flu"),
    LIDAR_WORLD: SensorType("LiDAR in world axes", Kind.CLOUD, "global_lidar", axes="ned"),
    MID40: SensorType("Livox Mid-40", Kind.CLOUD, "livox_lidar", axes="flu"),
    MID360: SensorType("Livox Mid-360", Kind.CLOUD, "mid360_lidar", axes="flu"),
    BOXES: SensorType("boxes", Kind.BOXES, "boxes"),
    SPOTS: SensorType("simple LiDAR", Kind.SPOTS, "simple_lidar"),
    INFRARED_GREY: SensorType("grey infrared camera", Kind.IMAGE, "img_Infrared_Gray", "mono8"),
    INFRARED: SensorType("infrared camera", Kind.IMAGE, "img_Infrared", "bgr8"),
}
COLOUR_CAMERAS = (RGB, FISHEYE, GIMBAL, INFRARED)
