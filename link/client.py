"""The pilot's end of MAVLink 2: bytes of one datagram to typed messages, and back. VADR-TS-002, 4.3 to 4.5.

No sockets, no clock. Decoding never raises, whatever the bytes: unusable input is counted and dropped. Signs and gains of the
wire are removed here: the output is NED, FRD, SI, for every profile.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from pymavlink.dialects.v20 import common as dialect

from gate_racer.link import messages
from gate_racer.link.mavlink import (
    CLIENT,
    IGNORE_ATTITUDE,
    IGNORE_RATE,
    IGNORE_THRUST,
    RATES_RAD_S,
    RIVAL,
    Counters,
    Framing,
    SigningKey,
    finite,
    milliseconds,
    scaled,
    unit,
)
from gate_racer.link.profile import Profile
from gate_racer.link.px4 import (
    CUSTOM,
    FORCE,
    IN_PROGRESS,
    OFFBOARD,
    SET_MESSAGE_INTERVAL,
    StreamRequests,
    TextReader,
    mode_name,
    result_name,
)
from gate_racer.link.race import RaceReader
from gate_racer.link.sockets import is_autopilot
from gate_racer.vehicle.rotation import from_euler

MOST_REQUESTS = 16  # TIMESYNC requests kept: a flood must not cost memory
FRAMES = {
    messages.TargetFrame.LOCAL: dialect.MAV_FRAME_LOCAL_NED,
    messages.TargetFrame.OFFSET: dialect.MAV_FRAME_LOCAL_OFFSET_NED,
    messages.TargetFrame.BODY: dialect.MAV_FRAME_BODY_NED,  # the one of VADR-TS-002, 3.8
}
LATEST_US = 1e16  # us, year 2286 of a Unix clock: later stamps are invalid, and overflow nanoseconds


class ClientCodec:
    """Codec of the client. The target system and component are taken from the simulator's heartbeat."""

    def __init__(self, profile: Profile, counters: Counters | None = None, key: SigningKey | None = None):
        """Create it; `profile` defines the conventions, `counters` may be shared. With a key all messages must be signed."""
        self.profile = profile
        self.counters = counters if counters is not None else Counters()
        self._framing = Framing(*CLIENT, self.counters, key)
        self._target = profile.system, profile.component
        self._race, self._texts = RaceReader(), TextReader()
        wanted = {
            dialect.MAVLINK_MSG_ID_HIGHRES_IMU: profile.imu_hz,
            dialect.MAVLINK_MSG_ID_ATTITUDE: profile.attitude_hz,
        }
        self._streams = StreamRequests(wanted if profile.offboard is not None else {})
        self._t = 0.0  # s, newest stamp of the simulator
        self._timesync_requests: deque[int] = deque(maxlen=MOST_REQUESTS)  # ns, TIMESYNC requests to be answered
        self._last_text = ""  # newest STATUSTEXT: the reason if the simulator ends

    @property
    def refused(self) -> str:
        """Why messages were refused by their signatures, in one line; empty if none were."""
        return self._framing.why_refused

    def decode(
        self, datagram: bytes, admits: Callable[[Any], bool] = lambda packet: True
    ) -> list[messages.Telemetry | messages.TimesyncReply]:
        """Return the messages of a datagram. Messages without a stamp get the newest one received, else 0.

        Args:
            admits: predicate that accepts pymavlink messages of the simulator.
        """
        found = (self._read(packet) for packet in self._framing.unpack(datagram) if admits(packet))
        return [message for message in found if message is not None]

    def _read(self, packet: Any) -> messages.Telemetry | messages.TimesyncReply | None:
        self._streams.received(packet.get_msgId())
        match packet:
            case dialect.MAVLink_heartbeat_message() if is_autopilot(packet):
                if packet.system_status == dialect.MAV_STATE_POWEROFF:
                    return messages.Farewell(self._t, self._last_text or "no reason given")
                return self._heartbeat(packet)
            case dialect.MAVLink_attitude_message():
                return self._attitude(packet)
            case dialect.MAVLink_highres_imu_message():
                return self._imu(packet)
            case dialect.MAVLink_command_ack_message() if packet.command in self._acknowledged:
                return self._ack(packet)
            case dialect.MAVLink_statustext_message():
                text = self._texts.read(packet)
                self._last_text = text or self._last_text
                return messages.StatusText(self._t, packet.severity, text) if text is not None else None
            case dialect.MAVLink_timesync_message() if packet.tc1 != 0:
                return messages.TimesyncReply(packet.tc1 / 1e9, packet.ts1 / 1e9)
            case dialect.MAVLink_timesync_message():
                self._timesync_requests.append(packet.ts1)
                return None
            case dialect.MAVLink_local_position_ned_message():
                return self._local_position(packet)
            case dialect.MAVLink_odometry_message():
                return self._odometry(packet)
            case dialect.MAVLink_actuator_output_status_message():
                return self._motors(packet)
            case dialect.MAVLink_collision_message() if packet.id in tuple(messages.Struck):
                return self._collision(packet)
            case dialect.MAVLink_debug_float_array_message() if packet.name == RIVAL.decode():
                return self._rival(packet)
            case dialect.MAVLink_data_transmission_handshake_message():
                self._race.handshake(packet)
                return None
            case dialect.MAVLink_encapsulated_data_message():
                return self._race.read(packet, self._t)
        self.counters.unsupported += 1
        return None

    def _heartbeat(self, packet: Any) -> messages.Heartbeat:
        target = packet.get_srcSystem(), packet.get_srcComponent()
        if target != self._target:
            self._target = target
            self._streams.forget()
        mode = mode_name(packet.custom_mode) if self.profile.offboard is not None else ""
        return messages.Heartbeat(self._t, bool(packet.base_mode & dialect.MAV_MODE_FLAG_SAFETY_ARMED), mode)

    @property
    def _acknowledged(self) -> tuple[int, ...]:
        """Commands whose acknowledgements are read."""
        modes = (messages.MODE_COMMAND,) if self.profile.offboard is not None else ()
        return (messages.ARM_COMMAND, *modes)

    def _ack(self, packet: Any) -> messages.Ack | None:
        accepted = packet.result == dialect.MAV_RESULT_ACCEPTED
        if self.profile.offboard is None:
            return messages.Ack(self._t, accepted)
        if packet.result == IN_PROGRESS or packet.target_system not in (0, CLIENT[0]):
            return None  # in progress, or for another system
        return messages.Ack(self._t, accepted, packet.command, result=result_name(packet.result))

    def _sound(self, *values: float) -> bool:
        """Return whether all values are finite; count the message as invalid if not."""
        sound = finite(values)
        self.counters.invalid += not sound
        return sound

    def _attitude(self, packet: Any) -> messages.Attitude | None:
        euler = packet.roll, packet.pitch, packet.yaw
        if not self._sound(*euler):
            return None
        self._t = packet.time_boot_ms / 1e3
        w, x, y, z = from_euler(*scaled(self.profile.signs.euler, euler)).tolist()
        return messages.Attitude(self._t, (w, x, y, z))

    def _imu(self, packet: Any) -> messages.Imu | None:
        accel = packet.xacc, packet.yacc, packet.zacc
        gyro = packet.xgyro, packet.ygyro, packet.zgyro
        if not self._sound(*accel, *gyro):
            return None
        if packet.time_usec > LATEST_US:
            self.counters.invalid += 1
            return None
        self._t = packet.time_usec / 1e6
        p, q, r = scaled(self.profile.signs.gyro, gyro)
        return messages.Imu(self._t, accel, (p, q, r))

    def _local_position(self, packet: Any) -> messages.LocalPosition | None:
        p, v = (packet.x, packet.y, packet.z), (packet.vx, packet.vy, packet.vz)
        return messages.LocalPosition(packet.time_boot_ms / 1e3, p, v) if self._sound(*p, *v) else None

    def _odometry(self, packet: Any) -> messages.Odometry | None:
        p, v = (packet.x, packet.y, packet.z), (packet.vx, packet.vy, packet.vz)
        rates = packet.rollspeed, packet.pitchspeed, packet.yawspeed
        q_wb = unit(scaled(self.profile.signs.odometry_q, packet.q))
        if not self._sound(*p, *v, *rates) or q_wb is None:
            return None
        x, y, z = scaled(self.profile.signs.odometry_rates, rates)
        return messages.Odometry(packet.time_usec / 1e6, p, q_wb, v, (x, y, z), packet.reset_counter)

    def _motors(self, packet: Any) -> messages.Motors | None:
        a, b, c, d = packet.actuator[:4]
        return messages.Motors(packet.time_usec / 1e6, (a, b, c, d)) if self._sound(a, b, c, d) else None

    def _rival(self, packet: Any) -> messages.RivalState | None:
        x, y, z, u, v, w = packet.data[:6]
        if not self._sound(x, y, z, u, v, w):
            return None
        return messages.RivalState(packet.time_usec / 1e6, packet.array_id, (x, y, z), (u, v, w))

    def _collision(self, packet: Any) -> messages.Collision | None:
        impulse = packet.horizontal_minimum_delta
        return messages.Collision(self._t, messages.Struck(packet.id), impulse) if self._sound(impulse) else None

    def encode(self, command: messages.Command, t: float) -> bytes:
        """Return the datagram of a command with finite numbers; t (s, simulator clock) stamps set-points.

        Attitude, rates and thrust are always filled in; the type mask marks attitude or rates as ignored.
        """
        match command:
            case messages.Arm():  # a flight ends in the air, where PX4 only disarms if forced
                forced = self.profile.offboard is not None and not command.arm
                return self._long(messages.ARM_COMMAND, float(command.arm), float(FORCE) if forced else 0.0)
            case messages.EnterOffboard():
                return self._long(messages.MODE_COMMAND, float(CUSTOM), *map(float, OFFBOARD))
            case messages.Reset():
                number = self.profile.race.reset_command if self.profile.race else 0
                return self._long(number, float(command.race))
            case messages.AttitudeTarget():
                return self._attitude_target(command, t)
            case messages.PositionTarget():
                return self._position_target(command, t)

    def _long(self, number: int, *first: float) -> bytes:
        parameters = (*first, *[0.0] * (7 - len(first)))
        return self._framing.pack(dialect.MAVLink_command_long_message(*self._target, number, 0, *parameters))

    def _attitude_target(self, command: messages.AttitudeTarget, t: float) -> bytes:
        rad_s = self.profile.rates_rad_s_bit
        mask = IGNORE_ATTITUDE | (RATES_RAD_S if rad_s else 0) if command.by_rates else sum(IGNORE_RATE)
        mask |= IGNORE_THRUST if command.keep_throttle else 0
        rates = self.profile.gain(rad_s).to_wire(command.omega)
        stamp = milliseconds(t)
        target = dialect.MAVLink_set_attitude_target_message(
            stamp, *self._target, mask, command.q_wb, *rates, command.throttle
        )
        return self._framing.pack(target)

    def _position_target(self, command: messages.PositionTarget, t: float) -> bytes:
        axes = (*command.p, *command.v, *command.a)
        mask = sum(1 << bit for bit, value in enumerate(axes) if value is None)
        turn = command.yaw, command.yaw_rate
        mask |= sum(1 << bit for bit, value in enumerate(turn, start=10) if value is None)
        frame = FRAMES[command.frame]
        values = (value or 0.0 for value in (*axes, *turn))
        target = dialect.MAVLink_set_position_target_local_ned_message(
            milliseconds(t), *self._target, frame, mask, *values
        )
        return self._framing.pack(target)

    def requests(self, now: float) -> list[bytes]:
        """Return requests for streams slower than in the profile; `now` in s of any monotonic clock. Call often."""
        return [self._long(SET_MESSAGE_INTERVAL, m, round(1e6 / hz)) for m, hz in self._streams.due(now)]

    def heartbeat(self) -> bytes:
        """Return the client's heartbeat."""
        kind, autopilot, state = dialect.MAV_TYPE_GCS, dialect.MAV_AUTOPILOT_INVALID, dialect.MAV_STATE_ACTIVE
        return self._framing.pack(dialect.MAVLink_heartbeat_message(kind, autopilot, 0, 0, state, 3))

    def timesync(self, now: float) -> bytes:
        """Return a TIMESYNC request; `now` (s, client's clock) is returned in the `TimesyncReply`."""
        return self._framing.pack(dialect.MAVLink_timesync_message(0, round(now * 1e9)))

    def timesync_replies(self, now: float) -> list[bytes]:
        """Return the replies to the simulator's TIMESYNC requests since the last call; `now` in s of the client's clock."""
        times_ns, now_ns = list(self._timesync_requests), max(1, round(now * 1e9))  # 0 would mark it as a request
        self._timesync_requests.clear()
        return [self._framing.pack(dialect.MAVLink_timesync_message(now_ns, ns)) for ns in times_ns]

    def hold(self, t: float) -> bytes:
        """Return the message that lets a simulator in lock-step continue without a command for the tick stamped t (s)."""
        return self._framing.pack(dialect.MAVLink_system_time_message(0, milliseconds(t)))
