"""A `Simulator` behind its wire protocol: datagrams in and out, without sockets or clock; the core of every server.

The client's compliance with VADR-TS-002 (4.4 and 5.2) is monitored: rates of set-points and heartbeats on the simulator's clock,
set-points while disarmed, and dropped messages. Violations are reported to the referee.
"""

import math
from collections import deque
from collections.abc import Mapping

from gate_racer.link import messages
from gate_racer.link.mavlink import SigningKey
from gate_racer.link.profile import Profile
from gate_racer.link.server import ServerCodec
from gate_racer.link.sockets import Address
from gate_racer.sim.referee import Referee, RunStatus
from gate_racer.sim.report import SimulatorRecord
from gate_racer.sim.simulator import Exposure, Simulator
from gate_racer.sim.wire.position import alterations
from gate_racer.sim.wire.px4 import Px4Services

COMMAND_RATE, HEARTBEAT_RATE = "command rate", "heartbeat rate"
DISARMED, LINK_LOSS, DROPPED = "set-point while disarmed", "link loss", "dropped"
ALTERED, REFUSED = "not flown as sent", "refused"
BEATS = 10  # intervals over which the heartbeat rate is averaged (chosen)
BEAT_SLACK_S = 0.1  # s, tolerance for jitter of the network and of the client's loop (chosen)
UNAWARE_S = 0.5  # s, grace time after disarming, which a client learns by the heartbeat (chosen)


class Compliance:
    """Monitor of one client. Times in s, simulator clock."""

    def __init__(self, profile: Profile, referee: Referee):
        self._referee, self._limit_hz, self._least_hz = referee, profile.command_limit_hz, profile.heartbeat_limit_hz
        many = math.ceil(self._limit_hz)
        self._setpoints: deque[float] = deque(maxlen=many)  # one more than a second may hold
        self._span_s = (many - 1) / self._limit_hz
        self._beats: deque[float] = deque(maxlen=BEATS + 1)
        self._gap_reported = False
        self._armed_t = -math.inf  # s, last time at which the vehicle was armed
        self._received_t = 0.0  # s, time of the last heartbeat or set-point
        self._disarmed_t = 0.0  # s, last time at which it was not

    def silent_s(self, t: float) -> float:  # since the last heartbeat or set-point, at most since arming
        return t - max(self._received_t, self._disarmed_t)

    def heartbeat(self, t: float) -> None:
        """Register a heartbeat received at t. The rate counts from GO."""
        self._received_t, self._gap_reported = t, False
        beats, race = self._beats, self._referee.race
        if race.status is not RunStatus.RUNNING or race.go_t is None:
            beats.clear()
            return
        beats.append(t)
        took, may = t - beats[0], (len(beats) - 1) / self._least_hz + BEAT_SLACK_S
        if len(beats) > BEATS and took > may:
            self._referee.note(HEARTBEAT_RATE, t, f"{BEATS / took:.2f} Hz instead of {self._least_hz:g} Hz or more")

    def setpoint(self, t: float, armed: bool) -> None:
        """Register a valid set-point received at t."""
        self._received_t = t
        self._setpoints.append(t)
        took = t - self._setpoints[0]
        if len(self._setpoints) == self._setpoints.maxlen and took <= self._span_s + 1e-9:
            many = f"{len(self._setpoints)} set-points in {took:.3f} s"
            self._referee.note(COMMAND_RATE, t, f"{many}: must be below {self._limit_hz:g} Hz")
        if not armed and t - self._armed_t > UNAWARE_S:
            self._referee.note(DISARMED, t, "it is ignored: arm first")

    def tick(self, t: float, armed: bool) -> None:
        """Check for missing heartbeats at t; call at every tick."""
        if armed:
            self._armed_t = t
        else:
            self._disarmed_t = t
        race = self._referee.race
        if race.status is not RunStatus.RUNNING or race.go_t is None or self._gap_reported:
            return
        since = max(race.go_t, self._beats[-1] if self._beats else -math.inf)
        if t - since > 1 / self._least_hz + BEAT_SLACK_S:
            self._gap_reported = True
            why = f"no heartbeat for {t - since:.2f} s: at least {self._least_hz:g} Hz are required"
            self._referee.note(HEARTBEAT_RATE, t, why)


STAMP_SLACK_MS = 1.0  # ms, tolerance for a client's rounding of stamps
CLIENT_SILENCE_S = 3.0  # s of silence after which another client may take over


class Station:
    """Protocol endpoint of a simulator. Commands are accepted from one client at a time: the first to send, until it falls
    silent, or until the receiver of the telemetry sends.
    """

    def __init__(
        self,
        simulator: Simulator,
        recorder: SimulatorRecord | None = None,
        client: Address | None = None,
        key: SigningKey | None = None,
        waits: bool = False,
    ):
        """`client`: receiver of the telemetry. `key`: with which all messages must be signed.

        `waits`: whether the client's answer to an IMU sample is waited for; then a tick is one datagram that ends with
        its samples, since of several the client would hear as many before its answer as happen to have arrived.
        """
        self.simulator, self._client, self._waits = simulator, client, waits
        self._px4 = Px4Services(simulator) if simulator.profile.offboard is not None else None
        self._codec, self._recorder = ServerCodec(simulator.profile, key, self._px4), recorder
        self._speaker: tuple[Address, float] | None = None
        self._imu_t: float | None = None  # s, newest IMU stamp
        self.measured: list[messages.Imu] = []  # of the last tick, whether or not they are sent to the client
        self._compliance = Compliance(simulator.profile, simulator.referee)
        self._halted = False
        self.foreign = 0  # ignored datagrams of other clients
        self.counters = self._codec.counters

    @property
    def answered(self) -> bool:
        """Whether the last set-point or SYSTEM_TIME received carries the stamp of the newest IMU sample."""
        stamp = self._codec.answered_ms
        return self._imu_t is None or (stamp is not None and abs(stamp - self._imu_t * 1e3) <= STAMP_SLACK_MS)

    def heartbeat(self) -> list[bytes]:
        """Return an extra heartbeat, for a client that connects while simulated time is stopped."""
        return self._codec.encode(messages.Heartbeat(self.simulator.t, self.simulator.armed))

    def farewell(self) -> list[bytes]:
        """Return the closing message with the status of the race, for a client that waits for the next sample."""
        race = self.simulator.referee.race
        finish_s = race.gate_times_s[-1] if race.status is RunStatus.FINISHED else None
        return self._codec.encode(messages.Farewell.of(self.simulator.t, race.status.value, race.cause, finish_s))

    def tick(self) -> tuple[list[bytes], Exposure | None]:
        """Advance one physics step; return its datagrams and its exposure, if any."""
        self._guard()
        tick = self.simulator.tick()
        telemetry = self._px4.tick(tick.telemetry) if self._px4 is not None else tick.telemetry
        self.measured = [message for message in tick.telemetry if isinstance(message, messages.Imu)]
        self._imu_t = next((m.t for m in reversed(telemetry) if isinstance(m, messages.Imu)), self._imu_t)
        if self._waits:
            telemetry = sorted(telemetry, key=lambda message: isinstance(message, messages.Imu))
        datagrams = [datagram for message in telemetry for datagram in self._codec.encode(message)]
        if self._recorder is not None:
            self._recorder.ticked(self.simulator, tick)
            for datagram in datagrams:
                self._recorder.sent(tick.t, datagram)
        return [b"".join(datagrams)] if self._waits and datagrams else datagrams, tick.exposure

    def receive(self, datagram: bytes, sender: Address, now: float) -> list[bytes]:
        """Process a datagram and return the replies; `now`: s of any monotonic clock. Never raises."""
        speaker = self._speaker
        if speaker and sender not in (speaker[0], self._client) and now - speaker[1] < CLIENT_SILENCE_S:
            self.foreign += 1
            return []
        t, replies = self.simulator.t, list[bytes]()
        received = self._codec.decode(datagram)
        if received:
            self.simulator.meet()
        for message in received:
            match message:
                case messages.TimesyncRequest():
                    replies += self._codec.timesync_reply(message, t)
                case messages.UnknownCommand():
                    replies += self._codec.encode(messages.Ack(t, False, message.command, known=False))
                case messages.Hold():
                    pass  # evaluated by `answered`
                case _:
                    self._command(t, message)
        for refusal in self._codec.refusals():
            self.simulator.referee.note(f"{DROPPED}: {refusal.fault}", t, refusal.reason)
        self._note_lawful(t, REFUSED, self._codec.refused())
        answers = self._codec.replies()
        if received or answers:
            self._speaker = (sender, now)
        replies += answers
        if self._recorder is not None:
            self._recorder.received(t, datagram)
            for reply in replies:
                self._recorder.sent(t, reply)
        return replies

    def _note_lawful(self, t: float, what: str, reasons: Mapping[str, str]) -> None:
        """Note what breaks no rule: fields that are ALTERED, or REFUSED datagrams, which anyone may have sent."""
        for one, reason in reasons.items():
            self.simulator.referee.note(f"{what}: {one}", t, reason, lawful=True)

    def _guard(self) -> None:
        """Monitor the client's rates, and engage the failsafe once it is silent."""
        simulator, failsafe = self.simulator, self.simulator.profile.failsafe
        self._compliance.tick(simulator.t, simulator.armed)
        if failsafe is None or not simulator.armed or self._compliance.silent_s(simulator.t) <= failsafe.after_s:
            self._halted = False
        elif not self._halted:
            self._halted = True
            why = (
                f"neither heartbeat nor set-point for {self._compliance.silent_s(simulator.t):.2f} s: failsafe engaged"
            )
            simulator.referee.note(LINK_LOSS, simulator.t, why)
            simulator.halt(failsafe.sink_m_s)

    def _command(self, t: float, command: messages.Command | messages.ClientHeartbeat) -> None:
        self.simulator.command(command)
        if isinstance(command, messages.ClientHeartbeat):
            self._compliance.heartbeat(t)
        elif isinstance(command, messages.SetPoint):
            self._compliance.setpoint(t, self.simulator.armed)
            if isinstance(command, messages.PositionTarget):
                self._note_lawful(t, ALTERED, alterations(command, self.simulator.profile.position_yaw))
        if self._recorder is not None and not isinstance(command, messages.ClientHeartbeat):
            self._recorder.commanded(t, command)
