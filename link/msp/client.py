"""The pilot's end of a Betaflight link, with the interface of `link.udp.MavlinkClient`: polls to telemetry, targets to sticks.

MSP has no clock: times are of this computer, from the client's start, at which the sample left the flight controller. MSP
cannot arm: an arm command is acknowledged by whether the person has armed and handed over. Sticks are sent at a fixed rate from
the start, neutral until the first target, and with each new target; the newest is repeated as long as the client is called.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gate_racer.link.messages import (
    Ack,
    Arm,
    AttitudeTarget,
    Command,
    Heartbeat,
    HumanSticks,
    Telemetry,
    TimesyncReply,
)
from gate_racer.link.msp.codec import CodecCounters
from gate_racer.link.msp.line import MspLine, neutral
from gate_racer.link.msp.messages import Channels, Message, RawAttitude, RawImu, StatusEx
from gate_racer.link.msp.ports import Port
from gate_racer.link.msp.profile import STICKS, BetaflightProfile
from gate_racer.link.msp.sticks import asked_by, attitude, imu, sticks_by_angles, sticks_by_rates
from gate_racer.link.sockets import Address, LinkError
from gate_racer.link.udp import RateGuard, finite
from gate_racer.vehicle.rotation import to_euler

HEARTBEAT_S = 0.25  # s between heartbeats


@dataclass(slots=True)
class MspCounters(CodecCounters):
    """Counts of what an `MspClient` has dropped or not sent."""

    unsent: int = 0  # commands that MSP cannot carry, not finite, or for a mode that is not on
    timeouts: int = 0  # requests without a reply
    missed_beats: int = 0  # stick frames skipped because this computer was late
    undated: int = 0  # replies dropped because their sampling time is unknown
    unguarded: int = 0  # 1 once the guard was lost, and the line is driven from here


class MspClient:
    """One flight controller on one port, which the client closes. Call `receive` or `keep_alive` every few ms."""

    peer: Address | None = None  # a serial line has no addresses
    knocking: Address | None = None
    host = refused = ""  # no host, no signatures

    def __init__(
        self,
        port: Port,
        profile: BetaflightProfile,
        clock: Callable[[], float] = time.monotonic,
        shadow: bool = False,
    ):
        """Create it; `clock`: s, monotonic, also that of the port's waits. A `shadow` sends no sticks, and reads the person's."""
        self.counters = MspCounters()
        self.socket: Any = port  # for `select`, by its descriptor
        self.address: Address = profile.name, profile.baud
        self.where = f"the line of {profile.name}"
        self._profile = profile
        self._line = MspLine(port, profile, 0.0 if shadow else profile.stick_hz, self.counters, clock)
        self._shadow, self._gyro = shadow, (0.0, 0.0, 0.0)
        # Of the accepted targets; counts only: the line sends each at once, or the newest at the profile's `stick_hz`.
        self.rates = RateGuard(math.inf)
        self._clock, self._epoch = clock, clock()
        self._armed = self._handed_over = self._angle = False
        self._arm_requested = self._gone = False  # arming or disarming was requested; the line has failed
        self._heartbeat_due = -math.inf
        self._throttle = 0.0

    @property
    def handed_over(self) -> bool:
        """Whether the person has armed and switched the override on, so that sticks act. For a shadow: whether armed."""
        return self._armed and (self._handed_over or self._shadow)

    def reconsider(self, now: float, complete: bool) -> bool:
        """Return False: the other end of a line cannot be replaced."""
        return False

    def receive(self, timeout_s: float) -> list[tuple[float, Telemetry | TimesyncReply]]:
        """Return all messages with their time of reception (s of the clock); wait at most timeout_s.

        A line that fails after the hand-over is silent; the pilot detects that as loss of the link.

        Raises:
            LinkError: the line failed before the hand-over.
        """
        arrivals: list[tuple[float, Telemetry | TimesyncReply]] = []
        for sampled, message in self._exchange(timeout_s):
            received, t = self._clock(), sampled - self._epoch
            arrivals += [(received, reading) for reading in self._read(message, t)]
        scheduler = self._line.scheduler
        self.counters.timeouts, self.counters.missed_beats = scheduler.timeouts, scheduler.missed_beats
        self.counters.undated = self._line.undated
        self.counters.unguarded = int(getattr(self.socket, "unguarded", False))
        return arrivals

    def _exchange(self, timeout_s: float) -> list[tuple[float, Message]]:
        if self._gone:
            return []
        try:
            return self._line.exchange(timeout_s)
        except LinkError:
            if not self.handed_over:
                raise
            self._gone = True
            return []

    def _read(self, message: Message, t: float) -> list[Telemetry]:
        match message:
            case RawImu():
                sample = imu(self._profile, message, t, spinning=self._armed)
                self._gyro = sample.gyro
                return [sample]
            case RawAttitude():
                return [attitude(self._profile, message, t)]
            case Channels():
                self._handed_over = self._profile.aux.override.on(message.us)
                self._follow_mode(self._profile.aux.angle.on(message.us))
                return [self._human(message, t)] if self._shadow and len(message.us) >= STICKS else []
            case StatusEx():
                self._armed = message.armed
                return self._state(t)
        return []

    def _human(self, channels: Channels, t: float) -> HumanSticks:
        """Return the person's sticks as commands. In angle mode, where they are angles, the rates are the measured ones."""
        commanded = asked_by(self._profile, channels.us)
        return HumanSticks(t, self._gyro if self._angle else commanded.turn, commanded.throttle)

    def _follow_mode(self, angle: bool) -> None:
        """Centre the sticks when the person changes the mode: rates would act as angles, or angles as rates."""
        if angle is not self._angle:
            self._angle = angle
            self._line.sticks = sticks_by_rates(self._profile, (0.0, 0.0, 0.0), self._throttle)

    def _state(self, t: float) -> list[Telemetry]:
        """Return the acknowledgement of an arm command, and a heartbeat at intervals."""
        messages: list[Telemetry] = [Ack(t, self.handed_over)] if self._arm_requested else []
        self._arm_requested = False
        if t >= self._heartbeat_due:
            self._heartbeat_due = t + HEARTBEAT_S
            messages.append(Heartbeat(t, self.handed_over))
        return messages

    def send(self, command: Command, now: float, t: float) -> bool:
        """Accept a command at `now` (s of the clock); its sticks follow with the next call. False, and counted, if withheld.

        MSP cannot disarm: the command gives low throttle and centred sticks; disarming is left to the person.
        """
        match command:
            case Arm():
                self._arm_requested = True
                if not command.arm:
                    self._line.sticks, self._throttle = neutral(self._profile), 0.0
                return True
            case AttitudeTarget() if self._fits(command):
                self.rates.admit(now)
                self._throttle = self._throttle if command.keep_throttle else command.throttle
                self._line.sticks = self._sticks(command)
                self._line.scheduler.lead_sticks()
                return True
        self.counters.unsent += 1
        return False

    def _fits(self, target: AttitudeTarget) -> bool:
        """Return whether a target is finite, and for the mode that the person has switched on."""
        return finite(target) and (self._shadow or target.by_rates is not self._angle)

    def _sticks(self, target: AttitudeTarget) -> tuple[int, ...]:
        if target.by_rates:
            return sticks_by_rates(self._profile, target.omega, self._throttle)
        roll, pitch, _ = to_euler(target.q_wb)
        return sticks_by_angles(self._profile, float(roll), float(pitch), target.omega[2], self._throttle)

    def keep_alive(self, now: float) -> None:
        """Send what is due; call often. Raises LinkError as `receive`."""
        try:
            if not self._gone:
                self._line.send_due(now)
        except LinkError:
            self._gone = self.handed_over
            if not self._gone:
                raise

    def ask_time(self, now: float) -> None:
        """Do nothing: MSP has no clock."""

    def hold(self, t: float) -> None:
        """Do nothing: a line has no lock-step."""

    def __enter__(self) -> "MspClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the port. The last sticks stay in effect in the flight controller: the person must take over before."""
        self.socket.close()
