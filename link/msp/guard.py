"""The guard's process between the pilot and the line: it owns the port, relays bytes, and goes on streaming if the pilot dies.

SET_RAW_RC has no time-out: without a stream the last sticks stay in effect for ever (docs/safety.md). Once the pilot's sticks
have lifted the vehicle, the only safe response is a descent: if they are missing for `SILENT_S`, or the pilot's end is closed
with the throttle up, the guard flies a `Descent`, and does not return control. It ignores signals meant for the pilot.

The descent brakes, sinks slowly, and lowers the throttle on the ground. Replies in, sticks out.

    v' = g + R f - v / FORGET_S                                          velocity, integrated from the pad
    h' = -v_z + L1 (h_baro - h),   v_z' = ... - L2 (h_baro - h)          if altitude is polled
    a = -v_xy / BRAKE_S, (V_SINK - v_z) / SINK_S                         commanded, each limited; no sinking while fast
    c = (g - a_z) / cos(tilt),   s = k c / g,   k' = GAIN (c - f) / g    throttle relative to hover

From the IMU alone v is accurate to some m/s, which suffices to brake but not to hold a position. On the ground the force f is
g whatever s is, so that k decreases, and s reaches its minimum. Landed is who is carried by the ground: at the least throttle,
which carries nobody, neither force nor height shows a fall for a second, at a height that the barometer may read on the floor.
"""

import contextlib
import ctypes
import math
import multiprocessing
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

import numpy as np

from gate_racer.common.process import PERIODIC, Worker, ignore_signals, prefer
from gate_racer.link.msp import messages as msp
from gate_racer.link.msp.client import MspLine, neutral
from gate_racer.link.msp.ports import AT_ONCE, Port, StreamPort, open_port
from gate_racer.link.msp.profile import MID_US, STICKS, BetaflightProfile
from gate_racer.link.sockets import LinkError
from gate_racer.vehicle.dynamics import G_W, GRAVITY
from gate_racer.vehicle.rotation import Array, matrix

TURN_1_S, TURN_RAD_S = 3.5, 4.0  # attitude gain, and greatest body rate
# Attitude gain, and greatest turn, times the longest recent pause: the last rates last as long.
PAUSE_TURN, PAUSE_RAD = 0.6, 1.0
PAUSE_FORGET_S = 5.0  # time constant with which a pause is forgotten
STEEP = 0.5  # cosine of the tilt beyond which the throttle is at its minimum until the vehicle is upright
BRAKE_S, BRAKE_M_S2 = 1.0, 5.0  # time constant and greatest deceleration
FAST_M_S = 3.0  # horizontal speed above which height is held, close to the ground
V_SINK_M_S, SINK_S, DOWN_M_S2, UP_M_S2 = 1.5, 1.0, 3.0, 4.0  # sink rate, time constant, greatest accelerations
HIGH_M, SINK_1_S, MOST_SINK_M_S = 6.0, 0.1, 3.5  # reading above which it sinks faster with height, also while fast
FORGET_S = 10.0  # time constant of the leaky integration
PAUSE_FORGETS = 6.0  # 1/s, horizontal rate of forgetting for each s of a pause, in units of 1 / FORGET_S
GAIN_1_S = 3.0  # adaptation gain of the throttle
GAIN_STEP_S = 0.05  # s, longest step of the adaptation: what was commanded before a pause has since changed the force
L1, L2 = 1.4, 1.0  # 1/s, 1/s^2: observer at 1 rad/s, damping 0.7, for a barometer with 0.4 m of noise
LEAST, MOST = 0.4, 1.8  # relative to the hover throttle
LONGEST_S = 1.0  # s, longest step, over which the force is assumed to change linearly
# s without measurements, beyond which it does not turn, and sinks at this share of the thrust.
BLIND_S, BLIND = 0.3, 0.95
LANDED_S = 1.0  # s of carriage by the ground at the least throttle
REST_S = 10.0  # s of low throttle on the ground, after which all is done
CARRIED, FALLING = (0.8, 1.2), 0.5  # force over gravity on the ground, mean; and in a fall
CLIMB_M_S = 1.0  # greatest vertical speed on the ground, fitted to the barometer
FLOOR_M = 1.5  # greatest reading on the floor: propellers let it fall only
FEW = 8  # least readings in LANDED_S


class Descent:
    """Descent controller. Pass all messages to `receive`; call `sticks` from `begin` on. Times in s of one monotonic clock."""

    def __init__(self, profile: BetaflightProfile, hover: float, loss_m_s2: float = 0.0):
        """Create it; `hover`: hover throttle, 0..1, as far as known; `loss_m_s2`: by which gravity reads low there."""
        self._profile, self._hover, self._loss = profile, hover, loss_m_s2
        self.over = False  # the motors are off, or the person has taken over
        self._R_wb, self._v_w = np.eye(3), np.zeros(3)
        self._h: float | None = None  # m, height above the barometer's zero
        self._trim, self._share = 1.0, 1.0
        self._angle = self._landed = self._armed = False
        self._felt_t = self._height_t = self._sent_t = self._low_t = self._rest_t = -math.inf
        self._a_w = np.zeros(3)
        self._pause_s = 0.0
        self._begun = False
        self._forces, self._heights = deque[tuple[float, float]](), deque[tuple[float, float]]()  # of the last LANDED_S

    def receive(self, message: msp.Message, t: float) -> None:
        match message:
            case msp.RawAttitude():
                self._R_wb = matrix(self._profile.attitude(message, t).q_wb)
            case msp.RawImu():
                x, y, z = self._profile.imu(message, t, spinning=self._armed).accel
                self._feel(np.array((x, y, z - self._loss * self._share**2 * self._armed)), t)
            case msp.Altitude():
                h, dt = message.altitude_cm / 100, min(t - self._height_t, LONGEST_S)
                off = h - (h if self._h is None else self._h)
                self._height_t, self._h = t, h - off + min(L1 * dt, 1.0) * off
                self._v_w[2] -= L2 * off * dt
                _keep(self._heights, t, h)
            case msp.StatusEx():
                self._armed = message.armed
                self.over |= not message.armed
            case msp.Channels():
                self.over |= not self._profile.aux.override.on(message.us)
                self._angle = self._profile.aux.angle.on(message.us)

    def begin(self, t: float) -> None:
        self._begun, self._low_t, self._sent_t = True, t, t
        self.over, self._trim = False, 1.0

    def rested(self, t: float) -> bool:
        return self._landed and t - self._rest_t > REST_S

    def sticks(self, t: float) -> tuple[int, ...]:
        """Return channels in us at t, in the order of the receiver's map."""
        waited = t - self._sent_t
        self._pause_s, self._sent_t = max(waited, self._pause_s * math.exp(-waited / PAUSE_FORGET_S)), t
        blind = t - self._felt_t > BLIND_S
        share = min(max(BLIND * self._trim, LEAST), MOST) if blind else self._share
        throttle = 0.0 if self._landed else share * self._hover
        if self._angle:
            return self._profile.sticks_by_angles(0.0, 0.0, 0.0, throttle)
        still = self._landed or blind
        return self._profile.sticks_by_rates((0.0, 0.0, 0.0) if still else self._turn(), throttle)

    def _turn(self) -> tuple[float, float, float]:
        x, y, z = (self._R_wb.T @ (self._commanded() - G_W)).tolist()
        across, pause = math.hypot(x, y), max(self._pause_s, 1e-3)
        gain, most = min(TURN_1_S, PAUSE_TURN / pause), min(TURN_RAD_S, PAUSE_RAD / pause)
        rate = min(gain * math.atan2(across, -z), most) / max(across, 1e-9)
        return rate * y, -rate * x, 0.0

    def _commanded(self) -> Array:
        """Return the commanded acceleration (3,) m/s^2, world NED."""
        v = self._v_w
        above = max(self._h - HIGH_M, 0.0) if self._h is not None else 0.0
        speed, sink = math.hypot(v[0], v[1]), min(V_SINK_M_S + SINK_1_S * above, MOST_SINK_M_S)
        share = min(1.0, BRAKE_M_S2 * BRAKE_S / max(speed, 1e-9)) / BRAKE_S
        if speed > FAST_M_S and not above:
            sink = 0.0
        return np.array([-share * v[0], -share * v[1], min(max((sink - v[2]) / SINK_S, -UP_M_S2), DOWN_M_S2)])

    def _feel(self, f_b: Array, t: float) -> None:
        dt = min(t - self._felt_t, LONGEST_S) if self._felt_t > -math.inf else 0.0
        self._felt_t = t
        if not self._armed:
            return
        before, self._a_w = self._a_w, G_W + self._R_wb @ f_b
        blurred = 1 + PAUSE_FORGETS * self._pause_s  # what was felt between the ends of a pause is not known
        self._v_w += dt * ((before + self._a_w) / 2 - self._v_w / FORGET_S * [blurred, blurred, 1.0])
        if self._h is not None:
            self._h -= dt * self._v_w[2]
        _keep(self._forces, t, float(np.linalg.norm(f_b)) / GRAVITY)
        if self._begun:
            self._drive(float(f_b[2]), dt, t)
            self._judge(t)

    def _drive(self, push: float, dt: float, t: float) -> None:
        upright = float(self._R_wb[2, 2])
        if upright < STEEP:
            self._share = LEAST
            return
        commanded = (GRAVITY - float(self._commanded()[2])) / upright
        step = min(dt, GAIN_STEP_S) * GAIN_1_S * (commanded + push) / GRAVITY
        self._trim = min(max(self._trim + step, LEAST), MOST)
        self._share = min(max(self._trim * commanded / GRAVITY, LEAST), MOST)
        if self._share > LEAST:
            self._low_t = t

    def _judge(self, t: float) -> None:
        if self._landed:
            self._landed = self._forces[-1][1] > FALLING
        elif t - self._low_t > LANDED_S and min(len(self._forces), len(self._heights)) >= FEW:
            times, heights = np.array(self._heights).T
            climb = float(np.polyfit(times - t, heights, 1)[0])
            carried = CARRIED[0] < float(np.mean([force for _, force in self._forces])) < CARRIED[1]
            self._landed = carried and abs(climb) < CLIMB_M_S and float(np.mean(heights)) < FLOOR_M
            self._rest_t = t


def _keep(readings: deque[tuple[float, float]], t: float, value: float) -> None:
    readings.append((t, value))
    while readings[0][0] < t - LANDED_S:
        readings.popleft()


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
        self._requests, self._answers = msp.Parser((msp.Direction.REQUEST,)), msp.MspCodec()
        self._polled = profile.polled
        self._answers.poll(self._polled)  # as the pilot does
        self._throttle, self._least, self._last_t = profile.channel("T"), profile.throttle.min_check_us, 0.0
        self._centred, self._held_t = neutral(profile), 0.0

    def said(self, data: bytes, t: float) -> None:
        for frame in self._requests.feed(data):
            sticks = msp.Channels.decode(frame.payload) if frame.command == msp.Code.SET_RAW_RC else None
            if sticks is not None and len(sticks.us) > self._throttle:
                us = sticks.us[self._throttle]
                self.carries = us > self._least
                self._last_t, self._centred = t, tuple(us if k == self._throttle else MID_US for k in range(STICKS))

    def answered(self, data: bytes, t: float) -> None:
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
        return self.carries and t - self._last_t > SILENT_S


class GuardedPort:
    """`Port` behind its own guard process. A process exit waits for a guard that flies a descent.

    If the guard is killed or hangs, the port is opened again from here, without a guard (`unguarded`), and the flight continues.
    """

    def __init__(self, where: str, profile: BetaflightProfile, hover: float, consent: str = "", loss_m_s2: float = 0.0):
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
    port = open_line()
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
    """Stream a descent until motors are off, the person or the ground has it, or DEAF_S without a reply. Raises LinkError."""
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
