"""Connections between two processes: a queue of one item, or a mailbox that keeps the newest item.

A queue of one loses nothing: `put` blocks until there is room. `put` to a mailbox never blocks: an item not fetched in time is
replaced and counted. Each edge has one writer and one reader at a time, each with only its own end of the pipe open, so that a
process killed in the middle of an item blocks no other. None is the sentinel: nothing follows.
"""

import select
import sys
import threading
from multiprocessing.context import BaseContext
from typing import Any

POLL_S = 0.1  # s, period of polling (chosen)


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
            return self._reader.recv() if self._reader.poll(timeout_s) else NOTHING
        except (EOFError, OSError):
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
