"""Images survive order, repeats and mixing; memory stays bounded; each loss is counted by its cause."""

import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate_racer.link.messages import VideoFrame
from gate_racer.link.video import HEADER, Reassembler, VideoCounters, chunks

jpegs = st.binary(min_size=1, max_size=200)


def packet(frame_id=1, chunk=0, total=1, size=4, payload=b"jpeg", stamp=0, claimed=None) -> bytes:
    return HEADER.pack(frame_id, chunk, total, size, len(payload) if claimed is None else claimed, stamp) + payload


def deliver(reassembler: Reassembler, datagrams: list[bytes]) -> list[VideoFrame]:
    return [frame for frame in map(reassembler.feed, datagrams) if frame is not None]


def test_the_header_is_24_bytes_in_the_specified_order():
    assert chunks(7, 1.5, b"abc", 2)[1] == (
        b"\x07\0\0\0"
        + b"\x01\0"
        + b"\x02\0"
        + b"\x03\0\0\0"
        + b"\x01\0\0\0"
        + (1_500_000_000).to_bytes(8, "little")
        + b"c"
    )


@given(jpegs, st.integers(1, 50))
def test_chunks_are_full_but_for_the_last(jpeg, payload_bytes):
    sizes = [len(datagram) - HEADER.size for datagram in chunks(0, 0.0, jpeg, payload_bytes)]
    assert sum(sizes) == len(jpeg)
    assert all(size == payload_bytes for size in sizes[:-1])
    assert len(sizes) == math.ceil(len(jpeg) / payload_bytes)


@pytest.mark.parametrize("jpeg", [b"", bytes(70_000)])
def test_an_image_that_the_header_cannot_describe_is_refused(jpeg):
    with pytest.raises(ValueError, match="image"):
        chunks(0, 0.0, jpeg, 1)


@given(jpegs, st.integers(1, 50), st.data())
def test_a_frame_arrives_once_whatever_the_order_and_the_repeats(jpeg, payload_bytes, data):
    sent = chunks(3, 2.25, jpeg, payload_bytes)
    order = data.draw(st.permutations(sent * data.draw(st.integers(1, 4))))
    assert deliver(Reassembler(), order) == [VideoFrame(2.25, 3, jpeg)]


@given(st.lists(jpegs, min_size=2, max_size=5, unique=True), st.data())
def test_frames_mixed_repeated_and_lost_arrive_whole_in_order_and_once(images, data):
    """Whatever the network does: what arrives was sent, rises in time, and is all there is if nothing of it was lost."""
    sent = [chunks(n, n / 30, jpeg, 20) for n, jpeg in enumerate(images)]
    stream = data.draw(st.lists(st.sampled_from([c for frame in sent for c in frame]), max_size=60))
    reassembler = Reassembler()
    received = deliver(reassembler, stream)
    assert all(frame.jpeg == images[frame.id] for frame in received)
    assert [frame.id for frame in received] == sorted({frame.id for frame in received})
    newest = max((n for n, frame in enumerate(sent) if set(frame) <= set(stream)), default=None)
    assert newest is None or received[-1].id == newest


def test_a_frame_delivered_17_times_is_one_frame():
    reassembler = Reassembler()
    for n in range(5):
        assert len(deliver(reassembler, chunks(n, n / 30, b"some image", 4) * 17)) == 1
    assert reassembler.counters == VideoCounters(duplicate_frame=5 * 16 * 3)


def test_a_repeat_of_an_earlier_frame_is_known_as_such():
    reassembler = Reassembler()
    first = chunks(1, 0.0, b"a", 9)
    deliver(reassembler, first + chunks(2, 0.03, b"b", 9) + first)
    assert reassembler.counters == VideoCounters(duplicate_frame=1)


def test_an_older_frame_is_stale_once_a_newer_one_is_complete():
    reassembler = Reassembler()
    old = chunks(1, 0.0, bytes(20), 10)
    assert [f.id for f in deliver(reassembler, [old[0], *chunks(2, 0.03, b"b", 9), old[1]])] == [2]
    assert reassembler.counters == VideoCounters(evicted=1, stale=1)


def test_a_stream_that_begins_anew_is_followed():
    reassembler = Reassembler()
    before = [frame for n in range(60) for frame in deliver(reassembler, chunks(n, n / 30, b"a", 9))]
    after = [frame for n in range(60) for frame in deliver(reassembler, chunks(n, n / 30, b"b", 9))]
    assert len(before) == len(after) == 60


def test_incomplete_frames_are_bounded_and_the_oldest_goes_first():
    reassembler = Reassembler(max_frames=3)
    frames = [chunks(n, n / 30, bytes(20), 10) for n in range(5)]
    for first, _ in frames:
        assert reassembler.feed(first) is None
    assert reassembler.counters == VideoCounters(evicted=2)
    for _, last in frames[2:]:
        assert reassembler.feed(last) is not None


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        packet()[:23],
        packet(payload=b""),
        packet(total=0),
        packet(chunk=1),
        packet(size=0),
        packet(claimed=5),
        packet(claimed=3),
        packet(size=1001),
        packet(total=5),  # five chunks for four bytes
    ],
)
def test_a_header_that_cannot_be_true_is_malformed(datagram):
    reassembler = Reassembler(max_frame_bytes=1000)
    assert reassembler.feed(datagram) is None
    assert reassembler.counters == VideoCounters(malformed=1)


@pytest.mark.parametrize(
    "second",
    [packet(chunk=1, total=3), packet(chunk=1, total=2, size=9), packet(chunk=1, total=2, size=8, payload=b"12345")],
)
def test_chunks_that_contradict_each_other_make_no_frame(second):
    reassembler = Reassembler()
    assert deliver(reassembler, [packet(total=2, size=8), second]) == []
    assert reassembler.counters == VideoCounters(inconsistent=1)


def test_too_few_bytes_make_no_frame():
    reassembler = Reassembler()
    assert deliver(reassembler, [packet(total=2, size=9), packet(chunk=1, total=2, size=9)]) == []
    assert reassembler.counters == VideoCounters(inconsistent=1)


small = st.integers(0, 4)
plausible = st.builds(packet, small, small, small, st.integers(0, 12), st.binary(max_size=6), small)


@given(st.lists(st.binary(max_size=60) | plausible, max_size=80))
def test_no_bytes_whatever_raise_or_are_lost_from_the_account(datagrams):
    reassembler = Reassembler(max_frames=2, max_frame_bytes=100)
    received = deliver(reassembler, datagrams)
    assert len(received) + sum(asdict(reassembler.counters).values()) <= 2 * len(datagrams)
    assert len({(frame.id, frame.t) for frame in received}) == len(received)
    sound = chunks(9, 60.0, b"a sound image", 4)
    assert deliver(reassembler, sound) == [VideoFrame(60.0, 9, b"a sound image")]
