"""The pilot's end of MAVLink 2: bytes of one datagram to typed messages, and back, and the sockets, with those of its video.

VADR-TS-002, 4.3 to 4.5. `ClientCodec` has no sockets and no clock. Decoding never raises, whatever the bytes: unusable input is
counted and dropped. Signs and gains of the wire are removed here: the output is NED, FRD, SI, for every profile.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pymavlink.dialects.v20 import common as dialect

from gate_racer.link import mavlink, messages, px4
from gate_racer.link.mavlink import Counters, Framing, SigningKey, finite, milliseconds, scaled, unit
from gate_racer.link.profile import Profile
from gate_racer.link.race import RaceReader
from gate_racer.link.sockets import LOOPBACK, Address, Peer, UdpEndpoint, is_autopilot
from gate_racer.link.video import image_reassembler
from gate_racer.vehicle.rotation import from_euler

MOST_REQUESTS = 16  # TIMESYNC requests kept: a flood must not cost memory
# Frames of ODOMETRY: of the pose, whose origin and heading are the sender's, and of the velocities, which are FRD in both.
ODOMETRY_WORLDS = dialect.MAV_FRAME_LOCAL_NED, dialect.MAV_FRAME_LOCAL_FRD, dialect.MAV_FRAME_LOCAL_FLU
ODOMETRY_BODIES = dialect.MAV_FRAME_BODY_FRD, dialect.MAV_FRAME_BODY_NED
Received = messages.Telemetry | messages.TimesyncReply
M = TypeVar("M")
LATEST_US = 1e16  # us, year 2286 of a Unix clock: later stamps are invalid, and overflow nanoseconds


class ClientCodec:
    """Codec of the client. The target system and component are taken from the simulator's heartbeat."""

    def __init__(self, profile: Profile, counters: Counters | None = None, key: SigningKey | None = None):
        """Create it; `profile` defines the conventions, `counters` may be shared. With a key all messages must be signed."""
        self.profile = profile
        self.counters = counters if counters is not None else Counters()
        self.framing = Framing(*mavlink.CLIENT, self.counters, key)
        self._target = profile.system, profile.component
        self._race, self._texts = RaceReader(), px4.TextReader()
        imu, attitude = dialect.MAVLINK_MSG_ID_HIGHRES_IMU, dialect.MAVLINK_MSG_ID_ATTITUDE
        wanted = {imu: profile.imu_hz, attitude: profile.attitude_hz} if profile.offboard is not None else {}
        self._streams = px4.StreamRequests(wanted)
        modes = (messages.MODE_COMMAND,) if profile.offboard is not None else ()
        self._acknowledged = (messages.ARM_COMMAND, *modes)  # commands whose acknowledgements are read
        self._t = 0.0  # s, newest stamp of the simulator
        self._in_tc1 = False  # whether the last TIMESYNC request was of this form
        self._timesync_requests: deque[int] = deque(maxlen=MOST_REQUESTS)  # ns, TIMESYNC requests to be answered
        self._last_text = ""  # newest STATUSTEXT: the reason if the simulator ends

    def decode(self, datagram: bytes, admits: Callable[[Any], bool] = lambda packet: True) -> list[Received]:
        """Return the messages of a datagram whose packets `admits` accepts. Those without a stamp get the newest, else 0."""
        found = map(self._read, filter(admits, self.framing.unpack(datagram)))
        return [message for message in found if message is not None]

    def _read(self, packet: Any) -> Received | None:
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
            case dialect.MAVLink_timesync_message() if packet.tc1 != 0 and packet.ts1 != 0:
                return messages.TimesyncReply(packet.tc1 / 1e9, packet.ts1 / 1e9)
            case dialect.MAVLink_timesync_message():
                self._timesync_requests.append(packet.ts1 or packet.tc1)
                return None
            case dialect.MAVLink_local_position_ned_message():
                p, v = (packet.x, packet.y, packet.z), (packet.vx, packet.vy, packet.vz)
                return self._sound(messages.LocalPosition(packet.time_boot_ms / 1e3, p, v), *p, *v)
            case dialect.MAVLink_odometry_message():
                return self._odometry(packet)
            case dialect.MAVLink_actuator_output_status_message():
                a, b, c, d = packet.actuator[:4]
                return self._sound(messages.Motors(packet.time_usec / 1e6, (a, b, c, d)), a, b, c, d)
            case dialect.MAVLink_collision_message() if packet.id in tuple(messages.Struck):
                impulse = packet.horizontal_minimum_delta
                return self._sound(messages.Collision(self._t, messages.Struck(packet.id), impulse), impulse)
            case dialect.MAVLink_debug_float_array_message() if packet.name == mavlink.RIVAL.decode():
                x, y, z, u, v, w = packet.data[:6]
                rival = messages.RivalState(packet.time_usec / 1e6, packet.array_id, (x, y, z), (u, v, w))
                return self._sound(rival, x, y, z, u, v, w)
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
        mode = px4.mode_name(packet.custom_mode) if self.profile.offboard is not None else ""
        return messages.Heartbeat(self._t, bool(packet.base_mode & dialect.MAV_MODE_FLAG_SAFETY_ARMED), mode)

    def _ack(self, packet: Any) -> messages.Ack | None:
        """Return the acknowledgement, or None for one that is in progress, or for another system."""
        accepted = packet.result == dialect.MAV_RESULT_ACCEPTED
        if self.profile.offboard is None:
            return messages.Ack(self._t, accepted)
        if packet.result == px4.IN_PROGRESS or packet.target_system not in (0, mavlink.CLIENT[0]):
            return None
        return messages.Ack(self._t, accepted, packet.command, result=px4.result_name(packet.result))

    def _odometry(self, packet: Any) -> messages.Odometry | None:
        """Return the odometry in a world with z down; None, counted, for axes other than ODOMETRY_WORLDS and ODOMETRY_BODIES."""
        if packet.frame_id not in ODOMETRY_WORLDS or packet.child_frame_id not in ODOMETRY_BODIES:
            self.counters.unsupported += 1
            return None
        p, v = (packet.x, packet.y, packet.z), (packet.vx, packet.vy, packet.vz)
        rates = packet.rollspeed, packet.pitchspeed, packet.yawspeed
        q_wb = unit(scaled(self.profile.signs.odometry_q, packet.q))
        if q_wb is not None and packet.frame_id == dialect.MAV_FRAME_LOCAL_FLU:  # half a turn about x
            (w, x, y, z), p = q_wb, (p[0], -p[1], -p[2])
            q_wb = -x, w, -z, y
        omega_b = scaled(self.profile.signs.odometry_rates, rates)
        found = q_wb and messages.Odometry(packet.time_usec / 1e6, p, q_wb, v, omega_b, packet.reset_counter)
        return self._sound(found, *p, *v, *rates)

    def _sound(self, message: M | None, *values: float) -> M | None:
        """Return a message whose values are finite; else count it as invalid."""
        if message is not None and finite(values):
            return message
        self.counters.invalid += 1
        return None

    def _attitude(self, packet: Any) -> messages.Attitude | None:
        euler = packet.roll, packet.pitch, packet.yaw
        if not finite(euler):
            self.counters.invalid += 1
            return None
        self._t = packet.time_boot_ms / 1e3
        w, x, y, z = from_euler(*scaled(self.profile.signs.euler, euler)).tolist()
        return messages.Attitude(self._t, (w, x, y, z))

    def _imu(self, packet: Any) -> messages.Imu | None:
        accel = packet.xacc, packet.yacc, packet.zacc
        gyro = packet.xgyro, packet.ygyro, packet.zgyro
        if packet.time_usec > LATEST_US or not finite((*accel, *gyro)):
            self.counters.invalid += 1
            return None
        self._t = packet.time_usec / 1e6
        return messages.Imu(self._t, accel, scaled(self.profile.signs.gyro, gyro))

    def encode(self, command: messages.Command, t: float) -> bytes:
        """Return the datagram of a finite command, stamped t (s, simulator clock); the type mask marks what is ignored."""
        match command:
            case messages.Arm():  # a flight ends in the air, where PX4 only disarms if forced
                forced = self.profile.offboard is not None and not command.arm
                return self._long(messages.ARM_COMMAND, float(command.arm), float(px4.FORCE) if forced else 0.0)
            case messages.EnterOffboard():
                return self._long(messages.MODE_COMMAND, float(px4.CUSTOM), *map(float, px4.OFFBOARD))
            case messages.Reset():
                number = self.profile.race.reset_command if self.profile.race else 0
                return self._long(number, float(command.race))
            case messages.AttitudeTarget():
                rad_s = self.profile.rates_rad_s_bit
                mask = mavlink.IGNORE_ATTITUDE if command.by_rates else sum(mavlink.IGNORE_RATE)
                mask |= mavlink.RATES_RAD_S if command.by_rates and rad_s else 0
                mask |= mavlink.IGNORE_THRUST if command.keep_throttle else 0
                rates = self.profile.gain(rad_s).to_wire(command.omega)
                attitude = milliseconds(t), *self._target, mask, command.q_wb, *rates, command.throttle
                return self.framing.pack(dialect.MAVLink_set_attitude_target_message(*attitude))
            case messages.PositionTarget():
                axes, turn = (*command.p, *command.v, *command.a), (command.yaw, command.yaw_rate)
                by_bit = (*axes, 0.0, *turn)  # the one between asks for forces
                mask = sum(1 << bit for bit, value in enumerate(by_bit) if value is None)
                values = (value or 0.0 for value in (*axes, *turn))
                frame = next(number for number, frame in mavlink.FRAMES.items() if frame is command.frame)
                position = milliseconds(t), *self._target, frame, mask, *values
                return self.framing.pack(dialect.MAVLink_set_position_target_local_ned_message(*position))

    def _long(self, number: int, *first: float) -> bytes:
        parameters = (*first, *[0.0] * (7 - len(first)))
        return self.framing.pack(dialect.MAVLink_command_long_message(*self._target, number, 0, *parameters))

    def requests(self, now: float) -> list[bytes]:
        return [self._long(px4.SET_MESSAGE_INTERVAL, m, round(1e6 / hz)) for m, hz in self._streams.due(now)]

    def heartbeat(self) -> bytes:
        kind, autopilot, state = dialect.MAV_TYPE_GCS, dialect.MAV_AUTOPILOT_INVALID, dialect.MAV_STATE_ACTIVE
        return self.framing.pack(dialect.MAVLink_heartbeat_message(kind, autopilot, 0, 0, state, 3))

    def timesync(self, now: float) -> bytes:
        self._in_tc1 = self.profile.timesync_in_tc1 and not self._in_tc1
        return self.framing.pack(mavlink.timesync_request(round(now * 1e9), self._in_tc1))

    def timesync_replies(self, now: float) -> list[bytes]:
        times_ns, now_ns = list(self._timesync_requests), max(1, round(now * 1e9))  # 0 would mark it as a request
        self._timesync_requests.clear()
        return [self.framing.pack(dialect.MAVLink_timesync_message(now_ns, ns)) for ns in times_ns]

    def hold(self, t: float) -> bytes:
        """Return the message that lets a simulator in lock-step continue without a command for the tick stamped t (s)."""
        return self.framing.pack(dialect.MAVLink_system_time_message(0, milliseconds(t)))


VIDEO_BUFFER_BYTES = 4 << 20  # some dozens of images
MAVLINK_BUFFER_BYTES = 1 << 20  # one second of the profile with the highest data rate, while this process is suspended
TIMESYNC_S = 0.5  # s between TIMESYNC requests
LEAST_HEARTBEAT_HZ = 2.5  # VADR-TS-002 4.4 requires 2 Hz; the caller's loop may be 0.1 s late


@dataclass(slots=True)
class ClientCounters(Counters):
    foreign: int = 0  # datagrams and messages of senders other than the simulator
    socket_errors: int = 0
    rate_limited: int = 0  # set-points above the rate limit
    unsent: int = 0  # commands without a known simulator, or not finite


class RateGuard:
    """Rate limiter: admits fewer than `limit_hz` events in any window of 1 s."""

    def __init__(self, limit_hz: float):
        self.most_1s = 0  # largest number in any window so far
        self._limit = limit_hz
        self._recent: deque[float] = deque()
        self._count, self._first, self._last = 0, 0.0, 0.0

    @property
    def mean_hz(self) -> float:
        return (self._count - 1) / (self._last - self._first) if self._last > self._first else 0.0

    def restart(self) -> None:
        """Begin the mean anew."""
        self._count = 0

    def admit(self, now: float) -> bool:
        recent = self._recent
        while recent and recent[-1] > now:
            recent.pop()  # the clock was set back
        while recent and recent[0] < now - 1.0:
            recent.popleft()
        if len(recent) + 1 >= self._limit:
            return False
        recent.append(now)
        self.most_1s = max(self.most_1s, len(recent))
        self._first, self._last = (self._first if self._count else now), now
        self._count += 1
        return True


class MavlinkClient(UdpEndpoint):
    """The pilot's MAVLink socket. The simulator is the first autopilot received, see `link.sockets`; all others are ignored."""

    def __init__(
        self, host: str, port: int, profile: Profile, peer: Address | None = None, key: SigningKey | None = None
    ):
        """Bind the socket, for a simulator at `peer` (see `parse_peer`) or anywhere. Raises LinkError if it cannot be bound."""
        super().__init__(host, port, MAVLINK_BUFFER_BYTES)
        self.counters = ClientCounters()
        self._wanted = peer or ("", 0)
        self._peer = Peer(*self._wanted, (profile.system, profile.component))
        self._codec = ClientCodec(profile, self.counters, key)
        knocked = self._wanted[0] or LOOPBACK, self._wanted[1] or profile.simulator_port
        # PX4 only sends to clients that it has received, as may a simulator whose port is named.
        self._door = knocked if profile.offboard is not None or self._wanted[1] else None
        self.rates = RateGuard(profile.command_limit_hz)  # of the set-points sent
        self._heartbeat_s = 1 / max(profile.client_heartbeat_hz, LEAST_HEARTBEAT_HZ)
        self._heartbeat_due = self._timesync_due = -math.inf

    @property
    def peer(self) -> Address | None:
        return self._peer.address

    @property
    def where(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def refused(self) -> str:
        why = self._codec.framing.why_refused
        return f"; {why}" if why else ""

    @property
    def knocking(self) -> Address | None:
        return self._door if self.peer is None else None

    @property
    def host(self) -> str:
        return self.peer[0] if self.peer is not None else self._wanted[0]

    def reconsider(self, now: float, complete: bool) -> bool:
        return self._peer.reconsider(now, complete)

    def receive(self, timeout_s: float) -> list[tuple[float, Received]]:
        """Return all messages with their time of reception (monotonic, s); wait at most timeout_s for the first datagram."""
        arrivals: list[tuple[float, Received]] = []
        received = 0.0
        for datagram, sender, received in self.drain(timeout_s):
            if not self._peer.may_speak(sender):
                self.counters.foreign += 1
                continue
            messages = self._codec.decode(datagram, partial(self._admits, sender, received))
            arrivals += [(received, message) for message in messages]
        for reply in self._codec.timesync_replies(received):
            if self.peer is not None:
                self._transmit(reply)
        self.counters.socket_errors = self.socket_errors
        return arrivals

    def _admits(self, sender: Address, received: float, packet: Any) -> bool:
        admitted = self._peer.admits(packet, sender, received)
        self.counters.foreign += not admitted
        return admitted

    def send(self, command: messages.Command, now: float, t: float) -> bool:
        """Send a command at `now` (monotonic, s), stamped t (s, simulator's clock). False, and counted, if it is withheld.

        Withheld are set-points above the rate limit or not finite, and all commands before the simulator is known.
        """
        if self.peer is None or not finite_command(command):
            self.counters.unsent += 1
            return False
        if isinstance(command, messages.SetPoint) and not self.rates.admit(now):
            self.counters.rate_limited += 1
            return False
        return self._transmit(self._codec.encode(command, t))

    def keep_alive(self, now: float) -> None:
        if (self.peer or self._door) is not None and now >= self._heartbeat_due:
            self._heartbeat_due = now + self._heartbeat_s
            self._transmit(self._codec.heartbeat())
        if self.peer is not None:
            for request in self._codec.requests(now):
                self._transmit(request)

    def ask_time(self, now: float) -> None:
        if self.peer is not None and now >= self._timesync_due:
            self._timesync_due = now + TIMESYNC_S
            self._transmit(self._codec.timesync(now))

    def hold(self, t: float) -> None:
        """Let a simulator in lock-step continue without a command for the sample stamped t (s)."""
        if self.peer is not None:
            self._transmit(self._codec.hold(t))

    def _transmit(self, datagram: bytes) -> bool:
        target = self.peer or self._door
        assert target is not None
        sent = self.transmit(datagram, target)
        self.counters.socket_errors = self.socket_errors
        return sent


def finite_command(command: messages.Command) -> bool:
    """Return whether all numbers of a command are finite; a flight controller's response to others is undefined."""
    match command:
        case messages.AttitudeTarget():
            return finite((*command.q_wb, *command.omega, command.throttle))
        case messages.PositionTarget():
            values = (*command.p, *command.v, *command.a, command.yaw, command.yaw_rate)
            return finite([value for value in values if value is not None])
    return True


class VideoReceiver(UdpEndpoint):
    def __init__(self, host: str, port: int):
        super().__init__(host, port, VIDEO_BUFFER_BYTES)
        self._images = image_reassembler()
        self.counters = self._images.counters
        # Function that opens a receiver in this one's place, once it is closed: at its port, chosen by the system or not.
        self.successor = partial(VideoReceiver, *self.address)

    def accept_only(self, host: str) -> None:
        """Accept only datagrams of a numeric host from now on; empty for any."""
        self.only_host = host

    def receive(self, timeout_s: float) -> list[tuple[messages.VideoFrame, float]]:
        """Return the frames completed, with the reception (monotonic, s) of the last datagram; wait at most timeout_s."""
        frames = []
        for datagram, _, received in self.drain(timeout_s):
            frame = self._images.feed(datagram)
            if frame is not None:
                frames.append((frame, received))
        self.counters.foreign = self.foreign
        return frames
