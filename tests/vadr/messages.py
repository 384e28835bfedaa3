"""VADR-TS-002, 4.1 to 4.5, 5 and 6: every message of either side. Bytes are compared with pymavlink's own."""

import math

import numpy as np
from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.client import ClientCodec
from gate_racer.link.messages import (
    UNASKED,
    Ack,
    Arm,
    Attitude,
    AttitudeTarget,
    Heartbeat,
    Imu,
    LocalPosition,
    PositionTarget,
    TargetFrame,
    TimesyncRequest,
)
from gate_racer.link.server import ServerCodec
from gate_racer.vehicle.rotation import from_euler
from tests.mavlink import attitude_target, command_long, packed, position_target
from tests.sim.peer import HOVER, Peer
from tests.vadr.row import (
    DCL,
    LEVEL,
    SPEC,
    STILL,
    VQ1,
    A,
    P,
    Row,
    V,
    flown,
    read,
    received,
    said,
    simulator_bytes,
    told,
)

LINK_MASK, ALL_RATES = 128, 7


def telemetry() -> list[Row]:
    """Simulator to client: the bytes, and that the client reads them."""
    rows = []
    flags = dialect.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | dialect.MAV_MODE_FLAG_MANUAL_INPUT_ENABLED
    states = (False, flags, dialect.MAV_STATE_STANDBY), (True, flags | 128, dialect.MAV_STATE_ACTIVE)
    for armed, mode, state in states:
        packet = dialect.MAVLink_heartbeat_message(2, 0, mode, 0, state, 3)
        rows += _both("4.3", f"HEARTBEAT tells armed={armed}", Heartbeat(0.0, armed), packet)
    for roll, pitch, yaw in ((0, 0, 0), (0.5, 0, 0), (0, -0.31, 0), (0, 0, 3.0), (-1.0, 0.7, -2.0)):
        q = from_euler(roll, pitch, yaw)
        wire = ServerCodec(SPEC).encode(Attitude(2.0, tuple(q.tolist())))[0]
        fields = dialect.MAVLink(None).decode(bytearray(wire))
        angles = fields.roll, fields.pitch, fields.yaw
        packet = dialect.MAVLink_attitude_message(2000, *angles, 0, 0, 0)
        rows += [
            Row("4.3", f"ATTITUDE of {roll}, {pitch}, {yaw} is pymavlink's", lambda w=wire, p=packet: w == simulator_bytes(p)),
            Row("3.8", f"ATTITUDE {roll}, {pitch}, {yaw} is roll, pitch, yaw in NED",
                lambda a=angles, r=(roll, pitch, yaw): np.allclose(a, r, atol=1e-6)),
            Row("4.3", f"the client reads ATTITUDE {roll}, {pitch}, {yaw}",
                lambda w=wire, q=q: abs(abs(np.dot(received(w)[0].q_wb, q)) - 1) < 1e-6),
        ]  # fmt: skip
    for axis in range(3):
        accel, gyro = np.eye(3)[axis] * -9.5, np.eye(3)[axis] * 0.25
        imu = Imu(1.5, tuple(accel.tolist()), tuple(gyro.tolist()))
        packet = dialect.MAVLink_highres_imu_message(1_500_000, *imu.accel, *imu.gyro, *[math.nan] * 7, 63)
        rows += _both("4.3", f"HIGHRES_IMU tells axis {'xyz'[axis]} in FRD, SI", imu, packet)
    rows += [
        Row("4.3", "TIMESYNC goes from the simulator to the client", lambda: said(TimesyncRequest) == 2),
        Row("4.3", "the simulator's TIMESYNC request is pymavlink's",
            lambda: told(TimesyncRequest(5)) == simulator_bytes(dialect.MAVLink_timesync_message(0, 5))),
        Row("4.3", "the client answers it, ts1 echoed", _client_answers),
        Row("4.3", "the simulator answers the client's, ts1 echoed", _simulator_answers),
        Row("4.4", "HEARTBEAT comes at 2 Hz or more", lambda: said(Heartbeat) >= 4),
        Row("4.4", "HIGHRES_IMU comes at 120 Hz", lambda: said(Imu) == 240),
        Row("4.5", "ATTITUDE comes at 120 Hz", lambda: said(Attitude) == 240),
        Row("4.5", "system status flags stand in HEARTBEAT", lambda: received(told(Heartbeat(0.0, True)))[0].armed),
        *_both("4.5", "velocity is told by LOCAL_POSITION_NED", LocalPosition(1.0, P, V),
               dialect.MAVLink_local_position_ned_message(1000, *P, *V)),
        *_both("6", "arming is acknowledged", Ack(0.0, True), dialect.MAVLink_command_ack_message(400, 0)),
        *_both("6", "arming may be denied", Ack(0.0, False), dialect.MAVLink_command_ack_message(400, 2)),
    ]  # fmt: skip
    return rows


def _both(section, says, message, packet) -> list[Row]:
    """The simulator says pymavlink's bytes; the client reads them back."""
    wire = simulator_bytes(packet)
    return [
        Row(section, f"{says}: pymavlink's bytes", lambda: told(message) == wire),
        Row(section, f"{says}: the client reads it", lambda: received(wire) == [message]),
    ]


def _client_answers() -> bool:
    client = ClientCodec(SPEC)
    client.decode(told(TimesyncRequest(77)))
    answer = packed(dialect.MAVLink_timesync_message(2_000_000_000, 77))
    return client.timesync_replies(2.0) == [answer] and client.timesync_replies(2.0) == [] and read(answer) == []


def _simulator_answers() -> bool:
    pilot = Peer(VQ1, DCL, SPEC)
    pilot.ticks(0.5)
    (answer,) = pilot.bytes(packed(dialect.MAVLink_timesync_message(0, 77)))
    return answer == simulator_bytes_at(dialect.MAVLink_timesync_message(500_000_000, 77), answer[4])


def simulator_bytes_at(message, seq: int) -> bytes:
    mav = dialect.MAVLink(None, srcSystem=1, srcComponent=SPEC.component)
    mav.seq = seq
    return message.pack(mav)


def commands() -> list[Row]:
    """Client to simulator: the bytes, and what the simulator makes of pymavlink's."""
    rates = (0.25, -0.5, 0.75)
    rows = [
        *_asked("4.3", "body rates and thrust", AttitudeTarget(LEVEL, rates, 0.5), attitude_target(LINK_MASK, rates=rates)),
        *_asked("4.3", "attitude and thrust", AttitudeTarget((0.5, 0.5, -0.5, 0.5), STILL, 0.25, by_rates=False),
                attitude_target(ALL_RATES, (0.5, 0.5, -0.5, 0.5), thrust=0.25)),
        *_asked("4.3", "rates, throttle ignored", AttitudeTarget(LEVEL, rates, 0.0, keep_throttle=True),
                attitude_target(LINK_MASK | 64, rates=rates, thrust=0.0)),
        *_asked("6", "arm", Arm(True), command_long(400, 1)),
        *_asked("6", "disarm", Arm(False), command_long(400)),
        Row("5.2", "the client's HEARTBEAT is pymavlink's",
            lambda: ClientCodec(SPEC).heartbeat() == packed(dialect.MAVLink_heartbeat_message(6, 8, 0, 0, 4, 3))),
        Row("4.3", "the client's TIMESYNC is pymavlink's",
            lambda: ClientCodec(SPEC).timesync(3.0) == packed(dialect.MAVLink_timesync_message(0, 3_000_000_000))),
        Row("3.8", "MAV_FRAME_BODY_NED moves along the heading", lambda: _moved(TargetFrame.BODY)[0] < -0.3),
        Row("3.8", "MAV_FRAME_LOCAL_NED moves along the world's x", lambda: _moved(TargetFrame.LOCAL)[0] > 0.3),
        Row("3.8", "the body's z points down", lambda: flown(HOVER, 1.0).simulator.truth.x[9] < 0),
    ]  # fmt: skip
    wanted = {"position": (3576, P, UNASKED, UNASKED), "velocity": (3527, UNASKED, V, UNASKED),
              "acceleration": (3135, UNASKED, UNASKED, A), "all three": (3072, P, V, A)}  # fmt: skip
    frames = {1: TargetFrame.LOCAL, 7: TargetFrame.OFFSET, **dict.fromkeys((8, 9, 12), TargetFrame.BODY)}
    for number, frame in frames.items():
        for name, (mask, p, v, a) in wanted.items():
            target = PositionTarget(p, v, frame=frame, a=a)
            packet = position_target(mask, number, *((0.0,) * 3 if part is UNASKED else part for part in (p, v, a)))
            rows.append(Row("4.3", f"{name} in frame {number} is read",
                            lambda t=target, m=packet: read(packed(m)) == [t]))  # fmt: skip
            if number in (1, 7, 8):
                rows.append(Row("4.3", f"{name} in frame {number}: the client's bytes are pymavlink's",
                                lambda t=target, m=packet: ClientCodec(SPEC).encode(t, 0.0) == packed(m)))  # fmt: skip
        alone = PositionTarget(UNASKED, UNASKED, yaw=0.5, frame=frame)
        rows.append(Row("4.3", f"yaw alone in frame {number}",
                        lambda t=alone, n=number: read(packed(position_target(3071, n, yaw=0.5))) == [t]))  # fmt: skip
    for number in (0, 2, 3, 4, 5, 6, 10, 11, 13, 20, 21, 255):
        rows.append(Row("3.8", f"frame {number} is refused",
                        lambda n=number: not read(packed(position_target(3576, n)))))  # fmt: skip
    for mask in (0, 1, 2, 4, 7, 16, 128, 129, 144):
        by_rates = mask >= 128
        rows.append(Row("4.3", f"mask {mask} of SET_ATTITUDE_TARGET follows {'rates' if by_rates else 'the attitude'}",
                        lambda m=mask, b=by_rates: read(packed(attitude_target(m)))[0].by_rates == b))  # fmt: skip
    return rows


def _asked(section, says, command, packet) -> list[Row]:
    def written() -> bool:
        return ClientCodec(SPEC).encode(command, 0.0) == packed(packet)

    return [
        Row(section, f"{says}: the client's bytes are pymavlink's", written),
        Row(section, f"{says}: the simulator reads pymavlink's", lambda: read(packed(packet)) == [command]),
    ]


def _moved(frame) -> np.ndarray:
    """Velocity, m/s, after a second of 1 m/s along x; the pad looks along -x."""
    target = PositionTarget(UNASKED, (1.0, 0.0, -1.0), frame=frame)
    return flown(target).simulator.truth.x[7:10]


def transport() -> list[Row]:
    """Every message of either side is MAVLink 2."""
    ours = {
        "HEARTBEAT": told(Heartbeat(0.0, True)),
        "ATTITUDE": told(Attitude(1.0, LEVEL)),
        "HIGHRES_IMU": told(Imu(1.0, STILL, STILL)),
        "TIMESYNC": told(TimesyncRequest(1)),
        "the client's HEARTBEAT": ClientCodec(SPEC).heartbeat(),
        "SET_ATTITUDE_TARGET": ClientCodec(SPEC).encode(HOVER, 0.0),
        "SET_POSITION_TARGET_LOCAL_NED": ClientCodec(SPEC).encode(PositionTarget(P, UNASKED), 0.0),
    }
    rows = [Row("4.1", f"{name} is MAVLink 2", lambda d=datagram: d[0] == 0xFD) for name, datagram in ours.items()]
    return [*rows, Row("4.2", "MAVLink goes by UDP, the client on 14550", lambda: SPEC.mavlink_port == 14550)]
