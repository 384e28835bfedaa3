"""CopterSim's IMU as `race-sim` stands in for it: asked for and heard over real sockets."""

import random
import struct
import subprocess
import time
from contextlib import closing

import pytest

from gate_racer.link.messages import Imu
from gate_racer.link.profile import load_profile
from gate_racer.link.rflysim.desk import ImuReceiver
from gate_racer.link.rflysim.request import ImuRequest, ImuSample, imu_port
from gate_racer.link.sockets import LinkError, UdpEndpoint, bind_udp
from gate_racer.sim.wire.rflysim import MOST_SUBSCRIPTIONS, CopterSimImu, open_imu
from tests.conftest import ROOT
from tests.processes import command, free_port

LOCAL_HOST = "127.0.0.1"
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


def test_numbers_continue_for_a_client_that_asks_again(service):
    port = free_port()
    numbers = []
    for first in (1, 11):
        with bind_udp(LOCAL_HOST, port) as client:
            client.settimeout(5)
            client.sendto(ImuRequest(0, 120, port, (0, 0, 0, 0)).encode(), service.address)
            for n in range(first, first + 5):
                tick(service, n)
            numbers += [ImuSample.decode(client.recv(100)).number for _ in range(5)]
        for n in range(first + 5, first + 10):
            tick(service, n)  # nobody listens, and nothing breaks
    assert numbers == [1, 2, 3, 4, 5, 11, 12, 13, 14, 15]


def test_no_request_whatever_stops_the_simulator(service, capfd):
    rng, good = random.Random(2), ImuRequest(0, 120, 0, (127, 0, 0, 1))
    with bind_udp(LOCAL_HOST, 0) as client:
        client.settimeout(5)
        port = client.getsockname()[1]
        bad = [rng.randbytes(n) for n in (0, 3, 36, 40, 2000)]
        bad += [struct.pack("<H", 12345) + rng.randbytes(34) for _ in range(50)]
        bad += [ImuRequest(3, 120, port, (0, 0, 0, 0)).encode(), ImuRequest(0, 0, port, (0, 0, 0, 0)).encode()]
        bad.append(good.encode())  # to port 0
        for datagram in bad:
            client.sendto(datagram, service.address)
        tick(service, 1)
        assert service.malformed >= 5 and service.malformed + service.refused == len(bad)
        for k in range(2 * MOST_SUBSCRIPTIONS):
            client.sendto(ImuRequest(0, 120, 40_000 + k, (127, 0, 0, 1)).encode(), service.address)
        client.sendto(ImuRequest(0, 120, port, (0, 0, 0, 0)).encode(), service.address)
        tick(service, 2)
        assert ImuSample.decode(client.recv(100)).number == 1, "newer askers take the place of older ones"
    told = capfd.readouterr().err
    assert "rate: must be at least 1 Hz" in told and "port: must be 1 to 65535" in told and told.count("\n") < 40


@pytest.mark.parametrize(
    ("host", "repeat_s", "last"), [((0, 0, 0, 0), 0, 0), ((0, 0, 0, 0), 10, 1), ((127, 0, 0, 3), 1, 0)]
)
def test_samples_go_to_the_host_that_asks_and_while_it_asks(host, repeat_s, last):
    now = [0.0]
    with CopterSimImu(("0.0.0.0", 0), PX4, lambda: now[0]) as service, UdpEndpoint(LOCAL_HOST, 0) as client:
        counts = []
        for second in range(60):
            if second == 0 or (repeat_s and second % repeat_s == 0):
                client.transmit(ImuRequest(0, 120, client.address[1], host).encode(), (LOCAL_HOST, service.address[1]))
            now[0] = float(second)
            tick(service, second + 1)
            counts.append(len(list(client.drain())))
    assert counts[-1] == last and counts[0] == (host[0] == 0)


def test_a_default_port_in_use_is_reported_a_chosen_one_refused(capfd):
    assert (imu_port(1), imu_port(3)) == (30100, 30104)
    with bind_udp(LOCAL_HOST, 0) as other:
        assert open_imu(other.getsockname(), PX4, chosen=False) is None
        assert "CopterSim's IMU is not simulated" in capfd.readouterr().err
        with pytest.raises(LinkError, match="in use"):
            open_imu(other.getsockname(), PX4, chosen=True)


def test_race_sim_serves_it_beside_the_telemetry():
    desk, own, client, imu = (free_port() for _ in range(4))
    with subprocess.Popen(
        command("gate_racer.race.race_sim", "--profile", "px4", "--set", f"link.vision_protocol=rflysim://{LOCAL_HOST}:{desk}?imu={imu}",
                f"link.bind={LOCAL_HOST}:{own}", f"link.client={LOCAL_HOST}:{client}"),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None and "sensors to be asked for" in server.stdout.readline()
            samples, until = [], time.monotonic() + 20
            with closing(ImuReceiver(LOCAL_HOST, 200, ask_port=imu, port=0)) as ear:
                while len(samples) < 30 and time.monotonic() < until:
                    samples += ear.samples()
                    time.sleep(0.01)
        finally:
            server.terminate()
            told = server.communicate(timeout=30)[0]
    assert len(samples) >= 30, told
    steps = {round((b.t - a.t) * PX4.imu_hz) for a, b in zip(samples, samples[1:], strict=False)}
    assert steps == {1}, "every sample of a vehicle at rest, one step apart"
    assert samples[-1].accel[2] == pytest.approx(-9.81, abs=1.0), "front-right-down: gravity is felt upward"
    assert "Traceback" not in told
