"""Frames of RflySim survive order, repeats, loss and mixing; memory stays bounded; each loss is counted by its cause."""

import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate_racer.link.rflysim.fragments import (
    NUMBERED,
    NUMBERED_SUM,
    PLAIN,
    PLAIN_SUM,
    FragmentCounters,
    FragmentReassembler,
    Payload,
    fragments,
)

data = st.binary(max_size=200)
generations = st.booleans()


def payload(n, content, numbered=True):
    return Payload(n / 30, n if numbered else None, content)


def deliver(reassembler, datagrams, source="sim", now=0.0):
    return [frame for d in datagrams if (frame := reassembler.feed(d, source, now)) is not None]


@given(data, st.integers(1, 50), generations, st.data())
def test_a_frame_arrives_once_whatever_chunk_size_order_and_repeats(content, chunk, numbered, draw):
    frame = payload(3, content, numbered)
    sent = fragments(frame, chunk)
    order = draw.draw(st.permutations(sent * draw.draw(st.integers(1, 3))))
    assert deliver(FragmentReassembler(), order) == [frame]


@given(data, st.integers(1, 50), generations)
def test_every_datagram_tells_its_length_and_the_last_is_never_full(content, chunk, numbered):
    sent, layout = fragments(payload(0, content, numbered), chunk), NUMBERED if numbered else PLAIN
    assert [layout.unpack_from(d)[1] for d in sent] == [len(d) for d in sent]
    assert all(len(d) == layout.size + chunk for d in sent[:-1]) and len(sent[-1]) < layout.size + chunk


@given(st.lists(data, min_size=2, max_size=5), generations, st.data())
def test_frames_mixed_repeated_and_lost_arrive_whole_in_order_and_once(contents, numbered, draw):
    sent = [fragments(payload(n, content, numbered), 20) for n, content in enumerate(contents)]
    stream = draw.draw(st.lists(st.sampled_from([d for frame in sent for d in frame]), max_size=60))
    reassembler = FragmentReassembler(max_frames=5)
    received = deliver(reassembler, stream)
    numbers = [round(frame.t * 30) for frame in received]
    assert all(frame.data == contents[n] for n, frame in zip(numbers, received, strict=True))
    assert numbers == sorted(set(numbers))
    newest = max((n for n, frame in enumerate(sent) if set(frame) <= set(stream)), default=None)
    assert newest is None or numbers[-1] == newest


@given(data, data)
def test_two_senders_do_not_mix(a, b):
    reassembler = FragmentReassembler()
    first, second = fragments(payload(1, a), 9), fragments(payload(1, b), 9)
    received = []
    for k in range(max(len(first), len(second))):
        received += [("a", f) for f in deliver(reassembler, first[k : k + 1], "a")]
        received += [("b", f) for f in deliver(reassembler, second[k : k + 1], "b")]
    assert sorted((who, frame.data) for who, frame in received) == [("a", a), ("b", b)]


def test_frame_numbers_wrap():
    reassembler = FragmentReassembler()
    numbers = [0x7FFFFFFE, 0x7FFFFFFF, -0x80000000, -0x7FFFFFFF]
    sent = [fragments(Payload(1 + k / 30, n, b"x"), 9) for k, n in enumerate(numbers)]
    assert [f.frame_id for d in sent for f in deliver(reassembler, d)] == numbers
    assert deliver(reassembler, sent[1]) == [] and reassembler.counters.duplicate == 1


@pytest.mark.parametrize("numbered", [True, False])
def test_a_simulation_that_begins_anew_is_followed(numbered):
    reassembler = FragmentReassembler()
    run = [d for n in range(90) for d in fragments(payload(n, b"x", numbered), 9)]
    assert len(deliver(reassembler, run)) == 90
    assert len(deliver(reassembler, run)) >= 60


def test_an_older_frame_is_late_once_a_newer_one_is_complete():
    reassembler = FragmentReassembler()
    old = fragments(payload(1, bytes(20)), 15)
    assert [f.frame_id for f in deliver(reassembler, [old[0], *fragments(payload(2, b"x"), 9), old[1]])] == [2]
    assert reassembler.counters == FragmentCounters(complete=1, evicted=1, late=1)


def test_a_frame_that_stays_incomplete_is_given_up_in_time_and_number():
    reassembler = FragmentReassembler(max_frames=2, timeout_s=0.5)
    for n in range(3):
        deliver(reassembler, fragments(payload(n, bytes(20)), 15)[:1])
    assert reassembler.counters.evicted == 1
    deliver(reassembler, fragments(payload(9, bytes(20)), 15)[:1], now=1.0)
    assert reassembler.counters.evicted == 3


def test_senders_and_bytes_are_bounded():
    reassembler = FragmentReassembler(max_frame_bytes=100)
    for k in range(100):
        deliver(reassembler, fragments(payload(1, bytes(20)), 15)[:1], source=k)
    assert reassembler.counters.evicted == 92
    assert deliver(reassembler, fragments(payload(1, bytes(101)), 60)) == []
    assert reassembler.counters.inconsistent == 1


def test_fragments_that_contradict_each_other_are_counted():
    reassembler = FragmentReassembler()
    frame = fragments(payload(1, bytes(20)), 15)
    other = fragments(payload(1, bytes(40)), 15)[2]
    assert deliver(reassembler, [frame[0], other]) == [] and reassembler.counters.inconsistent == 1
    assert len(deliver(reassembler, frame[1:])) == 1


CHUNKS = b"abc", b"de"


@pytest.mark.parametrize(
    ("length", "taken"), [(5, True), (5 + 32, True), (5 + 64, True), (4, False), (36, False), (-1, False)]
)
def test_a_length_may_be_that_of_the_whole_frame(length, taken):
    """Its data alone, with one header, or with all: the document does not say which."""
    datagrams = [NUMBERED.pack(NUMBERED_SUM, length, k, 2, 1, 0, 0.5) + chunk for k, chunk in enumerate(CHUNKS)]
    reassembler = FragmentReassembler()
    assert [f.data for f in deliver(reassembler, datagrams)] == [b"abcde"] * taken
    assert taken == (reassembler.counters.malformed + reassembler.counters.inconsistent == 0)


def test_a_whole_frame_s_length_may_not_change_within_it():
    datagrams = [NUMBERED.pack(NUMBERED_SUM, 5 + k, k, 2, 1, 0, 0.5) + chunk for k, chunk in enumerate(CHUNKS)]
    reassembler = FragmentReassembler()
    assert deliver(reassembler, datagrams) == [] and reassembler.counters.inconsistent == 1


small = st.integers(-2, 5)
plausible = st.one_of(
    st.builds(lambda *f: NUMBERED.pack(NUMBERED_SUM, *f, 0, 0.0), st.integers(30, 40), small, small, small),
    st.builds(lambda *f: PLAIN.pack(PLAIN_SUM, *f, 0.0), st.integers(20, 30), small, small),
)


@given(st.lists(st.binary(max_size=60) | st.builds(bytes.__add__, plausible, st.binary(max_size=8)), max_size=60))
def test_no_bytes_whatever_raise_or_are_lost_from_the_account(datagrams):
    reassembler = FragmentReassembler(max_frames=2, max_frame_bytes=100)
    received = deliver(reassembler, datagrams)
    counters = asdict(reassembler.counters)
    assert counters.pop("complete") == len(received)
    assert len(received) + sum(counters.values()) <= 2 * len(datagrams)
    sound = Payload(60.0, 1000, b"a sound image")
    assert deliver(reassembler, fragments(sound, 4)) == [sound]


@pytest.mark.parametrize("t", [math.nan, math.inf, -math.inf, 1e300, -9.1e9])
def test_a_stamp_that_is_no_time_is_malformed_and_the_next_frame_arrives(t):
    reassembler = FragmentReassembler()
    wild, good = (fragments(Payload(stamp, n, b"x")) for n, stamp in ((1, t), (2, 0.5)))
    assert deliver(reassembler, wild + good) == [Payload(0.5, 2, b"x")]
    assert reassembler.counters.malformed == 1 and "is not a valid time" in reassembler.reason
