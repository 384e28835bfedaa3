"""Servers of the simulator on UDP, in real time or in lock-step.

A `Station` on its UDP socket: the simulator's end of one vehicle's link.

Servers of the simulator on UDP, in real time or in lock-step. Telemetry is sent to the client's known port.

Servers of a heat: one UDP socket per vehicle, in real time or in lock-step with all clients.
"""

import contextlib
import select
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gate_racer.common.process import real_time
from gate_racer.link.messages import Imu
from gate_racer.link.sockets import Address
from gate_racer.sim.heat import Heat
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Exposure, Simulator
from gate_racer.sim.wire.station import Station

MOST_STRANGERS = 100  # hosts that are counted (chosen)


class ClientEndpoint:
    """Datagram endpoint that accepts the client's host only. Network errors are suppressed."""

    def __init__(self, station: Station, bound: socket.socket, client: Address):
        """Serve `station` on the MAVLink socket `bound`."""
        self.station, self.socket, self.client = station, bound, client
        self.socket.setblocking(False)
        self.strangers: Counter[str] = Counter()  # datagrams by other hosts, which are discarded

    def receive(self) -> None:
        """Receive one datagram, if there is one, and send the replies."""
        with contextlib.suppress(OSError):  # an earlier datagram had no receiver
            datagram, sender = self.socket.recvfrom(65535)
            if sender[0] == self.client[0]:
                self.send(self.station.receive(datagram, sender, time.monotonic()))
            elif len(self.strangers) < MOST_STRANGERS:
                self.strangers[sender[0]] += 1

    def send(self, packets: list[bytes], target: Address | None = None) -> None:
        """Send datagrams to `target`, by default the client."""
        for packet in packets:
            # No listener (yet), or the system's buffer is full: a loss, as UDP allows.
            with contextlib.suppress(OSError):
                self.socket.sendto(packet, target or self.client)


def listen(lines: Sequence[ClientEndpoint], until: float) -> bool:
    """Receive one datagram on each readable line; False when none has arrived by `until` (monotonic, s)."""
    ready, _, _ = select.select([line.socket for line in lines], [], [], max(0.0, until - time.monotonic()))
    for line in lines:
        if line.socket in ready:
            line.receive()
    return bool(ready)


LAG_LIMIT_S = 0.25  # s behind schedule after which the lost time is skipped
AFTERMATH_S = 1.0  # s for which telemetry continues after the end of a run
PAUSE_S = 0.5  # s without an answer in lock-step after which the tick is sent again
FAREWELLS = 3  # repetitions of the farewell, since UDP may lose one
GONE_S = 10.0  # s of silence in the only run after which it is aborted


class LocalCamera(Protocol):
    """Camera that renders in the caller's process and returns datagrams."""

    def datagrams(self, exposure: Exposure) -> list[tuple[bytes, Address]]:
        """Render an exposure and return its datagrams, each with its target address."""
        ...


class RemoteCamera(Protocol):
    """Camera that renders and sends in another process."""

    def expose(self, exposure: Exposure) -> bool:
        """Request the image of an exposure; False when the camera has ended."""
        ...


class ImuService(Protocol):
    """Receiver of each tick's IMU samples beside the client."""

    def serve(self, measured: Iterable[Imu]) -> None:
        """Send the IMU samples of one tick."""
        ...


ReportTick = Callable[[Simulator, float], None]


class Stoppable(Protocol):
    """Object that runs until its flag is set."""

    stopped: bool


def stop_on_signals(server: Stoppable) -> None:
    """Stop a server on SIGINT or SIGTERM by its flag, since CasADi swallows a KeyboardInterrupt raised while it computes."""

    def stop(*_: object) -> None:
        server.stopped = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


class EndTimer:
    """Timer of the telemetry after the end of a run."""

    def __init__(self, landing_s: float = 0.0) -> None:
        """Set up the timer. `landing_s`: longest wait for the motors to stop, s."""
        self._landing_s = landing_s
        self._over_since: float | None = None  # s of the simulator's clock

    def passed(self, simulator: Simulator) -> bool:
        """Check whether the aftermath has passed; call at every tick."""
        if not simulator.referee.race.over:
            self._over_since = None
        elif self._over_since is None:
            self._over_since = simulator.t
        if self._over_since is None:
            return False
        since_s = simulator.t - self._over_since
        return since_s > AFTERMATH_S and (not simulator.armed or since_s > self._landing_s)


class Server:
    """Base class: socket and the end of a run."""

    def __init__(self, station: Station, bound: socket.socket, client: Address, imu: ImuService | None = None):
        """Serve `station` on the MAVLink socket `bound`."""
        self._station, self._line, self._imu = station, ClientEndpoint(station, bound, client), imu
        self._aftermath = EndTimer()
        self.stopped = False  # set it to end `run`

    @property
    def strangers(self) -> Counter[str]:
        """Number of discarded datagrams by host other than the client's."""
        return self._line.strangers

    def _tick(self) -> tuple[list[bytes], Exposure | None]:
        """Advance one physics step as `Station.tick`, and pass its IMU samples on."""
        step = self._station.tick()
        if self._imu is not None:
            self._imu.serve(self._station.measured)
        return step

    def _done(self, once: bool) -> bool:
        """Check whether to stop after a finished run; otherwise reset the simulator once the aftermath has passed."""
        simulator = self._station.simulator
        over = self._aftermath.passed(simulator)
        if over and not once:
            simulator.reset()
        return over and once

    def _listen(self, until: float) -> bool:
        """Receive one datagram; False when none has arrived by `until` (monotonic, s)."""
        return listen([self._line], until)

    def _send(self, packets: list[bytes], target: Address | None = None) -> None:
        self._line.send(packets, target)


class RealTimeServer(Server):
    """Server that follows the wall clock."""

    def __init__(
        self,
        station: Station,
        bound: socket.socket,
        client: Address,
        camera: RemoteCamera,
        speed: float,
        imu: ImuService | None = None,
    ):
        """Set up the server. `speed`: ratio of simulated to wall time."""
        super().__init__(station, bound, client, imu)
        self._camera, self._speed = camera, speed
        self.late_ticks = 0
        self.worst_lag_s = 0.0

    def run(self, once: bool, report: ReportTick) -> None:
        """Tick until stopped, or with `once` until the first run is over. `report` is called after each tick."""
        with real_time():
            self._run(once, report)

    def _run(self, once: bool, report: ReportTick) -> None:
        simulator = self._station.simulator
        period = 1 / (simulator.profile.physics_hz * self._speed)
        due = time.monotonic()
        while not self.stopped:
            due += period
            while self._listen(due) and time.monotonic() < due:
                pass
            lag = time.monotonic() - due
            self.worst_lag_s = max(self.worst_lag_s, lag)
            if lag > LAG_LIMIT_S:
                self.late_ticks += 1
                due += lag
            packets, exposure = self._tick()
            self._send(packets)
            if exposure is not None:
                self._camera.expose(exposure)
            report(simulator, lag)
            if self._done(once):
                return


class LockstepServer(Server):
    """Server that waits after each tick with an IMU sample until the client answers that sample's stamp.

    An answer is any SET_ATTITUDE_TARGET or SET_POSITION_TARGET_LOCAL_NED, or SYSTEM_TIME as an explicit hold, whose
    `time_boot_ms` is the sample's time. Simulated time stops until then; the tick is resent every PAUSE_S with a HEARTBEAT.
    """

    def __init__(
        self,
        station: Station,
        bound: socket.socket,
        client: Address,
        camera: LocalCamera | None,
        imu: ImuService | None = None,
    ):
        super().__init__(station, bound, client, imu)
        self._camera = camera
        self.pauses = 0

    def run(self, once: bool, report: ReportTick) -> None:
        """Tick as `RealTimeServer.run`; the lag reported is the client's response time, s."""
        try:
            self._run(once, report)
        finally:
            for _ in range(FAREWELLS):
                self._send(self._station.farewell())

    def _run(self, once: bool, report: ReportTick) -> None:
        station = self._station
        coming: deque[tuple[float, list[tuple[bytes, Address]]]] = deque()  # delayed frames: due time in s, datagrams
        while not self.stopped:
            packets, exposure = self._tick()
            t = station.simulator.t
            if exposure is not None and self._camera is not None:
                coming.append((t + exposure.late_s, self._camera.datagrams(exposure)))
            while coming and coming[0][0] <= t:
                for datagram, target in coming.popleft()[1]:
                    self._send([datagram], target)
            self._send(packets)
            begin = time.monotonic()
            answered = self._await(packets, report, once)
            report(station.simulator, time.monotonic() - begin)
            if self._done(once) or not answered:
                return

    def _await(self, packets: list[bytes], report: ReportTick, once: bool) -> bool:
        """Wait until the newest sample is answered. Return False when the only run is over or its client has left."""
        begin, until = time.monotonic(), time.monotonic() + PAUSE_S
        while not self.stopped and not self._station.answered:
            if not self._listen(until) and time.monotonic() >= until:
                referee = self._station.simulator.referee
                if once and referee.race.status is RunStatus.RUNNING and time.monotonic() - begin > GONE_S:
                    referee.abort("the client stopped answering")
                if once and referee.race.over:
                    return False
                self.pauses += 1
                until = time.monotonic() + PAUSE_S
                self._send([*self._station.heartbeat(), *packets])  # a client ignores a system not yet discovered
                report(self._station.simulator, time.monotonic() - begin)
        return True


ReportHeatTick = Callable[[Heat, float], None]  # called after each tick with the lag in s


class HeatServer:
    """Base class: sockets and the end of a race."""

    def __init__(self, heat: Heat, lines: Sequence[ClientEndpoint]):
        """Set up with one line per vehicle of the heat, in their order."""
        self._heat, self._lines = heat, lines
        self._aftermath = [EndTimer() for _ in lines]
        self.stopped = False  # set it to end `run`

    def _done(self, once: bool) -> bool:
        """Check whether to stop after a finished race; otherwise reset the heat once its aftermath has passed."""
        passed = [after.passed(s) for after, s in zip(self._aftermath, self._heat.simulators, strict=True)]
        if all(passed) and not once:
            self._heat.reset()
        return all(passed) and once


class RealTimeHeatServer(HeatServer):
    """Server that follows the wall clock."""

    def __init__(self, heat: Heat, lines: Sequence[ClientEndpoint], cameras: Sequence[RemoteCamera], speed: float):
        """Set up the server. `speed`: ratio of simulated to wall time."""
        super().__init__(heat, lines)
        self._cameras, self._speed = cameras, speed
        self.worst_lag_s = 0.0

    def run(self, once: bool, report: ReportHeatTick) -> None:
        """Tick until stopped, or with `once` until the first race is over."""
        with real_time():
            self._run(once, report)

    def _run(self, once: bool, report: ReportHeatTick) -> None:
        period = 1 / (self._heat.profile.physics_hz * self._speed)
        due = time.monotonic()
        while not self.stopped:
            due += period
            while listen(self._lines, due) and time.monotonic() < due:
                pass
            lag = time.monotonic() - due
            self.worst_lag_s = max(self.worst_lag_s, lag)
            if lag > LAG_LIMIT_S:
                due += lag
            for line, camera in zip(self._lines, self._cameras, strict=True):
                packets, exposure = line.station.tick()
                line.send(packets)
                if exposure is not None:
                    camera.expose(exposure)
            self._heat.settle()
            report(self._heat, lag)
            if self._done(once):
                return


@dataclass
class LockstepClient:
    """Client that the lock-step waits for, with its line and camera."""

    line: ClientEndpoint
    camera: LocalCamera | None
    packets: list[bytes] = field(default_factory=list)  # datagrams of the last tick
    coming: deque[tuple[float, list[tuple[bytes, Address]]]] = field(default_factory=deque)  # due (s), frame
    gone: bool = False  # whether the client has left after the end of its run

    def tick(self) -> None:
        """Advance one tick; send the images that are due, then the telemetry."""
        self.packets, exposure = self.line.station.tick()
        t = self.line.station.simulator.t
        if exposure is not None and self.camera is not None:
            self.coming.append((t + exposure.late_s, self.camera.datagrams(exposure)))
        while self.coming and self.coming[0][0] <= t:
            for datagram, target in self.coming.popleft()[1]:
                self.line.send([datagram], target)
        self.line.send(self.packets)

    @property
    def answered(self) -> bool:
        """Whether the client has answered the newest IMU sample, or has left."""
        return self.gone or self.line.station.answered

    def again(self) -> None:
        """Send the tick again, with a HEARTBEAT, since a client ignores a system that it has not discovered."""
        self.line.send([*self.line.station.heartbeat(), *self.packets])


class LockstepHeatServer(HeatServer):
    """Server that waits after each tick until every client has answered its newest IMU sample, as `LockstepServer` for one.

    A client that has left after its run is no longer waited for; one that falls silent during its run is aborted.
    """

    def __init__(self, heat: Heat, lines: Sequence[ClientEndpoint], cameras: Sequence[LocalCamera | None]):
        super().__init__(heat, lines)
        self._seats = [LockstepClient(line, camera) for line, camera in zip(lines, cameras, strict=True)]

    def run(self, once: bool, report: ReportHeatTick) -> None:
        """Tick until stopped, or with `once` until the first race is over."""
        try:
            while not self.stopped and not self._done(once):
                for seat in self._seats:
                    seat.gone = seat.gone and seat.line.station.simulator.referee.race.over
                    seat.tick()
                self._heat.settle()
                begin = time.monotonic()
                self._await(report)
                report(self._heat, time.monotonic() - begin)
        finally:
            for _ in range(FAREWELLS):
                for line in self._lines:
                    line.send(line.station.farewell())

    def _await(self, report: ReportHeatTick) -> None:
        begin, until = time.monotonic(), time.monotonic() + PAUSE_S
        while not self.stopped and (silent := [seat for seat in self._seats if not seat.answered]):
            if listen(self._lines, until) or time.monotonic() < until:
                continue
            until = time.monotonic() + PAUSE_S
            for seat in silent:
                referee = seat.line.station.simulator.referee
                if referee.race.status is RunStatus.RUNNING and time.monotonic() - begin > GONE_S:
                    referee.abort("the client stopped answering")
                seat.gone = referee.race.over
                seat.again()
            report(self._heat, time.monotonic() - begin)
