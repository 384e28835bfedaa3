"""Servers of a heat: one UDP socket per vehicle, in real time or in lock-step with all clients."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gate_racer.link.peer import Address
from gate_racer.link.priority import real_time
from gate_racer.sim.heat.heat import Heat
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.wire.line import ClientEndpoint, listen
from gate_racer.sim.wire.server import FAREWELLS, GONE_S, LAG_LIMIT_S, PAUSE_S, EndTimer, LocalCamera, RemoteCamera

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
