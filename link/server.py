"""The simulator's end of MAVLink 2: bytes to typed messages, and back. VADR-TS-002, 3.8 and 4.3 to 4.5.

MAVLink defines the bits of set-points: ATTITUDE_TARGET_TYPEMASK, POSITION_TARGET_TYPEMASK, MAV_FRAME. Ignored fields may hold
anything. What cannot be flown becomes a `Refusal` with its reason; docs/vadr.md lists how ambiguities are resolved.

Ground stations (MAVSDK, MAVProxy, QGroundControl) require of an autopilot before flight a mode that can be set, a version, a
parameter, the state of health and a home position. The vehicle follows set-points in every mode, which is only stored.

No sockets, no clock. Decoding never raises, whatever the bytes: unusable input is counted and dropped. The profile's signs
and gains are applied to outgoing and removed from incoming messages.
"""

from dataclasses import dataclass
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.common.strenum import StrEnum
from gate_racer.link import mavlink, messages
from gate_racer.link.mavlink import Counters, Framing, SigningKey, finite, milliseconds, scaled, unit
from gate_racer.link.profile import Profile
from gate_racer.link.px4 import custom_mode, text_packets
from gate_racer.link.race import map_messages, status_message
from gate_racer.vehicle.rotation import to_euler

ATTITUDE_BITS = sum(mavlink.IGNORE_RATE) | mavlink.RATES_RAD_S | mavlink.IGNORE_THRUST | mavlink.IGNORE_ATTITUDE
FORCE = dialect.POSITION_TARGET_TYPEMASK_FORCE_SET
POSITION_BITS = 2 * dialect.POSITION_TARGET_TYPEMASK_YAW_RATE_IGNORE - 1


class Fault(StrEnum):
    MASK = "type mask"
    FRAME = "coordinate frame"
    NOT_FINITE = "not finite"
    VALUE = "value"
    TARGET = "target system"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class Refusal:
    fault: Fault
    reason: str


def attitude_target(message: Any, profile: Profile) -> messages.AttitudeTarget | Refusal:
    mask = message.type_mask
    by_rates, no_thrust = bool(mask & mavlink.IGNORE_ATTITUDE), bool(mask & mavlink.IGNORE_THRUST)
    if mask & ~ATTITUDE_BITS:
        return Refusal(Fault.MASK, f"type mask {mask}: bit {mask & ~ATTITUDE_BITS} is not supported")
    if by_rates and no_thrust and all(mask & ignore for ignore in mavlink.IGNORE_RATE):
        return Refusal(Fault.MASK, f"type mask {mask} ignores attitude, rates and thrust: at least one must be set")
    requested = message.body_roll_rate, message.body_pitch_rate, message.body_yaw_rate
    p, q, r = (0.0 if mask & ignore else rate for rate, ignore in zip(requested, mavlink.IGNORE_RATE, strict=True))
    omega = profile.gain(bool(mask & mavlink.RATES_RAD_S)).to_body((p, q, r))
    throttle = 0.0 if no_thrust else message.thrust
    if not finite((*omega, throttle)) or not (by_rates or finite(message.q)):
        return Refusal(Fault.NOT_FINITE, "SET_ATTITUDE_TARGET holds a field that is not finite")
    q_wb = unit(message.q) or ((1.0, 0.0, 0.0, 0.0) if by_rates else None)
    if q_wb is None:
        return Refusal(Fault.VALUE, "SET_ATTITUDE_TARGET.q is zero: must be a unit quaternion")
    return messages.AttitudeTarget(q_wb, omega, min(1.0, max(0.0, throttle)), by_rates, no_thrust)


def position_target(message: Any) -> messages.PositionTarget | Refusal:
    mask, frame = message.type_mask, mavlink.FRAMES.get(message.coordinate_frame)
    if frame is None:
        known = ", ".join(map(str, mavlink.FRAMES))
        return Refusal(Fault.FRAME, f"coordinate frame {message.coordinate_frame}: must be one of {known}")
    if mask & ~POSITION_BITS:
        return Refusal(Fault.MASK, f"type mask {mask}: bit {mask & ~POSITION_BITS} is undefined")
    linear = message.x, message.y, message.z, message.vx, message.vy, message.vz, message.afx, message.afy, message.afz
    values = (*linear, None, message.yaw, message.yaw_rate)  # by the bits that ignore them
    fields = [None if mask & 1 << bit else value for bit, value in enumerate(values)]
    requested = [value for value in fields if value is not None]
    if not requested:
        return Refusal(Fault.MASK, f"type mask {mask} ignores every field: at least one must be set")
    if mask & FORCE and any(axis is not None for axis in fields[6:9]):
        supported = f"only accelerations are supported, with bit {FORCE} clear"
        return Refusal(Fault.MASK, f"type mask {mask} requests forces: {supported}")
    if not finite(requested):
        return Refusal(Fault.NOT_FINITE, "SET_POSITION_TARGET_LOCAL_NED holds a field that is not finite")
    px, py, pz, vx, vy, vz, ax, ay, az, _, yaw, yaw_rate = fields
    return messages.PositionTarget((px, py, pz), (vx, vy, vz), yaw, yaw_rate, frame, (ax, ay, az))


PARAMETER = "SYSID_THISMAV"  # the only one, so that a download of all parameters ends
SET_MODE, REQUEST_MESSAGE = dialect.MAV_CMD_DO_SET_MODE, dialect.MAV_CMD_REQUEST_MESSAGE
REQUEST_VERSION = dialect.MAV_CMD_REQUEST_AUTOPILOT_CAPABILITIES
CAPABILITIES = (
    dialect.MAV_PROTOCOL_CAPABILITY_MAVLINK2
    | dialect.MAV_PROTOCOL_CAPABILITY_SET_ATTITUDE_TARGET
    | dialect.MAV_PROTOCOL_CAPABILITY_SET_POSITION_TARGET_LOCAL_NED
)
SENSORS = (
    dialect.MAV_SYS_STATUS_SENSOR_3D_GYRO
    | dialect.MAV_SYS_STATUS_SENSOR_3D_ACCEL
    | dialect.MAV_SYS_STATUS_SENSOR_ANGULAR_RATE_CONTROL
    | dialect.MAV_SYS_STATUS_SENSOR_ATTITUDE_STABILIZATION
    | dialect.MAV_SYS_STATUS_PREARM_CHECK
)
NO_BATTERY = 0xFFFF, -1, -1  # mV, cA, %: not measured
PARAMETER_INDEX_BY_NAME = -1  # param_index of a request by name (MAVLink PARAM_REQUEST_READ)


class GroundStationServices:
    def __init__(self, system: int):
        self._system = system
        self._home: tuple[float, float, float] | None = None
        self.mode = 0  # HEARTBEAT.custom_mode, in PX4's form

    def status(self, status: messages.GroundStatus) -> list[Any]:
        self._home = status.home_w
        landed = dialect.MAV_LANDED_STATE_ON_GROUND if status.landed else dialect.MAV_LANDED_STATE_IN_AIR
        return [
            dialect.MAVLink_sys_status_message(SENSORS, SENSORS, SENSORS, 0, *NO_BATTERY, 0, 0, 0, 0, 0, 0),
            dialect.MAVLink_extended_sys_state_message(dialect.MAV_VTOL_STATE_UNDEFINED, landed),
            self._home_position(),
        ]

    def answers(self, message: Any) -> list[Any] | None:
        """Return the packets that answer a packet; None if it is not one of these services."""
        match message:
            case dialect.MAVLink_command_long_message() if message.command == SET_MODE:
                if not all(0 <= number <= 0xFF for number in (message.param2, message.param3)):  # False for NaN too
                    return [_ack(SET_MODE, dialect.MAV_RESULT_DENIED)]
                self.mode = custom_mode(int(message.param2), int(message.param3))
                return [_ack(SET_MODE, dialect.MAV_RESULT_ACCEPTED)]
            case dialect.MAVLink_set_mode_message():
                self.mode = message.custom_mode
                return []
            case dialect.MAVLink_command_long_message() if message.command == REQUEST_MESSAGE:
                requested, known = message.param1, list[Any]()
                if requested == dialect.MAVLINK_MSG_ID_AUTOPILOT_VERSION:
                    known = [self._version()]
                elif requested == dialect.MAVLINK_MSG_ID_HOME_POSITION and self._home is not None:
                    known = [self._home_position()]
                result = dialect.MAV_RESULT_ACCEPTED if known else dialect.MAV_RESULT_UNSUPPORTED
                return [_ack(REQUEST_MESSAGE, result), *known]
            case dialect.MAVLink_command_long_message() if message.command == REQUEST_VERSION:
                return [_ack(REQUEST_VERSION, dialect.MAV_RESULT_ACCEPTED), self._version()]
            case dialect.MAVLink_param_request_list_message():
                return [self._parameter()]
            case dialect.MAVLink_param_request_read_message() | dialect.MAVLink_param_set_message():
                index = getattr(message, "param_index", PARAMETER_INDEX_BY_NAME)
                ours = message.param_id == PARAMETER if index == PARAMETER_INDEX_BY_NAME else index == 0
                return [self._parameter()] if ours else []
        return None

    def _version(self) -> Any:
        nowhere = [0] * 8
        return dialect.MAVLink_autopilot_version_message(CAPABILITIES, 0, 0, 0, 0, nowhere, nowhere, nowhere, 0, 0, 1)

    def _home_position(self) -> Any:
        """Return the position of the pad; the world has no geodetic reference (VADR-TS-002, 3.3)."""
        assert self._home is not None
        return dialect.MAVLink_home_position_message(0, 0, 0, *self._home, (1.0, 0.0, 0.0, 0.0), 0.0, 0.0, 0.0)

    def _parameter(self) -> Any:
        kind = dialect.MAV_PARAM_TYPE_REAL32
        return dialect.MAVLink_param_value_message(PARAMETER.encode(), float(self._system), kind, 1, 0)


def _ack(command: int, result: int) -> Any:
    return dialect.MAVLink_command_ack_message(command, result)


Unflown = messages.ClientHeartbeat | messages.Hold | messages.TimesyncRequest | messages.UnknownCommand
Request = messages.Command | Unflown
HIT_IMPULSE = 1.0  # kg m/s, above which a collision has threat level 2
LOW, HIGH = dialect.MAV_COLLISION_THREAT_LEVEL_LOW, dialect.MAV_COLLISION_THREAT_LEVEL_HIGH
SETPOINTS = (dialect.MAVLink_set_attitude_target_message, dialect.MAVLink_set_position_target_local_ned_message)
COMMANDS = dialect.MAVLink_command_long_message, dialect.MAVLink_command_int_message
CONTROLS = (  # messages that ask for motion in other ways, and are not flown
    dialect.MAVLink_set_actuator_control_target_message,
    dialect.MAVLink_set_position_target_global_int_message,
    dialect.MAVLink_manual_control_message,
    dialect.MAVLink_manual_setpoint_message,
    dialect.MAVLink_rc_channels_override_message,
    dialect.MAVLink_set_mode_message,
    dialect.MAVLink_mission_set_current_message,
)
STAMPED = (*SETPOINTS, dialect.MAVLink_system_time_message)


class ServerCodec:
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

    def encode(self, message: messages.Outgoing) -> list[bytes]:
        """Return the datagrams of a message. A refused `Ack` is DENIED if the command is known, else UNSUPPORTED."""
        return [self._framing.pack(packet) for packet in self._packets(message)]

    def _packets(self, message: messages.Outgoing) -> list[Any]:
        signs = self.profile.signs
        match message:
            case messages.Heartbeat():
                return [_simulator_heartbeat(message.armed, self._desk.mode if self._desk else 0, self._autopilot)]
            case messages.Imu():
                self._gyro = message.gyro
                values = (*message.accel, *scaled(signs.gyro, message.gyro), *mavlink.UNMEASURED)
                return [dialect.MAVLink_highres_imu_message(round(message.t * 1e6), *values, mavlink.ACCEL_AND_GYRO)]
            case messages.Attitude():
                euler = scaled(signs.euler, to_euler(message.q_wb))
                rates = scaled(signs.euler_rates, self._gyro)
                return [dialect.MAVLink_attitude_message(milliseconds(message.t), *euler, *rates)]
            case messages.LocalPosition():
                stamp = milliseconds(message.t)
                return [dialect.MAVLink_local_position_ned_message(stamp, *message.p_wb, *message.v_w)]
            case messages.Odometry():
                q, rates = scaled(signs.odometry_q, message.q_wb), scaled(signs.odometry_rates, message.omega_b)
                about = round(message.t * 1e6), dialect.MAV_FRAME_LOCAL_NED, self.profile.odometry_child
                state, cov = (*message.p_wb, q, *message.v_b, *rates), [float("nan")] + [0.0] * 20  # unknown
                return [dialect.MAVLink_odometry_message(*about, *state, cov, cov, message.resets % 256)]
            case messages.Motors():
                outputs = [*message.outputs, *[0.0] * 28]
                return [dialect.MAVLink_actuator_output_status_message(round(message.t * 1e6), 4, outputs)]
            case messages.Collision():
                source, action = dialect.MAV_COLLISION_SRC_ADSB, dialect.MAV_COLLISION_ACTION_NONE
                threat = HIGH if message.impulse > HIT_IMPULSE else LOW
                hit = source, message.struck, action, threat, 0.0, 0.0, message.impulse
                return [dialect.MAVLink_collision_message(*hit)] * self.profile.collision_copies
            case messages.RivalState():
                data = [*message.p_w, *message.v_w, *[0.0] * 52]
                return [
                    dialect.MAVLink_debug_float_array_message(
                        round(message.t * 1e6), mavlink.RIVAL, message.place, data
                    )
                ]
            case messages.RaceStatus():
                return [status_message(message)]
            case messages.TrackMap():
                return map_messages(message)
            case messages.StatusText():
                return text_packets(message.text, message.severity)
            case messages.GroundStatus():
                return self._desk.status(message) if self._desk else []
            case messages.Ack():
                refused = dialect.MAV_RESULT_DENIED if message.known else dialect.MAV_RESULT_UNSUPPORTED
                return [_ack(message.command, dialect.MAV_RESULT_ACCEPTED if message.accepted else refused)]
            case messages.TimesyncRequest():
                return [dialect.MAVLink_timesync_message(0, message.sent_ns)]
            case messages.Farewell():
                text = message.reason.encode("ascii", "replace").decode()
                beat = _simulator_heartbeat(False, 0, dialect.MAV_AUTOPILOT_GENERIC, dialect.MAV_STATE_POWEROFF)
                return [*text_packets(text, dialect.MAV_SEVERITY_NOTICE), beat]
            case messages.HumanSticks():
                return []  # sent over MSP only

    def timesync_reply(self, request: messages.TimesyncRequest, t: float) -> list[bytes]:
        """Return the reply with the simulator's time t (s), if the profile has one."""
        if not self.profile.timesync:
            return []
        answered_ns = max(1, round(t * 1e9))  # 0 would mark it as a request
        return [self._framing.pack(dialect.MAVLink_timesync_message(answered_ns, request.sent_ns))]

    def replies(self) -> list[bytes]:
        packets, self._replies = self._replies, []
        return [self._framing.pack(packet) for packet in packets]

    def refusals(self) -> list[Refusal]:
        refusals, self._refusals = self._refusals, []
        return refusals

    def refused(self) -> dict[str, str]:
        """Return the reasons, each with a line, for which packets were refused by signature or version since the last call."""
        refused, self._framing.refused = self._framing.refused, {}
        return refused

    def decode(self, datagram: bytes) -> list[Request]:
        """Return the messages of a datagram. Answer an `UnknownCommand` with `Ack(t, False, command, known=False)`."""
        found = map(self._read, self._framing.unpack(datagram))
        return [message for message in found if message is not None]

    def _read(self, message: Any) -> Request | None:
        if getattr(message, "target_system", 0) not in (0, self.profile.system):
            self.counters.wrong_target += 1
            if isinstance(message, SETPOINTS + CONTROLS):
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
                return messages.ClientHeartbeat()
            case dialect.MAVLink_set_attitude_target_message():
                return self._counted(attitude_target(message, self.profile))
            case dialect.MAVLink_set_position_target_local_ned_message():
                return self._counted(position_target(message))
            case _ if isinstance(message, COMMANDS):
                return self._command(message)
            case dialect.MAVLink_timesync_message() if message.tc1 == 0:
                return messages.TimesyncRequest(message.ts1)
            case dialect.MAVLink_timesync_message() if message.ts1 == 0:  # as the organisers' sample client asks
                return messages.TimesyncRequest(message.tc1)
            case dialect.MAVLink_timesync_message():
                return None  # reply to our own request
            case dialect.MAVLink_system_time_message():
                return messages.Hold(message.time_boot_ms / 1e3)
        self.counters.unsupported += 1
        if isinstance(message, CONTROLS):
            self._refusals.append(_unflown(message.get_type()))
        return None

    def _command(self, message: Any) -> Request | None:
        number, reset = message.command, self.profile.race.reset_command if self.profile.race is not None else None
        if number in (messages.ARM_COMMAND, reset):
            if message.param1 not in (0.0, 1.0):
                why = f"param1 of command {number} is {message.param1:g}, not 0 or 1"
                return self._counted(Refusal(Fault.VALUE, why))
            kind = messages.Arm if number == messages.ARM_COMMAND else messages.Reset
            return kind(message.param1 == 1.0)
        if number <= dialect.MAV_CMD_DO_LAST:  # NAV, CONDITION and DO: it would move the vehicle
            known = dialect.enums["MAV_CMD"].get(number)
            self._refusals.append(_unflown(f"command {number}" if known is None else str(known.name)))
        return messages.UnknownCommand(number)

    def _counted(self, command: messages.Command | Refusal) -> messages.Command | None:
        if not isinstance(command, Refusal):
            return command
        self.counters.invalid += 1
        self._refusals.append(command)
        return None


def _unflown(name: str) -> Refusal:
    flown = " and ".join(setpoint.msgname for setpoint in SETPOINTS)
    return Refusal(Fault.MESSAGE, f"{name} is not supported: the vehicle flies by {flown}")


def _simulator_heartbeat(armed: bool, custom_mode: int, autopilot: int, state: int | None = None) -> Any:
    mode = dialect.MAV_MODE_FLAG_CUSTOM_MODE_ENABLED | dialect.MAV_MODE_FLAG_MANUAL_INPUT_ENABLED
    mode |= dialect.MAV_MODE_FLAG_SAFETY_ARMED if armed else 0
    if state is None:
        state = dialect.MAV_STATE_ACTIVE if armed else dialect.MAV_STATE_STANDBY
    return dialect.MAVLink_heartbeat_message(dialect.MAV_TYPE_QUADROTOR, autopilot, mode, custom_mode, state, 3)
