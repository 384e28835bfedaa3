"""Images and clouds come in every form, no bytes whatever break a stream, and a client asks until it is answered."""

import time
from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate_racer.common.images import image_size
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim import stream as wire
from gate_racer.link.rflysim.client import NO_ANSWER_S, SILENCE_S, SensorSocket
from gate_racer.link.rflysim.desk import ASK_S, RENEW_S
from gate_racer.link.rflysim.request import LAST_COPTER, SENSORS
from gate_racer.link.rflysim.ros import RosMessages
from gate_racer.link.rflysim.stream import JPEG, PNG, RAW, Cloud, Payload, Range
from gate_racer.link.sockets import bind_udp
from tests.processes import free_port, waiting
from tests.rflysim import sensor

IMAGES = [type_id for type_id, kind in SENSORS.items() if kind.encoding]


@pytest.mark.parametrize("type_id", IMAGES)
@pytest.mark.parametrize("mode", [JPEG, RAW, PNG])
def test_every_image_type_comes_in_every_encoding(type_id, mode):
    about, kind = sensor(type_id, mode), SENSORS[type_id]
    shape = (48, 64, 3) if kind.channels == 3 else (48, 64)
    ramp = np.add.outer(np.arange(48), np.arange(64))[..., None] * np.ones(kind.channels)
    image = ramp.reshape(shape).astype(np.uint16 if kind.encoding == "mono16" else np.uint8)
    payload = wire.encode_payload(image, mode)
    seen = wire.decode_payload(payload, about)
    assert seen.shape == shape and seen.dtype == image.dtype
    lossy = mode == JPEG and kind.encoding != "mono16"
    assert np.abs(seen.astype(int) - image).max() <= (4 if lossy else 0)
    said = next(RosMessages().sample(wire.Sample(about, 1.5, 1, seen))).values
    about = kind.encoding, 64 * kind.bytes_per_pixel, seen.nbytes
    assert (said["encoding"], said["step"], len(said["data"])) == about


@pytest.mark.parametrize("mode", [JPEG, RAW, PNG])
def test_an_image_to_fly_by_is_checked_by_its_header_alone(mode):
    image = np.random.default_rng(1).integers(0, 255, (48, 64, 3), np.uint8)
    data = wire.image_file(wire.encode_payload(image, mode), sensor(mode=mode))
    assert image_size(data) == (64, 48)
    assert cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).shape == image.shape
    with pytest.raises(MalformedError, match="64 x 48"):
        wire.image_file(data, sensor(mode=JPEG, width=32, height=32))


def stream(about, tell):
    return wire.Stream(about, tell, wire.reader(about))


@given(st.binary(max_size=80))
def test_no_bytes_whatever_break_a_stream(data):
    for type_id in SENSORS:
        told = []
        decoder = stream(sensor(type_id, width=2, height=2), told.append)
        (sample,) = (decoder.feed(d, 0.0) for d in wire.fragments(Payload(1.0, 1, data)))
        assert decoder.counters.unreadable == (sample is None)
        assert decoder.feed(data, 0.0) is None
        assert sum("dropped" in line for line in told) == decoder.counters.unreadable + decoder.counters.malformed
    image_size(b"\xff\xd8\xff" + data)


@given(st.integers(0, 60), st.integers(0, 1000), st.booleans())
def test_a_cloud_comes_back_as_it_went(n, seed, labelled):
    values = np.random.default_rng(seed).uniform(-90, 90, (n, 4)).astype(np.float32)
    segments = np.round(values[:, 3]) if labelled else None
    sent = Cloud((1.0, 2.0, 3.0), (0.5, 0.25, 0.125), values[:, :3], segments, 4, wire.WORLD)
    seen = wire.decode_cloud(wire.encode_cloud(sent), sensor(23))
    np.testing.assert_array_equal(seen.points, sent.points)
    if n:
        np.testing.assert_array_equal(seen.segments, segments)


@pytest.mark.parametrize("copter", [-1, LAST_COPTER + 1, 2**31 - 1])
def test_a_cloud_of_no_copter_is_malformed(copter):
    """Its number is in topics and frames, which ROS refuses with a minus, and of which there must be no end."""
    cloud = Cloud((0.0,) * 3, (0.0,) * 3, np.zeros((1, 3), np.float32), None, copter, 0)
    with pytest.raises(MalformedError, match="must lie between 0 and 1000"):
        wire.decode_cloud(wire.encode_cloud(cloud), sensor(23))


def test_frames_that_are_counted_anew_are_no_stragglers():
    """A sensor that is asked for again may number from 0, with times that go on."""
    decoder = stream(sensor(5), lambda line: None)

    def feed(t, number):
        (datagram,) = wire.fragments(Payload(t, number, Range(1.0, 1, *[(0.0,) * 3] * 4).encode()))
        return decoder.feed(datagram, t) is not None

    assert all(feed(10 + n / 30, n) for n in range(50))
    assert not feed(10 + 48 / 30, 48) and not feed(10 + 20 / 30, 20), "old ones"
    assert all(feed(12 + n / 30, n) for n in range(50))


LOCAL = "127.0.0.1"
STEP_S = 0.25


@pytest.fixture
def server():
    with bind_udp(LOCAL, 0) as bound:
        yield bound


def about():
    return replace(sensor(5), send=(1, 127, 0, 0, 1, free_port(), 0, 0))


@pytest.fixture
def ear(server):
    told = []
    opened = SensorSocket(about(), server.getsockname(), told.append)
    opened.told = told
    yield opened
    opened.socket.close()


def wait(ear, begin, seconds):
    for n in range(round(seconds / STEP_S) + 1):
        ear.ask(begin + n * STEP_S)
    return begin + seconds


def test_it_asks_until_it_is_answered_then_at_long_intervals_and_again_after_a_silence(ear, server):
    assert ear.socket.getsockname()[0] == LOCAL, "of a server there"
    now = wait(ear, time.monotonic(), 3 * ASK_S)
    assert 3 <= len(waiting(server)) <= 5
    for _ in range(round(3.5 * RENEW_S / STEP_S)):
        ear.received = now = now + STEP_S
        ear.ask(now)
    assert len(waiting(server)) == 3
    wait(ear, now, max(ASK_S, SILENCE_S) + STEP_S)
    assert len(waiting(server)) == 1


def test_a_long_silence_is_said(ear, server):
    host, port = server.getsockname()
    ear.received = now = wait(ear, time.monotonic(), NO_ANSWER_S - ASK_S)
    now = wait(ear, now, NO_ANSWER_S - ASK_S)
    assert ear.told == []
    wait(ear, now, 2 * ASK_S)
    (line,) = ear.told
    assert f"no frame from {host}:{port}" in line and "sensor 2" in line
