"""The race in ENCAPSULATED_DATA, and the little that ground stations ask for."""

import math

import pytest
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.messages import (
    GroundStatus,
    Heartbeat,
    MapGate,
    RaceStatus,
    TrackMap,
)
from gate_racer.link.server import ServerCodec
from tests.link.codecs import SPEC, client, packed, said, server


@pytest.mark.parametrize("gates", [1, 6, 40])
def test_the_race_and_its_map_arrive_whole_and_in_any_order(gates):
    codec, simulator = client(), server()
    status = RaceStatus(12.5, 13.25, None, 3, 4.5)
    assert codec.decode(said(simulator, status)) == [status]
    track = TrackMap(0.0, tuple(MapGate(n, (n, 2, 3), (0.5, 0.5, 0.5, 0.5), 2.5, 2.5) for n in range(gates)))
    shake, *chunks = simulator.encode(track)
    received = [message for packet in (shake, *reversed(chunks)) for message in codec.decode(packet)]
    assert received == [track]


@pytest.mark.parametrize(
    "payload", [b"", b"\x02", b"\x02\xff\xff", bytes([2, 0, 0, 0xFF, 0xFF]), b"\x01" + b"\xff" * 36]
)
def test_a_map_or_status_without_meaning_is_no_map(payload):
    codec, data = client(), payload.ljust(253, b"\0")
    codec.decode(packed(dialect.MAVLink_data_transmission_handshake_message(0, 65535, 1, 0, 1, 250, 0), 1, 200))
    received = codec.decode(packed(dialect.MAVLink_encapsulated_data_message(0, data), 1, 200))
    assert not any(isinstance(message, TrackMap) for message in received)


# Ground stations.


def answered(datagram, profile=SPEC):
    """Return the simulator's answers, as pymavlink decodes them."""
    codec = ServerCodec(profile)
    codec.encode(GroundStatus(0.0, True, (1.0, 2.0, 3.0)))
    assert codec.decode(datagram) == []
    return [dialect.MAVLink(None).decode(bytearray(reply)) for reply in codec.replies()]


def test_a_ground_station_gets_its_mode_version_home_and_the_one_parameter():
    def request(command, *parameters):
        padded = (*parameters, *[0] * (7 - len(parameters)))
        return packed(dialect.MAVLink_command_long_message(1, 1, command, 0, *padded))

    def kinds(datagram):
        return [message.get_type() for message in answered(datagram)]

    assert kinds(request(dialect.MAV_CMD_REQUEST_MESSAGE, 148)) == ["COMMAND_ACK", "AUTOPILOT_VERSION"]
    assert kinds(request(dialect.MAV_CMD_REQUEST_MESSAGE, 242)) == ["COMMAND_ACK", "HOME_POSITION"]
    assert answered(request(dialect.MAV_CMD_REQUEST_MESSAGE, 1))[0].result == dialect.MAV_RESULT_UNSUPPORTED
    assert kinds(packed(dialect.MAVLink_param_request_list_message(1, 1))) == ["PARAM_VALUE"]
    assert kinds(packed(dialect.MAVLink_param_request_read_message(1, 1, b"SYSID_THISMAV", -1))) == ["PARAM_VALUE"]
    assert kinds(packed(dialect.MAVLink_param_request_read_message(1, 1, b"ELSE", -1))) == []
    codec = server()
    codec.decode(request(dialect.MAV_CMD_DO_SET_MODE, 1, 6))
    beat = dialect.MAVLink(None).decode(bytearray(codec.encode(Heartbeat(0.0, False))[0]))
    assert beat.custom_mode == 6 << 16


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 256.0])
def test_a_mode_that_is_none_is_denied(value):
    (ack,) = answered(packed(dialect.MAVLink_command_long_message(1, 1, 176, 0, 1, value, 0, 0, 0, 0, 0)))
    assert ack.result == dialect.MAV_RESULT_DENIED
