"""MAVLink 2, both ends of it: bytes of one datagram in, typed messages out, and back. VADR-TS-002, 4.3 to 4.5.

No sockets, no clock. Whatever the bytes are, decoding never raises: what cannot be used is counted and dropped.
"""

import math
from collections.abc import Sequence
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from link.framing import Counters, Framing
from link.messages import (
    ARM_COMMAND,
    Ack,
    Arm,
    Attitude,
    AttitudeTarget,
    ClientHeartbeat,
    Command,
    Heartbeat,
    Imu,
    Quaternion,
    Telemetry,
    TimesyncReply,
    TimesyncRequest,
    UnknownCommand,
)
from link.profile import Profile
from vehicle.rotation import from_euler, to_euler

CLIENT = (255, dialect.MAV_COMP_ID_MISSIONPLANNER)  # system, component
SIMULATOR = (1, 200)  # as the real one

IGNORE_RATE = (  # roll, pitch, yaw
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_ROLL_RATE_IGNORE,
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_PITCH_RATE_IGNORE,
    dialect.ATTITUDE_TARGET_TYPEMASK_BODY_YAW_RATE_IGNORE,
)
IGNORE_THRUST = dialect.ATTITUDE_TARGET_TYPEMASK_THROTTLE_IGNORE
IGNORE_ATTITUDE = dialect.ATTITUDE_TARGET_TYPEMASK_ATTITUDE_IGNORE
ACCEL_AND_GYRO = 0x3F  # HIGHRES_IMU.fields_updated
UNMEASURED = [math.nan] * 7  # magnetometer, pressures, altitude, temperature

Request = Command | ClientHeartbeat | TimesyncRequest | UnknownCommand


class ClientCodec:
    """The pilot's side. Learns from the simulator's heartbeat whom to address."""

    def __init__(self, profile: Profile, counters: Counters | None = None):
        """`spec` is NED and FRD throughout, so `profile` converts nothing here. `counters` may be the caller's own."""
        self.profile = profile
        self.counters = counters if counters is not None else Counters()
        self._framing = Framing(*CLIENT, self.counters)
        self._target = SIMULATOR
        self._t = 0.0  # newest stamp of the simulator

    def decode(self, datagram: bytes) -> list[Telemetry | TimesyncReply]:
        """The messages of a datagram. `Heartbeat` and `Ack` have no stamp of their own and carry the newest seen, else 0."""
        messages = (self._read(message) for message in self._framing.unpack(datagram))
        return [message for message in messages if message is not None]

    def _read(self, message: Any) -> Telemetry | TimesyncReply | None:
        match message:
            case dialect.MAVLink_heartbeat_message() if message.type != dialect.MAV_TYPE_GCS:
                self._target = message.get_srcSystem(), message.get_srcComponent()
                return Heartbeat(self._t, bool(message.base_mode & dialect.MAV_MODE_FLAG_SAFETY_ARMED))
            case dialect.MAVLink_attitude_message():
                return self._attitude(message)
            case dialect.MAVLink_highres_imu_message():
                return self._imu(message)
            case dialect.MAVLink_command_ack_message() if message.command == ARM_COMMAND:
                return Ack(self._t, message.result == dialect.MAV_RESULT_ACCEPTED)
            case dialect.MAVLink_timesync_message() if message.tc1 != 0:
                return TimesyncReply(message.tc1 / 1e9, message.ts1 / 1e9)
        self.counters.unsupported += 1
        return None

    def _attitude(self, message: Any) -> Attitude | None:
        euler = message.roll, message.pitch, message.yaw
        if not _finite(euler):
            self.counters.invalid += 1
            return None
        self._t = message.time_boot_ms / 1e3
        w, x, y, z = from_euler(*euler).tolist()
        return Attitude(self._t, (w, x, y, z))

    def _imu(self, message: Any) -> Imu | None:
        accel = message.xacc, message.yacc, message.zacc
        gyro = message.xgyro, message.ygyro, message.zgyro
        if not _finite(accel + gyro):
            self.counters.invalid += 1
            return None
        self._t = message.time_usec / 1e6
        return Imu(self._t, accel, gyro)

    def encode(self, command: Command, t: float) -> bytes:
        """The datagram of a command with finite numbers; t in s of the simulator's clock stamps attitude targets.

        Attitude, rates and thrust are always filled in; the type mask says which of the first two to ignore.
        """
        if isinstance(command, Arm):
            parameters = (float(command.arm), *[0.0] * 6)
            return self._framing.pack(dialect.MAVLink_command_long_message(*self._target, ARM_COMMAND, 0, *parameters))
        mask = IGNORE_ATTITUDE if command.by_rates else sum(IGNORE_RATE)
        target = dialect.MAVLink_set_attitude_target_message(
            _milliseconds(t), *self._target, mask, command.q_wb, *command.omega, command.throttle
        )
        return self._framing.pack(target)

    def heartbeat(self) -> bytes:
        """The client lives."""
        kind, autopilot, state = dialect.MAV_TYPE_GCS, dialect.MAV_AUTOPILOT_INVALID, dialect.MAV_STATE_ACTIVE
        return self._framing.pack(dialect.MAVLink_heartbeat_message(kind, autopilot, 0, 0, state, 3))

    def timesync(self, now: float) -> bytes:
        """Asks for the simulator's time; `now` in s of the client's clock comes back in the `TimesyncReply`."""
        return self._framing.pack(dialect.MAVLink_timesync_message(0, round(now * 1e9)))


class ServerCodec:
    """The simulator's side."""

    def __init__(self, profile: Profile):
        """`spec` is NED and FRD throughout, so `profile` converts nothing here."""
        self.profile = profile
        self.counters = Counters()
        self._framing = Framing(*SIMULATOR, self.counters)
        self._gyro = (0.0, 0.0, 0.0)  # newest, for the rates in ATTITUDE

    def encode(self, message: Telemetry) -> bytes:
        """The datagram of a message. A refused `Ack` is DENIED for arming, UNSUPPORTED for any other command."""
        match message:
            case Heartbeat():
                packet = _simulator_heartbeat(message.armed)
            case Attitude():
                euler = to_euler(message.q_wb)
                packet = dialect.MAVLink_attitude_message(_milliseconds(message.t), *euler, *self._gyro)
            case Imu():
                self._gyro = message.gyro
                values = (*message.accel, *message.gyro, *UNMEASURED)
                packet = dialect.MAVLink_highres_imu_message(round(message.t * 1e6), *values, ACCEL_AND_GYRO)
            case Ack():
                packet = dialect.MAVLink_command_ack_message(message.command, _result(message))
        return self._framing.pack(packet)

    def timesync_reply(self, request: TimesyncRequest, t: float) -> bytes:
        """The answer with the simulator's time t in s."""
        answered_ns = max(1, round(t * 1e9))  # 0 would make it a request
        return self._framing.pack(dialect.MAVLink_timesync_message(answered_ns, request.sent_ns))

    def decode(self, datagram: bytes) -> list[Request]:
        """The messages of a datagram. An `UnknownCommand` is to be answered with `Ack(t, False, command)`."""
        messages = (self._read(message) for message in self._framing.unpack(datagram))
        return [message for message in messages if message is not None]

    def _read(self, message: Any) -> Request | None:
        if getattr(message, "target_system", 0) not in (0, SIMULATOR[0]):
            self.counters.wrong_target += 1
            return None
        match message:
            case dialect.MAVLink_heartbeat_message():
                return ClientHeartbeat()
            case dialect.MAVLink_set_attitude_target_message():
                return self._counted(_attitude_target(message))
            case dialect.MAVLink_command_long_message() if message.command == ARM_COMMAND:
                return self._counted({0.0: Arm(False), 1.0: Arm(True)}.get(message.param1))
            case dialect.MAVLink_command_long_message():
                return UnknownCommand(message.command)
            case dialect.MAVLink_timesync_message() if message.tc1 == 0:
                return TimesyncRequest(message.ts1)
        self.counters.unsupported += 1
        return None

    def _counted(self, command: Command | None) -> Command | None:
        self.counters.invalid += command is None
        return command


def _attitude_target(message: Any) -> AttitudeTarget | None:
    """What SET_ATTITUDE_TARGET asks for; None if that has no meaning. Fields that its mask ignores may hold anything."""
    mask = message.type_mask
    rates = message.body_roll_rate, message.body_pitch_rate, message.body_yaw_rate
    p, q, r = (0.0 if mask & ignore else rate for rate, ignore in zip(rates, IGNORE_RATE, strict=True))
    by_rates = bool(mask & IGNORE_ATTITUDE)
    q_wb = _unit(message.q) or ((1.0, 0.0, 0.0, 0.0) if by_rates else None)
    if mask & IGNORE_THRUST or q_wb is None or not _finite((p, q, r, message.thrust)):
        return None
    return AttitudeTarget(q_wb, (p, q, r), min(1.0, max(0.0, message.thrust)), by_rates)


def _unit(q: Sequence[float]) -> Quaternion | None:
    """q / |q|; None if it has no direction."""
    norm = math.hypot(*q)
    if not math.isfinite(norm) or norm < 1e-6:
        return None
    return q[0] / norm, q[1] / norm, q[2] / norm, q[3] / norm


def _simulator_heartbeat(armed: bool) -> Any:
    mode = dialect.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | dialect.MAV_MODE_FLAG_MANUAL_INPUT_ENABLED
    mode |= dialect.MAV_MODE_FLAG_SAFETY_ARMED if armed else 0
    state = dialect.MAV_STATE_ACTIVE if armed else dialect.MAV_STATE_STANDBY
    return dialect.MAVLink_heartbeat_message(
        dialect.MAV_TYPE_QUADROTOR, dialect.MAV_AUTOPILOT_GENERIC, mode, 0, state, 3
    )


def _result(ack: Ack) -> int:
    if ack.accepted:
        return int(dialect.MAV_RESULT_ACCEPTED)
    return int(dialect.MAV_RESULT_DENIED if ack.command == ARM_COMMAND else dialect.MAV_RESULT_UNSUPPORTED)


def _milliseconds(t: float) -> int:
    return round(t * 1e3) & 0xFFFFFFFF  # the field is 32 bits wide


def _finite(values: Sequence[float]) -> bool:
    return all(map(math.isfinite, values))
