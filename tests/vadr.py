"""VADR-TS-002 as a table of rows: section, sentence, and what must hold. Bytes are compared with pymavlink's own."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from pymavlink.dialects.v20 import common as dialect

from link.client import ClientCodec
from link.messages import (
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
    VideoFrame,
)
from link.profile import load_profile
from link.server import ServerCodec
from link.udp import LEAST_HEARTBEAT_HZ, RateGuard
from link.video import HEADER, Reassembler, chunks
from sim.referee import RunStatus
from sim.simulator import Simulator
from sim.wire.compliance import COMMAND_RATE, DISARMED, HEARTBEAT_RATE
from sim.worlds.world import as_believed
from tests.sim.peer import HOVER, Peer
from tracks.track import VADR_FRAME, load_track
from vehicle.dynamics import GRAVITY
from vehicle.rotation import from_euler, matrix
from vehicle.vehicle import load_vehicle

SPEC, DCL, VQ1 = load_profile("spec"), load_vehicle("dcl"), load_track("tracks/vq1.yaml")
CAMERA = DCL.camera
LEVEL, STILL = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
LINK_MASK, ALL_RATES = 128, 7
P, V, A = (1.0, -2.0, -3.0), (0.5, 0.25, -0.125), (2.0, -4.0, 1.0)


class Row(NamedTuple):
    section: str
    says: str
    holds: Callable[[], bool]


def simulator_bytes(message) -> bytes:
    return message.pack(dialect.MAVLink(None, srcSystem=1, srcComponent=SPEC.component))


def client_bytes(message) -> bytes:
    return message.pack(dialect.MAVLink(None, srcSystem=255, srcComponent=190))


def told(message) -> bytes:
    return b"".join(ServerCodec(SPEC).encode(message))


def read(datagram: bytes):
    return ServerCodec(SPEC).decode(datagram)


def heard(datagram: bytes):
    return ClientCodec(SPEC).decode(datagram)


def attitude_target(mask, q=LEVEL, rates=STILL, thrust=0.5, t=0.0):
    return dialect.MAVLink_set_attitude_target_message(round(t * 1e3), 1, 1, mask, q, *rates, thrust)


def position_target(frame, mask, p=STILL, v=STILL, a=STILL, yaw=0.0, yaw_rate=0.0):
    return dialect.MAVLink_set_position_target_local_ned_message(0, 1, 1, frame, mask, *p, *v, *a, yaw, yaw_rate)


def flown(command=None, seconds=1.0, hz=60, arm=True, beats=True, strict=False) -> Peer:
    """A session with a simulator: set-points at a rate."""
    pilot = Peer(VQ1, DCL, SPEC, beats=beats, strict=strict)
    pilot.beat()
    if arm:
        pilot.say(Arm(True))
    for n in range(round(seconds * 120)):
        for _ in range(n * hz // 120, (n + 1) * hz // 120):
            pilot.say(command or AttitudeTarget(LEVEL, STILL, 0.1))
        pilot.ticks(1 / 120)
    return pilot


def said(kind, seconds=2.0) -> int:
    simulator = Simulator(as_believed(VQ1, DCL), SPEC, 0)
    ticks = [simulator.tick() for _ in range(round(seconds * 120))]
    if kind is VideoFrame:
        return sum(tick.exposure is not None for tick in ticks)
    return sum(isinstance(message, kind) for tick in ticks for message in tick.telemetry)


def environment() -> list[Row]:
    far = CAMERA.project(np.array([[1.0, 0.0, 1.0]]))[0]
    up = CAMERA.R_bc @ np.array([0.0, 0.0, 1.0])
    return [
        Row("3.2", "physics run at 120 Hz", lambda: SPEC.physics_hz == 120),
        Row("3.2", "gravity, thrust, drag and collisions act", lambda: flown(seconds=0.2).simulator.truth.accel_b[2] < -9),
        Row("3.3", "no absolute position is told unless asked for", lambda: said(LocalPosition) == 0),
        Row("3.5", "the same run twice is the same bytes", lambda: flown(seconds=0.2).sent == flown(seconds=0.2).sent),
        *(Row("3.6", f"the body's side {k} is {side} m", lambda k=k, side=side: DCL.body_m[k] == side)
          for k, side in enumerate((0.28, 0.28, 0.16))),
        Row("3.7", "the opening is 1500 mm", lambda: all(gate.opening_m == 1.5 for gate in VQ1.gates)),
        Row("3.7", "the gate is 260 mm deep", lambda: all(gate.depth_m == 0.26 for gate in VQ1.gates)),
        Row("3.7", "the outer side is 2720 mm, as broadcast, not 2700", lambda: VADR_FRAME.outer_m == 2.72),
        Row("3.8", "z of MAV_FRAME_LOCAL_NED points down", lambda: flown(HOVER, 1.0).simulator.truth.p_wb[2] < 0),
        Row("3.8", "the origin is fixed on the ground", lambda: abs(VQ1.start.p_wb[2]) < 0.03),
        Row("3.8", "the camera sits at the body's origin", lambda: not CAMERA.p_bc.any()),
        Row("3.8", "the camera looks 20 deg up", lambda: math.isclose(math.degrees(math.asin(-up[2])), 20)),
        Row("3.8", "the image has 640 x 360 px", lambda: (CAMERA.width_px, CAMERA.height_px) == (640, 360)),
        Row("3.8", "cx, cy are 320, 180 px", lambda: (CAMERA.cx_px, CAMERA.cy_px) == (320, 180)),
        Row("3.8", "fx, fy are 320 px", lambda: (CAMERA.fx_px, CAMERA.fy_px) == (320, 320)),
        Row("3.8", "the lens has no distortion", lambda: not CAMERA.distorts),
        Row("3.8", "the 90 deg are the horizontal view", lambda: math.isclose(far[0], 640) and math.isclose(far[1], 180)),
        Row("3.8", "body to IMU is the identity", lambda: np.allclose(_on_pad(), -GRAVITY * matrix(VQ1.start.q_wb)[2], atol=0.5)),
    ]  # fmt: skip


def _on_pad() -> np.ndarray:
    """What the accelerometer reads at rest, m/s^2."""
    simulator = Simulator(as_believed(VQ1, DCL), SPEC, 0)
    return np.array(next(message.accel for message in simulator.tick().telemetry if isinstance(message, Imu)))


def telemetry() -> list[Row]:
    """Simulator to client: the bytes, and that the client reads them."""
    rows = []
    flags = dialect.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | dialect.MAV_MODE_FLAG_MANUAL_INPUT_ENABLED
    for armed, mode, state in (
        (False, flags, dialect.MAV_STATE_STANDBY),
        (True, flags | 128, dialect.MAV_STATE_ACTIVE),
    ):
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
                lambda w=wire, q=q: abs(abs(np.dot(heard(w)[0].q_wb, q)) - 1) < 1e-6),
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
        Row("4.5", "system status flags stand in HEARTBEAT", lambda: heard(told(Heartbeat(0.0, True)))[0].armed),
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
        Row(section, f"{says}: the client reads it", lambda: heard(wire) == [message]),
    ]


def _client_answers() -> bool:
    client = ClientCodec(SPEC)
    client.decode(told(TimesyncRequest(77)))
    answer = client_bytes(dialect.MAVLink_timesync_message(2_000_000_000, 77))
    return client.timesync_replies(2.0) == [answer] and client.timesync_replies(2.0) == [] and read(answer) == []


def _simulator_answers() -> bool:
    pilot = Peer(VQ1, DCL, SPEC)
    pilot.ticks(0.5)
    (answer,) = pilot.bytes(client_bytes(dialect.MAVLink_timesync_message(0, 77)))
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
        *_asked("6", "arm", Arm(True), dialect.MAVLink_command_long_message(1, 1, 400, 0, 1, 0, 0, 0, 0, 0, 0)),
        *_asked("6", "disarm", Arm(False), dialect.MAVLink_command_long_message(1, 1, 400, 0, 0, 0, 0, 0, 0, 0, 0)),
        Row("5.2", "the client's HEARTBEAT is pymavlink's",
            lambda: ClientCodec(SPEC).heartbeat() == client_bytes(dialect.MAVLink_heartbeat_message(6, 8, 0, 0, 4, 3))),
        Row("4.3", "the client's TIMESYNC is pymavlink's",
            lambda: ClientCodec(SPEC).timesync(3.0) == client_bytes(dialect.MAVLink_timesync_message(0, 3_000_000_000))),
        Row("3.8", "MAV_FRAME_BODY_NED moves along the heading", lambda: _moved(TargetFrame.BODY)[0] < -0.3),
        Row("3.8", "MAV_FRAME_LOCAL_NED moves along the world's x", lambda: _moved(TargetFrame.LOCAL)[0] > 0.3),
        Row("3.8", "the body's z points down", lambda: flown(HOVER, 1.0).simulator.truth.x[9] < 0),
    ]  # fmt: skip
    wanted = {"position": (3576, P, UNASKED, UNASKED), "velocity": (3527, UNASKED, V, UNASKED),
              "acceleration": (3135, UNASKED, UNASKED, A), "all three": (3072, P, V, A)}  # fmt: skip
    frames = {
        1: TargetFrame.LOCAL,
        7: TargetFrame.OFFSET,
        8: TargetFrame.BODY,
        9: TargetFrame.BODY,
        12: TargetFrame.BODY,
    }
    for number, frame in frames.items():
        for name, (mask, p, v, a) in wanted.items():
            target = PositionTarget(p, v, frame=frame, a=a)
            packet = position_target(number, mask, *((0.0,) * 3 if part is UNASKED else part for part in (p, v, a)))
            rows.append(
                Row("4.3", f"{name} in frame {number} is read", lambda t=target, m=packet: read(client_bytes(m)) == [t])
            )
            if number in (1, 7, 8):
                rows.append(Row("4.3", f"{name} in frame {number}: the client's bytes are pymavlink's",
                                lambda t=target, m=packet: ClientCodec(SPEC).encode(t, 0.0) == client_bytes(m)))  # fmt: skip
        alone = PositionTarget(UNASKED, UNASKED, yaw=0.5, frame=frame)
        rows.append(Row("4.3", f"yaw alone in frame {number}",
                        lambda t=alone, n=number: read(client_bytes(position_target(n, 3071, yaw=0.5))) == [t]))  # fmt: skip
    for number in (0, 2, 3, 4, 5, 6, 10, 11, 13, 20, 21, 255):
        rows.append(
            Row("3.8", f"frame {number} is refused", lambda n=number: not read(client_bytes(position_target(n, 3576))))
        )
    for mask, by_rates in (
        (0, False),
        (1, False),
        (2, False),
        (4, False),
        (7, False),
        (16, False),
        (128, True),
        (129, True),
        (144, True),
    ):
        rows.append(Row("4.3", f"mask {mask} of SET_ATTITUDE_TARGET follows {'rates' if by_rates else 'the attitude'}",
                        lambda m=mask, b=by_rates: read(client_bytes(attitude_target(m)))[0].by_rates == b))  # fmt: skip
    return rows


def _asked(section, says, command, packet) -> list[Row]:
    return [
        Row(
            section,
            f"{says}: the client's bytes are pymavlink's",
            lambda: ClientCodec(SPEC).encode(command, 0.0) == client_bytes(packet),
        ),
        Row(section, f"{says}: the simulator reads pymavlink's", lambda: read(client_bytes(packet)) == [command]),
    ]


def _moved(frame) -> np.ndarray:
    """Velocity, m/s, after a second of 1 m/s along x; the pad looks along -x."""
    target = PositionTarget(UNASKED, (1.0, 0.0, -1.0), frame=frame)
    return flown(target).simulator.truth.x[7:10]


def timing() -> list[Row]:
    def guarded(hz: float) -> int:
        guard = RateGuard(SPEC.command_limit_hz)
        return sum(guard.admit(n / hz) for n in range(round(hz)))

    rows = [
        Row("4.4", "the client's own set-points stay under 100 Hz", lambda: SPEC.command_hz < 100),
        Row("4.4", "the client sends 99 of 500 set-points of a second", lambda: guarded(500) == 99),
        Row(
            "4.4",
            "the client's heartbeats come at over 2 Hz",
            lambda: min(LEAST_HEARTBEAT_HZ, SPEC.client_heartbeat_hz) > 2,
        ),
        Row("4.4", "no heartbeat at all is told of", lambda: HEARTBEAT_RATE in flown(beats=False).violations),
        Row("5.2", "heartbeats and set-points in time are not", lambda: not flown(seconds=2.0).violations),
        Row("6", "a set-point before arming is told of", lambda: DISARMED in flown(arm=False).violations),
        Row("6", "the simulator applies commands", lambda: flown(HOVER).simulator.truth.p_wb[2] < -0.2),
        Row("6", "and telemetry goes on", lambda: bool(flown(seconds=0.1).sent)),
        Row(
            "7",
            "a strict referee disqualifies",
            lambda: flown(arm=False, strict=True).race.status is RunStatus.DISQUALIFIED,
        ),
        Row("8.2", "start, gates in order, finish", lambda: len(VQ1.gates) == 6 and not VQ1.closed),
        Row("8.3", "a run may take 8 minutes", lambda: SPEC.run_limit_s == 480),
    ]
    for hz in (60, 90, 99, 100, 120, 500):
        rows.append(Row("4.4", f"{hz} Hz of set-points {'is too much' if hz >= 100 else 'is right'}",
                        lambda hz=hz: (COMMAND_RATE in flown(hz=hz, seconds=1.5).violations) == (hz >= 100)))  # fmt: skip
    return rows


def vision() -> list[Row]:
    jpeg = bytes(range(256)) * 20
    parts = chunks(7, 1.25, jpeg, SPEC.video_chunk_bytes)
    fields = [HEADER.unpack_from(part) for part in parts]
    little = [
        (0, 4, 7),
        (4, 2, 0),
        (6, 2, len(parts)),
        (8, 4, len(jpeg)),
        (12, 4, SPEC.video_chunk_bytes),
        (16, 8, 1_250_000_000),
    ]
    names = ("frame_id", "chunk_id", "total_chunks", "jpeg_size", "payload_size", "sim_time_ns")
    rows = [
        Row("4.6", "images come at 30 Hz", lambda: said(VideoFrame) == 60),
        Row("4.6", "the port is 5600", lambda: SPEC.video_port == 5600),
        Row("4.6", "the header has 24 bytes", lambda: HEADER.size == 24),
        Row(
            "4.6", "chunks count from 0 to total_chunks - 1", lambda: [f[1] for f in fields] == list(range(len(parts)))
        ),
        Row(
            "4.6",
            "payload_size is that of the packet",
            lambda: all(f[4] == len(p) - 24 for f, p in zip(fields, parts, strict=True)),
        ),
        Row("4.6", "the payloads make the JPEG", lambda: b"".join(p[24:] for p in parts) == jpeg),
        Row("4.6", "the client puts it together, in any order", lambda: _assembled(parts[::-1]) == jpeg),
        Row("4.6", "sim_time_ns comes from the simulator's clock", lambda: SPEC.video_stamp(1.25) == 1_250_000_000),
    ]
    for name, (offset, size, value) in zip(names, little, strict=True):
        rows.append(Row("4.6", f"{name} stands at byte {offset}, little-endian",
                        lambda o=offset, s=size, v=value: int.from_bytes(parts[0][o : o + s], "little") == v))  # fmt: skip
    return rows


def _assembled(parts) -> bytes:
    reassembler = Reassembler()
    (frame,) = [frame for part in parts if (frame := reassembler.feed(part)) is not None]
    return frame.jpeg


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


ROWS = [*environment(), *transport(), *telemetry(), *commands(), *timing(), *vision()]
