"""Rays hit what stands there, and a client of the RflySim protocol gets what it asks for, over real sockets."""

import json
import math
import random
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from link.rflysim.clouds import LOCAL, WORLD
from link.rflysim.config import load_sensors, pinhole
from link.rflysim.copter import CLEAR_COMMAND, encode_command
from link.rflysim.desk import HEARTBEAT_PORT, HeartbeatEar
from link.rflysim.fragments import Payload, fragments
from link.rflysim.images import JPEG, PNG, RAW, depth_m
from link.rflysim.request import SensorRequest
from link.rflysim.stream import MOST_TOPICS, Stream
from link.rflysim.udp import SensorReceiver
from link.sockets import bind_udp
from sim.physics.contact import Colliders
from sim.physics.rays import NOTHING, cast
from sim.simulator import Exposure
from sim.view.look import load_look
from sim.view.mount import Mount
from sim.view.sensing import open_sense
from sim.view.surroundings import surroundings
from sim.wire.rflysim import RflySimOutlet
from tests.conftest import ROOT
from vehicle.rotation import exp, from_euler, matrix, product, to_euler

LOCAL_HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def world(vq1):
    made = surroundings(vq1, load_look("race"), 0)
    cast(made.solids, np.zeros(3), np.eye(3), 1.0)  # compiles
    return made


@pytest.fixture(scope="module")
def course(vq1):
    return Colliders(vq1)


def at(track, t=0.0, number=0, yaw=0.0):
    return Exposure(
        number, t, track.start.p_wb + [0, 0, -1.0], from_euler(0.1, -0.2, yaw), np.zeros(3), np.zeros(3), t, 0.0
    )


def free_port():
    with bind_udp(LOCAL_HOST, 0) as probe:
        return probe.getsockname()[1]


def request(type_id, seq_id=0, width=64, height=36, mode=JPEG, other=(), **fields):
    send = (mode, 127, 0, 0, 1, free_port(), 0, 0)
    filled = (*other, *[0.0] * (16 - len(other)))
    zero = (0.0, 0.0, 0.0)
    return replace(
        SensorRequest(seq_id, type_id, 1, 0, width, height, 30, send, 90.0, zero, zero, filled, 0.0), **fields
    )


# Rays


unit = st.builds(lambda seed: np.random.default_rng(seed).normal(size=3), st.integers(0, 10_000)).map(
    lambda d: d / np.linalg.norm(d)
)


@settings(deadline=None)
@given(unit, st.floats(0.1, 60.0))
def test_a_ray_ends_on_the_surface_of_what_it_hits_and_never_passes_through_a_solid(course, direction, range_m):
    solids, p = course.solids, np.array([0.0, 0.0, -2.0])
    (s,), (box,) = cast(solids, p, direction[None], range_m)

    def beyond(point, i):
        """How far outside of box i, m; negative inside."""
        return float((np.abs((point - solids.centre[i]) @ solids.axes[i]) - solids.half[i]).max())

    if box != NOTHING:
        assert abs(beyond(p + s * direction, box)) < 1e-9 and s <= range_m
    for fraction in np.linspace(0, 1, 50)[:-1]:
        point = p + fraction * min(s, range_m) * direction
        assert all(beyond(point, i) > -1e-9 for i in range(len(solids.half)))


def test_a_gate_is_seen_by_its_frame_and_through_its_opening(vq1, world):
    gate = vq1.gates[0]
    before, ahead = gate.p_wg - 3.0 * gate.R_wg[:, 0], gate.R_wg[:, :1].T
    (through,), _ = cast(world.solids, before, ahead, 3.5)
    bar = before + gate.R_wg[:, 1] * (gate.opening_m + gate.outer_m) / 4
    (frame,), (box,) = cast(world.solids, bar, ahead, 3.5)
    assert through == math.inf and frame == pytest.approx(3.0 - gate.depth_m / 2)
    assert Colliders(vq1).things[world.solids.thing[box]] == ("gate", 0)


# Sensors


def off_surface(world, points):
    """How far points (N, 3) are from the nearest surface, m."""
    local = np.einsum("nmi,mij->nmj", points[:, None] - world.solids.centre, world.solids.axes)
    return np.abs((np.abs(local) - world.solids.half).max(-1)).min(-1)


def test_every_sensor_finds_the_surfaces_where_they_are(vq1, world):
    """Depth image, clouds and rangefinder agree with the world through mount, attitude and the frames of the protocol."""
    exposure, look = at(vq1, yaw=2.0), load_look("race")
    down = (10.0, -50.0, 20.0)

    def sensed(about):
        told = []
        sense, stream = open_sense(about, vq1, world, look, 0), Stream(about, told.append)
        (sample,) = (stream.feed(d, "sim", 0.0) for d in fragments(Payload(0.0, 1, sense.payload(exposure))))
        assert sample is not None, told
        return sample.value

    R_wb = matrix(exposure.q_wb)
    R_bs = matrix(from_euler(*np.radians(down)))
    for type_id in (7, 20, 22, 23):
        other = (100.0, 1.0, -20.0, 20.0, -20.0, 20.0) if type_id == 20 else (100.0, 1.0)
        cloud = sensed(request(type_id, other=other, euler=down))
        points = exposure.p_wb + (cloud.points * [1, -1, -1]) @ (R_wb @ R_bs).T
        assert len(points) > 500 and off_surface(world, points).max() < 1e-3
        np.testing.assert_allclose((*cloud.p_wb, *cloud.rpy), (*exposure.p_wb, *to_euler(exposure.q_wb)), rtol=1e-6)
        assert cloud.axes == LOCAL
    world_cloud = sensed(request(21, other=(100.0, 1.0, -20.0, 20.0, -20.0, 20.0), euler=down))
    assert (
        world_cloud.axes == WORLD
        and len(world_cloud.points) > 500
        and off_surface(world, world_cloud.points).max() < 1e-3
    )
    laser = sensed(request(5, other=(100.0,), euler=down))
    assert off_surface(world, np.array([laser.hit_w]))[0] < 1e-4
    assert laser.distance_m == pytest.approx(math.dist(laser.origin_w, laser.hit_w), rel=1e-5)
    about = request(2, mode=RAW, euler=down)
    depth, camera = depth_m(sensed(about), about), pinhole(about)
    v, u = np.mgrid[: camera.height_px, : camera.width_px]
    rays_c = np.stack([(u - camera.cx_px) / camera.fx_px, (v - camera.cy_px) / camera.fy_px, np.ones(u.shape)], -1)
    points = exposure.p_wb + (rays_c * depth[..., None]) @ (R_wb @ R_bs @ camera.R_bc).T
    seen = points[np.isfinite(depth)]
    assert len(seen) > 500 and off_surface(world, seen).max() < 2e-3


def test_a_mount_turns_and_carries_the_sensor(vq1):
    exposure = replace(at(vq1), v_w=np.array([1.0, 2.0, 3.0]), omega_b=np.array([0.3, -0.2, 0.5]))
    p_bs, q_bs = np.array([0.3, -0.1, 0.2]), from_euler(0.3, 0.2, 0.1)
    seen, dt = Mount(p_bs, q_bs, 0).seen(exposure), 1e-6
    later = replace(
        exposure,
        p_wb=exposure.p_wb + exposure.v_w * dt,
        q_wb=np.array(product(exposure.q_wb, exp(exposure.omega_b * dt))),
    )
    moved = Mount(p_bs, q_bs, 0).seen(later)
    np.testing.assert_allclose((moved.p_wb - seen.p_wb) / dt, seen.v_w, atol=1e-5)
    np.testing.assert_allclose(moved.q_wb, product(seen.q_wb, exp(seen.omega_b * dt)), atol=1e-9)
    fixed = Mount(p_bs, q_bs, 3).seen(exposure)
    assert (fixed.q_wb == q_bs).all() and (fixed.p_wb == seen.p_wb).all()


# Over UDP


def exchange(outlet, receiver, exposures):
    samples = []
    with bind_udp(LOCAL_HOST, 0) as wire:
        for exposure in exposures:
            for datagram, target in outlet.datagrams(exposure):
                wire.sendto(datagram, target)
            samples += [sample for sample, _ in receiver.receive(0.05)]
    return samples


@pytest.fixture
def outlet(vq1):
    opened = RflySimOutlet(vq1, load_look("race"), 0, 30.0, (LOCAL_HOST, 0))
    yield opened
    opened.close()


def test_all_sensors_of_a_config_answer_over_udp(outlet, vq1, tmp_path):
    entries = []
    for seq_id, (type_id, mode, width, rate) in enumerate(
        [(1, RAW, 640, 30), (3, PNG, 64, 30), (5, 1, 0, 30), (23, 1, 512, 10)]
    ):
        about = request(type_id, seq_id, width, 360 if width == 640 else 36, mode, (70.0,))
        entries.append({
            "SeqID": seq_id, "TypeID": type_id, "TargetCopter": 1, "TargetMountType": 0, "DataWidth": width,
            "DataHeight": about.height_px, "DataCheckFreq": rate, "SendProtocol": [mode, 127, 0, 0, 1, free_port(), 1400, 1],
            "CameraFOV": 90, "SensorPosXYZ": [0, 0, 0], "SensorAngEular": [0, 0, 0], "EularOrQuat": 0,
            "SensorAngQuat": [1, 0, 0, 0], "otherParams": list(about.other),
        })  # fmt: skip
    (tmp_path / "Config.json").write_text(json.dumps({"VisionSensors": entries}))
    told = []
    with SensorReceiver(load_sensors(tmp_path / "Config.json"), outlet.address, told.append) as receiver:
        samples = exchange(outlet, receiver, [at(vq1, n / 30, n) for n in range(1, 7)])
        report = receiver.report(1e9)
    seen = {k: [s for s in samples if s.sensor.seq_id == k] for k in range(4)}
    assert [len(seen[k]) for k in range(4)] == [6, 6, 6, 2]
    assert seen[0][0].value.shape == (360, 640, 3) and seen[1][0].value.shape == (36, 64)
    assert [s.t for s in seen[0]] == [n / 30 for n in range(1, 7)]
    assert seen[3][0].value.segments is not None
    assert len(report) == 4 and sum("first frame" in line for line in told) == 4


def test_a_release_ends_the_frames_and_asking_again_brings_them_back(outlet, vq1):
    about = (request(5, other=(50.0,)),)
    with SensorReceiver(about, outlet.address, lambda line: None) as receiver:
        assert len(exchange(outlet, receiver, [at(vq1, number=n) for n in range(3)])) == 3
    assert outlet.datagrams(at(vq1, number=4)) == []
    with SensorReceiver(about, outlet.address, lambda line: None) as receiver:
        assert len(exchange(outlet, receiver, [at(vq1, number=5)])) == 1


def quiet(*abouts, outlet):
    return SensorReceiver(abouts, outlet.address, lambda line: None)


def test_a_changed_request_changes_the_frames_and_loses_none(outlet, vq1):
    about = request(3, mode=RAW)
    changed = replace(about, width_px=32, height_px=18, euler=(0.0, 10.0, 0.0))
    with quiet(about, outlet=outlet) as receiver:
        before = exchange(outlet, receiver, [at(vq1, n / 30, n) for n in range(1, 5)])
        receiver.update(changed)
        after = exchange(outlet, receiver, [at(vq1, n / 30, n) for n in range(5, 9)])
        for other in (replace(about, seq_id=3), replace(about, type_id=1), request(3)):
            with pytest.raises(ValueError, match="sensor"):
                receiver.update(other)
    assert [s.value.shape for s in before + after] == [(36, 64)] * 4 + [(18, 32)] * 4
    assert [s.frame_id for s in before + after] == list(range(8))


def test_the_release_of_one_client_leaves_the_sensors_of_others(outlet, vq1, capfd):
    with quiet(request(5, 1, other=(50.0,)), outlet=outlet) as stays:
        with quiet(request(5, 2, other=(50.0,)), outlet=outlet) as goes:
            exchange(outlet, stays, [at(vq1, number=1)])
            assert len(goes.receive(0.1)) == 1
        with quiet(request(30, 3), outlet=outlet):
            pass  # it was refused, and releases all the same
        assert len(exchange(outlet, stays, [at(vq1, n / 30, n) for n in range(2, 6)])) == 4
    assert "releases sensors and has none" in capfd.readouterr().err
    assert outlet.datagrams(at(vq1, number=7)) == []


def test_two_clients_on_one_seq_id_are_told_apart_and_told_of(outlet, vq1, capfd):
    first, second = request(5, 4, other=(50.0,)), request(5, 4, other=(5.0,))
    with quiet(first, outlet=outlet) as one, quiet(second, outlet=outlet) as two:
        (near,) = exchange(outlet, two, [at(vq1, number=1)])
        ((far, _),) = one.receive(0.1)
    assert near.value.distance_m <= 5.0 < far.value.distance_m
    told = capfd.readouterr().err
    assert f"sensor 4 is asked for by {LOCAL_HOST}:{first.port} and {LOCAL_HOST}:{second.port}" in told


def test_a_sensor_that_moves_to_another_port_leaves_the_old_one(outlet, vq1):
    about = request(5, other=(50.0,))
    moved = replace(about, send=(*about.send[:5], free_port(), 0, 0))
    with bind_udp(LOCAL_HOST, 0) as client:
        targets = []
        for n, asked in enumerate((about, moved), start=1):
            client.sendto(asked.encode(), outlet.address)
            targets += [target[1] for _, target in outlet.datagrams(at(vq1, number=n))]
    assert targets == [about.port, moved.port]


def test_heartbeats_tell_when_the_simulation_began(vq1):
    """Absolute time of a frame: the start, of the frames' clock, and its stamp."""
    wall = 1_700_000_000.0
    opened = RflySimOutlet(vq1, load_look("race"), 0, 30.0, (LOCAL_HOST, 0), 2, 7.0, lambda: wall + 1.0)
    ear = HeartbeatEar((LOCAL_HOST, 1), copter=2, port=0)
    try:
        with quiet(request(5, copter=2, other=(50.0,)), outlet=opened), bind_udp(LOCAL_HOST, 0) as wire:
            assert ear.start(8.0, wall + 1.0) == pytest.approx(wall - 7.0, abs=0.02), "guessed, as long as nobody tells"
            sent = opened.datagrams(at(vq1, t=1.0, number=30))
            for datagram in (*(d for d, target in sent if target[1] == HEARTBEAT_PORT), b"", b"x" * 32):
                wire.sendto(datagram, (LOCAL_HOST, ear.port))
            ear.listen(0.0)
        assert ear.told and ear.malformed == 2
        assert ear.start(0.0, 0.0) == pytest.approx(wall - 7.0, abs=1e-3)
    finally:
        ear.close()
        opened.close()


def test_nobody_gets_the_images_of_another_copter(vq1, capfd):
    second = RflySimOutlet(vq1, load_look("race"), 0, 30.0, (LOCAL_HOST, 0), copter=2)
    try:
        with quiet(request(5, 1), request(5, 2, copter=2), outlet=second) as receiver:
            samples = exchange(second, receiver, [at(vq1, number=n) for n in range(1, 3)])
        assert {(s.sensor.seq_id, s.value.copter) for s in samples} == {(2, 2)}
        assert "TargetCopter 1: here flies copter 2" in capfd.readouterr().err
    finally:
        second.close()


def test_frames_are_stamped_by_a_clock_of_their_own(vq1):
    opened = RflySimOutlet(vq1, load_look("race"), 0, 30.0, (LOCAL_HOST, 0), epoch_s=7.0)
    try:
        with quiet(request(5), outlet=opened) as receiver:
            (sample,) = exchange(opened, receiver, [at(vq1, 1.5, 1)])
        assert sample.t == 8.5
    finally:
        opened.close()


def test_no_request_whatever_stops_the_simulator(outlet, vq1, capfd):
    rng = random.Random(1)
    good = request(5, 1, other=(50.0,))
    bad = [rng.randbytes(n) for n in (0, 3, 56, 92, 144, 148, 256, 2000)]
    bad += [struct.pack("<2H", 12345, 0) + rng.randbytes(n) for n in (88, 140, 144) for _ in range(20)]
    bad += [replace(good, seq_id=2, type_id=t).encode() for t in (0, 6, 9, 30, 999)]
    bad += [replace(good, seq_id=2, **change).encode() for change in (
        {"type_id": 1, "width_px": 0}, {"type_id": 1, "fov_deg": 180.0}, {"type_id": 1, "width_px": 60_000},
        {"type_id": 23, "width_px": 0}, {"mount_type": 4}, {"send": (0, 127, 0, 0, 1, 0, 0, 0)},
        {"send": (1, 999, 0, 0, 1, 0, 0, 0)}, {"mask": 64}, {"other": (math.nan,) * 16}, {"by_quat": 1.0, "quat": (0.0,) * 4},
    )]  # fmt: skip
    with bind_udp(LOCAL_HOST, 0) as wire:
        for datagram in bad:
            wire.sendto(datagram, outlet.address)
        wire.sendto(encode_command("RflyChange3DModel"), outlet.address)
        wire.sendto(good.encode(), outlet.address)
        assert len(outlet.datagrams(at(vq1, number=1))) == 1
        assert outlet.malformed + outlet.refused >= len(bad) - 2
        wire.sendto(encode_command(CLEAR_COMMAND), outlet.address)
        assert outlet.datagrams(at(vq1, number=2)) == []
    assert capfd.readouterr().err.count("\n") <= 2 * MOST_TOPICS, "a flood of nonsense is told of, and does not flood"


def test_the_example_config_is_served_whole(outlet, vq1):
    sensors = tuple(
        replace(s, send=(*s.send[:5], free_port(), *s.send[6:])) for s in load_sensors(ROOT / "docs/rflysim.json")
    )
    with SensorReceiver(sensors, outlet.address, lambda line: None) as receiver:
        samples = exchange(outlet, receiver, [at(vq1, n / 30, n) for n in range(1, 4)])
    assert {s.sensor.type_id for s in samples} == {1, 5, 23}
    cloud = next(s.value for s in samples if s.sensor.type_id == 23)
    assert len(cloud.points) > 3000 and cloud.segments is not None
