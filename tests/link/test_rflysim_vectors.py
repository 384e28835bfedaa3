"""The published vectors of the RflySim protocol decode to what they say, and encode to the same bytes."""

import json
from dataclasses import asdict

import numpy as np
import pytest

from gate_racer.link.reassembly import MalformedError, StreamCounters
from gate_racer.link.rflysim import desk as copter
from gate_racer.link.rflysim import stream
from gate_racer.link.rflysim.desk import decode_state
from gate_racer.link.rflysim.request import decode_request
from tests import rflysim
from tests.conftest import ROOT

FILE = ROOT.parent / "shared/data/rflysim_vectors.json"
VECTORS = {v["name"]: v for v in json.loads(FILE.read_text())["vectors"]} if FILE.exists() else {}
pytestmark = pytest.mark.skipif(not VECTORS, reason="the shared vectors are not here")


def sensor(type_id, other=(0.0,) * 16):
    return rflysim.sensor(type_id, stream.RAW, 2, 2, other)


def data(name):
    return bytes.fromhex(VECTORS[name]["hex"])


def numbers(value):
    """All numbers of nested dictionaries and lists, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    return [n for item in value for n in numbers(item)] if isinstance(value, list | tuple) else [value]


def delivered(datagrams, **options):
    reassembler = stream.fragment_reassembler(**options)
    frames = [frame for d in datagrams if (frame := reassembler.feed(bytes.fromhex(d))) is not None]
    return frames, reassembler.counters


@pytest.mark.parametrize("name", ["rangefinder_datagram32", "rangefinder_datagram24"])
def test_a_range_comes_and_goes_behind_either_header(name):
    (frame,), _ = delivered([VECTORS[name]["hex"]])
    seen = stream.decode_range(frame.data)
    assert numbers(VECTORS["rangefinder_payload"]["fields"]) == numbers(list(asdict(seen).values()))
    assert seen.encode() == data("rangefinder_payload") and stream.fragments(frame) == [data(name)]


CLOUDS = {
    "lidar_payload_doc_xyzseg_f32": 23, "lidar_payload_doc_xyz_f32": 20, "lidar_payload_legacy_int16": 22,
    "lidar_payload_doc_zero_points": 21, "depth_cloud_payload_stride12": 7, "depth_cloud_payload_stride16": 7,
    "depth_cloud_payload_legacy_int16": 7,
}  # fmt: skip


@pytest.mark.parametrize("name", CLOUDS)
def test_the_layout_of_a_cloud_is_found(name):
    said = VECTORS[name]["fields"]
    cloud = stream.decode_cloud(data(name), sensor(CLOUDS[name], (said.get("max_range_otherParams0", 0.0),) * 8))
    points = np.array(said["points"]).reshape(-1, 3 if cloud.segments is None else 4)
    np.testing.assert_allclose(cloud.points, points[:, :3], rtol=1e-6)
    assert (*cloud.p_wb, *cloud.rpy) == (*said["pos_xyz"], *said["ang_rpy_rad"])
    assert (cloud.copter, cloud.axes) == (said.get("copter_id"), said.get("axis_type"))
    if "_doc_" in name:
        assert stream.encode_cloud(cloud) == data(name)


@pytest.mark.parametrize(
    "name", ["vision_sensor_req_16H28f", "vision_sensor_req_16H15f", "gimbal_req_2H1I14H28f", "gimbal_state_20006"]
)
def test_requests_in_their_three_lengths(name):
    request, said = decode_request(data(name)), VECTORS[name]["fields"]
    assert request.encode() == data(name) and len(data(name)) == VECTORS[name]["size"]
    assert (request.mask, request.by_quat) == (said.get("bitmask"), said.get("EularOrQuat"))
    assert list(request.other) == said["otherParams"] and list(request.euler) == said["SensorAngEular"]
    size = said["DataWidth"], said["DataHeight"], said["CameraFOV"]
    assert (request.width_px, request.height_px, request.fov_deg) == size
    assert list(request.send) == said["SendProtocol"] and request.check_sum == said["checksum"]


@pytest.mark.parametrize("check_sum", [12345, 12346])
def test_a_gimbal_s_state_is_known_under_either_checksum(check_sum):
    state = decode_state(check_sum.to_bytes(2, "little") + data("gimbal_state_20006")[2:])
    told = 18.0, (0.25, -0.5), 640, 1280, 37.5
    assert (state.focal, state.rates, state.fx_px, state.width_px, state.range_m) == told


@pytest.mark.parametrize(
    ("name", "decode", "encode"),
    [
        ("imu_40", copter.ImuSample.decode, copter.ImuSample.encode),
        ("imu_request_36", copter.ImuRequest.decode, copter.ImuRequest.encode),
        ("rfly_timestmp_32", copter.CopterHeartbeat.decode, copter.CopterHeartbeat.encode),
        ("ue4_cmd_i52s", copter.decode_command, copter.encode_command),
    ],
)
def test_copter_sims_messages_are_coded_both_ways_and_damaged_ones_refused(name, decode, encode):
    assert encode(decode(data(name))) == data(name)
    with pytest.raises(MalformedError):
        decode(data(name)[:-1])
    with pytest.raises(MalformedError):
        decode(b"\0" + data(name)[1:])


def test_the_imu_turns_from_frd_to_flu_and_the_heartbeat_tells_the_time():
    imu, expected = copter.ImuSample.decode(data("imu_40")), VECTORS["imu_40"]["expected_flu"]
    assert list(copter.flu(imu.accel)) == expected["linear_acceleration"]
    assert list(copter.flu(imu.gyro)) == expected["angular_velocity"]
    beat = copter.CopterHeartbeat.decode(data("rfly_timestmp_32"))
    assert beat.start(0.0, same_host=True) == 1_700_000_000.0
    assert beat.start(1_700_000_020.135, same_host=False) == pytest.approx(1_700_000_000.0, abs=1e-6)


def test_malformed_bytes_are_counted():
    for case in VECTORS["malformed"]["cases"]:
        if "payload" in case["why"].split("(")[-1]:
            with pytest.raises(MalformedError):
                stream.decode_cloud(bytes.fromhex(case["hex"]), sensor(23))
        else:
            frames, counters = delivered([case["hex"]])
            assert not frames and counters == StreamCounters(malformed=1), case["why"]


def test_bare_depth_and_bare_colour():
    (frame,), _ = delivered([VECTORS["depth_raw_mode2_datagram32"]["hex"]])
    counts = stream.decode_payload(frame.data, sensor(2))
    said = VECTORS["depth_raw_mode2_datagram32"]["fields"]["image"]
    assert counts.tolist() == said["counts"] and stream.encode_payload(counts, stream.RAW) == frame.data
    metres = [[np.nan if m == "invalid" else m for m in row] for row in said["metres_at_0_001"]]
    assert (stream.depth_counts(np.array(metres, np.float32), sensor(2)) == counts).all()
    (frame,), _ = delivered([VECTORS["rgb_raw_mode2_datagram32"]["hex"]])
    image = stream.decode_payload(frame.data, sensor(1))
    assert image.tolist() == VECTORS["rgb_raw_mode2_datagram32"]["fields"]["image"]["rows"]
    assert stream.encode_payload(image, stream.RAW) == frame.data and len(stream.fragments(frame)) == 1
