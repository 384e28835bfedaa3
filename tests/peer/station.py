"""The wire: MAVLink by pymavlink, video by VADR-TS-002 4.6, in lock-step with the client.

`letter` is the document to the letter; `builds` is what the builds 3390 and 3391 were measured to do: mirrored signs, two
clocks, stamps in frames of 144 Hz, repeated samples and images, rates in steps, a countdown that disarms at GO.
"""

import select
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pymavlink.dialects.v20 import common as mav

from tests.peer.course import Referee
from tests.peer.craft import Array, Body, euler
from tests.peer.eye import Eye

PATIENCE_S = 120.0  # s without an answer, in which a client on a busy machine may load
LEFT_S = 3.0  # s without an answer after the last gate, beyond which the client has left
AFTER_S = 1.0  # s of flight after the last gate
LIMIT_S = 30.0  # s, of a run


@dataclass(frozen=True)
class Wire:
    """How a build speaks: rates in Hz, signs from FRD to the wire."""

    component: int = 1
    frame: float = 120.0
    imu: float = 120.0
    fresh: float = 120.0  # samples with new values
    attitude: float = 120.0
    status: float = 0.0
    video: float = 30.0
    copies: int = 1
    unix: bool = False  # stamps of images are wall-clock time
    gyro: Array = field(default_factory=lambda: np.ones(3))
    angles: Array = field(default_factory=lambda: np.ones(3))
    gain: tuple[float, float, float] = (1.0, 1.0, 1.0)
    growth: float = 0.0  # relative, of the gain towards a command of 6 rad/s
    rad_s: tuple[float, float, float] | None = None  # gains of type mask 144
    countdown: bool = False


WIRES = {
    "letter": Wire(),
    "builds": Wire(
        component=200, frame=144.0, imu=107.0, fresh=76.0, attitude=117.0, status=4.01, video=30.02, copies=2, unix=True,
        gyro=-np.ones(3), angles=np.array([1.0, -1.0, -1.0]), gain=(2.36, 2.36, 2.0), growth=0.18,
        rad_s=(-0.98, -0.98, -0.89), countdown=True,
    ),
}  # fmt: skip


class Station:
    """One vehicle on one course for one client."""

    def __init__(
        self, body: Body, eye: Eye, referee: Referee, wire: Wire, rng: np.random.Generator, own: int, client: int, video: int
    ) -> None:  # fmt: skip
        """Bind the `own` port; `client` and `video` are the client's."""
        self.body, self.eye, self.referee, self.wire, self._rng = body, eye, referee, wire, rng
        self._boot_s = rng.uniform(20, 300)  # the program has been running before
        self._image_clock_s = 1.785e9 if wire.unix else self._boot_s
        self._client, self._screen = ("127.0.0.1", client), ("127.0.0.1", video)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", own))
        self._socket.setblocking(False)
        self._mav, self._ear = mav.MAVLink(None, 1, wire.component), mav.MAVLink(None, 255, 0)
        self._ear.robust_parsing = True
        self._due = dict.fromkeys(("heartbeat", "status", "attitude", "imu", "fresh", "video"), 0.0)
        self.t, self.go_s = 0.0, None if wire.countdown else 0.0
        self._armed = self._heard = self._went = self._left = self.false_start = False
        self._answered_ms, self._images = -1, 0
        self._sample = np.zeros(3), np.zeros(3)

    def run(self) -> str:
        """Race until the end, and return it."""
        steps = int(np.ceil(1000 / self.wire.frame))
        self._await_client()
        while self.t < LIMIT_S:
            for _ in range(steps):
                before = self.body.x[:3]
                self.body.step(1 / self.wire.frame / steps)
                self.referee.watch(before, self.body.x[:3], self.t)
            self.t += 1 / self.wire.frame
            if self.wire.countdown and self.go_s is not None and self.t >= self.go_s and not self._went:
                self._went, self._armed = True, False
            self._listen()
            self._speak()
            over = self.referee.finished and self.t > self.referee.times[-1] + AFTER_S
            if self.referee.struck or self._left or over:
                break
        verdict = self.referee.struck or ("finished" if self.referee.finished else "time")
        self._send(self._mav.statustext_encode(6, verdict.encode()))
        self._send(self._mav.heartbeat_encode(2, 0, 65, 0, mav.MAV_STATE_POWEROFF))
        return verdict

    def _await_client(self) -> None:
        begin = time.monotonic()
        while not self._heard and time.monotonic() - begin < PATIENCE_S:
            self._beat()
            time.sleep(0.1)
            self._listen()

    def _listen(self) -> None:
        while True:
            try:
                data, self._client = self._socket.recvfrom(65535)
            except OSError:  # nothing more, or nobody there yet
                return
            for message in self._ear.parse_buffer(data) or []:
                self._heard = True
                self._hear(message.get_type(), message)

    def _hear(self, kind: str, m: Any) -> None:
        if kind in ("SYSTEM_TIME", "SET_ATTITUDE_TARGET"):
            self._answered_ms = max(self._answered_ms, m.time_boot_ms)
        if kind == "TIMESYNC" and 0 in (m.tc1, m.ts1):
            self._send(self._mav.timesync_encode(int((self._boot_s + self.t) * 1e9), m.ts1 or m.tc1))
        if kind == "COMMAND_LONG" and m.command == mav.MAV_CMD_COMPONENT_ARM_DISARM:
            self._armed = m.param1 == 1
            self._send(self._mav.command_ack_encode(m.command, 0))
        if kind == "SET_ATTITUDE_TARGET":
            self.false_start |= self.go_s is None or self.t < self.go_s
            if self._armed:
                self.body.command(m.thrust, self._rates(m))

    def _rates(self, m: Any) -> Array:
        """Return the body rates that a set-point asks for, rad/s."""
        asked = np.array([m.body_roll_rate, m.body_pitch_rate, m.body_yaw_rate])
        if m.type_mask & 16 and self.wire.rad_s is not None:
            return asked * self.wire.rad_s
        return asked * self.wire.gain * (1 + self.wire.growth * np.minimum(np.abs(asked) / 6, 1))

    def _send(self, message: Any) -> None:
        self._socket.sendto(message.pack(self._mav), self._client)
        self._mav.seq = (self._mav.seq + 1) % 256

    def _beat(self) -> None:
        self._send(self._mav.heartbeat_encode(2, 0, 193 if self._armed else 65, 0, 4 if self._armed else 3))

    def _is_due(self, what: str, hz: float) -> bool:
        if not hz or self.t < self._due[what] - 1e-9:
            return False
        self._due[what] = max(self._due[what] + 1 / hz, self.t - 1 / hz)
        return True

    def _speak(self) -> None:
        """Send what is due: the image at its exposure, the IMU last, as its answer ends the tick."""
        wire, x = self.wire, self.body.x
        stamp_us = int((self._boot_s + self.t) * 1e6)
        if self._is_due("video", wire.video):
            self._show()
        if self._is_due("heartbeat", 10.0):
            self._beat()
        if self._is_due("status", wire.status):
            self._report()
        if self._is_due("attitude", wire.attitude):
            turned = *(euler(x[6:10]) * wire.angles), *(x[10:13] * wire.gyro)
            self._send(self._mav.attitude_encode(stamp_us // 1000, *turned))
        if self._is_due("imu", wire.imu):
            if self._is_due("fresh", wire.fresh):
                self._sample = self.body.specific_force(), x[10:13] * wire.gyro
            absent = [float("nan")] * 7
            self._answered_ms = -1
            self._send(self._mav.highres_imu_encode(stamp_us, *self._sample[0], *self._sample[1], *absent, 0x3F))
            self._wait(stamp_us // 1000)

    def _report(self) -> None:
        """Send the race status; the countdown begins once the client is heard."""
        if self.go_s is None and self.t > 1:
            self.go_s = self.t + self._rng.uniform(3.3, 3.7)
        begin, now = (-1 if s is None else int((self._boot_s + s) * 1e3) for s in (self.go_s, self.t))
        times, go_s = self.referee.times, self.go_s or 0.0
        last = int((times[-1] - go_s) * 1e9) if times else -1
        done = last if self.referee.finished else -1
        data = struct.pack("<BQqqIq", 1, now, begin, done, len(times), last)
        self._send(self._mav.encapsulated_data_encode(0, list(data.ljust(253, b"\0"))))

    def _show(self) -> None:
        image, size = self.eye.jpeg(self.body.x[:3], self.body.x[6:10]), 1400
        parts = [image[i : i + size] for i in range(0, len(image), size)]
        stamp_ns = int((self._image_clock_s + self.t) * 1e7) * 100
        for i, part in [*enumerate(parts)] * self.wire.copies:
            header = struct.pack("<IHHIIQ", self._images, i, len(parts), len(image), len(part), stamp_ns)
            self._socket.sendto(header + part, self._screen)
        self._images += 1

    def _wait(self, stamp_ms: int) -> None:
        """Wait until the sample is answered, or the client has left after the last gate. Raises TimeoutError."""
        begin = time.monotonic()
        while self._answered_ms < stamp_ms:
            self._listen()
            waited_s = time.monotonic() - begin
            if self.referee.finished and waited_s > LEFT_S:
                self._left = True
                return
            if waited_s > PATIENCE_S:
                raise TimeoutError(f"the sample of {stamp_ms} ms was not answered")
            select.select([self._socket], [], [], 0.01)
