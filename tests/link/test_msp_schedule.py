"""Sticks keep their beat, requests wait for their answers, and nothing real is opened without consent."""

import os
import socket
import tty
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate_racer.link.msp.client import PollScheduler
from gate_racer.link.msp.ports import SAFETY_PAGE, open_port
from gate_racer.link.sockets import LinkError
from tests.conftest import ROOT

STEP_S = 0.001


def run(scheduler, seconds, answer_s, begin=100.0):
    """Times of sticks and requests on a line that answers after so long."""
    sticks, polls, due = [], [], None
    for k in range(round(seconds / STEP_S)):
        now = begin + k * STEP_S
        if due is not None and now >= due:
            scheduler.answer(now)
            due = None
        if scheduler.sticks_due(now):
            sticks.append(now)
        if scheduler.poll_due(now):
            polls.append(now)
            due = None if answer_s is None else now + answer_s
    return sticks, polls


def test_sticks_keep_their_beat_whatever_the_answers_take():
    for answer_s in (0.002, 0.03, None):
        sticks, _ = run(PollScheduler(40, 0.05), 2.0, answer_s)
        assert len(sticks) == 80
        assert max(b - a for a, b in zip(sticks, sticks[1:], strict=False)) <= 0.025 + STEP_S + 1e-9


def test_each_command_is_sent_at_once_and_alone_between_two_beats():
    """Commands that follow polled samples, 20 and 30 ms apart, at a mean rate of 40 Hz."""
    scheduler, commands, sent = PollScheduler(40, 0.05), [0.1 + 0.05 * (k // 2) + 0.02 * (k % 2) for k in range(80)], []
    for k in range(2200):
        now = k * STEP_S
        new = any(abs(now - t) < STEP_S / 2 for t in commands)
        if new:
            scheduler.lead_sticks()
        if scheduler.sticks_due(now) and commands[0] - STEP_S / 2 < now < commands[-1] + STEP_S / 2:
            sent.append((now, new))
    assert [new for _, new in sent] == [True] * len(commands)


def test_commands_faster_than_the_beat_are_sent_at_its_rate_and_missing_ones_are_repeated_at_it():
    fast, slow, counts = PollScheduler(40, 0.05), PollScheduler(40, 0.05), [0, 0]
    for k in range(2000):
        fast.lead_sticks()
        if k % 200 == 0:
            slow.lead_sticks()
        counts[0] += fast.sticks_due(k * STEP_S)
        counts[1] += slow.sticks_due(k * STEP_S)
    assert counts[0] == pytest.approx(80, abs=2) and counts[1] == pytest.approx(80, abs=12)


def test_a_request_follows_the_answer_to_the_one_before():
    scheduler = PollScheduler(40, 0.05)
    _, polls = run(scheduler, 2.0, 0.020)
    assert len(polls) == pytest.approx(100, abs=5)
    assert scheduler.figures.interval_mean_s == pytest.approx(0.020, abs=0.0011)


def test_a_request_that_is_lost_is_counted_and_asked_again():
    scheduler = PollScheduler(0, 0.1)
    _, polls = run(scheduler, 1.05, None)
    assert len(polls) == 11 and scheduler.timeouts == 10 and scheduler.answers == 0


def test_an_answer_that_nobody_asked_for_is_no_figure():
    scheduler = PollScheduler(0, 0.1)
    scheduler.answer(1.0)
    assert scheduler.unasked == 1 and scheduler.figures.answers == 0


@given(st.lists(st.floats(0, 0.3), min_size=5, max_size=60))
@settings(max_examples=60, deadline=None)
def test_sticks_are_never_sent_faster_than_their_beat(steps):
    """However late the caller comes: at most one beat is made up for."""
    scheduler, now, sent = PollScheduler(40, 0.1), 0.0, []
    for step in steps:
        now += step
        while scheduler.sticks_due(now):
            sent.append(now)
    for first in range(len(sent)):
        within = sum(1 for t in sent[first:] if t <= sent[first] + 1.0)
        assert within <= 40 + 3


@given(st.floats(0, 1e6), st.floats(1, 200))
@settings(max_examples=40, deadline=None)
def test_one_may_sleep_as_long_as_it_says(begin, hz):
    scheduler = PollScheduler(hz, 0.2)
    assert scheduler.next_s(begin) == 0
    scheduler.sticks_due(begin), scheduler.poll_due(begin)
    wait = scheduler.next_s(begin)
    assert 0 < wait <= 0.2 + 1e-9
    later = begin + wait + 1e-6
    assert scheduler.sticks_due(later) or scheduler.poll_due(later)


REAL = ["/dev/ttyUSB0", "/dev/ttyTHS1", "COM3", "tcp:192.0.2.7:5761", "/dev/null"]


@pytest.mark.parametrize("where", REAL)
@pytest.mark.parametrize("consent", ["", "yes", "safety.md"])
def test_what_may_be_an_aircraft_is_not_opened_without_consent(where, consent):
    with pytest.raises(LinkError, match=r"may be a real aircraft: read docs/safety.md"):
        open_port(where, 115200, consent)


def test_the_page_on_safety_exists():
    assert (ROOT / SAFETY_PAGE).exists()


def test_a_pseudo_terminal_carries_every_byte_unchanged(tmp_path):
    master, slave = os.openpty()
    tty.setraw(slave)
    everything = bytes(range(256))
    link = tmp_path / "uart"
    link.symlink_to(os.ttyname(slave))
    port = open_port(str(link), 115200)
    try:
        os.write(master, everything)
        received = b""
        while len(received) < 256:
            received += port.read(5.0)
        assert received == everything
        port.write(everything)
        said = b""
        while len(said) < 256:
            said += os.read(master, 256)
        assert said == everything and port.read(0.0) == b""
    finally:
        port.close(), os.close(master), os.close(slave)


def test_tcp_on_this_machine_carries_bytes_and_tells_of_its_end():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = open_port(f"tcp:127.0.0.1:{server.getsockname()[1]}", 115200)
        other, _ = server.accept()
        port.write(b"$M<")
        assert other.recv(10) == b"$M<"
        other.sendall(b"$M>")
        assert port.read(5.0) == b"$M>"
        other.close()
        with pytest.raises(LinkError, match="closed"):
            port.read(5.0)
        port.close()


def test_nobody_there_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with pytest.raises(LinkError, match="no answer"):
        open_port(f"tcp:127.0.0.1:{free}", 115200)
    with pytest.raises(LinkError, match="cannot be opened"):
        open_port("/dev/pts/999999", 115200)


def test_without_pyserial_a_serial_port_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "serial", None)
    with pytest.raises(LinkError, match="pip install pyserial"):
        open_port(str(Path("/dev/ttyUSB0")), 115200, SAFETY_PAGE)
