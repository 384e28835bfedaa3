"""The pilot's end of a Betaflight, with the face of `link.udp.MavlinkClient`: polls become telemetry, targets become sticks.

MSP has no clock: times are of this computer, from the client's beginning on, when the sample left the flight controller. Nobody
arms over MSP: asking for it is answered by whether the pilot has armed and handed over. Sticks go out on their beat from the
beginning, neutral until the first target; the newest target is repeated as long as the client is called.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from link.messages import (
    Ack,
    Arm,
    AttitudeTarget,
    Command,
    Heartbeat,
    HumanSticks,
    Telemetry,
    TimesyncReply,
)
from link.msp.codec import CodecCounters
from link.msp.line import MspLine, neutral
from link.msp.messages import Channels, Message, RawAttitude, RawImu, StatusEx
from link.msp.ports import Port
from link.msp.profile import STICKS, BetaflightProfile
from link.msp.sticks import asked_by, sticks_by_angles, sticks_by_rates
from link.msp.units import attitude, imu
from link.peer import Address
from link.sockets import LinkError
from link.udp import RateGuard, finite
from vehicle.rotation import to_euler

HEARTBEAT_S = 0.25


@dataclass(slots=True)
class MspCounters(CodecCounters):
    """What an `MspClient` has dropped or not sent."""

    unsent: int = 0  # commands that MSP cannot carry, not finite, or of the mode that is not switched on
    timeouts: int = 0  # requests without an answer
    missed_beats: int = 0  # sticks that this computer was too late for
    undated: int = 0  # ... and answers


class MspClient:
    """One flight controller on one port, which is closed with the client. Call `receive` or `keep_alive` every few ms."""

    peer: Address | None = None  # there are no addresses on a line
    knocking: Address | None = None
    host = ""

    def __init__(
        self,
        port: Port,
        profile: BetaflightProfile,
        clock: Callable[[], float] = time.monotonic,
        shadow: bool = False,
    ):
        """`clock`: s, steady, and the one by which the port waits. A `shadow` sends no sticks, and tells of the person's."""
        self.counters = MspCounters()
        self.socket: Any = port  # what a loop waits for: by its descriptor
        self.address: Address = profile.name, profile.baud
        self.where = f"the line of {profile.name}"
        self._profile = profile
        self._line = MspLine(port, profile, 0.0 if shadow else profile.stick_hz, self.counters, clock)
        self._shadow, self._gyro = shadow, (0.0, 0.0, 0.0)
        self._guard = RateGuard(math.inf)  # counts alone: the line carries the newest target on its own beat
        self._clock, self._epoch = clock, clock()
        self._armed = self._handed_over = self._angle = False
        self._asked = self._gone = False  # for arming or its end; the line
        self._heartbeat_due = -math.inf
        self._throttle = 0.0

    @property
    def handed_over(self) -> bool:
        """Whether the pilot has armed and switched the override on: sticks act. For a shadow, whether he has armed."""
        return self._armed and (self._handed_over or self._shadow)

    @property
    def command_hz(self) -> float:
        """Mean rate of the targets taken; the line carries the newest of them at the profile's `stick_hz`."""
        return self._guard.mean_hz

    @property
    def command_hz_max_1s(self) -> int:
        """Most targets taken in any window of 1 s."""
        return self._guard.most_1s

    def reconsider(self, now: float, complete: bool) -> bool:
        """A line has one end: nobody takes its place."""
        return False

    def receive(self, timeout_s: float) -> list[tuple[float, Telemetry | TimesyncReply]]:
        """All that has come, with its time of reception (s of the clock); waits at most timeout_s.

        A line that goes after the sticks were handed over is silent: what that means is the pilot's business.

        Raises:
            LinkError: the line is gone before.
        """
        heard: list[tuple[float, Telemetry | TimesyncReply]] = []
        for sampled, message in self._exchange(timeout_s):
            received, t = self._clock(), sampled - self._epoch
            heard += [(received, told) for told in self._read(message, t)]
        scheduler = self._line.scheduler
        self.counters.timeouts, self.counters.missed_beats = scheduler.timeouts, scheduler.missed_beats
        self.counters.undated = self._line.undated
        return heard

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

    def _human(self, told: Channels, t: float) -> HumanSticks:
        """What the person asks for. In angle mode the flight controller asks for the rates: those that it turns with."""
        asked = asked_by(self._profile, told.us)
        return HumanSticks(t, self._gyro if self._angle else asked.turn, asked.throttle)

    def _follow_mode(self, angle: bool) -> None:
        """Centre the sticks when the pilot changes the mode: rates would act as angles, or angles as rates."""
        if angle is not self._angle:
            self._angle = angle
            self._line.sticks = sticks_by_rates(self._profile, (0.0, 0.0, 0.0), self._throttle)

    def _state(self, t: float) -> list[Telemetry]:
        """The answer to what was asked, and a heartbeat now and then."""
        told: list[Telemetry] = [Ack(t, self.handed_over)] if self._asked else []
        self._asked = False
        if t >= self._heartbeat_due:
            self._heartbeat_due = t + HEARTBEAT_S
            told.append(Heartbeat(t, self.handed_over))
        return told

    def send(self, command: Command, now: float, t: float) -> bool:
        """Takes a command at `now` (s of the clock); its sticks go out on the next beat. False, and counted, if it is held back.

        Disarming is beyond MSP: it is a low throttle with centred sticks, and the pilot's business.
        """
        match command:
            case Arm():
                self._asked = True
                if not command.arm:
                    self._line.sticks, self._throttle = neutral(self._profile), 0.0
                return True
            case AttitudeTarget() if self._fits(command):
                self._guard.admit(now)
                self._throttle = self._throttle if command.keep_throttle else command.throttle
                self._line.sticks = self._sticks(command)
                return True
        self.counters.unsent += 1
        return False

    def _fits(self, target: AttitudeTarget) -> bool:
        """Whether it is finite, and of the mode that the pilot has switched on."""
        return finite(target) and (self._shadow or target.by_rates is not self._angle)

    def _sticks(self, target: AttitudeTarget) -> tuple[int, ...]:
        if target.by_rates:
            return sticks_by_rates(self._profile, target.omega, self._throttle)
        roll, pitch, _ = to_euler(target.q_wb)
        return sticks_by_angles(self._profile, float(roll), float(pitch), target.omega[2], self._throttle)

    def keep_alive(self, now: float) -> None:
        """Sends what is due; call it often. Raises LinkError as `receive`."""
        try:
            if not self._gone:
                self._line.send_due(now)
        except LinkError:
            self._gone = self.handed_over
            if not self._gone:
                raise

    def ask_time(self, now: float) -> None:
        """MSP has no clock to ask for."""

    def hold(self, t: float) -> None:
        """No lock-step on a line."""

    def __enter__(self) -> "MspClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The last sticks act on in the flight controller: the pilot has to take over before."""
        self.socket.close()
