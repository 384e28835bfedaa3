"""Config.json is read strictly, and what cannot be flown by is refused by name."""

import json
import math

import pytest

from gate_racer.common.errors import UserError
from gate_racer.link.rflysim.client import parse_vision
from gate_racer.link.rflysim.request import camera_of, decode_request, load_sensors, without_comments
from tests.conftest import ROOT

CONFIG = ROOT / "examples/rflysim.json"
ENTRY = {
    "SeqID": 0, "TypeID": 1, "TargetCopter": 1, "TargetMountType": 0, "DataWidth": 640, "DataHeight": 360,
    "DataCheckFreq": 30, "SendProtocol": [1, 127, 0, 0, 1, 0, 0, 0], "CameraFOV": 90, "SensorPosXYZ": [0, 0, 0],
    "SensorAngEular": [0, 20, 0], "otherParams": [0] * 8,
}  # fmt: skip
NEW = {"EularOrQuat": 0, "SensorAngQuat": [1, 0, 0, 0], "otherParams": [0] * 16}


def write(path, *entries, text=None):
    file = path / "Config.json"
    file.write_text(json.dumps({"VisionSensors": list(entries)}) if text is None else text)
    return file


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
    ({"SeqID": "one"}, ".SeqID: expected a whole number from 0 to 65535, found 'one'"),
    ({"TargetCopter": math.inf}, ".TargetCopter: expected a whole number"),
    ({"SensorPosXYZ": [0, math.nan, 0]}, ".SensorPosXYZ[1]: expected a finite number of 32 bit"),
    ({"CameraFOV": 1e39}, ".CameraFOV: expected a finite number of 32 bit"),
    ({"otherParams": [0] * 9}, ".otherParams: expected 8 or 16 numbers, found"),
    ({"EularOrQuat": 1}, ".SensorAngQuat: missing"),
    ({**NEW, "EularOrQuat": 1, "SensorAngQuat": [1, 1, 0, 0]}, ".SensorAngQuat: must have length 1"),
    ({"TypeID": 99}, ".TypeID: unknown sensor type 99; known: 1, 2, 3"),
    ({"DataWidth": 0}, ".DataWidth: DataWidth and DataHeight must be positive"),
    ({"SendProtocol": [1, 999, 0, 0, 1, 0, 0, 0]}, ".SendProtocol: must be an address and a port"),
    ({"SendProtocol": [9, 127, 0, 0, 1, 0, 0, 0]}, ".SendProtocol[0]: set 1 for JPEG by UDP"),
    ({"TypeID": 20}, ".otherParams[2..5]: LiDAR angles must satisfy left < right and low < high"),
    ({"TypeID": 8, "CameraFOV": 400}, ".CameraFOV: must lie between 0 and 360 degrees"),
    ({"TypeID": 5, "otherParams": [-1] * 8}, ".otherParams: lengths must not be negative"),
]


@pytest.mark.parametrize(("change", "words"), BAD, ids=[words for _, words in BAD])
def test_a_bad_entry_is_an_error_that_names_its_place(tmp_path, change, words):
    file = write(tmp_path, {**ENTRY, **change})
    with pytest.raises(UserError) as error:
        load_sensors(file)
    assert str(error.value).startswith(f"{file}: VisionSensors[0]{words}")


TOLD = [
    ({"Comment": "front"}, {}, "VisionSensors[0]: unknown fields are ignored: 'Comment'"),
    ({"SendProtocol": [0, 127, 0, 0, 1, 9999, 0, 0]}, {"mode": 1}, "shared memory is requested as JPEG by UDP (1)"),
    ({"TypeID": 2, "SendProtocol": [0] * 8}, {"mode": 3}, "shared memory is requested as PNG by UDP (3)"),
    ({"DataCheckFreq": 0}, {"rate_hz": 30}, "DataCheckFreq: 0 stands for 30 Hz"),
    ({"otherParams": list(range(16))}, {"by_quat": 0.0, "other": tuple(map(float, range(16)))}, ""),
    ({"EularOrQuat": 0}, {"by_quat": 0.0, "other": (0.0,) * 16}, ""),
]


@pytest.mark.parametrize(("change", "fields", "words"), TOLD, ids=[str(list(change)) for change, _, _ in TOLD])
def test_users_files_are_read_as_the_platform_reads_them(tmp_path, change, fields, words):
    told = []
    (sensor,) = load_sensors(write(tmp_path, {**ENTRY, **change}), told.append)
    assert {name: getattr(sensor, name) for name in fields} == fields
    assert len(told) == bool(words) and all(words in line for line in told)


LEFT_OUT = [
    ({"TypeID": 10}, "unknown sensor type 10"),
    ({"CameraFOV": 180}, "CameraFOV: must lie between"),
    ({"SeqID": 5}, "SeqID 5 or port 10004 is used by an earlier sensor"),
    ({"SendProtocol": [1, 127, 0, 0, 1, 10004, 0, 0]}, "SeqID 6 or port 10004 is used by an earlier sensor"),
    ({"otherParams": [0] * 9}, "otherParams: expected 8 or 16 numbers"),
]


@pytest.mark.parametrize(("change", "words"), LEFT_OUT, ids=[words for _, words in LEFT_OUT])
def test_a_sensor_that_cannot_be_served_leaves_the_others(tmp_path, change, words):
    told = []
    file = write(tmp_path, {**ENTRY, "SeqID": 5}, {**ENTRY, **change}, {**ENTRY, "SeqID": 8})
    assert [sensor.seq_id for sensor in load_sensors(file, told.append)] == [5, 8]
    assert len(told) == 1 and f"{file}: VisionSensors[1]" in told[0] and words in told[0] and "left out" in told[0]


def test_a_misspelt_field_and_a_file_that_is_none_are_named(tmp_path):
    entry = {**ENTRY, "CameraFov": 90}
    del entry["CameraFOV"]
    with pytest.raises(UserError, match=r"\[0\].CameraFOV: missing; did you mean CameraFov"):
        load_sensors(write(tmp_path, entry))
    for text, words in NONE.items():
        with pytest.raises(UserError, match=r"Config\.json") as error:
            load_sensors(write(tmp_path, text=text))
        assert words in str(error.value)
    with pytest.raises(UserError, match="cannot be read"):
        load_sensors(tmp_path / "none.json")


NONE = {"{": ":1: not valid JSON", "[]": "VisionSensors: expected", '{"VisionSensors": [3]}': "[0]: expected named"}


UNFIT = [
    ({"SensorAngEular": [5, 0, 0]}, "rotated in pitch only"),
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
    url = f"rflysim://10.0.0.2:20011?config={file}"
    first, second = parse_vision(url), parse_vision(f"{url}&sensor=7&angles=rad")
    assert first.server == ("10.0.0.2", 20011) and first.sensor.seq_id == 0 and first.camera.tilt_deg == 20.0
    assert second.camera.p_bc_m == (0.3, 0.0, -0.05)
    assert second.camera.tilt_deg == pytest.approx(math.degrees(0.5)) and not second.warning
    assert "assumed to be in degrees" in parse_vision(f"rflysim://?config={file}&sensor=7").warning
    by_quat = {**ENTRY, **NEW, "EularOrQuat": 1, "SensorAngQuat": [math.cos(0.1), 0, math.sin(0.1), 0]}
    turned = parse_vision(f"rflysim://?config={write(tmp_path, by_quat)}")
    assert turned.camera.tilt_deg == pytest.approx(math.degrees(0.2), abs=1e-5)


@pytest.mark.parametrize("type_id", [3, 4, 8, 9, 40, 41])
def test_only_a_pinhole_in_colour_is_flown_by(tmp_path, type_id):
    other = {**ENTRY, "SeqID": 3, "TypeID": type_id}
    file = write(tmp_path, other, {**ENTRY, "SeqID": 7})
    assert parse_vision(f"rflysim://?config={file}").sensor.seq_id == 7
    with pytest.raises(UserError, match=r"no colour camera \(TypeID 1\) of SeqID 3; available: 7"):
        parse_vision(f"rflysim://?config={file}&sensor=3")


@pytest.mark.parametrize(
    "url", ["http://h?config=c", "rflysim://h", "rflysim://h?confg=c", "rflysim://h:x?config=c", "rflysim://[?config=c"]
)
def test_a_bad_url_is_an_error(url):
    with pytest.raises(UserError, match=r"rflysim|address"):
        parse_vision(url)


def test_a_file_may_have_any_name(tmp_path):
    for name in ("a#1.json", "a+b.json", "drei Kameras.json", "Kör.json"):
        file = write(tmp_path, ENTRY).rename(tmp_path / name)
        assert parse_vision(f"rflysim://10.0.0.2?config={file}").sensor.seq_id == 0
