"""However a flight ends, its motors stop: signals abort it in order, what nobody foresaw becomes an abort, and whoever listens is
told to disarm more than once, since UDP may lose a datagram.
"""

import contextlib
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from link.messages import ARM_COMMAND, Ack, Arm, Heartbeat, Imu, Telemetry, TimesyncReply
from link.msp.client import MspClient
from link.udp import MavlinkClient
from pilot.flight import EndReason, Phase
from pilot.pilot import AnyPilot
from pilot.records.recorder import Recorder
from pilot.records.scoreboard import Scoreboard
from vehicle.errors import UserError

AnyClient = MavlinkClient | MspClient
CAUSES = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}  # the last is not known to Windows
DISARMS, DISARM_S = 5, 1.0  # at least so many times, and until it is confirmed at most so long
REPEAT_S = 0.05  # between two
SILENCE_S = 1.0  # without IMU in flight, after which the flight is given up
FINISH_S = 5.0  # real builds may tell of a finish so late


def exit_code_of(cause: str) -> int | None:
    """The shell's code where a signal is a flight's cause of end."""
    for name, text in CAUSES.items():
        if cause == text:
            return 128 + getattr(signal, name)
    return None


@contextlib.contextmanager
def interruptible(pilot: AnyPilot) -> Iterator[None]:
    """Signals that would end the process abort the flight instead: an exception could strike anywhere."""
    with _handled(lambda cause: pilot.abort(EndReason.INTERRUPTED, cause)):
        yield


@contextlib.contextmanager
def as_ctrl_c() -> Iterator[None]:
    """Signals that would end the process raise KeyboardInterrupt, so that it leaves by its `finally`."""

    def interrupt(cause: str) -> NoReturn:
        raise KeyboardInterrupt(cause)

    with _handled(interrupt):
        yield


@contextlib.contextmanager
def _handled(handler: Callable[[str], None]) -> Iterator[None]:
    """Signals call a handler with their cause."""
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
    """What nobody foresaw ends the flight, and not the account of it."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        pilot.abort(EndReason.ERROR, f"internal error: {type(error).__name__}: {error}")
        recorder.note("internal error", traceback.format_exc())


Admit = Callable[[Telemetry, float], list[Telemetry]]  # of a message and its reception: what is to be heard of it


def stop_motors(
    client: AnyClient,
    pilot: AnyPilot,
    recorder: Recorder,
    admit: Admit = lambda message, received: [message],
    lockstep: bool = False,
) -> None:
    """Disarms until that is confirmed, and hears on until the simulator has told how the race ended. Never raises.

    Args:
        admit: brings messages onto the pilot's clock.
        lockstep: whether the simulator's time stands until it is told to go on.
    """
    begin, end_t, sent, confirmed = time.monotonic(), pilot.estimator.t, 0, client.peer is None
    while (age := time.monotonic() - begin) < FINISH_S:
        disarming = age < DISARM_S and (sent < DISARMS or not confirmed)
        if not (disarming or _race_open(pilot, recorder.scoreboard, age, end_t)):
            return
        with contextlib.suppress(Exception):  # nothing may keep the next one from being sent
            if disarming:
                sent += 1
                client.send(Arm(False), time.monotonic(), end_t)
            for received, message in _heard(client, REPEAT_S):
                for good in admit(message, received):
                    recorder.heard(good)
                if lockstep and isinstance(message, Imu):
                    client.hold(message.t)
                confirmed |= isinstance(message, Ack) and message.command == ARM_COMMAND and message.accepted
                confirmed |= isinstance(message, Heartbeat) and not message.armed


def _race_open(pilot: AnyPilot, board: Scoreboard, age: float, end_t: float) -> bool:
    """Whether a status may come, `age` s after the end at end_t, that changes the verdict."""
    told = board.race(pilot.go_t)
    if told is None or told.finished:
        return False
    return pilot.phase is Phase.FINISHED or (age < DISARM_S and told.newest <= end_t)


def _heard(client: AnyClient, seconds: float) -> Iterator[tuple[float, Telemetry]]:
    """All that comes in so many seconds, with its time of reception."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for received, message in client.receive(left):
            if not isinstance(message, TimesyncReply):
                yield received, message
