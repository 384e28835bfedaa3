"""Config.json is read strictly, images come in every encoding, gimbals take orders, and ROS's field names are kept."""

import json
import math
from array import array
from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from link.rflysim import ros
from link.rflysim.clouds import LAYOUTS, LOCK_AFTER, WORLD, Cloud, CloudLayout, CloudReader, decode_cloud, encode_cloud
from link.rflysim.config import camera_of, load_sensors, without_comments
from link.rflysim.copter import CopterHeartbeat, ImuSample, decode_command, encode_command, start_without_heartbeat
from link.rflysim.fragments import Payload, fragments
from link.rflysim.gimbal import DOCUMENT, SDK306, GimbalOrder, decode_state, gimbal_request
from link.rflysim.images import JPEG, PNG, RAW, decode_payload, encode_payload, image_file
from link.rflysim.malformed import MalformedError
from link.rflysim.ranges import Range, Spot, decode_spots, encode_items
from link.rflysim.request import SensorRequest, decode_request
from link.rflysim.sensors import SENSORS, SensorKind
from link.rflysim.stream import Sample, Stream, StreamHealth
from link.rflysim.vision import parse_vision
from tests.conftest import ROOT
from vehicle.errors import UserError
from vehicle.image_file import image_size

CONFIG = ROOT / "docs/rflysim.json"
ENTRY = {
    "SeqID": 0, "TypeID": 1, "TargetCopter": 1, "TargetMountType": 0, "DataWidth": 640, "DataHeight": 360,
    "DataCheckFreq": 30, "SendProtocol": [1, 127, 0, 0, 1, 0, 0, 0], "CameraFOV": 90, "SensorPosXYZ": [0, 0, 0],
    "SensorAngEular": [0, 20, 0], "otherParams": [0] * 8,
}  # fmt: skip
NEW = {"EularOrQuat": 0, "SensorAngQuat": [1, 0, 0, 0], "otherParams": [0] * 16}


def sensor(type_id=1, mode=JPEG, width=64, height=48, other=(0.0,) * 16):
    send = (mode, 127, 0, 0, 1, 0, 0, 0)
    return SensorRequest(2, type_id, 1, 0, width, height, 30, send, 90.0, (0.0,) * 3, (0.0,) * 3, other, 0.0)


def write(path, *entries, text=None):
    file = path / "Config.json"
    file.write_text(json.dumps({"VisionSensors": list(entries)}) if text is None else text)
    return file


# Config.json


def test_the_example_has_the_camera_of_the_race(dcl):
    camera, laser, lidar = load_sensors(CONFIG)
    assert camera_of(camera) == dcl.camera
    assert (camera.port, laser.port, lidar.port) == (9999, 10000, 10001)
    assert all(decode_request(s.encode()).current().encode() == s.encode() for s in (camera, laser, lidar))


def test_comments_go_and_strings_stay():
    text = '{"a": "x // y # z \\" // ", // b\n"c": 1 # d\n}'
    assert json.loads(without_comments(text)) == {"a": 'x // y # z " // ', "c": 1}
    assert without_comments(text).count("\n") == 2


def test_seq_ids_count_on_and_one_new_entry_makes_all_requests_new(tmp_path):
    old = load_sensors(write(tmp_path, ENTRY, ENTRY))
    assert [s.seq_id for s in old] == [0, 1] and [len(s.encode()) for s in old] == [92, 92]
    mixed = load_sensors(write(tmp_path, {**ENTRY, "SeqID": 3}, {**ENTRY, **NEW}))
    assert [s.seq_id for s in mixed] == [3, 4] and [len(s.encode()) for s in mixed] == [144, 144]
    assert [s.port for s in mixed] == [10002, 10003]


BAD = [
    ({"SeqID": "one"}, "VisionSensors[0].SeqID: expected a whole number"),
    ({"TypeID": 99}, "VisionSensors[0].TypeID: no sensor 99; known: 1, 2, 3"),
    ({"DataWidth": 0}, "VisionSensors[0].DataWidth: must be positive"),
    ({"otherParams": [0] * 16}, "VisionSensors[0].otherParams: 8 numbers are needed without EularOrQuat, found 16"),
    ({**NEW, "otherParams": [0] * 8}, "VisionSensors[0].otherParams: 16 numbers are needed with EularOrQuat, found 8"),
    ({"EularOrQuat": 0}, "VisionSensors[0].SensorAngQuat: missing"),
    ({"SendProtocol": [1, 2]}, "VisionSensors[0].SendProtocol: expected 8 numbers"),
    ({"SendProtocol": [1, 999, 0, 0, 1, 0, 0, 0]}, "VisionSensors[0].SendProtocol: (999, 0, 0, 1)"),
    ({"SensorPosXYZ": [0, math.nan, 0]}, "VisionSensors[0].SensorPosXYZ[1]: expected a finite number"),
    ({"CameraFov": 90}, "VisionSensors[0]: unknown field 'CameraFov'"),
    (
        {"SendProtocol": [0, 127, 0, 0, 1, 0, 0, 0]},
        "VisionSensors[0].SendProtocol[0]: 0 is shared memory, for programs on",
    ),
    (
        {"SendProtocol": [9, 127, 0, 0, 1, 0, 0, 0]},
        "VisionSensors[0].SendProtocol[0]: there is no mode 9: set 1 for JPEG by",
    ),
    ({"TypeID": 20}, "VisionSensors[0].otherParams[2..5]: a LiDAR's angles left < right and low < high are needed"),
    ({"TypeID": 23, "DataWidth": 0}, "VisionSensors[0].DataWidth: a LiDAR has DataWidth x DataHeight points"),
    ({"TypeID": 8, "CameraFOV": 400}, "VisionSensors[0].CameraFOV: must lie between 0 and 360 degrees"),
    ({"TargetCopter": 0}, "VisionSensors[0].TargetCopter: copters are numbered from 1"),
    ({"CameraFOV": 1e39}, "VisionSensors[0].CameraFOV: expected a number of 32 bit"),
    ({"otherParams": [1e300] * 8}, "VisionSensors[0].otherParams[0]: expected a number of 32 bit"),
]


@pytest.mark.parametrize(("change", "words"), BAD, ids=[words for _, words in BAD])
def test_a_bad_entry_is_an_error_that_names_its_place(tmp_path, change, words):
    file = write(tmp_path, {**ENTRY, **change})
    with pytest.raises(UserError) as error:
        load_sensors(file)
    assert str(error.value).startswith(f"{file}: {words}")


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", ":1: no JSON"), ("[]", "VisionSensors: expected"), ('{"VisionSensors": [3]}', "[0]: expected named fields")],
)
def test_a_file_that_is_none_is_an_error(tmp_path, text, words):
    with pytest.raises(UserError, match=r"Config\.json") as error:
        load_sensors(write(tmp_path, text=text))
    assert words in str(error.value)
    with pytest.raises(UserError, match="cannot be read"):
        load_sensors(tmp_path / "none.json")


UNFIT = [
    ({"SensorAngEular": [5, 0, 0]}, "may only pitch"),
    ({"TargetMountType": 2}, "TargetMountType"), ({"CameraFOV": 180}, "CameraFOV"), ({"TypeID": 23}, "no colour camera"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), UNFIT, ids=[words for _, words in UNFIT])
def test_a_camera_that_cannot_be_flown_by_is_refused(tmp_path, change, words):
    with pytest.raises(UserError) as error:
        parse_vision(f"rflysim://127.0.0.1?config={write(tmp_path, {**ENTRY, **change})}")
    assert words in str(error.value) and "Config.json" in str(error.value)


def test_the_url_chooses_server_sensor_and_unit(tmp_path):
    turned = {**ENTRY, "SeqID": 7, "SensorAngEular": [0, 0.5, 0], "SensorPosXYZ": [0.3, 0, -0.05]}
    file = write(tmp_path, ENTRY, turned)
    first, second = (
        parse_vision(f"rflysim://10.0.0.2:20011?config={file}&{rest}") for rest in ("", "sensor=7&angles=rad")
    )
    assert first.server == ("10.0.0.2", 20011) and first.sensor.seq_id == 0 and first.camera.tilt_deg == 20.0
    assert second.camera.p_bc_m == (0.3, 0.0, -0.05)
    assert second.camera.tilt_deg == pytest.approx(math.degrees(0.5)) and not second.warning
    assert "taken for degrees" in parse_vision(f"rflysim://?config={file}&sensor=7").warning
    by_quat = {**ENTRY, **NEW, "EularOrQuat": 1, "SensorAngQuat": [math.cos(0.1), 0, math.sin(0.1), 0]}
    turned = parse_vision(f"rflysim://?config={write(tmp_path, by_quat)}")
    assert turned.camera.tilt_deg == pytest.approx(math.degrees(0.2), abs=1e-5)


@pytest.mark.parametrize(("type_id", "name"), [(3, "grey camera"), (4, "segmentation"), (8, "fisheye"), (9, "gimballed"),
                                               (40, "grey infrared"), (41, "infrared")])  # fmt: skip
def test_only_a_pinhole_in_colour_is_flown_by(tmp_path, type_id, name):
    other = {**ENTRY, "SeqID": 3, "TypeID": type_id}
    file = write(tmp_path, other, {**ENTRY, "SeqID": 7})
    assert parse_vision(f"rflysim://?config={file}").sensor.seq_id == 7
    with pytest.raises(UserError, match=f"sensor 3 is a {name}.*TypeID must be 1"):
        parse_vision(f"rflysim://?config={file}&sensor=3")


@pytest.mark.parametrize("url", ["http://h?config=c", "rflysim://h", "rflysim://h?confg=c", "rflysim://h:x?config=c"])
def test_a_bad_url_is_an_error(url):
    with pytest.raises(UserError, match=r"rflysim|address"):
        parse_vision(url)


# Payloads


IMAGES = [type_id for type_id, kind in SENSORS.items() if kind.kind is SensorKind.IMAGE]


@pytest.mark.parametrize("type_id", IMAGES)
@pytest.mark.parametrize("mode", [JPEG, RAW, PNG])
def test_every_image_type_comes_in_every_encoding(type_id, mode):
    about, kind = sensor(type_id, mode), SENSORS[type_id]
    shape = (48, 64, 3) if kind.channels == 3 else (48, 64)
    ramp = np.add.outer(np.arange(48), np.arange(64))[..., None] * np.ones(kind.channels)
    image = ramp.reshape(shape).astype(np.uint16 if kind.encoding == "mono16" else np.uint8)
    payload = encode_payload(image, mode)
    seen = decode_payload(payload, about)
    assert seen.shape == shape and seen.dtype == image.dtype
    lossy = mode == JPEG and kind.encoding != "mono16"
    assert np.abs(seen.astype(int) - image).max() <= (4 if lossy else 0)
    said = ros.message(Sample(about, 1.5, 1, seen))
    assert (said["encoding"], said["step"], len(said["data"])) == (
        kind.encoding,
        64 * kind.bytes_per_pixel,
        seen.nbytes,
    )


@pytest.mark.parametrize("mode", [JPEG, RAW, PNG])
def test_an_image_to_fly_by_is_checked_by_its_header_alone(mode):
    image = np.random.default_rng(1).integers(0, 255, (48, 64, 3), np.uint8)
    data = image_file(encode_payload(image, mode), sensor(mode=mode))
    assert image_size(data) == (64, 48)
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).shape == image.shape
    with pytest.raises(MalformedError, match="64 x 48"):
        image_file(data, sensor(mode=JPEG, width=32, height=32))


@given(st.binary(max_size=80))
def test_no_bytes_whatever_break_a_stream(data):
    for type_id in SENSORS:
        told = []
        stream = Stream(sensor(type_id, width=2, height=2), told.append)
        (sample,) = (stream.feed(d, "sim", 0.0) for d in fragments(Payload(1.0, 1, data)))
        assert stream.counters.complete == 1 and stream.counters.unreadable == (sample is None)
        assert stream.feed(data, "sim", 0.0) is None
        assert sum("dropped" in line for line in told) == stream.counters.unreadable + stream.counters.malformed
    image_size(b"\xff\xd8\xff" + data)


clouds = st.builds(
    lambda layout, n, seed: (layout, np.random.default_rng(seed).uniform(-90, 90, (n, 4)).astype(np.float32)),
    st.sampled_from(list(CloudLayout)), st.integers(0, 60), st.integers(0, 1000),
)  # fmt: skip


@given(clouds)
def test_a_cloud_comes_back_in_the_layout_it_went(cloud):
    layout, values = cloud
    type_id = 7 if layout in (CloudLayout.OLD_XYZ, CloudLayout.XYZ_PAD) else 23
    segments = np.round(values[:, 3]) if layout in (CloudLayout.XYZ_SEG, CloudLayout.OLD_XYZ_SEG) else None
    sent = Cloud((1.0, 2.0, 3.0), (0.5, 0.25, 0.125), values[:, :3], segments, 4, WORLD, layout)
    seen = decode_cloud(encode_cloud(sent, 100.0), sensor(type_id, other=(100.0,) * 16))
    assert seen.layout is layout or len(values) == 0
    np.testing.assert_allclose(seen.points, sent.points, atol=100 / 32767 if layout.old else 0)
    if segments is not None and len(values):
        np.testing.assert_array_equal(seen.segments, segments)


def test_frames_that_are_counted_anew_are_no_stragglers():
    """A sensor that is asked for again may number from 0, with times that go on."""
    stream = Stream(sensor(5), lambda line: None)

    def feed(t, number):
        (datagram,) = fragments(Payload(t, number, Range(1.0, 1, *[(0.0,) * 3] * 4).encode()))
        return stream.feed(datagram, "sim", t) is not None

    assert all(feed(10 + n / 30, n) for n in range(50))
    assert not feed(10 + 48 / 30, 48) and not feed(10 + 20 / 30, 20), "old ones"
    assert all(feed(12 + n / 30, n) for n in range(50))


def test_a_layout_is_settled_after_a_few_clouds_or_by_the_user():
    points = np.ones((2, 3), np.float32)
    new, old = (
        encode_cloud(Cloud((0,) * 3, (0,) * 3, points, None, 1, 0, kind), 9.0)
        for kind in (CloudLayout.XYZ, CloudLayout.OLD_XYZ_SEG)
    )
    reader = CloudReader(sensor(23, other=(9.0,) * 16))
    for _ in range(LOCK_AFTER):
        assert reader.layout is None
        reader.read(new)
    assert reader.layout is CloudLayout.XYZ
    with pytest.raises(MalformedError):
        reader.read(old)
    assert CloudReader(sensor(23, other=(9.0,) * 16), LAYOUTS["xyzseg_i16"]).read(old).points[0, 0] == pytest.approx(
        1, abs=1e-3
    )


# Gimbals, time, ROS


def test_orders_to_a_gimbal_follow_the_numbering_asked_for():
    order = GimbalOrder(rates=(0.25, -0.5), zoom_base=30.0)
    document, sdk = (gimbal_request(sensor(9), order, masks) for masks in (DOCUMENT, SDK306))
    assert document.mask == 1 << 6 | 1 << 13 and sdk.mask == 1 << 11 | 1 << 13
    assert document.other[2:6] == (0.25, -0.5, 0.0, 30.0) and len(document.encode()) == 148
    assert decode_request(document.encode()) == document
    pixel = gimbal_request(sensor(9), GimbalOrder(box=2, pixel=(320.0, 240.0), quat=(1.0, 0.0, 0.0, 0.0)), DOCUMENT)
    assert pixel.other[8:11] == (2.0, 320.0, 240.0) and pixel.by_quat == 1.0 and pixel.mask == 1 << 11


@pytest.mark.parametrize(
    ("order", "masks", "words"),
    [
        (GimbalOrder(zoom_base=30.0, track=2), DOCUMENT, "otherParams"),
        (GimbalOrder(box=1), SDK306, "no box"),
        (GimbalOrder(pixel=(1.0, 1.0)), DOCUMENT, "belongs to box"),
    ],
)
def test_orders_that_contradict_each_other_are_refused(order, masks, words):
    with pytest.raises(ValueError, match=words):
        gimbal_request(sensor(9), order, masks)


def test_the_camera_messages_of_ros_convert_units_at_the_edge():
    ctrl = {"ctrl_type": 2 | 4, "fov": 6000, "roll": 0, "pitch": -3000, "yaw": 4500, "others": [0, -1, 9000, 1, 18000]}
    order = ros.gimbal_order(ctrl)
    assert order.fov_deg == 60.0 and order.euler == (0.0, -30.0, 45.0) and order.centre is None
    assert order.rates == pytest.approx((math.pi, -math.pi / 2))
    assert ros.box_order({"ctrl_id": 1, "pixel_pos": [3, 4]}) == GimbalOrder(box=2, pixel=(3.0, 4.0))
    values = (18.0, math.pi, 0.0, 640.0, 640.0, 1280.0, 720.0, 37.5, *[0.0] * 8)
    state = decode_state(replace(sensor(9), mask=0, other=values, check_sum=12346).encode())
    health = StreamHealth()
    for now in (10.0, 10.1, 10.4, 10.6):
        health.saw(now)
    gimbal = replace(sensor(9), position_m=(0.1, 0.0, 0.2))
    status = ros.camera_status(state, 2.5, gimbal, health, "/uav1")
    gaps = [status[f"capture_{which}_sec"] for which in ("max", "min", "cur")]
    assert gaps == pytest.approx([0.3, 0.1, 0.2]) and status["frame_rate"] == pytest.approx(5.0)
    params = status["camera_params"]
    assert (params["p2c_front_m"], params["p2c_down_m"], params["att_type_valid_mask"], status["type"]) == (
        0.1,
        0.2,
        1,
        2,
    )
    earth = ros.camera_status(state, 2.5, replace(gimbal, mount_type=3), health)
    assert (earth["type"], earth["camera_params"]["att_type_valid_mask"]) == (0, 2)
    assert (status["fov"], status["width"], status["others"][4]) == (9000, 1280, 18000)
    assert (status["camera_params"]["fx"], status["camera_params"]["cy"]) == (640.0, 360.0)
    assert status["header"] == {"stamp": {"sec": 2, "nanosec": 500_000_000}, "frame_id": "uav1/sensor2_optical"}


def test_the_package_of_messages_has_the_fields_that_are_filled():
    folder = ROOT / "tools/ros/rflysim_ros_pkg"

    def defined(name):
        lines = (folder / f"msg/{name}.msg").read_text().splitlines()
        return {line.split()[1] for line in lines if line and line[0] != "#" and "=" not in line.split("#")[0]}

    state = decode_state(replace(sensor(9), mask=0, check_sum=12346).encode())
    status = ros.camera_status(state, 0.0, sensor(9), StreamHealth())
    assert defined("CameraStatus") == status.keys() and defined("CameraParams") == status["camera_params"].keys()
    assert defined("CameraCtrl") >= {
        "ctrl_type",
        "fov",
        "roll",
        "pitch",
        "yaw",
        "optics_multiply",
        "base_optics",
        "others",
    }
    assert defined("CameraAICtrl") == {"header", "ctrl_id", "pixel_pos"}
    built = (folder / "CMakeLists.txt").read_text()
    assert all(f"msg/{path.name}" in built for path in (folder / "msg").iterdir())


def test_octets_go_to_ros_as_an_array_which_it_takes_at_once():
    image = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    said = ros.message(Sample(sensor(1, width=3, height=2), 0.0, 1, image[:, ::-1]), prefix="/uav1")
    assert isinstance(said["data"], array) and said["data"].typecode == "B"
    assert said["data"].tobytes() == image[:, ::-1].tobytes() and said["header"]["frame_id"] == "uav1/sensor2_optical"


def test_odometry_and_imu_stand_in_ros_axes():
    """North and nose are +y and +x of the body; down is -z."""
    cloud = Cloud((3.0, 1.0, -2.0), (0.0, 0.0, 0.0), np.zeros((1, 3), np.float32), None, 2, WORLD, CloudLayout.XYZ)
    pose = ros.odometry(cloud, 1.0)
    assert pose["pose"]["pose"]["position"] == {"x": 1.0, "y": 3.0, "z": 2.0}
    q = pose["pose"]["pose"]["orientation"]
    assert (abs(q["w"]), abs(q["z"]), q["x"], q["y"]) == pytest.approx((math.sqrt(0.5), math.sqrt(0.5), 0, 0))
    assert pose["header"]["frame_id"] == "world_enu" and pose["child_frame_id"] == "uav2_flu"
    assert pose["twist"]["covariance"][0] == -1 and ros.odometry_topic(cloud, "/a") == "/a/rflysim/uav2/global/odom"
    assert ros.odometry(cloud, 1.0, ned=True)["pose"]["pose"]["orientation"] == {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}
    rest = ros.imu(ImuSample(1, 0.0, (0.0, 0.0, -9.81), (0.1, 0.2, 0.3)))
    assert rest["linear_acceleration"]["z"] == 9.81 and rest["orientation_covariance"][0] == -1
    assert list(rest["angular_velocity"].values()) == [0.1, -0.2, -0.3]


def test_clouds_and_ranges_as_ros_has_them():
    points = np.arange(6, dtype=np.float32).reshape(2, 3)
    cloud = Cloud((0.0,) * 3, (0.0,) * 3, points, np.array([7, 8], np.float32), 1, 0, CloudLayout.XYZ_SEG)
    said = ros.message(Sample(sensor(23), 0.0, 1, cloud), start=100.0)
    assert [f["name"] for f in said["fields"]] == ["x", "y", "z", "seg"] and said["point_step"] == 16
    assert np.frombuffer(said["data"], np.float32).reshape(2, 4).tolist() == [[0, 1, 2, 7], [3, 4, 5, 8]]
    assert said["header"] == {"stamp": {"sec": 100, "nanosec": 0}, "frame_id": "sensor2_flu"}
    seen = Range(7.25, 1, (0.0,) * 3, (0.0,) * 3, (0.0,) * 3, (0.0,) * 3)
    assert ros.message(Sample(sensor(5), 0.0, 1, seen)) == {"data": 7.25}


def test_topics_are_spelt_right_and_can_be_renamed():
    assert ros.topic(sensor(21)) == "/rflysim/sensor2/global_lidar"
    assert ros.topic(sensor(4), prefix="/uav3") == "/uav3/rflysim/sensor2/img_Segmentation"
    assert ros.topic(sensor(1), {1: "/cam{seq}/image"}) == "/cam2/image"


def test_a_dictionary_fills_a_message_of_the_same_fields():
    class Stamp:
        sec = nanosec = 0

    class Head:
        def __init__(self):
            self.stamp, self.frame_id = Stamp(), ""

    filled = ros.fill(Head(), ros.header(1.25, "here"))
    assert (filled.stamp.sec, filled.stamp.nanosec, filled.frame_id) == (1, 250_000_000, "here")


def test_spots_commands_and_the_beginning_of_time():
    spots = [Spot(1, (1.0, 2.0, 3.0)), Spot(2, (4.0, 5.0, 6.0))]
    assert decode_spots(encode_items(spots)) == spots
    long = "RflyReqObjData " + "x" * 100
    assert decode_command(encode_command(long)) == long and len(encode_command(long)) == 256
    with pytest.raises(ValueError, match="252"):
        encode_command("x" * 252)
    assert start_without_heartbeat(100.0, 20.0, 0.01) == pytest.approx(79.99)
    assert CopterHeartbeat(1, 5000, 9000, 1).start(77.0, same_host=True) == 5.0
