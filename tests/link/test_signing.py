"""MAVLink 2 signing, between our own ends and with pymavlink's."""

import hashlib

import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer.common.errors import UserError
from gate_racer.link.client import ClientCodec
from gate_racer.link.mavlink import EPOCH_S, UNITS_PER_S, SigningKey, read_key
from gate_racer.link.messages import Arm, Heartbeat
from gate_racer.link.profile import load_profile
from gate_racer.link.server import ServerCodec
from gate_racer.sim.report import report
from gate_racer.sim.simulator import RunSetup, Simulator
from gate_racer.sim.wire.station import Station
from gate_racer.sim.worlds.world import as_believed

SPEC, NOW_S = load_profile("spec"), 1_790_000_000.0
KEY, OTHER = (SigningKey(hashlib.sha256(text).digest(), NOW_S) for text in (b"correct horse", b"battery staple"))
BEAT = Heartbeat(0.0, True)


def client(key=KEY):
    return ClientCodec(SPEC, key=key)


def test_a_changed_bit_and_a_repeated_message_are_refused():
    ours, (packet,) = client(), ServerCodec(SPEC, KEY).encode(BEAT)
    for bit in range(8 * len(packet)):
        changed = bytearray(packet)
        changed[bit // 8] ^= 1 << bit % 8
        assert ours.decode(bytes(changed)) == [], f"bit {bit}"
    assert ours.decode(packet) == [BEAT]
    ours, theirs = client(), ServerCodec(SPEC, KEY)
    first, second = (theirs.encode(BEAT)[0] for _ in range(2))
    assert ours.decode(first) == ours.decode(second) == [BEAT]
    assert ours.decode(first) == ours.decode(second) == [] and ours.counters.unsigned == 2


def ticking(ahead_s, clock):
    return SigningKey(KEY.secret, NOW_S + ahead_s, lambda: clock[0])


@pytest.mark.parametrize("later_s", [1, 20, 59, 3600])
def test_a_recording_is_refused_after_a_restart(later_s):
    recorded = client(ticking(0.0, [0.0])).encode(Arm(), 0.0)
    assert ServerCodec(SPEC, ticking(0.0, [0.0])).decode(recorded) == [Arm()]
    restarted = ServerCodec(SPEC, ticking(later_s, [0.0]))
    assert restarted.decode(recorded) == [] and restarted.counters.unsigned == 1


AHEAD_S = 90.0, 86_400.0, 365 * 86_400.0
WRONG = *(ticking(ahead_s, [0.0]) for ahead_s in AHEAD_S), SigningKey(OTHER.secret, NOW_S + 1e6)


@pytest.mark.parametrize("wrong", WRONG, ids=[*map(str, AHEAD_S), "forged"])
def test_one_wrong_clock_or_forger_locks_nobody_out(wrong):
    server = ServerCodec(SPEC, ticking(0.0, [0.0]))
    other, right = client(wrong), client(ticking(0.0, [0.0]))
    for _ in range(3):
        assert server.decode(other.encode(Arm(), 0.0)) == []
        assert right.decode(*server.encode(BEAT)) == [BEAT] and server.decode(right.encode(Arm(), 0.0)) == [Arm()]


@pytest.mark.parametrize("off_s", [-50.0, -1.0, 0.0, 1.0, 50.0])
@pytest.mark.parametrize("older_s", [0.0, 1000.0], ids=["started together", "the client long before"])
def test_clocks_that_agree_to_a_minute_are_enough(off_s, older_s):
    clock, understood = [0.0], set()
    ours = client(ticking(off_s, clock))
    clock[0] = older_s
    theirs = ServerCodec(SPEC, ticking(older_s, clock))
    for _ in range(61):
        clock[0] += 1.0
        understood |= {type(m) for m in ours.decode(*theirs.encode(BEAT)) + theirs.decode(ours.encode(Arm(), 0.0))}
    assert understood == {Heartbeat, Arm}


LINES = {
    "are not signed": None,
    "with another key": OTHER,
    "a clock 31536000 s ahead": ticking(365 * 86_400.0, [0.0]),
    "86400 s ago": ticking(-86_400.0, [0.0]),
}


@pytest.mark.parametrize("line", LINES)
def test_each_cause_of_a_refusal_is_told_apart_in_one_line_at_both_ends(line, vq1, dcl):
    ours, mine = client(ticking(0.0, [0.0])), ticking(0.0, [0.0])
    assert ours.decode(*ServerCodec(SPEC, LINES[line]).encode(BEAT)) == []
    assert line in ours.framing.why_refused and "\n" not in ours.framing.why_refused and ours.counters.unsigned == 1
    station = Station(Simulator(as_believed(vq1, dcl), SPEC, 0, RunSetup(strict=True)), key=mine)
    for _ in range(3):
        station.receive(client(LINES[line]).encode(Arm(), 0.0), ("127.0.0.1", 1), 0.0)
    (told,) = report(station.simulator).violations
    assert line in told.reason and told.count == 3 and not station.simulator.referee.race.over


def test_pymavlink_accepts_our_signature_and_we_accept_its():
    theirs = dialect.MAVLink(None, 1, 1)
    theirs.signing.secret_key, theirs.signing.sign_outgoing = KEY.secret, True
    theirs.signing.timestamp = round((NOW_S - EPOCH_S) * UNITS_PER_S)
    assert theirs.decode(bytearray(client().encode(Arm(), 0.0))).get_type() == "COMMAND_LONG"
    heartbeat = dialect.MAVLink_heartbeat_message(2, 0, 193, 0, 4, 3)
    assert client().decode(heartbeat.pack(theirs)) == [BEAT]


def test_a_key_is_the_hash_of_a_passphrase_in_a_file(tmp_path):
    (tmp_path / "key").write_text("correct horse\n")
    assert read_key(tmp_path / "key", NOW_S) == KEY
    (tmp_path / "empty").write_text("\n")
    for name, words in (("empty", "is empty"), ("none", "cannot be read")):
        with pytest.raises(UserError, match=f"{name}: {words}"):
            read_key(tmp_path / name, NOW_S)
