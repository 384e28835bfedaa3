"""The real-time driver: UDP in and out, perception in a second process, and the end of a flight, at which the motors stop.

Telemetry sets the pace, the wall clock the time-outs. Signals abort the flight in order, unexpected exceptions become
an abort, and the simulator is disarmed repeatedly, since UDP may lose a datagram.
"""

import contextlib
import math
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict
from multiprocessing.connection import wait
from typing import Any, NoReturn

from gate_racer.common.errors import UserError
from gate_racer.common.process import real_time
from gate_racer.link.client import MavlinkClient
from gate_racer.link.clock import StreamClock, Timeline
from gate_racer.link.messages import ARM_COMMAND, Ack, Arm, Command, Farewell, Heartbeat, Imu, Telemetry, TimesyncReply
from gate_racer.link.msp.client import MspClient
from gate_racer.link.profile import Profile
from gate_racer.link.sockets import LinkError
from gate_racer.pilot.flight import DetectedImage, EndReason, Phase
from gate_racer.pilot.perception_process import FROZEN_S, REFUSED, PerceptionProcess
from gate_racer.pilot.pilot import GAP_S, AnyPilot
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.result import LinkReport

AnyClient = MavlinkClient | MspClient
CAUSES = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}  # SIGHUP does not exist on Windows
DISARMS, DISARM_S = 5, 1.0  # least number of disarm commands, and s to repeat them until acknowledged
REPEAT_S = 0.05  # s between two disarm commands
SILENCE_S = 3.0  # s without IMU in flight, after which it is aborted: a simulator may stand still meanwhile, and its time with it
FINISH_S = 5.0  # s, latest report of a finish by real builds


def exit_code_of(cause: str) -> int | None:
    """Return the shell's exit code if a signal ended the flight; else None."""
    name = next((name for name, text in CAUSES.items() if text == cause), None)
    return None if name is None else 128 + getattr(signal, name)


def interruptible(pilot: AnyPilot) -> AbstractContextManager[None]:
    """Abort the flight on signals that would end the process: an exception could strike anywhere."""
    return _handled(lambda cause: pilot.abort(EndReason.INTERRUPTED, cause))


def as_ctrl_c() -> AbstractContextManager[None]:
    """Raise KeyboardInterrupt on signals that would end the process, so that `finally` blocks run."""

    def interrupt(cause: str) -> NoReturn:
        raise KeyboardInterrupt(cause)

    return _handled(interrupt)


@contextlib.contextmanager
def _handled(handler: Callable[[str], None]) -> Iterator[None]:
    before: dict[int, Any] = {}
    try:
        for name, cause in CAUSES.items():
            if hasattr(signal, name):
                number = getattr(signal, name)
                before[number] = signal.signal(number, lambda *_, cause=cause: handler(cause))
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextlib.contextmanager
def forgiving(pilot: AnyPilot, recorder: Recorder) -> Iterator[None]:
    """Turn an unexpected exception into an abort, so that the result is still recorded."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        pilot.abort(EndReason.ERROR, f"internal error: {type(error).__name__}: {error}")
        recorder.note("internal error", traceback.format_exc())


Admit = Callable[[Telemetry, float], list[Telemetry]]  # (message, s of reception) to the messages to process


def stop_motors(
    client: AnyClient,
    pilot: AnyPilot,
    recorder: Recorder,
    admit: Admit = lambda message, received: [message],
    lockstep: bool = False,
) -> None:
    """Disarm until acknowledged, and keep receiving until the simulator has reported the end of the race. Never raises.

    `admit` converts messages to the pilot's clock; in `lockstep` the simulator's time stands until it is answered.
    """
    begin, end_t, sent, confirmed = time.monotonic(), pilot.estimator.t, 0, client.peer is None
    while (age := time.monotonic() - begin) < FINISH_S:
        disarming = age < DISARM_S and (sent < DISARMS or not confirmed)
        race = recorder.scoreboard.race(pilot.go_t)
        # Whether a status that changes the verdict may still come.
        late = pilot.phase is Phase.FINISHED or (race is not None and age < DISARM_S and race.newest <= end_t)
        if not (disarming or (race is not None and not race.finished and late)):
            return
        with contextlib.suppress(Exception):  # no error may prevent the next disarm command
            if disarming:
                sent += 1
                client.send(Arm(False), time.monotonic(), end_t)
            for received, message in _received(client, REPEAT_S):
                for admitted in admit(message, received):
                    recorder.received(admitted)
                if lockstep and isinstance(message, Imu):
                    client.hold(message.t)
                confirmed |= isinstance(message, Ack) and message.command == ARM_COMMAND and message.accepted
                confirmed |= isinstance(message, Heartbeat) and not message.armed


def _received(client: AnyClient, seconds: float) -> Iterator[tuple[float, Telemetry]]:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for received, message in client.receive(left):
            if not isinstance(message, TimesyncReply):
                yield received, message


POLL_S, FLIGHT_POLL_S = 0.05, 0.008  # s, longest wait for messages, before GO and in flight
LINK_RECORD_S = 0.5  # s between link records
SLOW = 0.75  # fraction of the requested command rate below which the machine is too slow


class LiveDriver:
    def __init__(
        self, pilot: AnyPilot, client: AnyClient, perception: PerceptionProcess, profile: Profile, recorder: Recorder
    ):
        self._pilot, self._client, self._perception, self._recorder = pilot, client, perception, recorder
        self._profile, self._clock = profile, StreamClock.of(profile)
        self._video: dict[str, int] = {}  # counters of the video link
        self._skipped = 0
        self._frozen_s = 0.0  # s, longest silence of the perception process
        self._timeline = Timeline()
        self._silent_s = 0.0  # s, longest time without IMU in flight
        self._samples = 0  # IMU samples that advanced the time
        self._last_imu = self._last_record = -math.inf  # s, local clock

    def fly(self, timeout_s: float, status: Callable[[AnyPilot], None]) -> None:
        """Fly until the pilot is done. Raises LinkError without a complete link within timeout_s."""
        pilot, begin = self._pilot, time.monotonic()
        with real_time():
            while not pilot.over and not self._silent():
                wait([self._client.socket, self._perception.pipe], POLL_S if pilot.go_t is None else FLIGHT_POLL_S)
                self._command(fresh=self._listen())
                now = time.monotonic()
                self._client.keep_alive(now)
                self._client.ask_time(now)
                self._guard(now, begin, timeout_s)
                if now - self._last_record > LINK_RECORD_S:
                    self._last_record = now
                    self._recorder.log.write("link", pilot.estimator.t, counters=self.link_report().counters)
                    self._recorder.log.images &= not self._overloaded()
                self._recorder.phase(pilot)
                status(pilot)
        pilot.abort(EndReason.NO_LINK, f"no IMU sample for {SILENCE_S:g} s")  # no effect once it is over
        note = self._recorder.note
        if times := self._timeline.clock_set:
            note("clock", f"the simulator's clock was set {times} times")
        if refused := self._video.get(REFUSED):
            note("detector", f"no answer to {refused} images, which were malformed or which it failed on")
        if self._silent_s > GAP_S:
            note("telemetry", f"no IMU sample for up to {self._silent_s:.2f} s: bridged by the model")
        if self._overloaded():
            rates = f"{self._client.rates.mean_hz:.0f} Hz instead of {self._due_hz():.5g}"
            note("machine", f"this machine is too slow: commands at {rates}, images not logged")

    def admit(self, message: Telemetry, received: float) -> list[Telemetry]:
        """Return the messages to process in its place, on the pilot's clock; received in s, local clock."""
        if isinstance(message, Farewell):  # a single odd heartbeat ends no flight, and no race: silence and statuses do
            message = Heartbeat(message.t, False)
        return self._timeline.admit(message, received)

    def link_report(self) -> LinkReport:
        client = self._client
        dropped = self._skipped + self._video.get("evicted", 0)
        counters = {f"mavlink_{name}": count for name, count in asdict(client.counters).items()}
        counters |= {f"video_{name}": count for name, count in self._video.items()}
        counters |= {"stamps_refused": self._timeline.refused, "clock_set": self._timeline.clock_set}
        counters |= {"video_clock_set": self._clock.jumps, "simulator_slips": self._clock.slips}
        return LinkReport(client.rates.mean_hz, client.rates.most_1s, dropped, counters)

    def _command(self, fresh: bool) -> None:
        """Act on every new IMU sample, and without one when samples are overdue."""
        pilot, commands = self._pilot, list[Command]()
        age = time.monotonic() - self._last_imu
        if pilot.go_t is None:
            commands = pilot.act()
            self._client.rates.restart()  # idle set-points are fewer
        elif fresh or age > GAP_S:
            commands = pilot.act(pilot.estimator.t + age)
        for command in commands:
            self._client.send(command, time.monotonic(), self._timeline.to_wire(pilot.estimator.t))
            if pilot.last_command is not None and command == pilot.last_command.target:
                pilot.prepare()
                self._perception.expect(pilot.window())
                self._recorder.step(pilot.last_command)

    def _listen(self) -> bool:
        """Pass on all received messages; return whether a new IMU sample was among them."""
        begin = self._pilot.estimator.t
        for received, message in self._client.receive(0.0):
            if isinstance(message, TimesyncReply):
                self._clock.timesync(message.sent, message.t, received)
                continue
            for admitted in self.admit(message, received):
                if isinstance(admitted, Imu):
                    if self._pilot.go_t is not None:
                        self._silent_s = max(self._silent_s, received - self._last_imu)
                    self._clock.reference(self._timeline.to_wire(admitted.t), received)
                    self._last_imu = received
                    self._samples += 1
                self._pilot.receive(admitted)
                self._recorder.received(admitted)
        for seen in self._perception.receive():
            self._video, self._skipped = seen.counters, seen.skipped
            if self._pilot.go_t is not None:
                self._clock.hold()
            stamp = self._clock.stream(seen.stamp, seen.received)
            if stamp is not None:
                t, sigma_s = self._timeline.to_pilot(stamp), self._clock.sigma_s
                image = DetectedImage(t, seen.id, seen.detections, seen.jpeg, sigma_s, seen.window)
                self._pilot.receive(image)
                self._recorder.image(image, self._pilot.last_sightings)
        return self._pilot.estimator.t > begin

    def _guard(self, now: float, begin: float, timeout_s: float) -> None:
        """End the wait for a simulator after the time-out, replace a dead perception process, and report one that stalls."""
        pilot = self._pilot
        if pilot.go_t is None and self._client.reconsider(now, complete=pilot.phase is not Phase.WAIT_LINK):
            pilot.forget_link()
            self._clock, self._timeline = StreamClock.of(self._profile), Timeline()
        self._perception.accept_only(self._client.host)
        if pilot.phase is Phase.WAIT_LINK and (why := self._client.refused.removeprefix("; ")):
            self._recorder.note("refused", why)
        if pilot.go_t is None and now - begin > timeout_s:
            why = pilot.handshake.awaited + self._client.refused
            where = f"on {self._client.where}"
            if (probed := self._client.knocking) is not None:
                where += f", no answer from {probed[0]}:{probed[1]}"
            if self._timeline.refused > self._samples > 0:  # it repeats a sample until that is answered
                why += "; its time stands still, as in lock-step: add --lockstep, or start it without"
            raise LinkError(f"no simulator within {timeout_s:g} s (link.timeout_s) {where}: still missing {why}")
        if not self._perception.alive:
            self._perception.revive()
            self._recorder.note("perception", "the perception process died, and was started again")
        # A flight continues on the IMU while perception stalls, as long as its other limits allow.
        self._frozen_s = max(self._frozen_s, self._perception.silent_s(now))
        if self._frozen_s > FROZEN_S:
            self._recorder.note("perception", f"the perception process did not respond for {self._frozen_s:.1f} s")

    def _silent(self) -> bool:
        """Return whether telemetry has stopped after GO: in flight or, as with the real simulator, after the finish."""
        return self._pilot.go_t is not None and time.monotonic() - self._last_imu > SILENCE_S

    def _overloaded(self) -> bool:
        return self._pilot.go_t is not None and 0 < self._client.rates.mean_hz < SLOW * self._due_hz()

    def _due_hz(self) -> float:
        """Return the rate at which commands are due by the local clock: lower while the simulator is slower than real time."""
        return self._profile.command_hz * min(self._clock.pace, 1.0)
