"""The simulator's server on UDP: one vehicle or several, in real time or in lock-step with all clients.

A `Endpoint` is one vehicle of the race: its `Station` behind a socket, and its camera. A single flight is a race of one.
"""

import contextlib
import select
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

from gate_racer.common.process import real_time
from gate_racer.link.sockets import Address
from gate_racer.sim.multi_vehicle import MultiVehicleRace
from gate_racer.sim.referee import RunStatus
from gate_racer.sim.simulator import Exposure, Simulator
from gate_racer.sim.view.feed import Drawn, FeedProcess, Outlet
from gate_racer.sim.wire.rflysim import CopterSimImu
from gate_racer.sim.wire.station import Station

MOST_FOREIGN_HOSTS = 100  # hosts that are counted (chosen)
LAG_LIMIT_S = 0.25  # s behind schedule after which the lost time is skipped
AFTERMATH_S = 1.0  # s for which telemetry continues after the end of a run
PAUSE_S = 0.5  # s without an answer in lock-step after which the tick is sent again
FAREWELLS = 3  # repetitions of the farewell, since UDP may lose one
GONE_S = 10.0  # s of silence after which the run of a client that nobody else will wait for is aborted


ReportTick = Callable[[float], None]  # called after each tick with the lag, s


class EndTimer:
    def __init__(self, landing_s: float = 0.0) -> None:
        """`landing_s`: longest wait for the motors to stop, s."""
        self._landing_s, self._running_t = landing_s, 0.0  # s; the latter of the simulator's clock

    def passed(self, simulator: Simulator) -> bool:
        """Check whether the aftermath has passed; call at every tick."""
        if not simulator.referee.race.over:
            self._running_t = simulator.t
        since_s = simulator.t - self._running_t
        return since_s > AFTERMATH_S and (not simulator.armed or since_s > self._landing_s)


class Endpoint:
    """One vehicle on its UDP socket, which accepts the client's host only. Network errors are suppressed."""

    def __init__(self, station: Station, bound: socket.socket, client: Address, imu: CopterSimImu | None = None):
        self.station, self.socket, self.client, self._imu = station, bound, client, imu
        self.socket.setblocking(False)
        self.foreign_datagrams: Counter[str] = Counter()  # of other hosts, which are discarded
        self.aftermath = EndTimer()
        self.gone = False  # whether the client has left after the end of its run
        self._packets: list[bytes] = []  # of the last tick
        self.coming: deque[tuple[float, Drawn]] = deque()  # delayed frames in lock-step: due time in s, datagrams

    def receive(self) -> None:
        with contextlib.suppress(OSError):  # an earlier datagram had no receiver
            datagram, sender = self.socket.recvfrom(65535)
            if sender[0] == self.client[0]:
                self.send(self.station.receive(datagram, sender, time.monotonic()))
            elif len(self.foreign_datagrams) < MOST_FOREIGN_HOSTS:
                self.foreign_datagrams[sender[0]] += 1

    def send(self, packets: list[bytes], target: Address | None = None) -> None:
        """Send datagrams to `target`, by default the client."""
        for packet in packets:
            # No listener (yet), or the system's buffer is full: a loss, as UDP allows.
            with contextlib.suppress(OSError):
                self.socket.sendto(packet, target or self.client)

    def tick(self) -> Exposure | None:
        """Advance one physics step, and pass its IMU samples on; its telemetry is sent by `send_telemetry`."""
        self._packets, exposure = self.station.tick()
        if self._imu is not None:
            self._imu.serve(self.station.measured)
        return exposure

    def send_telemetry(self, again: bool = False) -> None:
        """Send the last tick; `again` with a HEARTBEAT, since a client ignores a system that it has not discovered."""
        self.send([*(self.station.heartbeat() if again else []), *self._packets])

    @property
    def answered(self) -> bool:
        """Whether the client has answered the newest IMU sample, or has left."""
        return self.gone or self.station.answered


class Server:
    """Base class: the endpoints of a race, and the end of a race."""

    def __init__(self, race: MultiVehicleRace, endpoints: Sequence[Endpoint]):
        """`endpoints`: one per vehicle of the race, in their order."""
        self._race, self._endpoints = race, endpoints
        self.stopped = False  # set it to end `run`

    def _done(self, once: bool) -> bool:
        """Check whether to stop after a finished race; otherwise reset the race once its aftermath has passed."""
        passed = [one.aftermath.passed(one.station.simulator) or (once and one.gone) for one in self._endpoints]
        if all(passed) and not once:
            self._race.reset()
        return all(passed) and once

    def _listen(self, until: float) -> bool:
        """Receive one datagram on each readable socket; False when none has arrived by `until` (monotonic, s)."""
        by_socket = {endpoint.socket: endpoint for endpoint in self._endpoints}
        ready, _, _ = select.select(list(by_socket), [], [], max(0.0, until - time.monotonic()))
        for bound in ready:
            by_socket[bound].receive()
        return bool(ready)


class RealTimeServer(Server):
    """Server that follows the wall clock."""

    def __init__(
        self, race: MultiVehicleRace, endpoints: Sequence[Endpoint], cameras: Sequence[FeedProcess], speed: float
    ):
        """`speed`: ratio of simulated to wall time."""
        super().__init__(race, endpoints)
        self._cameras, self._speed = cameras, speed
        self.worst_lag_s = 0.0

    def run(self, once: bool, report: ReportTick) -> None:
        """Tick until stopped, or with `once` until the first race is over."""
        period = 1 / (self._race.profile.physics_hz * self._speed)
        with real_time():
            due = time.monotonic()
            while not self.stopped:
                due += period
                while self._listen(due) and time.monotonic() < due:
                    pass
                lag = time.monotonic() - due
                self.worst_lag_s = max(self.worst_lag_s, lag)
                if lag > LAG_LIMIT_S:
                    due += lag
                for endpoint, camera in zip(self._endpoints, self._cameras, strict=True):
                    exposure = endpoint.tick()
                    endpoint.send_telemetry()
                    if exposure is not None:
                        camera.expose(exposure)
                self._race.settle()
                report(lag)
                if self._done(once):
                    return


class LockstepServer(Server):
    """Server that waits after each tick with an IMU sample until every client has answered that sample's stamp.

    An answer is any SET_ATTITUDE_TARGET or SET_POSITION_TARGET_LOCAL_NED, or SYSTEM_TIME as an explicit hold, whose
    `time_boot_ms` is the sample's time. Simulated time stops until then; the tick is resent every PAUSE_S with a HEARTBEAT.

    A client that falls silent in the only run, or in a race of several, is aborted, and not waited for after the end of its run.
    """

    def __init__(self, race: MultiVehicleRace, endpoints: Sequence[Endpoint], cameras: Sequence[Outlet | None]):
        super().__init__(race, endpoints)
        self._cameras, self.pauses = cameras, 0

    def run(self, once: bool, report: ReportTick) -> None:
        """Tick as `RealTimeServer.run`; the lag reported is the clients' response time, s."""
        try:
            while not self.stopped and not self._done(once):
                for endpoint, camera in zip(self._endpoints, self._cameras, strict=True):
                    endpoint.gone = endpoint.gone and endpoint.station.simulator.referee.race.over
                    self._draw(endpoint, camera, endpoint.tick())
                    endpoint.send_telemetry()
                self._race.settle()
                begin = time.monotonic()
                self._await(report, impatient=once or len(self._endpoints) > 1)
                report(time.monotonic() - begin)
        finally:
            for _ in range(FAREWELLS):
                for endpoint in self._endpoints:
                    endpoint.send(endpoint.station.farewell())

    def _draw(self, endpoint: Endpoint, camera: Outlet | None, exposure: Exposure | None) -> None:
        """Render an exposure, and send the images that are due."""
        coming, t = endpoint.coming, endpoint.station.simulator.t
        if exposure is not None and camera is not None:
            coming.append((t + exposure.late_s, camera.datagrams(exposure)))
        while coming and coming[0][0] <= t:
            for datagram, target in coming.popleft()[1]:
                endpoint.send([datagram], target)

    def _await(self, report: ReportTick, impatient: bool) -> None:
        """Wait until every client has answered its newest sample; `impatient`: abort one that stays silent in its run."""
        begin, until = time.monotonic(), time.monotonic() + PAUSE_S
        while not self.stopped and (silent := [endpoint for endpoint in self._endpoints if not endpoint.answered]):
            if self._listen(until) or time.monotonic() < until:
                continue
            until = time.monotonic() + PAUSE_S
            for endpoint in silent:
                referee = endpoint.station.simulator.referee
                if impatient and referee.race.status is RunStatus.RUNNING and time.monotonic() - begin > GONE_S:
                    referee.abort("the client stopped answering")
                endpoint.gone = impatient and referee.race.over
                endpoint.send_telemetry(again=True)
            self.pauses += 1
            report(time.monotonic() - begin)
