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

from gate_racer.bootcamp import cell
from gate_racer.bootcamp.api import Command, Report, Unreadable
from gate_racer.bootcamp.cell import Cell, Counts, Failed, counts, own_work, process_context, unpacked
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


@dataclass
class Member:
    """A worker of the crew, and what it is to be sent."""

    worker: Worker
    inbox: deque[bytes]
    connected: bool = True
    idle: bool = False
    ending: bool = False  # whether the sentinel follows its last item
    busy_t: float | None = None  # s, monotonic time since which it has been busy
    replaced: int = 0  # items of its own that newer ones have replaced


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
        context, self.judge = process_context(), Judge(job.scenario)
        newest = {"display", *(FUNCTIONS if job.realtime else ())}  # which never get an older item
        # In real time a step begins when it is due (s, monotonic time), with a command or without.
        self._realtime, self._step_s, self._due = job.realtime, job.scenario.world.step_s, 0.0
        self._posts = ThreadPoolExecutor(len(STAGES))  # a worker that does not read holds up no other
        self._patience_s, self._view = patience_s, view
        self._members = dict[str, Member]()
        with shielded():
            for name, stage in STAGES.items():
                if name in FUNCTIONS:
                    worker: Worker = Cell(job.program, stage, job, name=name, tell=partial(printed, name))
                else:
                    worker = Worker(own_work, job.program, stage, job, name=name, context=context)
                self._members[name] = Member(worker, deque(maxlen=1 if name in newest else None))
        self.processes = {name: one.worker.process for name, one in self._members.items()}
        self.outcome = ProgramOutcome()
        self._over = self._interrupted = False

    def fly(self, tell: Callable[[Report], None]) -> ProgramOutcome:
        """Run until the flight is over and every worker has ended; `tell` receives every report. Ctrl-C ends it in order."""
        handlers = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while not self._over:
                wait_s = self._due - time.monotonic() if self._members["simulation"].idle else LOOK_S
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
        ready = wait([one.worker.pipe for one in self._members.values() if one.connected], timeout_s)
        for name, one in self._members.items():
            worker = one.worker
            try:
                while worker.pipe in ready and worker.pipe.poll():
                    self._take(name, worker.pipe.recv_bytes(), tell)
            except (EOFError, OSError):  # it has ended, perhaps within a message
                one.connected, one.idle, one.busy_t = False, False, None
                worker.process.join(GRACE_S)
                if name not in self.outcome.counters and name not in BESIDE:
                    how = f": {worker.how_it_ended()}" if isinstance(worker, Cell) else ""
                    self._end(ProgramEnd.WORKER_DIED, f"worker {name} died (exit code {worker.process.exitcode}){how}")
            except (pickle.UnpicklingError, AttributeError):
                if name not in FUNCTIONS:
                    raise
                self._end(ProgramEnd.WORKER_DIED, f"worker {name} has sent what is no message")

    def _take(self, name: str, data: bytes, tell: Callable[[Report], None]) -> None:
        if data == cell.STARTED:
            if name in FUNCTIONS:  # it loads the program, which may never end
                self._members[name].busy_t = time.monotonic()
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
                one = self._members[name]
                one.busy_t, one.idle = None, True
                if name == "simulation":
                    self._observe(message.report, message.command, tell)
                elif name == "display" and message is not None and self._view is not None:
                    self._view.show(message)
                for sink in NEXT[name] if message is not None else ():
                    inbox = self._members[sink].inbox
                    one.replaced += len(inbox) == inbox.maxlen
                    inbox.append(data)
                for receiver in (name, *NEXT[name]):
                    self._deliver(receiver)

    def _observe(self, report: Report, command: Command | Unreadable | None, tell: Callable[[Report], None]) -> None:
        """Judge a step of the simulation, which ends the flight, or makes the next step due."""
        if self._realtime:
            self._due = (self._due or time.monotonic()) + self._step_s
        self.outcome.report = report
        self.judge.see(report, command)
        tell(report)
        if self.judge.end is not None:
            self._end(*self.judge.end)

    def _deliver(self, name: str) -> None:
        """Send an idle worker the next item, or after the last one the sentinel. After the end nothing is flown any more."""
        one, flies = self._members[name], name == "simulation"
        due = not flies or (not self._over and time.monotonic() >= self._due)
        if not one.idle:
            return
        if one.inbox and due:
            data = one.inbox.popleft()
        elif one.ending:
            data = cell.SENTINEL
        elif flies and due and self._realtime:
            data = NO_COMMAND
        else:
            return
        one.idle, one.busy_t = False, time.monotonic() if data != cell.SENTINEL else None
        self._posts.submit(one.worker.pipe.send_bytes, data)

    def _look_around(self) -> None:
        """Check for an interrupt, for a step that is due, and for workers that are alive but do not respond."""
        if self._interrupted:
            self._end(ProgramEnd.ABORTED, "interrupted")
        self._deliver("simulation")
        for name, one in self._members.items():
            worker, told = one.worker, f"busy with one item for {self._patience_s:g} s"
            long = one.busy_t is not None and time.monotonic() - one.busy_t > self._patience_s
            if long and worker.process.is_alive():
                if isinstance(worker, Cell):
                    told = f"{worker.stop_hung() or f'in `{FUNCTIONS[name]}`'}: {told}"
                else:
                    worker.process.kill()
                    worker.process.join()
                self.outcome.terminated.append(name)
                self._end(ProgramEnd.WORKER_DIED, f"worker {name} hung {told}")
        if not self._realtime and all(one.idle for name, one in self._members.items() if name not in BESIDE):
            self._end(ProgramEnd.WORKER_DIED, "all workers are idle: an answer was lost")

    def _close(self, tell: Callable[[Report], None]) -> None:
        """Shut down in the order of the ring: send each worker the sentinel after its writer's items, and wait for its end."""
        self._over = True
        for name, process in self.processes.items():
            self._members[name].ending = True
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
        for name, one in self._members.items():
            one.worker.close(0.0)
            if name in self.outcome.counters:
                self.outcome.counters[name]["replaced by newer"] = one.replaced
        self._posts.shutdown()

    def verdict(self) -> Judgement:
        return self.judge.verdict(self.outcome.end, self.outcome.cause, self.outcome.mistakes)
