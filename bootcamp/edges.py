"""Connections of workers: edges between two processes, and a worker's desk with its pipe to main and its counters.

An edge is a queue of one item, or a mailbox that keeps the newest item. A queue loses nothing: `put` blocks until there is room.
`put` to a mailbox never blocks: an item not fetched in time is replaced and counted. Each edge has one writer and one reader at
a time, each with only its own end of the pipe open, so that a process killed in the middle of an item blocks no other. None is
the sentinel: nothing follows.
"""

import contextlib
import io
import multiprocessing
import pickle
import select
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

from gate_racer.bootcamp.api import Command, Report, Unreadable

POLL_S = 0.1  # s, period of polling (chosen)


ROOM = __package__
MESSAGES = {  # names of the types in messages, by module
    f"{ROOM}.api": {"Box", "CourseGate", "Go", "Halt", "Land", "Location", "Null", "Report", "Status", "Unreadable"},
    f"{ROOM}.edges": {"Failed", "CounterReport", "Frame", "Step"},
    f"{ROOM}.stages": {"Packet", "Answer"},
    "gate_racer.vehicle.camera": {"Camera"},
    "gate_racer.vehicle.lens": {"Lens"},
}
ARRAYS = {"_reconstruct", "_frombuffer", "ndarray", "dtype", "scalar"}  # names in numpy of which arrays are made


class _Reader(pickle.Unpickler):
    """Unpickler that makes the messages' types and arrays only: a learner's process may send anything."""

    def find_class(self, module: str, name: str) -> Any:
        if name in MESSAGES.get(module, ()) or (module.split(".")[0] == "numpy" and name in ARRAYS):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no type of a message")


def receive(pipe: Connection, most_bytes: int | None = None) -> Any:
    """Return the next message of a pipe, which is at most `most_bytes` long.

    Raises:
        EOFError, OSError: the other end is closed.
        pickle.UnpicklingError: it is no message.
    """
    data = pipe.recv_bytes(most_bytes)
    try:
        return _Reader(io.BytesIO(data)).load()
    except (EOFError, OSError, pickle.UnpicklingError):
        raise
    except Exception as error:
        raise pickle.UnpicklingError(f"no message ({type(error).__name__})") from None


def counts(told: object) -> Counter[str]:
    """Return the counters in a message of a learner's process, which may be anything."""
    items = told.items() if isinstance(told, dict) else ()
    return Counter({text: count for text, count in items if isinstance(text, str) and isinstance(count, int)})


class Nothing:
    """Type of the value that `get` returns after its timeout."""


NOTHING = Nothing()


class Queue:
    """Queue of one item."""

    def __init__(self, context: BaseContext):
        self._reader, self._writer = context.Pipe(duplex=False)
        self._room = context.Semaphore(1)
        self.replaced = 0

    def keep_reader(self) -> None:
        """Close the writing end, in the reading process before its first `get`."""
        self._writer.close()

    def keep_writer(self) -> None:
        """Close the reading end, in the writing process before its first `put`."""
        self._reader.close()

    def put(self, item: Any, timeout_s: float | None = None) -> bool:
        """Put an item, waiting for room; return False on timeout. Without a reader the item is lost."""
        if not self._room.acquire(timeout=timeout_s):
            return False
        if not self._send(item):
            self._room.release()
        return True

    def get(self, timeout_s: float) -> Any:
        """Return the next item, NOTHING on timeout, or None at the sentinel or without a writer."""
        item = self._receive(timeout_s)
        if item is not NOTHING:
            self._room.release()
        return item

    def flush(self, timeout_s: float) -> None:
        """Wait until all items are sent; a queue never holds any back."""

    def end(self) -> None:
        """Send the sentinel from main once the writer has ended, without waiting for room, and close the pipe."""
        if not self._writer.closed:
            if self._takes_more():
                self._send(None)
            self._writer.close()

    def _takes_more(self) -> bool:
        """Check whether the pipe accepts a sentinel without blocking.

        A pipe full of an incomplete item that nobody reads would block main; there the end of file acts as the sentinel.
        """
        if sys.platform == "win32":
            return True
        poll = select.poll()
        poll.register(self._writer, select.POLLOUT)
        return bool(poll.poll(0))

    def empty(self) -> int:
        """Discard all items from main once the reader has ended normally; return their number."""
        taken = 0
        while (item := self.get(0.0)) is not NOTHING and item is not None:
            taken += 1
        return taken

    def abandon(self) -> None:
        """Close the reading end from main once the reader was killed: the pipe may hold an incomplete item."""
        if not self._reader.closed:
            self._reader.close()
            self._room.release()

    def _send(self, item: Any) -> bool:
        try:
            self._writer.send(item)
        except OSError:
            return False
        return True

    def _receive(self, timeout_s: float) -> Any:
        try:
            return receive(self._reader) if self._reader.poll(timeout_s) else NOTHING
        except (EOFError, OSError, pickle.UnpicklingError):
            return None

    def close(self) -> None:
        """Close both ends."""
        self._reader.close()
        self._writer.close()


class Mailbox(Queue):
    """Mailbox that keeps the newest item until the reader requests one; only requested items enter the pipe."""

    def __init__(self, context: BaseContext):
        super().__init__(context)
        self._room = context.Semaphore(0)  # released by the reader to request an item
        self._requested = False
        self._thread: threading.Thread | None = None

    def put(self, item: Any, timeout_s: float | None = None) -> bool:
        """Replace the item without blocking; return True."""
        if self._thread is None:
            self._slot, self._news = NOTHING, threading.Condition()
            self._thread = threading.Thread(target=self._deliver, name="mailbox", daemon=True)
            self._thread.start()
        with self._news:
            self.replaced += self._slot is not NOTHING
            self._slot = item
            self._news.notify_all()
        return True

    def get(self, timeout_s: float) -> Any:
        if not self._requested:
            self._requested = True
            self._room.release()
        item = self._receive(timeout_s)
        if item is not NOTHING:
            self._requested = False
        return item

    def flush(self, timeout_s: float) -> None:
        """Wait until the last item put was fetched."""
        if self._thread is not None:
            with self._news:
                self._news.wait_for(lambda: self._slot is NOTHING, timeout_s)

    def _deliver(self) -> None:
        while True:
            self._room.acquire()
            with self._news:
                self._news.wait_for(lambda: self._slot is not NOTHING)
                item = self._slot
            if not self._send(item):
                self._room.release()
            with self._news:
                if self._slot is item:
                    self._slot = NOTHING
                self._news.notify_all()


FLUSH_S = 5.0  # s for the last items to be fetched (chosen)


@dataclass(frozen=True)
class Step:
    """Message to main: a step of the flight."""

    report: Report
    command: Command | Unreadable | None


@dataclass(frozen=True)
class Frame:
    """Message to main: an image of the display, for browsers."""

    jpeg: bytes


@dataclass(frozen=True)
class Failed:
    """Message to main: an uncaught exception."""

    cause: str  # one line
    traceback: str


@dataclass(frozen=True)
class CounterReport:
    """Last message to main: the worker's counters."""

    counters: dict[str, int]
    mistakes: dict[str, int]  # in boxes and places, by a text with {} for their number


@dataclass
class Desk:
    """Connections of one worker, created by main."""

    place: int  # index into `lights`
    source: Queue
    sinks: tuple[Queue, ...]
    lights: Any  # shared: monotonic time (s) since which each worker has been busy; 0 when idle
    counters: Counter[str] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)
    nothing = NOTHING

    def open(self, main: Connection) -> None:
        """Take the pipe to main and close unused ends of the edges, first thing in the worker's process."""
        self._main = main
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
            self._main.send(news)

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
        self.tell(CounterReport(dict(self.counters), dict(+self.mistakes)))
