"""The client's sockets: what it asks for, how often, and what it says when nobody answers."""

import time
from dataclasses import replace

import pytest

from gate_racer.link.rflysim.client import ASK_S, LAPSES, NO_ANSWER_S, SILENCE_S, SensorReceiver, SensorSocket
from gate_racer.link.rflysim.request import CLEAR_COMMAND, decode_command, decode_request
from gate_racer.link.sockets import bind_udp
from tests.link.rflysim_sensor import sensor

LOCAL = "127.0.0.1"
STEP_S = 0.25


@pytest.fixture
def server():
    with bind_udp(LOCAL, 0) as bound:
        bound.setblocking(False)
        yield bound


def about():
    with bind_udp(LOCAL, 0) as probe:
        port = probe.getsockname()[1]
    return replace(sensor(5), send=(1, 127, 0, 0, 1, port, 0, 0))


def asked(server):
    """The datagrams that wait."""
    found = []
    while True:
        try:
            found.append(server.recv(65535))
        except BlockingIOError:
            return found


@pytest.fixture
def ear(server):
    told, asked_for = [], about()
    opened = SensorSocket(asked_for, server.getsockname(), told.append)
    opened.told, opened.about = told, asked_for
    yield opened
    opened.socket.close()


def wait(ear, begin, seconds):
    """Let time pass for an open receiver."""
    for n in range(round(seconds / STEP_S) + 1):
        ear.ask(begin + n * STEP_S)
    return begin + seconds


def test_it_listens_on_loopback_for_a_server_there_and_asks_again_at_long_intervals(ear, server):
    assert ear.socket.getsockname()[0] == LOCAL
    begin = time.monotonic()
    asked(server)
    for n in range(round(35.0 / STEP_S)):
        ear.received(begin + n * STEP_S)
        ear.ask(begin + n * STEP_S)
    assert len(asked(server)) == 3


def test_it_asks_until_it_is_answered_and_again_soon_after_a_silence(ear, server):
    now = wait(ear, time.monotonic(), 3 * ASK_S)
    assert 3 <= len(asked(server)) <= 5
    for n in range(20):
        ear.received(now + n / 30)
        ear.ask(now + n / 30)
    assert asked(server) == []
    ear.ask(now + 20 / 30 + SILENCE_S)
    assert len(asked(server)) == 1


def test_nobody_there_is_said(ear, server):
    host, port = server.getsockname()
    now = wait(ear, time.monotonic(), NO_ANSWER_S - ASK_S)
    assert ear.told == []
    wait(ear, now, 2 * ASK_S)
    (line,) = ear.told
    assert f"no answer from {host}:{port}" in line and "sensor 2" in line


def test_frames_that_stop_are_said_and_who_may_have_taken_them(ear):
    now = time.monotonic()
    for _ in range(LAPSES):
        ear.received(now)
        now = wait(ear, now, 2 * SILENCE_S)
    assert any("another client may request SeqID 2" in line for line in ear.told)
    wait(ear, now, 2 * NO_ANSWER_S)
    assert any("no more frames" in line for line in ear.told) and not any("no answer" in line for line in ear.told)


def test_a_change_is_sent_more_than_once(ear, server):
    asked(server)
    changed, now = replace(ear.about, other=(9.0,) * 16), time.monotonic()
    ear.update(changed)
    for n in range(1, 6):
        ear.received(now + n * ASK_S)
        ear.ask(now + n * ASK_S + 0.1)
    assert [decode_request(d) for d in asked(server)] == [changed] * 3


def test_the_end_releases_the_sensor(server):
    with SensorReceiver((about(),), server.getsockname(), lambda line: None):
        asked(server)
    assert [decode_command(d) for d in asked(server)] == [CLEAR_COMMAND]


def test_ages_and_gaps_are_never_negative(server):
    first, now = about(), time.monotonic()
    with SensorReceiver((first,), server.getsockname(), lambda line: None) as receiver:
        assert f"no frame yet from {LOCAL}:{server.getsockname()[1]}" in receiver.report(now)[0]
        health = receiver.streams[0].health
        health.saw(now + 5.0)
        health.saw(now + 4.0)
        assert health.age(now) == 0.0 and health.longest_gap_s == 0.0
