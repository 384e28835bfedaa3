"""A client of RflySim and of CopterSim gets what it asks for, over real sockets."""

import json
import math
import random
import struct
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from gate_racer.link.messages import Imu
from gate_racer.link.profile import load_profile
from gate_racer.link.rflysim import desk
from gate_racer.link.rflysim.client import SensorReceiver
from gate_racer.link.rflysim.desk import HeartbeatReceiver, ImuReceiver
from gate_racer.link.rflysim.request import load_sensors
from gate_racer.link.rflysim.stream import MOST_TOPICS, PNG, RAW, fragment_reassembler
from gate_racer.link.sockets import LinkError, UdpEndpoint, bind_udp
from gate_racer.sim.view.style import load_style
from gate_racer.sim.wire.rflysim import MOST_SUBSCRIPTIONS, CopterSimImu, RflySimOutlet, open_imu
from tests.processes import free_port
from tests.rflysim import LOCAL_HOST, at, request


def quiet(*abouts, outlet):
    return SensorReceiver(abouts, outlet.address, lambda line: None)


def exchange(outlet, receiver, exposures):
    samples = []
    with bind_udp(LOCAL_HOST, 0) as wire:
        for exposure in exposures:
            for datagram, target in outlet.datagrams(exposure):
                wire.sendto(datagram, target)
            samples += [sample for sample, _ in receiver.receive(0.05)]
    return samples


@pytest.fixture
def open_outlet(vq1):
    with ExitStack() as stack:
        yield lambda host=LOCAL_HOST, **more: stack.enter_context(
            closing(RflySimOutlet(vq1, load_style("race"), 0, 30.0, (host, 0), **more))
        )


@pytest.fixture
def outlet(open_outlet):
    return open_outlet()


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
    with SensorReceiver(load_sensors(tmp_path / "Config.json"), outlet.address, lambda line: None) as receiver:
        samples = exchange(outlet, receiver, [at(vq1, n / 30, n) for n in range(1, 7)])
        report = receiver.report(1e9)
    seen = {k: [s for s in samples if s.sensor.seq_id == k] for k in range(4)}
    assert [len(seen[k]) for k in range(4)] == [6, 6, 6, 2]
    assert seen[0][0].value.shape == (360, 640, 3) and seen[1][0].value.shape == (36, 64)
    assert [s.t for s in seen[0]] == [n / 30 for n in range(1, 7)]
    assert seen[3][0].value.segments is not None
    assert len(report) == 4


def test_a_changed_request_changes_the_frames_and_loses_none(outlet, vq1):
    about, reassembler, frames = request(3, mode=RAW), fragment_reassembler(), []
    changed = replace(about, width_px=32, height_px=18, euler=(0.0, 10.0, 0.0))
    with bind_udp(LOCAL_HOST, 0) as client:
        for number, asked in enumerate([about] * 4 + [changed] * 4, 1):
            client.sendto(asked.encode(), outlet.address)
            frames += [reassembler.feed(datagram) for datagram, _ in outlet.datagrams(at(vq1, number / 30, number))]
    assert [(frame.frame_id, len(frame.data)) for frame in frames] == [(k, 2304 if k < 4 else 576) for k in range(8)]


def test_the_release_of_one_client_leaves_the_sensors_of_others_and_ends_its_own(outlet, vq1):
    with quiet(request(5, 1, other=(50.0,)), outlet=outlet) as stays:
        with quiet(request(5, 2, other=(50.0,)), outlet=outlet) as goes:
            exchange(outlet, stays, [at(vq1, number=1)])
            assert len(goes.receive(0.1)) == 1
        assert len(exchange(outlet, stays, [at(vq1, n / 30, n) for n in range(2, 6)])) == 4
    assert outlet.datagrams(at(vq1, number=7)) == []
    with quiet(request(5, 1, other=(50.0,)), outlet=outlet) as again:
        assert len(exchange(outlet, again, [at(vq1, number=8)])) == 1


def test_a_sensor_that_moves_to_another_port_leaves_the_old_one(outlet, vq1):
    about = request(5, other=(50.0,))
    moved = replace(about, send=(*about.send[:5], free_port(), 0, 0))
    with bind_udp(LOCAL_HOST, 0) as client:
        targets = []
        for n, asked in enumerate((about, moved), start=1):
            client.sendto(asked.encode(), outlet.address)
            targets += [target[1] for _, target in outlet.datagrams(at(vq1, number=n))]
    assert targets == [about.port, moved.port]


def test_a_request_brings_nothing_to_a_host_that_did_not_ask(open_outlet, vq1, capfd):
    """One datagram of 144 bytes that names another host as the receiver of the frames, as files of other machines do."""
    opened = open_outlet("0.0.0.0")
    about = request(5, other=(50.0,))
    about = replace(about, send=(about.send[0], 127, 0, 0, 3, *about.send[5:]))
    with bind_udp("127.0.0.2", 0) as client:
        client.sendto(about.encode(), (LOCAL_HOST, opened.address[1]))
        assert {host for n in range(1, 60) for _, (host, _) in opened.datagrams(at(vq1, number=n))} == {"127.0.0.2"}
    assert "data go to 127.0.0.2, which requests them, not to 127.0.0.3" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("bound", "repeat_s", "ends"), [("0.0.0.0", 0, True), ("0.0.0.0", 10, False), (LOCAL_HOST, 0, False)]
)
def test_frames_end_unless_requests_continue_on_an_open_port(open_outlet, vq1, bound, repeat_s, ends, capfd):
    now = [1e9]
    opened = open_outlet(bound, clock=lambda: now[0])
    about = request(5, 7, other=(50.0,))
    with bind_udp(LOCAL_HOST, 0) as client:
        counts = []
        for second in range(60):
            if second == 0 or (repeat_s and second % repeat_s == 0):
                client.sendto(about.encode(), (LOCAL_HOST, opened.address[1]))
            now[0] = 1e9 + second
            counts.append(len(opened.datagrams(at(vq1, t=float(second), number=1))))
    assert counts[:30] == [1] * 30 and counts[-1] == (0 if ends else 1)
    assert ("sensor 7 for 127.0.0.1 ends" in capfd.readouterr().err) == ends


def test_heartbeats_tell_when_the_simulation_began(open_outlet, vq1):
    """Absolute time of a frame: the start, of the frames' clock, and its stamp."""
    wall = 1_700_000_000.0
    opened = open_outlet(copter=2, epoch_s=7.0, clock=lambda: wall + 1.0)
    with (
        closing(HeartbeatReceiver((LOCAL_HOST, 1), copter=2, port=0)) as ear,
        quiet(request(5, copter=2, other=(50.0,)), outlet=opened),
        bind_udp(LOCAL_HOST, 0) as wire,
    ):
        assert ear.start(8.0, wall + 1.0) == pytest.approx(wall - 7.0, abs=0.02), "guessed, as long as nobody tells"
        sent = opened.datagrams(at(vq1, t=1.0, number=30))
        for datagram in (*(d for d, target in sent if target[1] == desk.HEARTBEAT_PORT), b"", b"x" * 32):
            wire.sendto(datagram, (LOCAL_HOST, ear.port))
        ear.listen(0.0)
        assert ear.from_heartbeat and ear.malformed == 2
        assert ear.start(0.0, 0.0) == pytest.approx(wall - 7.0, abs=1e-3)


@pytest.mark.parametrize("rendered", [range(1, 121), range(1, 121, 7)], ids=["all", "one in seven"])
def test_a_slow_machine_loses_no_heartbeat_and_no_frame_of_a_slow_sensor(open_outlet, vq1, rendered):
    opened = open_outlet()
    with quiet(replace(request(5, other=(50.0,)), rate_hz=2), outlet=opened):
        targets = [port for n in rendered for _, (_, port) in opened.datagrams(at(vq1, n / 30, n))]
    assert targets.count(desk.HEARTBEAT_PORT) in (3, 4) and len(targets) in (10, 11, 12)


def test_a_copter_s_images_are_its_own_by_its_own_clock(open_outlet, vq1, capfd):
    second = open_outlet(copter=2, epoch_s=7.0)
    with quiet(request(5, 1), request(5, 2, copter=2), outlet=second) as receiver:
        samples = exchange(second, receiver, [at(vq1, 1.5, number=n) for n in range(1, 3)])
    assert {(s.sensor.seq_id, s.value.copter, s.t) for s in samples} == {(2, 2, 8.5)}
    assert "TargetCopter 1: the simulated vehicle is copter 2" in capfd.readouterr().err


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
        wire.sendto(desk.encode_command("RflyChange3DModel"), outlet.address)
        wire.sendto(good.encode(), outlet.address)
        assert len(outlet.datagrams(at(vq1, number=1))) == 1
        assert outlet.refused >= len(bad) - 2
        wire.sendto(desk.encode_command(desk.CLEAR_COMMAND), outlet.address)
        assert outlet.datagrams(at(vq1, number=2)) == []
    assert capfd.readouterr().err.count("\n") <= 2 * MOST_TOPICS, "a flood of nonsense is told of, and does not flood"


PX4 = load_profile("px4")
STILL = (0.0, 0.0, -9.81)


@pytest.fixture
def service():
    opened = CopterSimImu((LOCAL_HOST, 0), PX4)
    yield opened
    opened.close()


def tick(service, n):
    service.serve([Imu(n / PX4.imu_hz, STILL, (0.1, 0.2, n))])


def ear_of(service, rate_hz=200):
    return closing(ImuReceiver(LOCAL_HOST, rate_hz, ask_port=service.address[1], port=0))


def test_samples_are_numbered_and_stamped_like_the_frames(service):
    with ear_of(service) as ear:
        assert list(ear.samples()) == []  # asks
        for n in range(1, 7):
            tick(service, n)
        samples = list(ear.samples())
    assert [sample.number for sample in samples] == list(range(1, 7))
    assert [sample.t for sample in samples] == pytest.approx([PX4.video_epoch_s + n / PX4.imu_hz for n in range(1, 7)])
    assert samples[0].accel == pytest.approx(STILL, abs=1e-5) and samples[5].gyro[2] == 6.0


def test_everybody_has_a_rate_of_his_own(service, capfd):
    with ear_of(service, 30) as slow, ear_of(service, 500) as fast:
        for ear in (slow, fast):
            list(ear.samples())
        for n in range(1, 121):
            tick(service, n)
        counts = [len(list(ear.samples())) for ear in (slow, fast)]
    assert counts == [30, 120]
    assert "500 Hz were requested, limited to 120 Hz" in capfd.readouterr().err


def test_no_request_whatever_stops_the_imu(service, capfd):
    rng, good = random.Random(2), desk.ImuRequest(0, 120, 0, (127, 0, 0, 1))
    with bind_udp(LOCAL_HOST, 0) as client:
        client.settimeout(5)
        port = client.getsockname()[1]
        bad = [rng.randbytes(n) for n in (0, 3, 36, 40, 2000)]
        bad += [struct.pack("<H", 12345) + rng.randbytes(34) for _ in range(50)]
        bad += [
            desk.ImuRequest(3, 120, port, (0, 0, 0, 0)).encode(),
            desk.ImuRequest(0, 0, port, (0, 0, 0, 0)).encode(),
        ]
        bad.append(good.encode())  # to port 0
        for datagram in bad:
            client.sendto(datagram, service.address)
        tick(service, 1)
        assert service.refused == len(bad)
        for k in range(2 * MOST_SUBSCRIPTIONS):
            client.sendto(desk.ImuRequest(0, 120, 40_000 + k, (127, 0, 0, 1)).encode(), service.address)
        client.sendto(desk.ImuRequest(0, 120, port, (0, 0, 0, 0)).encode(), service.address)
        tick(service, 2)
        assert desk.ImuSample.decode(client.recv(100)).number == 1, "newer askers take the place of older ones"
    told = capfd.readouterr().err
    assert "rate and port at least 1" in told and told.count("\n") < 40


@pytest.mark.parametrize(
    ("host", "repeat_s", "last"), [((0, 0, 0, 0), 0, 0), ((0, 0, 0, 0), 10, 1), ((127, 0, 0, 3), 1, 1)]
)
def test_samples_go_to_the_host_that_asks_and_while_it_asks(host, repeat_s, last):
    now = [0.0]
    with CopterSimImu(("0.0.0.0", 0), PX4, lambda: now[0]) as service, UdpEndpoint(LOCAL_HOST, 0) as client:
        counts = []
        for second in range(60):
            if second == 0 or (repeat_s and second % repeat_s == 0):
                client.transmit(
                    desk.ImuRequest(0, 120, client.address[1], host).encode(), (LOCAL_HOST, service.address[1])
                )
            now[0] = float(second)
            tick(service, second + 1)
            counts.append(len(list(client.drain())))
    assert counts[-1] == last and counts[0] == 1


def test_a_default_port_in_use_is_reported_a_chosen_one_refused(capfd):
    assert (desk.imu_port(1), desk.imu_port(3)) == (30100, 30104)
    with bind_udp(LOCAL_HOST, 0) as other:
        assert open_imu(other.getsockname(), PX4, chosen=False) is None
        assert "CopterSim's IMU is not simulated" in capfd.readouterr().err
        with pytest.raises(LinkError, match="in use"):
            open_imu(other.getsockname(), PX4, chosen=True)
