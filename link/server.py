"""The simulator's end of MAVLink 2: bytes to typed messages, and back. VADR-TS-002, 4.3 to 4.5.

No sockets, no clock. Decoding never raises, whatever the bytes: unusable input is counted and dropped. The profile's signs
and gains are applied to outgoing and removed from incoming messages.
"""

from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.link.framing import Counters, Framing
from gate_racer.link.ground import GroundStationServices
from gate_racer.link.mavlink import (
    ACCEL_AND_GYRO,
    RIVAL,
    UNMEASURED,
    milliseconds,
    scaled,
)
from gate_racer.link.messages import (
    ARM_COMMAND,
    Ack,
    Arm,
    Attitude,
    ClientHeartbeat,
    Collision,
    Command,
    Farewell,
    GroundStatus,
    Heartbeat,
    Hold,
    HumanSticks,
    Imu,
    LocalPosition,
    Motors,
    Odometry,
    Outgoing,
    RaceStatus,
    Reset,
    RivalState,
    StatusText,
    TimesyncRequest,
    TrackMap,
    UnknownCommand,
)
from gate_racer.link.profile import Profile
from gate_racer.link.px4 import text_packets
from gate_racer.link.race import map_messages, status_message
from gate_racer.link.setpoints import Fault, Refusal, attitude_target, position_target
from gate_racer.link.signing import SigningKey
from gate_racer.vehicle.rotation import to_euler

Request = Command | ClientHeartbeat | Hold | TimesyncRequest | UnknownCommand
HIT_IMPULSE = 1.0  # kg m/s, above which a collision has threat level 2
HIGH = dialect.MAV_COLLISION_THREAT_LEVEL_HIGH
LOW = dialect.MAV_COLLISION_THREAT_LEVEL_LOW
SETPOINTS = (dialect.MAVLink_set_attitude_target_message, dialect.MAVLink_set_position_target_local_ned_message)
STAMPED = (*SETPOINTS, dialect.MAVLink_system_time_message)


class ServerCodec:
    """Codec of the simulator, with the profile's system and component."""

    def __init__(self, profile: Profile, key: SigningKey | None = None, desk: GroundStationServices | None = None):
        """Create it; `desk` serves ground stations; by default as in the profile."""
        self.profile = profile
        self.counters = Counters()
        self._framing = Framing(profile.system, profile.component, self.counters, key)
        self._desk = desk or (GroundStationServices(profile.system) if profile.ground_station else None)
        self._autopilot = dialect.MAV_AUTOPILOT_GENERIC if profile.offboard is None else dialect.MAV_AUTOPILOT_PX4
        self._replies: list[Any] = []
        self._refusals: list[Refusal] = []
        self.answered_ms: int | None = None  # stamp of the last set-point or SYSTEM_TIME, valid or not
        self._gyro = (0.0, 0.0, 0.0)  # newest sample, for the rates in ATTITUDE

    def encode(self, message: Outgoing) -> list[bytes]:
        """Return the datagrams of a message. A refused `Ack` is DENIED if the command is known, else UNSUPPORTED."""
        return [self._framing.pack(packet) for packet in self._packets(message)]

    def _packets(self, message: Outgoing) -> list[Any]:
        signs = self.profile.signs
        match message:
            case Heartbeat():
                return [_simulator_heartbeat(message.armed, self._desk.mode if self._desk else 0, self._autopilot)]
            case Imu():
                self._gyro = message.gyro
                values = (*message.accel, *scaled(signs.gyro, message.gyro), *UNMEASURED)
                return [dialect.MAVLink_highres_imu_message(round(message.t * 1e6), *values, ACCEL_AND_GYRO)]
            case Attitude():
                euler = scaled(signs.euler, to_euler(message.q_wb))
                rates = scaled(signs.euler_rates, self._gyro)
                return [dialect.MAVLink_attitude_message(milliseconds(message.t), *euler, *rates)]
            case LocalPosition():
                stamp = milliseconds(message.t)
                return [dialect.MAVLink_local_position_ned_message(stamp, *message.p_wb, *message.v_w)]
            case Odometry():
                return [self._odometry(message)]
            case Motors():
                outputs = [*message.outputs, *[0.0] * 28]
                return [dialect.MAVLink_actuator_output_status_message(round(message.t * 1e6), 4, outputs)]
            case Collision():
                return [_collision(message)] * self.profile.collision_copies
            case RivalState():
                data = [*message.p_w, *message.v_w, *[0.0] * 52]
                return [dialect.MAVLink_debug_float_array_message(round(message.t * 1e6), RIVAL, message.place, data)]
            case RaceStatus():
                return [status_message(message)]
            case TrackMap():
                return map_messages(message)
            case StatusText():
                return text_packets(message.text, message.severity)
            case GroundStatus():
                return self._desk.status(message) if self._desk else []
            case Ack():
                return [dialect.MAVLink_command_ack_message(message.command, _result(message))]
            case TimesyncRequest():
                return [dialect.MAVLink_timesync_message(0, message.sent_ns)]
            case Farewell():
                return _farewell(message)
            case HumanSticks():
                return []  # sent over MSP only

    def _odometry(self, message: Odometry) -> Any:
        signs = self.profile.signs
        q, rates = scaled(signs.odometry_q, message.q_wb), scaled(signs.odometry_rates, message.omega_b)
        frames = dialect.MAV_FRAME_LOCAL_NED, dialect.MAV_FRAME_BODY_FRD
        unknown = [float("nan")] + [0.0] * 20
        return dialect.MAVLink_odometry_message(
            round(message.t * 1e6),
            *frames,
            *message.p_wb,
            q,
            *message.v_b,
            *rates,
            unknown,
            unknown,
            message.resets % 256,
        )

    def timesync_reply(self, request: TimesyncRequest, t: float) -> list[bytes]:
        """Return the reply with the simulator's time t (s), if the profile has one."""
        if not self.profile.timesync:
            return []
        answered_ns = max(1, round(t * 1e9))  # 0 would mark it as a request
        return [self._framing.pack(dialect.MAVLink_timesync_message(answered_ns, request.sent_ns))]

    def replies(self) -> list[bytes]:
        """Return the replies to a ground station since the last call."""
        packets, self._replies = self._replies, []
        return [self._framing.pack(packet) for packet in packets]

    def refusals(self) -> list[Refusal]:
        """Return the set-points and arm commands dropped since the last call."""
        refusals, self._refusals = self._refusals, []
        return refusals

    def decode(self, datagram: bytes) -> list[Request]:
        """Return the messages of a datagram. Answer an `UnknownCommand` with `Ack(t, False, command, known=False)`."""
        messages = (self._read(message) for message in self._framing.unpack(datagram))
        return [message for message in messages if message is not None]

    def _read(self, message: Any) -> Request | None:
        if getattr(message, "target_system", 0) not in (0, self.profile.system):
            self.counters.wrong_target += 1
            if isinstance(message, SETPOINTS):
                reason = f"{message.get_type()} is for system {message.target_system}, not {self.profile.system}"
                self._refusals.append(Refusal(Fault.TARGET, reason))
            return None
        if isinstance(message, STAMPED):
            self.answered_ms = message.time_boot_ms
        if self._desk is not None and (answers := self._desk.answers(message)) is not None:
            self._replies += answers
            return None
        match message:
            case dialect.MAVLink_heartbeat_message():
                return ClientHeartbeat()
            case dialect.MAVLink_set_attitude_target_message():
                return self._counted(attitude_target(message, self.profile))
            case dialect.MAVLink_set_position_target_local_ned_message():
                return self._counted(position_target(message))
            case dialect.MAVLink_command_long_message() | dialect.MAVLink_command_int_message():
                return self._command(message)
            case dialect.MAVLink_timesync_message() if message.tc1 == 0:
                return TimesyncRequest(message.ts1)
            case dialect.MAVLink_timesync_message():
                return None  # reply to our own request
            case dialect.MAVLink_system_time_message():
                return Hold(message.time_boot_ms / 1e3)
        self.counters.unsupported += 1
        return None

    def _command(self, message: Any) -> Request | None:
        yes_no = {0.0: False, 1.0: True}.get(message.param1)
        if message.command == ARM_COMMAND:
            return self._counted(_unclear(message) if yes_no is None else Arm(yes_no))
        if self.profile.race is not None and message.command == self.profile.race.reset_command:
            return self._counted(_unclear(message) if yes_no is None else Reset(yes_no))
        return UnknownCommand(message.command)

    def _counted(self, command: Command | Refusal) -> Command | None:
        if not isinstance(command, Refusal):
            return command
        self.counters.invalid += 1
        self._refusals.append(command)
        return None


def _unclear(message: Any) -> Refusal:
    return Refusal(Fault.VALUE, f"param1 of command {message.command} is {message.param1:g}, neither 0 nor 1")


def _farewell(farewell: Farewell) -> list[Any]:
    text = farewell.reason.encode("ascii", "replace").decode()
    heartbeat = _simulator_heartbeat(False, 0, dialect.MAV_AUTOPILOT_GENERIC, dialect.MAV_STATE_POWEROFF)
    return [*text_packets(text, dialect.MAV_SEVERITY_NOTICE), heartbeat]


def _collision(collision: Collision) -> Any:
    source, action = dialect.MAV_COLLISION_SRC_ADSB, dialect.MAV_COLLISION_ACTION_NONE
    threat = HIGH if collision.impulse > HIT_IMPULSE else LOW
    return dialect.MAVLink_collision_message(source, collision.struck, action, threat, 0.0, 0.0, collision.impulse)


def _simulator_heartbeat(armed: bool, custom_mode: int, autopilot: int, state: int | None = None) -> Any:
    mode = dialect.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | dialect.MAV_MODE_FLAG_MANUAL_INPUT_ENABLED
    mode |= dialect.MAV_MODE_FLAG_SAFETY_ARMED if armed else 0
    if state is None:
        state = dialect.MAV_STATE_ACTIVE if armed else dialect.MAV_STATE_STANDBY
    return dialect.MAVLink_heartbeat_message(dialect.MAV_TYPE_QUADROTOR, autopilot, mode, custom_mode, state, 3)


def _result(ack: Ack) -> int:
    if ack.accepted:
        return int(dialect.MAV_RESULT_ACCEPTED)
    return int(dialect.MAV_RESULT_DENIED if ack.known else dialect.MAV_RESULT_UNSUPPORTED)
