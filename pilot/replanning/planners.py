"""Who plans again: a process beside the loop, which may be late or die, or the caller himself where time waits for him."""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
from multiprocessing.connection import Connection
from typing import Protocol

from planner.replanning import Replanned, Replanner, Rest
from vehicle.process import end, shielded
from vehicle.vehicle import Vehicle

END_S = 0.2  # of patience at the end: nobody waits for what it still plans
BEHIND = 5  # niceness, behind what flies and what sees
STANDING_S = 0.6  # of the simulator's time, that a planner in lock-step takes: twice what six gates do on one core
SPARE = 1.5  # times as long as the last rest took, the next one may take
SOONEST_S, LATEST_S = 0.3, 0.9  # a controller's horizon of 1 s must reach farther than the latest


class RestPlanner(Protocol):
    """Plans one rest at a time."""

    @property
    def idle(self) -> bool:
        """Whether it can be asked."""

    @property
    def latency_s(self) -> float:
        """From being asked to an answer, as far as is known before."""

    def ask(self, rest: Rest) -> None:
        """Begin with a rest. Answers of before are forgotten."""

    def answer(self) -> Replanned | None:
        """What has come of it; None: nothing yet."""

    def close(self) -> None:
        """End."""


class AtOnce:
    """Plans while the flight's time stands still, so that a flight in lock-step is the same whatever the machine has to do."""

    def __init__(self, vehicle: Vehicle):
        self._replan, self._answer = Replanner(vehicle), None

    idle, latency_s = True, STANDING_S
    _answer: Replanned | None

    def ask(self, rest: Rest) -> None:
        self._answer = self._replan(rest)

    def answer(self) -> Replanned | None:
        return self._answer

    def close(self) -> None:
        pass


class PlannerProcess:
    """Plans beside the loop. One that has died is never idle again, and answers nothing."""

    def __init__(self, warm: Rest):
        """Starts it, and lets it plan, so that all is loaded before the flight and known how long a rest takes."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), name="planner", daemon=True)
        with shielded():
            self._process.start()
        theirs.close()
        self._asked: queue.SimpleQueue[Rest | None] = queue.SimpleQueue()
        self._answer: Replanned | None = None
        self._waiting = 0  # rests that were not answered yet
        self.latency_s = LATEST_S
        self._alive = True
        self._thread = threading.Thread(target=self._carry, name="planner", daemon=True)
        self._thread.start()
        self.ask(warm)

    @property
    def idle(self) -> bool:
        return self._alive and self._waiting == 0

    def ask(self, rest: Rest) -> None:
        self._answer = None
        self._waiting += 1
        self._asked.put(rest)

    def answer(self) -> Replanned | None:
        return self._answer if self._waiting == 0 else None

    def close(self) -> None:
        self._asked.put(None)
        end(self._process, END_S)
        self._thread.join(END_S)
        self._pipe.close()

    def _carry(self) -> None:
        """To and from the process, on a thread: a pipe may be full, and the loop waits for nobody."""
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
        signal.signal(getattr(signal, name), signal.SIG_IGN)  # the parent ends us by the pipe
    if hasattr(os, "nice"):
        os.nice(BEHIND)
    replan: Replanner | None = None
    with contextlib.suppress(EOFError, OSError):  # the parent is gone
        while (rest := pipe.recv()) is not None:
            if replan is None:
                replan = Replanner(rest.vehicle)
                replan(rest)  # the first one loads what the others find loaded
            pipe.send(replan(rest))
