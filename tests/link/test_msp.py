"""MSP byte for byte, whatever the stream holds; sticks keep their beat, and nothing real is opened without consent."""

import contextlib
import os
import socket
import struct
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate_racer.link.msp import messages as msp
from gate_racer.link.msp.client import PollScheduler
from gate_racer.link.msp.messages import Code, Direction, DisableFlag, Frame, MspCodec, Parser, decode, pack, xor8
from gate_racer.link.msp.ports import open_port
from gate_racer.link.options import SAFETY_PAGE
from gate_racer.link.sockets import LinkError
from tests.processes import terminal

SAY, NO = Direction.ANSWER, Direction.ERROR


def parser() -> Parser:
    return Parser(tuple(Direction))


FRAMES = {  # bytes written by hand; the first is that of the protocol's own page
    "24 4D 3C 00 64 64": Frame(100),
    "24 4D 3C 00 01 01": Frame(Code.API_VERSION),
    "24 4D 3C 00 6C 6C": Frame(Code.ATTITUDE),
    "24 4D 3C 04 E6 6C 66 96 69 17": Frame(Code.MULTIPLE_MSP, bytes([108, 102, 150, 105])),  # 04^E6=E2 8E E8 7E 17
    "24 4D 3E 00 C8 C8": Frame(Code.SET_RAW_RC, b"", SAY),  # its acknowledgement
    "24 4D 21 00 FE FE": Frame(254, b"", NO),
    "24 4D 3C 08 C8 DC 05 D5 07 E8 03 DC 05 F9": Frame(  # 1500 2005 1000 1500: C0 1C 19 CC CB 23 20 FC F9
        Code.SET_RAW_RC, bytes.fromhex("DC05 D507 E803 DC05")
    ),
}


@pytest.mark.parametrize("text, frame", FRAMES.items(), ids=lambda value: str(value)[:24])
def test_a_frame_is_these_bytes_and_no_others(text, frame):
    data = bytes.fromhex(text)
    assert pack(frame) == data
    assert parser().feed(data) == [frame]


MESSAGES = {  # payloads as Betaflight 4.4 writes them, field by field, little endian
    "01: API 1.45": (Code.API_VERSION, "00 01 2D", msp.Version((0, 1, 45))),
    "02: Betaflight": (Code.FC_VARIANT, "42 54 46 4C", msp.FcVariant("BTFL")),
    "03: 4.4.3": (Code.FC_VERSION, "04 04 03", msp.Version((4, 4, 3))),
    "04: board": (Code.BOARD_INFO, "53 48 37 34 00 00 00 00 04 48 37 34 33", msp.BoardInfo("SH74", "H743")),
    "34: ARM on AUX1, MSP OVERRIDE on AUX5, empty slots up to twenty": (
        Code.MODE_RANGES,
        "00 00 20 30 32 04 1E 2C" + " 00" * 72,  # from 900 us in steps of 25
        msp.ModeRanges((msp.ModeRange(0, 1, 1700, 2100), msp.ModeRange(50, 5, 1650, 2000))),
    ),
    "44: CRSF, sticks from 1050 to 1900, pulses from 885 to 2115": (
        Code.RX_CONFIG,
        "09 6C 07 DC 05 1A 04 00 75 03 43 08",
        msp.RxConfig(9, 1900, 1500, 1050, 0, 885, 2115),
    ),
    "64: AETR1234, told as the places of AERT1234": (Code.RX_MAP, "00 01 03 02 04 05 06 07", msp.RxMap("AETR1234")),
    "102: at rest, 90 deg/s to the left": (
        Code.RAW_IMU,
        "00 00 00 00 00 02 00 00 00 00 C3 05 00 00 00 00 00 00",
        msp.RawImu((0, 0, 512), (0, 0, 1475)),
    ),
    "105: sticks, throttle low, AUX1 high": (
        Code.RC,
        "DC 05 DC 05 DC 05 E8 03 D0 07",
        msp.Channels((1500, 1500, 1500, 1000, 2000)),
    ),
    "108: 10.5 deg left, 90.1 down, 359": (Code.ATTITUDE, "97 FF 85 03 67 01", msp.RawAttitude(-105, 901, 359)),
    "109: 1.35 m below, climbing 2 m/s": (Code.ALTITUDE, "79 FF FF FF C8 00", msp.Altitude(-135, 200)),
    "111: 55, 75, 0": (
        Code.RC_TUNING,
        "37 00 4B 4B 46 41 32 00 46 05 00 39 37 00 00 64 CE 07 CE 07 CE 07 00",
        msp.RcTuning(55, 0, 75, 75, 70, 65, 50, 0, 1350, 0, 57, 55, 0, 0, 100, 1998, 1998, 1998, 0),
    ),
    "150: armed, throttle and CLI against it": (
        Code.STATUS_EX,
        "7D 00 00 00 21 00 01 00 00 00 02 00 00 04 03 00 1A 80 20 00 00 00",
        msp.StatusEx(1, DisableFlag.THROTTLE | DisableFlag.CLI, 2, 3, 125, 33, 4),
    ),
}


@pytest.mark.parametrize("code, text, message", MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_this_payload_and_one_cut_short_is_none(code, text, message):
    payload = bytes.fromhex(text)
    assert decode(code, payload) == message
    assert message.encode() == payload
    if code not in (Code.RC, Code.BOARD_INFO):
        assert decode(code, payload[:-1]) is None, "cut short"
    assert decode(code, b"") is None


def test_every_message_that_is_read_has_a_vector():
    assert {code for code, _, _ in MESSAGES.values()} == set(msp.KINDS)


def test_what_newer_firmware_appends_or_is_not_used_is_ignored():
    busy = bytes.fromhex("7D 00 05 00 21 00 01 00 00 00 00 0C 00 04 00 01 FF 1A 80 20 00 00 01")
    assert decode(Code.STATUS_EX, busy).disabled == DisableFlag.THROTTLE | DisableFlag.CLI
    assert decode(Code.RAW_IMU, struct.pack("<10h", *range(10))) == msp.RawImu.of(range(9))


def test_several_messages_in_one_answer_have_their_sizes_before_them():
    payload = bytes.fromhex("06 97FF 8503 6701 04 DC05 E803")
    assert msp.split_multiple(payload) == [bytes.fromhex("97FF85036701"), bytes.fromhex("DC05E803")]
    assert msp.join_multiple(msp.split_multiple(payload)) == payload
    assert msp.split_multiple(payload[:-1]) is None
    assert len(msp.join_multiple([bytes(100)] * 3)) == 202, "as many as fit"


def test_an_answer_is_read_as_what_was_asked():
    codec = MspCodec()
    assert codec.poll([Code.ATTITUDE, Code.RC]) == bytes.fromhex("24 4D 3C 02 E6 6C 69 E1")
    body = bytes.fromhex("0C E6 06 97FF 8503 6701 04 DC05 E803")
    (answer,) = codec.feed(b"$M>" + body + bytes([xor8(body)]))
    assert answer.messages == (msp.RawAttitude(-105, 901, 359), msp.Channels((1500, 1000)))
    assert answer.wire_bytes == 18


BAD = {
    "an answer that nobody asked for": (Frame(Code.MULTIPLE_MSP, bytes(7), SAY), "malformed"),
    "a message that is too short": (Frame(Code.ATTITUDE, bytes(5), SAY), "malformed"),
    "a command that is not read": (Frame(7, bytes(5), SAY), "malformed"),
    "the echo of a request": (Frame(Code.ATTITUDE), "direction"),
    "an error": (Frame(Code.RC_TUNING, b"", NO), "refused"),
}


@pytest.mark.parametrize("frame, counter", BAD.values(), ids=BAD)
def test_what_cannot_be_used_is_counted(frame, counter):
    codec = MspCodec()
    assert not [message for answer in codec.feed(pack(frame)) for message in answer.messages]
    assert getattr(codec.counters, counter) == 1


frames = st.builds(Frame, st.integers(0, 254), st.binary(max_size=254), st.sampled_from(Direction))


@given(st.lists(frames, max_size=4), st.data())
@settings(max_examples=60)
def test_frames_survive_any_cut_of_the_stream(sent, data):
    stream, received, reader = b"".join(map(pack, sent)), [], parser()
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += reader.feed(stream[:size])
        stream = stream[size:]
    assert received == sent and reader.counters.damaged == 0


@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([b"$", b"$M>", b"$X<", b"$M>\xff", b"$X>\0\1\0\xff\xff"])), frames
)
@settings(max_examples=150)
def test_after_any_bytes_a_frame_is_heard_once_the_parser_gives_up(noise, frame):
    reader = parser()
    received = [found for part in noise for found in reader.feed(part)]
    received += reader.feed(3 * pack(frame))  # the first may be the rest of a frame that the noise has begun
    for _ in range(2000):  # as many as there are bytes
        received += reader.give_up()
    assert frame in received + reader.feed(pack(frame))  # the three may complete a frame of the noise, checksum and all


@given(frames, st.data())
@settings(max_examples=60)
def test_one_bit_wrong_is_no_frame_of_that_content(frame, data):
    sound = pack(frame)
    at = data.draw(st.integers(3, len(sound) - 1))
    wrong = bytearray(sound)
    wrong[at] ^= 1 << data.draw(st.integers(0, 7))
    reader = parser()
    assert frame not in reader.feed(bytes(wrong)) + reader.give_up()


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


def test_a_request_follows_the_answer_to_the_one_before_or_its_loss():
    scheduler = PollScheduler(40, 0.05)
    _, polls = run(scheduler, 2.0, 0.020)
    assert len(polls) == pytest.approx(100, abs=5)
    assert scheduler.figures.interval_mean_s == pytest.approx(0.020, abs=0.0011)
    scheduler = PollScheduler(0, 0.1)
    _, polls = run(scheduler, 1.05, None)
    assert len(polls) == 11 and scheduler.timeouts == 10 and scheduler.answers == 0


@given(st.lists(st.floats(0, 0.3), min_size=5, max_size=60))
@settings(max_examples=60)
def test_sticks_are_never_sent_faster_than_their_beat(steps):
    """However late the caller comes, and however often with commands: at most one beat is made up for."""
    scheduler, now, sent = PollScheduler(40, 0.1), 0.0, []
    for step in steps:
        now += step
        scheduler.lead_sticks()
        while scheduler.sticks_due(now):
            sent.append(now)
    for first in range(len(sent)):
        within = sum(1 for t in sent[first:] if t <= sent[first] + 1.0)
        assert within <= 40 + 3


@given(st.floats(0, 1e6), st.floats(1, 200))
@settings(max_examples=40)
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


def test_a_pseudo_terminal_carries_every_byte_unchanged(tmp_path):
    everything, link = bytes(range(256)), tmp_path / "uart"
    with terminal() as (flight_controller, name):
        link.symlink_to(name)
        port, received, said = open_port(str(link), 115200), b"", b""
        with contextlib.closing(port):
            os.write(flight_controller, everything)
            while len(received) < 256:
                received += port.read(5.0)
            port.write(everything)
            while len(said) < 256:
                said += os.read(flight_controller, 256)
            assert received == said == everything and port.read(0.0) == b""


def test_tcp_on_this_machine_carries_bytes_and_tells_of_its_end():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp:127.0.0.1:{server.getsockname()[1]}"
        port, (other, _) = open_port(address, 115200), server.accept()
        port.write(b"$M<")
        other.sendall(b"$M>")
        assert (other.recv(10), port.read(5.0)) == (b"$M<", b"$M>")
        other.close()
        with pytest.raises(LinkError, match="closed"):
            port.read(5.0)
        port.close()
    for nobody, words in ((address, "no answer"), ("/dev/pts/999999", "cannot be opened")):
        with pytest.raises(LinkError, match=words):
            open_port(nobody, 115200)


def test_without_pyserial_a_serial_port_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "serial", None)
    with pytest.raises(LinkError, match="pip install pyserial"):
        open_port("/dev/ttyUSB0", 115200, SAFETY_PAGE)
