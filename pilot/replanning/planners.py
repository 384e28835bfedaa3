"""Planners in flight: a process beside the loop, which may be late or die, or a call in lock-step, where time stands still."""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
from multiprocessing.connection import Connection
from typing import Protocol

from gate_racer.planner.replanning import Remainder, Replanner, ReplanResult
from gate_racer.vehicle.process import end, shielded
from gate_racer.vehicle.vehicle import Vehicle

END_S = 0.2  # s to wait for the process at the end: its plan is no longer needed
BEHIND = 5  # niceness, below the flight loop and perception
STANDING_S = 0.6  # s of simulator time charged for a plan in lock-step: twice the time of six gates on one core
SPARE = 1.5  # factor on the last solve time that the next may take
SOONEST_S, LATEST_S = 0.3, 0.9  # s, bounds of the latency; a controller's horizon of 1 s must be longer than the latest


class RemainderPlanner(Protocol):
    """Planner of the rest of a course, one at a time."""

    @property
    def idle(self) -> bool:
        """Whether a request can be made."""

    @property
    def latency_s(self) -> float:
        """Expected time from request to answer, s."""

    def ask(self, rest: Remainder) -> None:
        """Request a plan of the rest. Earlier answers are dropped."""

    def answer(self) -> ReplanResult | None:
        """Return the answer; None until there is one."""

    def close(self) -> None:
        """Release the planner."""


class InlinePlanner:
    """Planner that runs while the flight's time stands still, so that a lock-step flight does not depend on the load."""

    def __init__(self, vehicle: Vehicle):
        self._replan, self._answer = Replanner(vehicle), None

    idle, latency_s = True, STANDING_S
    _answer: ReplanResult | None

    def ask(self, rest: Remainder) -> None:
        self._answer = self._replan(rest)

    def answer(self) -> ReplanResult | None:
        return self._answer

    def close(self) -> None:
        pass


class PlannerProcess:
    """Planner in a process beside the loop. Once the process has died it is never idle again, and answers nothing."""

    def __init__(self, warm: Remainder):
        """Start the process and let it plan `warm`, so that all is loaded and the solve time known before the flight."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), name="planner", daemon=True)
        with shielded():
            self._process.start()
        theirs.close()
        self._asked: queue.SimpleQueue[Remainder | None] = queue.SimpleQueue()
        self._answer: ReplanResult | None = None
        self._waiting = 0  # requests without an answer
        self.latency_s = LATEST_S
        self._alive = True
        self._thread = threading.Thread(target=self._carry, name="planner", daemon=True)
        self._thread.start()
        self.ask(warm)

    @property
    def idle(self) -> bool:
        return self._alive and self._waiting == 0

    def ask(self, rest: Remainder) -> None:
        self._answer = None
        self._waiting += 1
        self._asked.put(rest)

    def answer(self) -> ReplanResult | None:
        return self._answer if self._waiting == 0 else None

    def close(self) -> None:
        self._asked.put(None)
        end(self._process, END_S)
        self._thread.join(END_S)
        self._pipe.close()

    def _carry(self) -> None:
        """Exchange requests and answers with the process, on a thread: a pipe may block, and the flight loop must not."""
        with contextlib.suppress(EOFError, OSError):
            while (rest := self._asked.get()) is not None:
                begin = time.monotonic()
                self._pipe.send(rest)
                self._answer = self._pipe.recv()
                self.latency_s = min(max(SPARE * (time.monotonic() - begin), SOONEST_S), LATEST_S)
                self._waiting -= 1
            self._pipe.send(None)
        self._alive = False


def _work(pipe: Connection) -> None:
    for name in {"SIGINT", "SIGTERM", "SIGHUP"} & set(dir(signal)):
        signal.signal(getattr(signal, name), signal.SIG_IGN)  # the parent ends this process through the pipe
    if hasattr(os, "nice"):
        os.nice(BEHIND)
    replan: Replanner | None = None
    with contextlib.suppress(EOFError, OSError):  # the parent has ended
        while (rest := pipe.recv()) is not None:
            if replan is None:
                replan = Replanner(rest.vehicle)
                replan(rest)  # the first solve loads what later ones need
            pipe.send(replan(rest))
