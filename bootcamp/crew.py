"""Supervisor in main: start the workers, pass the answers of each on to the next, monitor them, and shut the flight down in the
order of the ring.

A worker that is killed or hangs holds up no other: all messages go through main, which sends a worker an item once it has
answered the last one.
"""

import pickle
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait

from gate_racer.bootcamp.api import Command, Report, Unreadable
from gate_racer.bootcamp.cell import (
    SENTINEL,
    STARTED,
    Cell,
    Counts,
    Failed,
    counts,
    own_work,
    process_context,
    unpacked,
)
from gate_racer.bootcamp.display import BrowserView
from gate_racer.bootcamp.judge import Judge, Judgement, ProgramEnd
from gate_racer.bootcamp.stages import STAGES, Job
from gate_racer.common.errors import one_line
from gate_racer.common.process import Worker, shielded

NEXT = {
    "simulation": ("detection",),
    "detection": ("geolocation",),
    "geolocation": ("decision", "display"),
    "decision": ("simulation",),
    "display": (),
}
FUNCTIONS = {"detection": "detect", "geolocation": "locate", "decision": "decide"}  # of the program, by worker
BESIDE = ("display",)  # workers without which a flight goes on
LOOK_S = 0.1  # s, period of the watchdog (chosen)
PATIENCE_S = 30.0  # s, greatest time of a worker on one item (chosen)
FILM_S = 60.0  # s for the display to end, on a slow machine (chosen)
GRACE_S = 10.0  # s for a worker to end after its sentinel (chosen)
NO_COMMAND = pickle.dumps(None)


@dataclass
class ProgramOutcome:
    end: ProgramEnd = ProgramEnd.ABORTED
    cause: str = ""
    report: Report | None = None  # the last one received
    counters: dict[str, dict[str, int]] = field(default_factory=dict)  # of each worker that reported them
    mistakes: Counter[str] = field(default_factory=Counter)  # in boxes and places
    terminated: list[str] = field(default_factory=list)  # workers that had to be killed
    traceback: str = ""


class Crew:
    """Workers of one flight. Use once, from the main thread."""

    def __init__(
        self,
        job: Job,
        patience_s: float = PATIENCE_S,
        printed: Callable[[str, str], None] = lambda name, line: None,
        view: BrowserView | None = None,
    ):
        """Start the workers; `printed` receives what the program's workers print, in a thread, `view` the images."""
        context, self._judge = process_context(), Judge(job.scenario)
        # Workers that get the newest item, and never an older one.
        newest = {"display", *(FUNCTIONS if job.realtime else ())}
        self._inboxes = {name: deque[bytes](maxlen=1 if name in newest else None) for name in STAGES}
        self._replaced = Counter[str]()  # items that were replaced by newer ones, by the worker that has put them
        self._idle, self._ending = set[str](), set[str]()
        self._busy = dict[str, float]()  # s, monotonic time since which each worker has been busy
        # In real time a step begins when it is due (s, monotonic time), with a command or without.
        self._realtime, self._step_s, self._due = job.realtime, job.scenario.world.step_s, 0.0
        # One that sends to a worker which does not read holds up no other.
        self._posts = ThreadPoolExecutor(len(STAGES))
        self._patience_s, self._view = patience_s, view
        self._workers = dict[str, Worker]()
        with shielded():
            for name, stage in STAGES.items():
                if name in FUNCTIONS:
                    worker: Worker = Cell(job.program, stage, job, name=name, tell=partial(printed, name))
                else:
                    worker = Worker(own_work, job.program, stage, job, name=name, context=context)
                self._workers[name] = worker
        self._lines = {name: worker.pipe for name, worker in self._workers.items()}
        self.processes = {name: worker.process for name, worker in self._workers.items()}
        self.outcome = ProgramOutcome()
        self._over = self._interrupted = False

    def fly(self, tell: Callable[[Report], None]) -> ProgramOutcome:
        """Run until the flight is over and every worker has ended; `tell` receives every report. Ctrl-C ends it in order."""
        handlers = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while not self._over:
                wait_s = self._due - time.monotonic() if "simulation" in self._idle else LOOK_S
                self._receive(tell, wait_s if 0 < wait_s < LOOK_S else LOOK_S)
                self._look_around()
        finally:
            self._close(tell)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return self.outcome

    def _interrupt(self, *_: object) -> None:
        self._interrupted = True

    def _end(self, end: ProgramEnd, cause: str) -> None:
        """Record the reason of the end; the first one counts. An interrupt takes precedence, as it may kill workers as well."""
        if self._interrupted:
            end, cause = ProgramEnd.ABORTED, "interrupted"
        if not self._over:
            self._over, self.outcome.end, self.outcome.cause = True, end, cause

    def _receive(self, tell: Callable[[Report], None], timeout_s: float) -> None:
        ready = wait(list(self._lines.values()), timeout_s)
        for name in [name for name, line in self._lines.items() if line in ready]:
            try:
                while self._lines[name].poll():
                    self._take(name, self._lines[name].recv_bytes(), tell)
            except (EOFError, OSError):  # it has ended, perhaps within a message
                self._lines.pop(name)
                self._idle.discard(name)
                self._busy.pop(name, None)
                worker = self._workers[name]
                worker.process.join(GRACE_S)
                if name not in self.outcome.counters and name not in BESIDE:
                    how = f": {worker.how_it_ended()}" if isinstance(worker, Cell) else ""
                    self._end(ProgramEnd.WORKER_DIED, f"worker {name} died (exit code {worker.process.exitcode}){how}")
            except (pickle.UnpicklingError, AttributeError):
                if name not in FUNCTIONS:
                    raise
                self._end(ProgramEnd.WORKER_DIED, f"worker {name} has sent what is no message")

    def _take(self, name: str, data: bytes, tell: Callable[[Report], None]) -> None:
        """Process a message of a worker, and pass its answer on."""
        if data == STARTED:
            if name in FUNCTIONS:  # it loads the program, which may never end
                self._busy[name] = time.monotonic()
            return
        match message := unpacked(data):
            case Counts():
                self.outcome.counters[name] = dict(counts(message.counters))
                self.outcome.mistakes.update(counts(message.mistakes))
            case Failed():
                self.outcome.traceback = self.outcome.traceback or str(message.traceback)
                if name not in BESIDE:
                    self._end(ProgramEnd.WORKER_ERROR, f"worker {name}: {one_line(str(message.cause))}")
            case _:
                self._busy.pop(name, None)
                self._idle.add(name)
                if name == "simulation":
                    self._observe(message.report, message.command, tell)
                elif name == "display" and message is not None and self._view is not None:
                    self._view.show(message)
                for sink in NEXT[name] if message is not None else ():
                    inbox = self._inboxes[sink]
                    self._replaced[name] += len(inbox) == inbox.maxlen
                    inbox.append(data)
                for receiver in (name, *NEXT[name]):
                    self._deliver(receiver)

    def _observe(self, report: Report, command: Command | Unreadable | None, tell: Callable[[Report], None]) -> None:
        """Judge a step of the simulation, which ends the flight, or makes the next step due."""
        if self._realtime:
            self._due = (self._due or time.monotonic()) + self._step_s
        self.outcome.report = report
        self._judge.see(report, command)
        tell(report)
        if self._judge.end is not None:
            self._end(*self._judge.end)

    def _deliver(self, name: str) -> None:
        """Send an idle worker the next item, or after the last one the sentinel. After the end nothing is flown any more."""
        if name not in self._idle:
            return
        inbox, flies = self._inboxes[name], name == "simulation"
        due = not flies or (not self._over and time.monotonic() >= self._due)
        if inbox and due:
            data = inbox.popleft()
        elif name in self._ending:
            data = SENTINEL
        elif flies and due and self._realtime:
            data = NO_COMMAND
        else:
            return
        self._idle.remove(name)
        if data != SENTINEL:
            self._busy[name] = time.monotonic()
        self._posts.submit(self._lines[name].send_bytes, data)

    def _look_around(self) -> None:
        """Check for an interrupt, for a step that is due, and for workers that are alive but do not respond."""
        if self._interrupted:
            self._end(ProgramEnd.ABORTED, "interrupted")
        self._deliver("simulation")
        for name, since in list(self._busy.items()):
            if time.monotonic() - since > self._patience_s and self.processes[name].is_alive():
                worker, told = self._workers[name], f"busy with one item for {self._patience_s:g} s"
                if isinstance(worker, Cell):
                    told = f"{worker.stop_hung() or f'in `{FUNCTIONS[name]}`'}: {told}"
                else:
                    worker.process.kill()
                    worker.process.join()
                self.outcome.terminated.append(name)
                self._end(ProgramEnd.WORKER_DIED, f"worker {name} hung {told}")
        if not self._realtime and self._idle >= STAGES.keys() - set(BESIDE):
            self._end(ProgramEnd.WORKER_DIED, "all workers are idle: an answer was lost")

    def _close(self, tell: Callable[[Report], None]) -> None:
        """Shut down in the order of the ring: send each worker the sentinel after its writer's items, and wait for its end."""
        self._over = True
        for name, process in self.processes.items():
            self._ending.add(name)
            self._deliver(name)
            until = time.monotonic() + (FILM_S if name in BESIDE else GRACE_S)
            while process.is_alive() and time.monotonic() < until:
                self._receive(tell, LOOK_S / 10)
                self._look_around()
            if process.is_alive():
                self.outcome.terminated.append(name)
                process.kill()
            process.join()
            self._receive(tell, 0.0)
        for name, worker in self._workers.items():
            worker.close(0.0)
            if name in self.outcome.counters:
                self.outcome.counters[name]["replaced by newer"] = self._replaced[name]
        self._posts.shutdown()

    def verdict(self) -> Judgement:
        """Return the verdict on the flight, after its end."""
        return self._judge.verdict(self.outcome.end, self.outcome.cause, self.outcome.mistakes)
