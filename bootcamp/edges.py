"""Messages between main and the workers of a flight, and a worker's desk with its pipe to main and its counters.

All goes through main: a worker asks for an item, and main passes on the bytes of another worker's, unread, so that a process
that is killed or hangs in the middle of an item holds up no other. No bytes are the sentinel: nothing follows.
"""

import contextlib
import io
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from gate_racer.bootcamp.api import Command, Report, Unreadable

# First bytes of what main receives; other messages are pickles, which begin with 0x80.
ASK, BUSY, ITEM = b"a", b"b", b"i"
SENTINEL = b""  # what a worker receives last
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
    return unpacked(pipe.recv_bytes(most_bytes))


def unpacked(data: bytes) -> Any:
    """Return the message in these bytes. Raises UnpicklingError if they are none."""
    try:
        return _Reader(io.BytesIO(data)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:
        raise pickle.UnpicklingError(f"no message ({type(error).__name__})") from None


def counts(told: object) -> Counter[str]:
    """Return the counters in a message of a learner's process, which may be anything."""
    items = told.items() if isinstance(told, dict) else ()
    return Counter({text: count for text, count in items if isinstance(text, str) and isinstance(count, int)})


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


NOTHING: Any = object()  # what `get` returns after its timeout


@dataclass
class Desk:
    """Connection of one worker to main, in the worker's process."""

    main: Connection
    counters: Counter[str] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)
    asked: bool = False  # an item was asked for and has not come

    def get(self, timeout_s: float | None = None) -> Any:
        """Return the next item; None at the sentinel or without main, NOTHING after timeout_s."""
        try:
            if not self.asked:
                self.main.send_bytes(ASK)
                self.asked = True
            if not self.main.poll(timeout_s):
                return NOTHING
            data, self.asked = self.main.recv_bytes(), False
            return None if data == SENTINEL else unpacked(data[len(ITEM) :])
        except (EOFError, OSError, pickle.UnpicklingError):
            return None

    def __iter__(self) -> Iterator[Any]:
        """Yield the items up to the sentinel."""
        while (item := self.get()) is not None:
            yield item

    def put(self, item: Any) -> None:
        """Send an item for the next workers to main. Raises OSError without main."""
        self.main.send_bytes(ITEM + pickle.dumps(item))

    def tell(self, news: Any) -> None:
        """Send a message to main, if it still runs."""
        with contextlib.suppress(OSError):
            self.main.send(news)

    def busy(self) -> None:
        """Tell main that the worker is busy until it asks for an item."""
        with contextlib.suppress(OSError):
            self.main.send_bytes(BUSY)

    def leave(self) -> None:
        """Report the counters."""
        self.tell(CounterReport(dict(self.counters), dict(+self.mistakes)))
