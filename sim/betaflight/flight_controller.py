"""Betaflight without an aircraft: bytes in, bytes out, time as an argument.

The serial task runs at 100 Hz and executes one command per run; replies leave at the line's baud rate. A `#` outside a frame,
followed by silence, opens the command line while disarmed, and the port then has no MSP until `exit` or a restart.
Betaflight 4.4, `src/main/msp/msp_serial.c`.
"""

import re
from typing import Protocol

from gate_racer.link.messages import AttitudeTarget
from gate_racer.link.msp.framing import Direction, Frame, Parser, pack
from gate_racer.link.msp.messages import (
    Altitude,
    Channels,
    Code,
    Message,
    RawAttitude,
    RawImu,
    StatusEx,
)
from gate_racer.link.msp.multiple import join_multiple
from gate_racer.link.msp.profile import OWN_ORDER, STICKS, BetaflightProfile
from gate_racer.sim.betaflight.arming import Arming
from gate_racer.sim.betaflight.line import Uart
from gate_racer.sim.betaflight.receiver import Receiver
from gate_racer.sim.betaflight.setpoints import Setpoints
from gate_racer.sim.betaflight.settings import settings
from gate_racer.vehicle.rotation import Array

RX_BUFFER_BYTES = 256
CLI_GUARD_S = 0.1  # of silence after the '#'
CLI_GREETING = b"\r\nEntering CLI Mode, type 'exit' to return, or 'help'\r\n\r\n# "
CLI_EXIT = re.compile(rb"(?:^|[\r\n])exit[\r\n]")
CLI_BYTES = 1024  # that are kept of what was typed
SENSORS = 0b100011  # accelerometer, barometer, gyro
PID_LOOP_US = 125


class Sensing(Protocol):
    """Current measurements of the flight controller, in its own units."""

    def advance(self) -> None:
        """Measure the present state; called at every step of the physics."""
        ...

    def imu(self) -> RawImu: ...

    def attitude(self) -> RawAttitude: ...

    def altitude(self) -> Altitude: ...


class FlightController(Uart):
    """Flight controller on one UART: `receive` takes and `spoken` returns bytes, `serve` advances it, `fly` gives set-points."""

    def __init__(self, profile: BetaflightProfile, sensing: Sensing):
        super().__init__(profile.baud, profile.serial_task_hz)
        self.profile, self._sensing, self._settings = profile, sensing, settings(profile)
        self.receiver, self.arming, self._setpoints = Receiver(profile), Arming(profile), Setpoints(profile)
        self.overflow = 0  # bytes that came while the buffer was full
        self.boot(0.0)

    def boot(self, t: float) -> None:
        """Power on at t, s."""
        self._parser, self._buffer = Parser((Direction.REQUEST,)), bytearray()
        self._cli_asked, self._received_t, self.cli, self._typed = False, t, False, b""
        self.receiver.boot(t)
        self.arming.boot(t)
        self._setpoints.reset()

    @property
    def armed(self) -> bool:
        return self.arming.armed

    def serve(self, t: float) -> None:
        """Run the serial task, receiver and arming as often as they are due up to t, s."""
        while self._task_t <= t + 1e-9:
            now = self._task_t
            self._tasks += 1
            self._read(now)
            self.receiver.update(now)
            self.arming.update(self.receiver, self.cli, now)

    def fly(self, q_wb: Array, t: float) -> AttitudeTarget | None:
        """Measure, and return the set-point of the rate loop at t, s, at an attitude (4,); None while disarmed."""
        self._sensing.advance()
        target = self._setpoints.advance(self.receiver, q_wb, t)
        return target if self.armed else None

    def _read(self, t: float) -> None:
        """Read bytes up to the end of one command and answer it."""
        came = self._in.arrived(t)
        self._received_t = t if came else self._received_t
        room = RX_BUFFER_BYTES - len(self._buffer)
        self.overflow += max(0, len(came) - room)
        self._buffer += came[:room]
        if self.cli:
            self._type(t)
        elif self._cli_asked and t - self._received_t >= CLI_GUARD_S:
            self.cli, self._cli_asked = True, False
            self._out.send(CLI_GREETING, t)
        while self._buffer and not self.cli:
            byte = bytes((self._buffer.pop(0),))
            broken = self._parser.counters.checksum + self._parser.counters.oversized
            frames = self._parser.feed(byte)
            sound = broken == self._parser.counters.checksum + self._parser.counters.oversized
            self._cli_asked |= sound and b"#" in self._parser.stray and not self.armed
            for frame in frames:
                self._out.send(pack(self._answer(frame, t)), t)
            if frames:
                return

    def _type(self, t: float) -> None:
        """Echo the command line's input; its only command is `exit`, which restarts."""
        typed, self._buffer = bytes(self._buffer), bytearray()
        self._out.send(typed, t)
        self._typed = (self._typed + typed)[-CLI_BYTES:]
        if CLI_EXIT.search(self._typed):
            self.boot(t)

    def _answer(self, frame: Frame, t: float) -> Frame:
        payload = self._payload(frame, t)
        direction = Direction.ERROR if payload is None else Direction.ANSWER
        return Frame(frame.command, payload or b"", direction, frame.version, frame.flag)

    def _payload(self, frame: Frame, t: float) -> bytes | None:
        """Return the reply's payload; None for an error reply."""
        if frame.command == Code.SET_RAW_RC:
            channels = Channels.decode(frame.payload)
            if channels is None:
                return None
            self.receiver.take(channels.us, t)
            return b""
        if frame.command == Code.MULTIPLE_MSP:
            wanted = [self._message(command) for command in frame.payload]
            return join_multiple([m.encode() if m is not None else b"" for m in wanted]) if wanted else None
        message = self._message(frame.command)
        return message.encode() if message is not None else None

    def _message(self, command: int) -> Message | None:
        match command:
            case Code.RAW_IMU:
                return self._sensing.imu()
            case Code.ATTITUDE:
                return self._sensing.attitude()
            case Code.ALTITUDE:
                return self._sensing.altitude()
            case Code.RC:
                return Channels(tuple(round(us) for us in self._in_its_own_order()))
            case Code.STATUS_EX:
                return self._status()
        return self._settings.get(command)

    def _in_its_own_order(self) -> list[float]:
        """Return roll, pitch, yaw, throttle and the AUX channels, us."""
        channels = self.receiver.channels
        return [*(channels[self.profile.channel(letter)] for letter in OWN_ORDER), *channels[STICKS:]]

    def _status(self) -> StatusEx:
        aux = self.profile.aux
        on = self.armed, self.receiver.active(aux.angle), self.receiver.overridden
        modes = sum(1 << bit for bit, holds in enumerate(on) if holds)
        return StatusEx(PID_LOOP_US, 0, SENSORS, modes, 0, 0, 4, 0, self.arming.disabled)
