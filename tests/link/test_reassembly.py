"""Images survive order, repeats, loss and mixing, by either protocol; memory stays bounded; each loss is counted by its cause."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate_racer.link.messages import VideoFrame
from gate_racer.link.reassembly import Reassembler, StreamCounters
from gate_racer.link.rflysim.stream import (
    NUMBERED,
    NUMBERED_SUM,
    PLAIN,
    PLAIN_SUM,
    Payload,
    fragment_reassembler,
    fragments,
)
from gate_racer.link.video import HEADER, chunks, image_reassembler

HZ = 32  # so that stamps are exact in ns


@dataclass
class Protocol:
    """One protocol: the frame of a number and content, its datagrams of so many bytes, and its reassembler."""

    frame: Callable[[int, bytes], object]
    cut: Callable[[int, bytes, int], list[bytes]]
    reassembler: Callable[..., Reassembler]


def rflysim(numbered):
    def frame(n, content):
        return Payload(n / HZ, n if numbered else None, content)

    return Protocol(frame, lambda n, content, size: fragments(frame(n, content), size), fragment_reassembler)


VIDEO = Protocol(
    lambda n, content: VideoFrame(n / HZ, n, content),
    lambda n, content, size: chunks(n, round(n / HZ * 1e9), content, size),
    lambda **options: image_reassembler(**{"max_frames": 3, **options}),
)
PROTOCOLS = {"VADR-TS-002": VIDEO, "RflySim": rflysim(True), "RflySim, not numbered": rflysim(False)}
of_both = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
contents = st.binary(min_size=1, max_size=200)


def deliver(reassembler, datagrams):
    return [frame for d in datagrams if (frame := reassembler.feed(d)) is not None]


@of_both
@given(images=st.lists(contents, min_size=1, max_size=5), size=st.integers(1, 50), data=st.data())
def test_frames_mixed_repeated_and_lost_arrive_whole_in_order_and_once(protocol, images, size, data):
    """Whatever the network does: what arrives was sent, rises in time, and is all there is if nothing of it was lost."""
    sent = [protocol.cut(n, content, size) for n, content in enumerate(images)]
    stream = data.draw(st.lists(st.sampled_from([d for frame in sent for d in frame]), max_size=60))
    received = deliver(protocol.reassembler(max_frames=5), stream)
    numbers = [round(HZ * frame.t) for frame in received]
    assert received == [protocol.frame(n, images[n]) for n in numbers] and numbers == sorted(set(numbers))
    newest = max((n for n, frame in enumerate(sent) if set(frame) <= set(stream)), default=None)
    assert newest is None or numbers[-1] == newest


@of_both
def test_repeats_are_counted_as_such_and_older_frames_as_late(protocol):
    reassembler = protocol.reassembler()
    for n in range(5):
        assert len(deliver(reassembler, protocol.cut(n, b"some image", 4) * 17)) == 1
    assert reassembler.counters == StreamCounters(duplicate=5 * 16 * 3)
    old, new = protocol.cut(6, bytes(20), 15), protocol.cut(7, b"x", 9)
    assert deliver(reassembler, [old[0], *new, old[1], *protocol.cut(3, b"some image", 4)]) == [protocol.frame(7, b"x")]
    assert reassembler.counters == StreamCounters(evicted=1, late=1, duplicate=5 * 16 * 3 + 3)


@of_both
def test_a_stream_that_begins_anew_is_followed(protocol):
    reassembler = protocol.reassembler()
    for content in (b"a", b"b"):
        run = [d for n in range(60) for d in protocol.cut(n, content, 9)]
        assert deliver(reassembler, run) == [protocol.frame(n, content) for n in range(60)]


@of_both
def test_incomplete_frames_are_bounded_and_the_oldest_goes_first(protocol):
    reassembler = protocol.reassembler(max_frames=3)
    frames = [protocol.cut(n, bytes(20), 15) for n in range(5)]
    assert deliver(reassembler, [first for first, _ in frames]) == []
    assert reassembler.counters == StreamCounters(evicted=2)
    assert len(deliver(reassembler, [last for _, last in frames[2:]])) == 3


@of_both
def test_chunks_that_contradict_each_other_or_exceed_the_bound_are_counted(protocol):
    reassembler, frame, other = protocol.reassembler(), protocol.cut(1, bytes(20), 15), protocol.cut(1, bytes(40), 15)
    assert deliver(reassembler, [frame[0], other[2]]) == [] and reassembler.counters.inconsistent == 1
    assert len(deliver(reassembler, frame[1:])) == 1
    reassembler = protocol.reassembler(max_frame_bytes=100)
    assert deliver(reassembler, protocol.cut(1, bytes(101), 60)) == []
    assert reassembler.counters.inconsistent + reassembler.counters.malformed >= 1


def packet(frame_id=1, chunk=0, total=1, size=4, payload=b"jpeg", stamp=0, claimed=None) -> bytes:
    return HEADER.pack(frame_id, chunk, total, size, len(payload) if claimed is None else claimed, stamp) + payload


few, small = st.integers(0, 4), st.integers(-2, 5)
NUMBERED_HEADS = st.builds(lambda *f: NUMBERED.pack(NUMBERED_SUM, *f, 0, 0.0), st.integers(30, 40), small, small, small)
PLAIN_HEADS = st.builds(lambda *f: PLAIN.pack(PLAIN_SUM, *f, 0.0), st.integers(20, 30), small, small)
PLAUSIBLE = st.builds(packet, few, few, few, st.integers(0, 12), st.binary(max_size=6), few) | st.builds(
    bytes.__add__, NUMBERED_HEADS | PLAIN_HEADS, st.binary(max_size=8)
)


@of_both
@given(st.lists(st.binary(max_size=60) | PLAUSIBLE, max_size=80))
def test_no_bytes_whatever_raise_or_are_lost_from_the_account(protocol, datagrams):
    reassembler = protocol.reassembler(max_frames=2, max_frame_bytes=100)
    received, counters = deliver(reassembler, datagrams), asdict(reassembler.counters)
    assert len(received) + sum(counters.values()) <= 2 * len(datagrams)
    assert deliver(reassembler, protocol.cut(1800, b"a sound image", 4)) == [protocol.frame(1800, b"a sound image")]


@pytest.mark.parametrize("jpeg", [b"", bytes(70_000)])
def test_an_image_that_the_header_cannot_describe_is_refused(jpeg):
    with pytest.raises(ValueError, match="image"):
        chunks(0, 0, jpeg, 1)


MALFORMED = [
    b"", packet()[:23], packet(payload=b""), packet(total=0), packet(chunk=1), packet(size=0), packet(claimed=5),
    packet(claimed=3), packet(size=1001), packet(total=5),  # five chunks for four bytes
]  # fmt: skip
INCONSISTENT = [
    (packet(total=2, size=8), packet(chunk=1, total=3)),
    (packet(total=2, size=8), packet(chunk=1, total=2, size=9)),
    (packet(total=2, size=8), packet(chunk=1, total=2, size=8, payload=b"12345")),
    (packet(total=2, size=9), packet(chunk=1, total=2, size=9)),
]
NO_FRAME = [
    *(([datagram], StreamCounters(malformed=1)) for datagram in MALFORMED),
    *((datagrams, StreamCounters(inconsistent=1)) for datagrams in INCONSISTENT),
]


@pytest.mark.parametrize(("datagrams", "counters"), NO_FRAME)
def test_what_cannot_make_a_frame_is_counted(datagrams, counters):
    reassembler = image_reassembler(max_frame_bytes=1000)
    assert deliver(reassembler, datagrams) == [] and reassembler.counters == counters


@given(contents, st.integers(1, 50), st.booleans())
def test_every_datagram_tells_its_length_and_the_last_is_never_full(content, size, numbered):
    sent, layout = rflysim(numbered).cut(0, content, size), NUMBERED if numbered else PLAIN
    assert [layout.unpack_from(d)[1] for d in sent] == [len(d) for d in sent]
    assert all(len(d) == layout.size + size for d in sent[:-1]) and len(sent[-1]) < layout.size + size


def test_frame_numbers_wrap():
    reassembler = fragment_reassembler()
    numbers = [0x7FFFFFFE, 0x7FFFFFFF, -0x80000000, -0x7FFFFFFF]
    sent = [fragments(Payload(1 + k / HZ, n, b"x"), 9) for k, n in enumerate(numbers)]
    assert [f.frame_id for d in sent for f in deliver(reassembler, d)] == numbers
    assert deliver(reassembler, sent[1]) == [] and reassembler.counters.duplicate == 1


@pytest.mark.parametrize("length", [5, 5 + 32, 5 + 64])
def test_a_length_may_be_that_of_the_whole_frame(length):
    """Its data alone, with one header, or with all: the document does not say which."""
    parts = enumerate((b"abc", b"de"))
    datagrams = [NUMBERED.pack(NUMBERED_SUM, length, k, 2, 1, 0, 0.5) + chunk for k, chunk in parts]
    assert [f.data for f in deliver(fragment_reassembler(), datagrams)] == [b"abcde"]


@pytest.mark.parametrize("t", [math.nan, math.inf, -math.inf, 1e300, -9.1e9])
def test_a_stamp_that_is_no_time_is_malformed_and_the_next_frame_arrives(t):
    reassembler = fragment_reassembler()
    wild, good = (fragments(Payload(stamp, n, b"x")) for n, stamp in ((1, t), (2, 0.5)))
    assert deliver(reassembler, wild + good) == [Payload(0.5, 2, b"x")]
    assert reassembler.counters.malformed == 1 and "is not a valid time" in reassembler.reason
