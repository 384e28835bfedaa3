"""What connects two workers: a queue of one, or a mailbox that keeps the newest.

A queue of one never loses anything: who puts waits for room. In a mailbox who puts never waits: what was not fetched in
time is replaced and counted. Each edge has one writer and one reader at a time, each with its own end of the pipe only, so that
one that is killed within an item leaves nobody waiting. None is the sentinel: nothing follows.
"""

import select
import sys
import threading
from multiprocessing.context import BaseContext
from typing import Any

POLL_S = 0.1


class Nothing:
    """What `get` returns when nothing has come."""


NOTHING = Nothing()


class Queue:
    """Room for one item."""

    def __init__(self, context: BaseContext):
        self._reader, self._writer = context.Pipe(duplex=False)
        self._room = context.Semaphore(1)
        self.replaced = 0

    def keep_reader(self) -> None:
        """In the process that reads, before it does."""
        self._writer.close()

    def keep_writer(self) -> None:
        """In the process that writes, before it does."""
        self._reader.close()

    def put(self, item: Any, timeout_s: float | None = None) -> bool:
        """Waits for room. False when there was none in time; where nobody reads any more, the item is lost."""
        if not self._room.acquire(timeout=timeout_s):
            return False
        if not self._send(item):
            self._room.release()
        return True

    def get(self, timeout_s: float) -> Any:
        """The next item, or NOTHING; None as well when nobody writes any more."""
        item = self._receive(timeout_s)
        if item is not NOTHING:
            self._room.release()
        return item

    def flush(self, timeout_s: float) -> None:
        """Waits until all is on its way; a queue has nothing left behind."""

    def end(self) -> None:
        """The sentinel, from main, once the writer has ended; it needs no room. A message that broke off ends as well."""
        if not self._writer.closed:
            if self._takes_more():
                self._send(None)
            self._writer.close()

    def _takes_more(self) -> bool:
        """Whether the pipe takes a sentinel at once. One full of half an item that nobody reads would hold main for ever: there
        the end of the file tells the same."""
        if sys.platform == "win32":
            return True
        poll = select.poll()
        poll.register(self._writer, select.POLLOUT)
        return bool(poll.poll(0))

    def empty(self) -> int:
        """Takes all that is there, from main, once the reader has ended in order. Returns how much that was."""
        taken = 0
        while (item := self.get(0.0)) is not NOTHING and item is not None:
            taken += 1
        return taken

    def abandon(self) -> None:
        """Nobody reads any more, from main, once the reader was killed: what is in the pipe may be half an item."""
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
        self._reader.close()
        self._writer.close()


class Mailbox(Queue):
    """Keeps the newest item until the reader asks: an item in the pipe is one that somebody waits for."""

    def __init__(self, context: BaseContext):
        super().__init__(context)
        self._room = context.Semaphore(0)  # released by the reader that wants an item
        self._asked = False
        self._thread: threading.Thread | None = None

    def put(self, item: Any, timeout_s: float | None = None) -> bool:
        """Never waits."""
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
        if not self._asked:
            self._asked = True
            self._room.release()
        item = self._receive(timeout_s)
        if item is not NOTHING:
            self._asked = False
        return item

    def flush(self, timeout_s: float) -> None:
        """Waits until the last item put was fetched."""
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
