"""Images come in every encoding, clouds in every layout, and no bytes whatever break a stream."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate_racer.common.images import image_size
from gate_racer.link.reassembly import MalformedError
from gate_racer.link.rflysim import ros
from gate_racer.link.rflysim.payloads import (
    JPEG,
    PNG,
    RAW,
    WORLD,
    Cloud,
    Range,
    decode_cloud,
    decode_payload,
    encode_cloud,
    encode_payload,
    image_file,
)
from gate_racer.link.rflysim.request import SENSORS, SensorKind
from gate_racer.link.rflysim.stream import Payload, Sample, Stream, fragments, reader
from tests.link.rflysim_sensor import sensor

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


def stream(about, tell):
    return Stream(about, tell, reader(about))


@given(st.binary(max_size=80))
def test_no_bytes_whatever_break_a_stream(data):
    for type_id in SENSORS:
        told = []
        decoder = stream(sensor(type_id, width=2, height=2), told.append)
        (sample,) = (decoder.feed(d, "sim", 0.0) for d in fragments(Payload(1.0, 1, data)))
        assert decoder.counters.unreadable == (sample is None)
        assert decoder.feed(data, "sim", 0.0) is None
        assert sum("dropped" in line for line in told) == decoder.counters.unreadable + decoder.counters.malformed
    image_size(b"\xff\xd8\xff" + data)


@given(st.integers(0, 60), st.integers(0, 1000), st.booleans())
def test_a_cloud_comes_back_as_it_went(n, seed, labelled):
    values = np.random.default_rng(seed).uniform(-90, 90, (n, 4)).astype(np.float32)
    segments = np.round(values[:, 3]) if labelled else None
    sent = Cloud((1.0, 2.0, 3.0), (0.5, 0.25, 0.125), values[:, :3], segments, 4, WORLD)
    seen = decode_cloud(encode_cloud(sent), sensor(23))
    np.testing.assert_array_equal(seen.points, sent.points)
    if n:
        np.testing.assert_array_equal(seen.segments, segments)


def test_frames_that_are_counted_anew_are_no_stragglers():
    """A sensor that is asked for again may number from 0, with times that go on."""
    decoder = stream(sensor(5), lambda line: None)

    def feed(t, number):
        (datagram,) = fragments(Payload(t, number, Range(1.0, 1, *[(0.0,) * 3] * 4).encode()))
        return decoder.feed(datagram, "sim", t) is not None

    assert all(feed(10 + n / 30, n) for n in range(50))
    assert not feed(10 + 48 / 30, 48) and not feed(10 + 20 / 30, 20), "old ones"
    assert all(feed(12 + n / 30, n) for n in range(50))
