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

SPEC, NOW_S = load_profile("spec"), 1_790_000_000.0
KEY, OTHER = (SigningKey(hashlib.sha256(text).digest(), NOW_S) for text in (b"correct horse", b"battery staple"))
BEAT = Heartbeat(0.0, True)


def client(key=KEY):
    return ClientCodec(SPEC, key=key)


def test_both_ends_with_one_key_understand_each_other():
    ours, theirs = client(), ServerCodec(SPEC, KEY)
    for _ in range(3):
        assert ours.decode(*theirs.encode(BEAT)) == [BEAT]
        assert theirs.decode(ours.encode(Arm(), 0.0)) == [Arm()]
    assert ours.counters.unsigned == theirs.counters.unsigned == 0


@pytest.mark.parametrize("key", [None, OTHER], ids=["unsigned", "signed with another key"])
def test_messages_not_signed_with_the_key_are_refused_and_counted(key):
    ours, theirs = client(), ServerCodec(SPEC, key)
    assert ours.decode(*theirs.encode(BEAT)) == [] and ours.counters.unsigned == 1
    server = ServerCodec(SPEC, KEY)
    assert server.decode(client(key).encode(Arm(), 0.0)) == [] and server.counters.unsigned == 1


def test_a_changed_bit_is_refused():
    ours, (packet,) = client(), ServerCodec(SPEC, KEY).encode(BEAT)
    for bit in range(8 * len(packet)):
        changed = bytearray(packet)
        changed[bit // 8] ^= 1 << bit % 8
        assert ours.decode(bytes(changed)) == [], f"bit {bit}"
    assert ours.decode(packet) == [BEAT]


def test_repeated_signed_messages_are_refused():
    ours, theirs = client(), ServerCodec(SPEC, KEY)
    first, second = (theirs.encode(BEAT)[0] for _ in range(2))
    assert ours.decode(first) == ours.decode(second) == [BEAT]
    assert ours.decode(first) == ours.decode(second) == [] and ours.counters.unsigned == 2


def test_a_forgery_with_a_stamp_of_the_future_silences_nobody():
    ours, theirs = client(), ServerCodec(SPEC, KEY)
    assert ours.decode(*theirs.encode(BEAT)) == [BEAT]
    forgery = bytearray(ServerCodec(SPEC, SigningKey(OTHER.secret, NOW_S + 1e6)).encode(BEAT)[0])
    assert ours.decode(bytes(forgery)) == []
    assert ours.decode(*theirs.encode(BEAT)) == [BEAT]


def test_a_recording_of_another_day_is_refused():
    yesterday = ServerCodec(SPEC, SigningKey(KEY.secret, NOW_S - 86_400))
    assert client().decode(*yesterday.encode(BEAT)) == []


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
