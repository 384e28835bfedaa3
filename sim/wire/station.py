"""A `Simulator` that speaks bytes: datagrams in, datagrams out, no sockets and no clock. Every server is one around this."""

from typing import Protocol

from link.messages import (
    Ack,
    ClientHeartbeat,
    Command,
    Control,
    Farewell,
    Heartbeat,
    Hold,
    Imu,
    TimesyncRequest,
    UnknownCommand,
)
from link.server import ServerCodec
from link.signing import SigningKey
from sim.simulator import Exposure, Simulator, Tick
from sim.wire.compliance import Compliance
from sim.wire.px4 import Px4Desk

Address = tuple[str, int]
STAMP_SLACK_MS = 1.0  # a client may round a stamp either way
CLIENT_SILENCE_S = 3.0  # after which another client may take over


class TrafficRecorder(Protocol):
    """Where all that crosses the wire may be kept."""

    def sent(self, t: float, datagram: bytes) -> None: ...

    def heard(self, t: float, datagram: bytes) -> None: ...

    def commanded(self, t: float, command: Command) -> None: ...

    def ticked(self, simulator: Simulator, tick: Tick) -> None: ...


class Station:
    """Commands are taken from one client at a time: the first that speaks, until it falls silent, or until the one speaks
    whom the telemetry goes to.
    """

    def __init__(
        self,
        simulator: Simulator,
        recorder: TrafficRecorder | None = None,
        client: Address | None = None,
        key: SigningKey | None = None,
    ):
        """`client` is where the telemetry goes; with a key all must be signed."""
        self.simulator, self._client = simulator, client
        self._px4 = Px4Desk(simulator) if simulator.profile.offboard is not None else None
        self._codec, self._recorder = ServerCodec(simulator.profile, key, self._px4), recorder
        self._speaker: tuple[Address, float] | None = None
        self._imu_t: float | None = None  # newest stamp
        self.measured: list[Imu] = []  # IMU samples of the last tick, whether the client gets them or not
        self._compliance = Compliance(simulator.profile, simulator.referee)
        self._halted = False
        self.foreign = 0  # datagrams of a second client
        self.counters = self._codec.counters

    @property
    def answered(self) -> bool:
        """Whether the last set-point or SYSTEM_TIME heard bears the stamp of the newest IMU sample: the client has its say."""
        stamp = self._codec.answered_ms
        return self._imu_t is None or (stamp is not None and abs(stamp - self._imu_t * 1e3) <= STAMP_SLACK_MS)

    def heartbeat(self) -> list[bytes]:
        """One out of turn, for a client that comes while time stands."""
        return self._codec.encode(Heartbeat(self.simulator.t, self.simulator.armed))

    def farewell(self) -> list[bytes]:
        """The last words: how the race stands, for a client that would wait for the next sample."""
        race = self.simulator.referee.race
        reason = f"{race.status.value}: {race.cause}" if race.cause else race.status.value
        return self._codec.encode(Farewell(self.simulator.t, reason))

    def tick(self) -> tuple[list[bytes], Exposure | None]:
        """One physics step: its datagrams, and the image that it asks for."""
        self._guard()
        tick = self.simulator.tick()
        telemetry = self._px4.tick(tick.telemetry) if self._px4 is not None else tick.telemetry
        self.measured = [message for message in tick.telemetry if isinstance(message, Imu)]
        self._imu_t = next((m.t for m in reversed(telemetry) if isinstance(m, Imu)), self._imu_t)
        datagrams = [datagram for message in telemetry for datagram in self._codec.encode(message)]
        if self._recorder is not None:
            self._recorder.ticked(self.simulator, tick)
            for datagram in datagrams:
                self._recorder.sent(tick.t, datagram)
        return datagrams, tick.exposure

    def hear(self, datagram: bytes, sender: Address, now: float) -> list[bytes]:
        """Takes a datagram, returns the answers; `now` in s of any steady clock. Never raises, whatever the bytes."""
        speaker = self._speaker
        if speaker and sender not in (speaker[0], self._client) and now - speaker[1] < CLIENT_SILENCE_S:
            self.foreign += 1
            return []
        t, replies = self.simulator.t, list[bytes]()
        messages = self._codec.decode(datagram)
        for message in messages:
            match message:
                case TimesyncRequest():
                    replies += self._codec.timesync_reply(message, t)
                case UnknownCommand():
                    replies += self._codec.encode(Ack(t, False, message.command, known=False))
                case Hold():
                    pass  # `answered` tells of it
                case _:
                    self._command(t, message)
        for refusal in self._codec.refusals():
            self._compliance.dropped(t, refusal)
        answers = self._codec.replies()
        if messages or answers:
            self._speaker = (sender, now)
        replies += answers
        if self._recorder is not None:
            self._recorder.heard(t, datagram)
            for reply in replies:
                self._recorder.sent(t, reply)
        return replies

    def _guard(self) -> None:
        """Watches the client's rates, and lets the failsafe fly once it is silent."""
        simulator, failsafe = self.simulator, self.simulator.profile.failsafe
        self._compliance.tick(simulator.t, simulator.armed)
        if failsafe is None or not simulator.armed or self._compliance.silent_s(simulator.t) <= failsafe.after_s:
            self._halted = False
        elif not self._halted:
            self._halted = True
            self._compliance.link_lost(simulator.t)
            simulator.halt(failsafe.sink_m_s)

    def _command(self, t: float, command: Command | ClientHeartbeat) -> None:
        self.simulator.command(command)
        if isinstance(command, ClientHeartbeat):
            self._compliance.heartbeat(t)
        elif isinstance(command, Control):
            self._compliance.setpoint(t, self.simulator.armed)
        if self._recorder is not None and not isinstance(command, ClientHeartbeat):
            self._recorder.commanded(t, command)
