"""Packets of pymavlink, as programs of other people send them."""

from typing import Any

from pymavlink.dialects.v20 import common as dialect

LEVEL, STILL = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0)


def packed(message: dialect.MAVLink_message, system: int = 255, component: int = 190) -> bytes:
    return message.pack(dialect.MAVLink(None, srcSystem=system, srcComponent=component))


def unpacked(datagram: bytes) -> Any:
    """The one message of a datagram."""
    return dialect.MAVLink(None).decode(bytearray(datagram))


def command_long(number: int, *parameters: float, system: int = 1) -> dialect.MAVLink_message:
    """COMMAND_LONG, with zeros for the parameters that are not given."""
    filled = (*parameters, *[0.0] * (7 - len(parameters)))
    return dialect.MAVLink_command_long_message(system, 1, number, 0, *filled)


def attitude_target(mask, q=LEVEL, rates=STILL, thrust=0.5, system=1) -> dialect.MAVLink_message:
    return dialect.MAVLink_set_attitude_target_message(0, system, 1, mask, q, *rates, thrust)


def position_target(mask, frame=1, p=STILL, v=STILL, a=STILL, yaw=0.0, yaw_rate=0.0) -> dialect.MAVLink_message:
    return dialect.MAVLink_set_position_target_local_ned_message(0, 1, 1, frame, mask, *p, *v, *a, yaw, yaw_rate)
