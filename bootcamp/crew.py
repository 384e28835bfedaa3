"""Supervisor in main: start the workers, pass items on from each to the next, monitor them, and shut the flight down in the order
of the ring.
"""

import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from gate_racer.bootcamp.api import Report
from gate_racer.bootcamp.cell import Cell, confine, process_context
from gate_racer.bootcamp.display import BrowserView
from gate_racer.bootcamp.judge import Judge, Judgement, ProgramEnd
from gate_racer.bootcamp.program import error_in_flight, traceback_text
from gate_racer.bootcamp.stages import (
    ASK,
    BUSY,
    ITEM,
    SENTINEL,
    STAGES,
    CounterReport,
    Desk,
    Failed,
    Frame,
    Job,
    Step,
    counts,
    unpacked,
)
from gate_racer.common.errors import one_line
from gate_racer.common.process import Worker, leave, shielded

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


@dataclass
class ProgramOutcome:
    """Outcome of a program's flight."""

    end: ProgramEnd = ProgramEnd.ABORTED
    cause: str = ""
    report: Report | None = None  # the last one received
    counters: dict[str, dict[str, int]] = field(default_factory=dict)  # of each worker that reported them
    mistakes: Counter[str] = field(default_factory=Counter)  # in boxes and places
    drained: dict[str, int] = field(default_factory=dict)  # items left in the inboxes of ended workers
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
        self._asking, self._ending = set[str](), set[str]()
        self._busy = dict[str, float]()  # s, monotonic time since which each worker has been busy
        # One that sends to a worker which does not read holds up no other.
        self._posts = ThreadPoolExecutor(len(STAGES))
        self._patience_s, self._view = patience_s, view
        self._workers = dict[str, Worker]()
        with shielded():
            for name, stage in STAGES.items():
                if name in FUNCTIONS:
                    worker: Worker = Cell(_work, job.program, stage, job, name=name, tell=partial(printed, name))
                else:
                    worker = Worker(_own_work, job.program, stage, job, name=name, context=context)
                self._workers[name] = worker
        self._lines = {name: worker.pipe for name, worker in self._workers.items()}
        self.processes = {name: worker.process for name, worker in self._workers.items()}
        self.outcome = ProgramOutcome()
        self._over = self._interrupted = False
        self._reported = time.monotonic()  # s, monotonic time of the last step's report

    def fly(self, tell: Callable[[Report], None]) -> ProgramOutcome:
        """Run until the flight is over and every worker has ended; `tell` receives every report. Ctrl-C ends it in order."""
        handlers = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while not self._over:
                self._receive(tell, LOOK_S)
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
        """Process the workers' messages."""
        ready = wait(list(self._lines.values()), timeout_s)
        for name in [name for name, line in self._lines.items() if line in ready]:
            try:
                while self._lines[name].poll():
                    self._take(name, self._lines[name].recv_bytes(), tell)
            except (EOFError, OSError):  # it has ended, perhaps within a message
                self._lines.pop(name)
                self._asking.discard(name)
                self._busy.pop(name, None)
                worker = self._workers[name]
                worker.process.join(GRACE_S)
                if name not in self.outcome.counters and name not in BESIDE:
                    how = f": {worker.how_it_ended()}" if isinstance(worker, Cell) else ""
                    self._end(ProgramEnd.WORKER_DIED, f"worker {name} died (exit code {worker.process.exitcode}){how}")
            except (UnpicklingError, AttributeError):
                if name not in FUNCTIONS:
                    raise
                self._end(ProgramEnd.WORKER_DIED, f"worker {name} has sent what is no message")

    def _take(self, name: str, data: bytes, tell: Callable[[Report], None]) -> None:
        """Process a message of a worker, or pass its item on."""
        if data == ASK:
            self._busy.pop(name, None)
            self._asking.add(name)
            self._deliver(name)
        elif data == BUSY:
            self._busy[name] = time.monotonic()
        elif data.startswith(ITEM):
            for sink in NEXT[name]:
                inbox = self._inboxes[sink]
                self._replaced[name] += len(inbox) == inbox.maxlen
                inbox.append(data)
                self._deliver(sink)
        else:
            self._heed(name, unpacked(data), tell)

    def _deliver(self, name: str) -> None:
        """Send a worker that asks for an item the next one, or after the last one the sentinel."""
        inbox = self._inboxes[name]
        if name in self._asking and (inbox or name in self._ending):
            self._asking.remove(name)
            if inbox:
                self._busy[name] = time.monotonic()
            self._posts.submit(self._lines[name].send_bytes, inbox.popleft() if inbox else SENTINEL)

    def _heed(self, name: str, news: object, tell: Callable[[Report], None]) -> None:
        match news:
            case Frame() if name == "display" and self._view is not None:
                self._view.show(news.jpeg)
            case CounterReport():
                self.outcome.counters[name] = dict(counts(news.counters))
                self.outcome.mistakes.update(counts(news.mistakes))
            case Failed():
                self.outcome.traceback = self.outcome.traceback or str(news.traceback)
                if name not in BESIDE:
                    self._end(ProgramEnd.WORKER_ERROR, f"worker {name}: {one_line(str(news.cause))}")
            case Step() if name == "simulation":
                self.outcome.report, self._reported = news.report, time.monotonic()
                self._judge.see(news.report, news.command)
                tell(news.report)
                if self._judge.end is not None:
                    self._end(*self._judge.end)

    def _look_around(self) -> None:
        """Check for an interrupt, and for workers that are alive but do not respond."""
        if self._interrupted:
            self._end(ProgramEnd.ABORTED, "interrupted")
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
        begun = self.outcome.report is not None and self.outcome.report.step > 0
        if begun and not self._busy and time.monotonic() - self._reported > self._patience_s:
            told = f"no step for {self._patience_s:g} s, and all workers idle: an answer was lost"
            self._end(ProgramEnd.WORKER_DIED, told)

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
        self.outcome.drained = {name: len(inbox) for name, inbox in self._inboxes.items() if inbox}

    def verdict(self) -> Judgement:
        """Return the verdict on the flight, after its end."""
        return self._judge.verdict(self.outcome.end, self.outcome.cause, self.outcome.mistakes)


def _own_work(main: Connection, *arguments: Any) -> None:
    """Run a worker that runs nothing of the program."""
    confine()
    _work(main, *arguments)
    leave(0)


def _work(main: Connection, program: Path, stage: Callable[[Job, Desk], None], job: Job) -> None:
    """Run a worker's stage; report any exception to main."""
    desk = Desk(main)
    try:
        stage(job, desk)
    except BaseException as error:  # a program may well call exit()
        desk.tell(Failed(error_in_flight(error, program), traceback_text(error)))
    desk.leave()
