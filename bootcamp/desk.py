"""A worker's place: its edges, its line to main, its counters, and a light that shows when it is at work."""

import contextlib
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from bootcamp.edges import NOTHING, POLL_S, Queue

FLUSH_S = 5.0


@dataclass(frozen=True)
class Failed:
    """To main: an exception that nobody has caught."""

    cause: str  # one line
    traceback: str


@dataclass(frozen=True)
class Tally:
    """To main, as the last word: what was counted."""

    counters: dict[str, int]


@dataclass
class Desk:
    """Made by main, used by one worker."""

    place: int  # its light's place
    source: Queue
    sinks: tuple[Queue, ...]
    status: Connection
    lights: Any  # shared: since when each worker has been busy, monotonic s; 0 when idle
    counters: Counter[str] = field(default_factory=Counter)
    nothing = NOTHING

    def open(self) -> None:
        """In the worker's process, before anything else."""
        self.source.keep_reader()
        for sink in self.sinks:
            sink.keep_writer()

    def get(self, timeout_s: float | None) -> Any:
        """The next item; None at the sentinel, `nothing` after timeout_s. Without a limit waits as long as main lives."""
        if timeout_s is not None:
            return self.source.get(timeout_s)
        parent = multiprocessing.parent_process()
        while (item := self.source.get(POLL_S)) is NOTHING:
            if parent is not None and not parent.is_alive():
                return None
        return item

    def put(self, item: Any) -> None:
        """To whoever comes next. Main empties or abandons the inbox of a worker that has ended, so the wait for room ends."""
        parent = multiprocessing.parent_process()
        for sink in self.sinks:
            while not sink.put(item, POLL_S) and (parent is None or parent.is_alive()):
                pass

    def until_sentinel(self, last: Any) -> None:
        """Leaves nobody waiting: takes and counts what still comes."""
        while last is not None:
            last = self.get(None)
            self.counters["commands after the end"] += last is not None

    def tell(self, news: Any) -> None:
        """To main, which may be gone."""
        with contextlib.suppress(OSError):
            self.status.send(news)

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """At work on one item."""
        self.lights[self.place] = time.monotonic()
        yield
        self.lights[self.place] = 0.0

    def leave(self) -> None:
        """The last word."""
        for sink in self.sinks:
            sink.flush(FLUSH_S)
            self.counters["replaced by newer"] += sink.replaced
        self.tell(Tally(dict(self.counters)))
