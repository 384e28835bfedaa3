"""Guard process between the pilot and the line: it owns the port, relays bytes, and goes on streaming if the pilot dies.

SET_RAW_RC has no time-out: without a stream the last sticks stay in effect for ever (docs/safety.md). Once the pilot's sticks
have lifted the vehicle, the only safe response is a descent: if they are missing for `SILENT_S`, or the pilot's end is closed
with the throttle up, the guard flies a `Descent`, and does not return control. It ignores signals meant for the pilot.
"""

import contextlib
import ctypes
import multiprocessing
import os
import select
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

from gate_racer.common.process import PERIODIC, Worker, ignore_signals, prefer
from gate_racer.link.msp.codec import Direction, MspCodec, Parser
from gate_racer.link.msp.descent import Descent
from gate_racer.link.msp.line import MspLine, neutral
from gate_racer.link.msp.messages import Channels, Code
from gate_racer.link.msp.ports import AT_ONCE, Port, StreamPort, open_port
from gate_racer.link.msp.profile import MID_US, STICKS, BetaflightProfile
from gate_racer.link.sockets import LinkError

POLL = "attitude", "raw_imu", "altitude", "status_ex", "rc"  # polled by the guard, in one request
HELD_S = 0.1  # s without sticks, after which they are centred: a body rate that persists would flip the vehicle
SILENT_S = 0.25  # s without sticks, after which the pilot counts as lost: garbage collection and load take less
WAIT_S = 0.02  # s, longest wait for bytes
HUNG_S = 0.5  # s without a sign of the guard, after which it is killed: a write takes less
DEATH_S = 0.05  # s for a process whose end of a socket is closed to be gone
# s without a reply, after which a descent ends: the last sticks, which sink slowly, stay in effect anyway.
DEAF_S = 30.0
BEGIN_S = 60.0  # s for the process to open the port on a busy machine


class StickWatch:
    """Monitor of the pilot's last sticks and the replies, read from the relayed bytes."""

    def __init__(self, profile: BetaflightProfile, hover: float, loss_m_s2: float = 0.0):
        self.descent = Descent(profile, hover, loss_m_s2)
        self.carries = False  # the last sticks keep the vehicle in the air: to leave them would be a fly-away
        self._requests, self._answers = Parser((Direction.REQUEST,)), MspCodec()
        self._polled = profile.polled
        self._answers.poll(self._polled)  # as the pilot does
        self._throttle, self._least, self._last_t = profile.channel("T"), profile.throttle.min_check_us, 0.0
        self._centred, self._held_t = neutral(profile), 0.0

    def said(self, data: bytes, t: float) -> None:
        """Process bytes from the pilot at t."""
        for frame in self._requests.feed(data):
            sticks = Channels.decode(frame.payload) if frame.command == Code.SET_RAW_RC else None
            if sticks is not None and len(sticks.us) > self._throttle:
                us = sticks.us[self._throttle]
                self.carries = us > self._least
                self._last_t, self._centred = t, tuple(us if k == self._throttle else MID_US for k in range(STICKS))

    def answered(self, data: bytes, t: float) -> None:
        """Process bytes from the line at t."""
        for answer in self._answers.feed(data):
            for message in answer.messages:
                self.descent.receive(message, t)

    def held(self, t: float) -> bytes:
        """Return, at intervals while the pilot's sticks are missing, centred sticks at the last throttle, and a request."""
        if not self.carries or t - max(self._last_t, self._held_t) < HELD_S:
            return b""
        self._held_t = t
        return self._answers.sticks(self._centred) + self._answers.poll(self._polled)

    def silent(self, t: float) -> bool:
        """Return whether the pilot has left the vehicle in the air."""
        return self.carries and t - self._last_t > SILENT_S


class GuardedPort:
    """`Port` behind its own guard process. A process exit waits for a guard that flies a descent.

    If the guard is killed or hangs, the port is opened again from here, without a guard (`unguarded`), and the flight continues.
    """

    def __init__(self, where: str, profile: BetaflightProfile, hover: float, consent: str = "", loss_m_s2: float = 0.0):
        """Open the port. Arguments as in `open_port` and `Descent`. Raises LinkError as `open_port`."""
        self.unguarded, self._guarded = False, True
        self._reopened = partial(open_port, where, profile.baud, consent)
        ours, theirs = socket.socketpair()
        self._port: Port = StreamPort(ours, where)
        self._beat = multiprocessing.get_context("spawn").RawValue("d", 0.0)
        # Its last value, when that came, and the last look at it.
        self._beaten = self._beaten_t = self._called_t = 0.0
        watch = StickWatch(profile, hover, loss_m_s2)
        worker = Worker(_guard, self._reopened, profile, watch, theirs, self._beat, name="guard", daemon=False)
        self.guard = worker.process
        theirs.close()
        try:
            worker.started(BEGIN_S, LinkError)
        except LinkError as trouble:
            self.close()
            raise LinkError(str(trouble) if where in str(trouble) else f"{where}: {trouble}") from None

    def read(self, timeout_s: float) -> bytes:
        self._require_beat()
        try:
            return self._port.read(timeout_s)
        except LinkError as failure:
            self._take_back(failure)
            return b""

    def write(self, data: bytes) -> None:
        self._require_beat()
        try:
            self._port.write(data)
        except LinkError as failure:
            self._take_back(failure)
            self._port.write(data)

    def fileno(self) -> int:
        return self._port.fileno()

    def close(self) -> None:
        self._port.close()

    def _require_beat(self) -> None:
        """Kill a guard that hangs, and take the line back; the time for which this process itself stood still does not count."""
        now, beat = time.monotonic(), self._beat.value
        if beat != self._beaten or now - self._called_t > HELD_S:
            self._beaten, self._beaten_t = beat, now
        self._called_t = now
        if self._guarded and now - self._beaten_t > HUNG_S:
            self.guard.kill()
            self._take_back(LinkError("the guard hangs"))

    def _take_back(self, failure: LinkError) -> None:
        """Open the line from here after a guard that was killed. Raises `failure` if it ended by itself or flies a descent."""
        self.guard.join(DEATH_S)
        killed, self._guarded = self._guarded and self.guard.exitcode not in (None, 0), False
        if not killed:
            raise failure
        self._port.close()
        self._port, self.unguarded = self._reopened(), True


def _guard(
    reporter: Connection,
    open_line: Callable[[], Port],
    profile: BetaflightProfile,
    watch: StickWatch,
    pilot: socket.socket,
    beat: ctypes.c_double,
) -> None:
    ignore_signals()
    if hasattr(os, "setsid"):
        os.setsid()
    prefer(niceness=PERIODIC)
    try:
        port = open_line()
    except LinkError as error:
        reporter.send(error)
        return
    reporter.send("open")
    reporter.close()
    with contextlib.suppress(LinkError), contextlib.closing(port):
        relay(pilot, port, watch, beat)
        pilot.close()
        if watch.carries:
            bring_down(port, profile, watch.descent)


def relay(pilot: socket.socket, port: Port, watch: StickWatch, beat: ctypes.c_double) -> None:
    """Relay bytes both ways until the pilot's end is closed or silent; `beat` tells when. Raises LinkError if the line fails."""
    pilot.setblocking(False)
    ends: list[socket.socket | int] = [pilot, port.fileno()]
    while not watch.silent(time.monotonic()):
        beat.value = time.monotonic()
        ready, _, _ = select.select(ends, [], [], WAIT_S)
        if pilot in ready:
            try:
                said = pilot.recv(AT_ONCE)
            except OSError:
                return
            if not said:
                return
            watch.said(said, time.monotonic())
            port.write(said)
        if port.fileno() in ready and (answered := port.read(0.0)):
            watch.answered(answered, time.monotonic())
            with contextlib.suppress(OSError):  # a pilot that does not read is soon detected as silent
                pilot.send(answered)
        port.write(watch.held(time.monotonic()))


def bring_down(
    port: Port, profile: BetaflightProfile, descent: Descent, clock: Callable[[], float] = time.monotonic
) -> None:
    """Stream a descent until the motors are off, the person has taken over, it rests on the ground, or nobody has replied for
    DEAF_S. Raises LinkError if the line fails.
    """
    line = MspLine(port, replace(profile, poll=POLL), profile.stick_hz, clock=clock)
    descent.begin(clock())
    line.sticks = descent.sticks(clock())
    port.write(line.codec.sticks(line.sticks))
    until = clock() + profile.poll_timeout_s
    while (left := until - clock()) > 0:
        port.read(left)  # a reply to the pilot's last request
    heard = clock()
    while not (descent.over or descent.rested(clock()) or clock() - heard > DEAF_S):
        for sampled, message in line.exchange(WAIT_S):
            descent.receive(message, sampled)
            heard = clock()
        line.sticks = descent.sticks(clock())
