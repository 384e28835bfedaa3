"""End of a flight: the motors stop however it ends. Signals abort the flight in order, unexpected exceptions become an abort,
and the simulator is disarmed repeatedly, since UDP may lose a datagram.
"""

import contextlib
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from gate_racer.link.messages import ARM_COMMAND, Ack, Arm, Heartbeat, Imu, Telemetry, TimesyncReply
from gate_racer.link.msp.client import MspClient
from gate_racer.link.udp import MavlinkClient
from gate_racer.pilot.flight import EndReason, Phase
from gate_racer.pilot.pilot import AnyPilot
from gate_racer.pilot.records.recorder import Recorder
from gate_racer.pilot.records.scoreboard import Scoreboard
from gate_racer.vehicle.errors import UserError

AnyClient = MavlinkClient | MspClient
CAUSES = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}  # SIGHUP does not exist on Windows
DISARMS, DISARM_S = 5, 1.0  # least number of disarm commands, and s to repeat them until acknowledged
REPEAT_S = 0.05  # s between two disarm commands
SILENCE_S = 3.0  # s without IMU in flight, after which it is aborted: a simulator may stand still meanwhile, and its time with it
FINISH_S = 5.0  # s, latest report of a finish by real builds


def exit_code_of(cause: str) -> int | None:
    """Return the shell's exit code if a signal ended the flight; else None."""
    for name, text in CAUSES.items():
        if cause == text:
            return 128 + getattr(signal, name)
    return None


@contextlib.contextmanager
def interruptible(pilot: AnyPilot) -> Iterator[None]:
    """Abort the flight on signals that would end the process: an exception could strike anywhere."""
    with _handled(lambda cause: pilot.abort(EndReason.INTERRUPTED, cause)):
        yield


@contextlib.contextmanager
def as_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt on signals that would end the process, so that `finally` blocks run."""

    def interrupt(cause: str) -> NoReturn:
        raise KeyboardInterrupt(cause)

    with _handled(interrupt):
        yield


@contextlib.contextmanager
def _handled(handler: Callable[[str], None]) -> Iterator[None]:
    """Handle signals by calling `handler` with their cause."""
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

    Args:
        admit: converts messages to the pilot's clock.
        lockstep: the simulator's time stands until it is answered.
    """
    begin, end_t, sent, confirmed = time.monotonic(), pilot.estimator.t, 0, client.peer is None
    while (age := time.monotonic() - begin) < FINISH_S:
        disarming = age < DISARM_S and (sent < DISARMS or not confirmed)
        if not (disarming or _race_open(pilot, recorder.scoreboard, age, end_t)):
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


def _race_open(pilot: AnyPilot, board: Scoreboard, age: float, end_t: float) -> bool:
    """Return whether a status that changes the verdict may still come, `age` s after the end at end_t (s)."""
    race = board.race(pilot.go_t)
    if race is None or race.finished:
        return False
    return pilot.phase is Phase.FINISHED or (age < DISARM_S and race.newest <= end_t)


def _received(client: AnyClient, seconds: float) -> Iterator[tuple[float, Telemetry]]:
    """Yield all messages received within `seconds`, with the time of reception."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        for received, message in client.receive(left):
            if not isinstance(message, TimesyncReply):
                yield received, message
