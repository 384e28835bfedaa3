"""A heat on UDP sockets, one for each vehicle, in real time or in lock-step with all of its clients."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from link.priority import real_time
from sim.heat.heat import Heat
from sim.referee import RunStatus
from sim.wire.line import Line, listen
from sim.wire.server import FAREWELLS, GONE_S, LAG_LIMIT_S, PAUSE_S, Aftermath, LocalCamera, RemoteCamera
from sim.wire.station import Address

Report = Callable[[Heat, float], None]  # after each tick, with the lag in s


class HeatServer:
    """The sockets, and when to stop."""

    def __init__(self, heat: Heat, lines: Sequence[Line]):
        """One line for each of the heat's vehicles, in their order."""
        self._heat, self._lines = heat, lines
        self._aftermath = [Aftermath() for _ in lines]
        self.stopped = False  # set it to end `run`

    def _done(self, once: bool) -> bool:
        """Whether the race that is over was the last; if not, the next is prepared in time."""
        passed = [after.passed(s) for after, s in zip(self._aftermath, self._heat.simulators, strict=True)]
        if all(passed) and not once:
            self._heat.reset()
        return all(passed) and once


class RealTimeHeatServer(HeatServer):
    """Keeps up with the wall clock."""

    def __init__(self, heat: Heat, lines: Sequence[Line], cameras: Sequence[RemoteCamera], speed: float):
        """`speed` is simulated over wall time."""
        super().__init__(heat, lines)
        self._cameras, self._speed = cameras, speed
        self.worst_lag_s = 0.0

    def run(self, once: bool, report: Report) -> None:
        """Ticks until stopped, or with `once` until the first race is over."""
        with real_time():
            self._run(once, report)

    def _run(self, once: bool, report: Report) -> None:
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
class Seat:
    """One of the clients that time waits for."""

    line: Line
    camera: LocalCamera | None
    packets: list[bytes] = field(default_factory=list)  # of the last tick
    coming: deque[tuple[float, list[tuple[bytes, Address]]]] = field(default_factory=deque)  # late frames
    gone: bool = False  # after the end of its run

    def tick(self) -> None:
        """One tick, and the images that are due by then, which go first."""
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
        return self.gone or self.line.station.answered

    def again(self) -> None:
        """The tick once more, with a HEARTBEAT: whom it has not met, a client does not hear."""
        self.line.send([*self.line.station.heartbeat(), *self.packets])


class LockstepHeatServer(HeatServer):
    """Waits after each tick until every client has answered its own newest IMU sample, as `LockstepServer` does for one.

    A client that has left after the end of its run is waited for no more; one that falls silent in it is out.
    """

    def __init__(self, heat: Heat, lines: Sequence[Line], cameras: Sequence[LocalCamera | None]):
        super().__init__(heat, lines)
        self._seats = [Seat(line, camera) for line, camera in zip(lines, cameras, strict=True)]

    def run(self, once: bool, report: Report) -> None:
        """Ticks until stopped, or with `once` until the first race is over."""
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

    def _await(self, report: Report) -> None:
        begin, until = time.monotonic(), time.monotonic() + PAUSE_S
        while not self.stopped and (silent := [seat for seat in self._seats if not seat.answered]):
            if listen(self._lines, until) or time.monotonic() < until:
                continue
            until = time.monotonic() + PAUSE_S
            for seat in silent:
                referee = seat.line.station.simulator.referee
                if referee.race.status is RunStatus.RUNNING and time.monotonic() - begin > GONE_S:
                    referee.abort("the client fell silent")
                seat.gone = referee.race.over
                seat.again()
            report(self._heat, time.monotonic() - begin)
