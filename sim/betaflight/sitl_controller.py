"""The firmware in place of the simulated flight controller: the companion's line and the transmitter's.

SITL has no receiver but MSP, so transmitter and override are simulated in front of it: the output of `Receiver` is sent to a
second UART as SET_RAW_RC, with each of the companion's and in between. The companion's own SET_RAW_RC is acknowledged here;
all other frames are forwarded. A receiver without a signal sends nothing, which triggers the firmware's failsafe.
"""

import contextlib
import math
import select
import socket

from gate_racer.link.messages import AttitudeTarget
from gate_racer.link.msp.framing import Direction, Frame, Parser, pack
from gate_racer.link.msp.messages import Channels, Code, DisableFlag, StatusEx
from gate_racer.link.msp.profile import BetaflightProfile
from gate_racer.sim.betaflight.line import Uart
from gate_racer.sim.betaflight.receiver import Receiver
from gate_racer.sim.betaflight.sitl import Sitl
from gate_racer.vehicle.rotation import Array

# In runs of the serial task, which carries out one command each and is late at times: more would queue up.
STICKS_EVERY, STATUS_EVERY = 3, 10
LARGEST = 1 << 16
# Of the wall clock, which the firmware's own threads keep: to take in what was sent before its time goes on.
WAKE_S = 2e-4
NUDGE = b"\0"  # no frame: what the firmware has to say leaves when a byte comes, on whichever of its sockets, or after 0.5 s


class ReportedArming:
    """Arming state as reported by the firmware."""

    def __init__(self) -> None:
        self.armed, self.disabled = False, DisableFlag.BOOT_GRACE_TIME
        self.disarmed_by = DisableFlag(0)  # what stood against arming when it last disarmed

    def disarm(self) -> None:
        """Do nothing: the firmware follows the transmitter's switch."""

    def receive(self, status: StatusEx) -> None:
        if self.armed and not status.armed:
            self.disarmed_by = status.disabled
        self.armed, self.disabled = status.armed, status.disabled


class SitlController(Uart):
    """Substitute for `FlightController`. Never raises in flight: firmware that has died counts as disarmed."""

    def __init__(self, profile: BetaflightProfile, sitl: Sitl):
        super().__init__(profile.baud, profile.serial_task_hz)
        self.profile, self._sitl = profile, sitl
        self.receiver, self.arming = Receiver(profile), ReportedArming()
        self._requests, self._status = Parser((Direction.REQUEST,)), Parser((Direction.ANSWER,))
        self._companion, self._transmitter = sitl.uarts
        for uart in sitl.uarts:
            uart.setblocking(False)
        self._sent, self._waits = 0, False
        self._taken_t = -math.inf  # of the companion's sticks that the firmware has

    def boot(self, t: float) -> None:
        """Reset the receiver for another run; the firmware continues, with the transmitter's switches off."""
        self.receiver.boot(t)

    @property
    def armed(self) -> bool:
        return self.arming.armed and self._sitl.alive

    def serve(self, t: float) -> None:
        """Forward the companion's frames up to t, s, and send the receiver's channels as often as they are due."""
        for frame in self._requests.feed(self._in.arrived(t)):
            self._pass_on(frame, t)
        answered = _received(self._companion)
        self._out.send(answered, t)
        self._waits = self._waits and not answered
        if self._waits:
            _send(self._transmitter, NUDGE)
            select.select([self._companion], [], [], WAKE_S)
        while self._task_t <= t + 1e-9:
            self._tasks += 1
            self._beat(t)
        for frame in self._status.feed(_received(self._transmitter)):
            status = StatusEx.decode(frame.payload) if frame.command == Code.STATUS_EX else None
            if status is not None:
                self.arming.receive(status)

    def fly(self, q_wb: Array, t: float) -> AttitudeTarget | None:
        """Return None: the firmware drives the motors."""
        return None

    def _pass_on(self, frame: Frame, t: float) -> None:
        if frame.command != Code.SET_RAW_RC:
            _send(self._companion, pack(frame))
            self._waits = True
            return
        channels = Channels.decode(frame.payload)
        if channels is not None:
            self.receiver.take(channels.us, t)
        direction = Direction.ANSWER if channels is not None else Direction.ERROR
        self._out.send(pack(Frame(frame.command, b"", direction, frame.version, frame.flag)), t)

    def _beat(self, t: float) -> None:
        self.receiver.update(t)
        new = self.receiver.companion_last_t > self._taken_t
        if not self.receiver.lost and (new or self._tasks - self._sent >= STICKS_EVERY):
            self._sent, self._taken_t = self._tasks, self.receiver.companion_last_t
            us = Channels(tuple(round(channel) for channel in self.receiver.channels))
            _send(self._transmitter, pack(Frame(Code.SET_RAW_RC, us.encode())))
        if self._tasks % STATUS_EVERY == 0:
            _send(self._transmitter, pack(Frame(Code.STATUS_EX)))


def _received(uart: socket.socket) -> bytes:
    with contextlib.suppress(OSError):  # nothing yet, or the firmware has ended
        return uart.recv(LARGEST)
    return b""


def _send(uart: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        uart.sendall(data)
