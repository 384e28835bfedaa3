"""A worker's connections: its edges, its pipe to main, its counters, and a shared flag of when it became busy."""

import contextlib
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from gate_racer.bootcamp.edges import NOTHING, POLL_S, Queue

FLUSH_S = 5.0  # s for the last items to be fetched (chosen)


@dataclass(frozen=True)
class Failed:
    """Message to main: an uncaught exception."""

    cause: str  # one line
    traceback: str


@dataclass(frozen=True)
class CounterReport:
    """Last message to main: the worker's counters."""

    counters: dict[str, int]


@dataclass
class Desk:
    """Connections of one worker, created by main."""

    place: int  # index into `lights`
    source: Queue
    sinks: tuple[Queue, ...]
    status: Connection
    lights: Any  # shared: monotonic time (s) since which each worker has been busy; 0 when idle
    counters: Counter[str] = field(default_factory=Counter)
    nothing = NOTHING

    def open(self) -> None:
        """Close unused ends of the pipes, first thing in the worker's process."""
        self.source.keep_reader()
        for sink in self.sinks:
            sink.keep_writer()

    def get(self, timeout_s: float | None) -> Any:
        """Return the next item; None at the sentinel, `nothing` after timeout_s. Without a timeout wait as long as main lives."""
        if timeout_s is not None:
            return self.source.get(timeout_s)
        parent = multiprocessing.parent_process()
        while (item := self.source.get(POLL_S)) is NOTHING:
            if parent is not None and not parent.is_alive():
                return None
        return item

    def put(self, item: Any) -> None:
        """Send an item to the next workers, waiting for room. Main clears the inbox of a worker that has ended."""
        parent = multiprocessing.parent_process()
        for sink in self.sinks:
            while not sink.put(item, POLL_S) and (parent is None or parent.is_alive()):
                pass

    def until_sentinel(self, last: Any) -> None:
        """Receive and count further items up to the sentinel, so that no writer waits."""
        while last is not None:
            last = self.get(None)
            self.counters["commands after the end"] += last is not None

    def tell(self, news: Any) -> None:
        """Send a message to main, if it still runs."""
        with contextlib.suppress(OSError):
            self.status.send(news)

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Mark the worker as busy with one item."""
        self.lights[self.place] = time.monotonic()
        yield
        self.lights[self.place] = 0.0

    def leave(self) -> None:
        """Flush the sinks and report the counters."""
        for sink in self.sinks:
            sink.flush(FLUSH_S)
            self.counters["replaced by newer"] += sink.replaced
        self.tell(CounterReport(dict(self.counters)))
